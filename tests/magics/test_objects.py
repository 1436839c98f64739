#!/usr/bin/env python3
"""Objects and functions between notebook and ranks; completion; what is imported and what not."""

import subprocess
import sys
import time

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "numpy")


def test_objects():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        nb.ok(
            "import numpy as np, torch\na = np.arange(200_000.).reshape(400, 500)\n"
            "t = torch.arange(6.).reshape(2, 3)\nb = torch.ones(70_000, dtype=torch.bfloat16)\n"
            "g = torch.ones(3, requires_grad=True)\nm = torch.nn.Linear(300, 300)\n"
            "d = {'a': a, 'list': [1, 'x', None]}\nf = a[::2].T"
        )
        nb.ok("%dipush a t b g m d f")
        nb.ok(
            "%%dip\nimport numpy as np, torch\n"
            "assert (a == np.arange(200_000.).reshape(400, 500)).all() and a.flags.writeable\n"
            "a[0, 0] = rank + 1\nassert t.tolist() == [[0, 1, 2], [3, 4, 5]] and b.sum() > 0\n"
            "assert b.dtype is torch.bfloat16 and g.requires_grad and d['list'] == [1, 'x', None]\n"
            "assert m(torch.ones(300)).shape == (300,) and f.shape == (500, 200)"
        )
        nb.ok("%dipull -r 1 a t b g m d f")
        nb.ok(
            "assert a[0, 0] == 2 and a[1, 1] == 501 and a.flags.writeable\n"
            "assert t.tolist() == [[0, 1, 2], [3, 4, 5]] and b.dtype is torch.bfloat16\n"
            "assert g.requires_grad and m(torch.ones(300)).shape == (300,)\n"
            "assert f.shape == (500, 200)"
        )
        nb.ok("import threading\nlk = {'ok': 1, 'held': [threading.Lock()]}")
        name, value, _ = nb.run("%dipush lk").error
        assert name == "DipError" and "lk['held'][0]" in value, value
        assert "no variable nix" in nb.run("%dipush nix").error[1]
        assert "no variable nix" in nb.run("%dipull nix").error[1]


def test_functions():
    with notebook.notebook("%load_ext ddip", "%makedip", "%%dip everywhere\nimport os") as nb:
        nb.ok(
            "import math\nbase = 10\ndef helper(x): return math.floor(x)\n"
            "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n > 0 and even(n - 1)\n"
            "def use(x, *, k=2):\n    'says'\n    return helper(x) * k, there, rank\n"
            "def outer(n):\n    def inner(x): return n and inner(None) if x is None else n + x\n"
            "    return inner\nadd = outer(5)\ntwice = lambda v: v * 2\n"
            "class Point:\n    def __init__(self, x): self.x = x\n"
            "    def far(self): return helper(self.x)\np = Point(2.5)"
        )
        nb.ok("%%dip\nthere = 'there'")
        nb.ok("%dipush use even add twice p")
        assert (
            nb.ok("%%dip\nuse(3.7), use.__doc__").data()[0].endswith("((3, 'there', 0), 'says')")
            is False
        ), "k=2 counts"
        assert nb.ok("%%dip\nuse(3.7), use.__doc__").data()[0].endswith("((6, 'there', 0), 'says')")
        assert (
            nb.ok("%%dip\neven(4), even(3), add(1), twice(4)")
            .data()[0]
            .endswith("(True, False, 6, 8)")
        )
        assert nb.ok("%%dip\np.far()").data()[0].endswith("2")


def test_big():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        said = nb.ok(
            "import numpy as np, resource\nx = np.ones(1 << 27)\n"
            "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
            "before = peak()\nget_ipython().run_line_magic('dipush', 'x')\n"
            "print(peak() - before)"
        )
        assert int(said.text()) < 100, "MiB more in the notebook: no copy"
        nb.ok("assert 'torch' not in __import__('sys').modules, 'the magics import no torch'")
        said = nb.ok(
            "del x\nbefore = peak()\nget_ipython().run_line_magic('dipull', 'x')\n"
            "assert x.sum() == 1 << 27\nprint(peak() - before)"
        )
        assert int(said.text()) < 100, "MiB more than the one copy that was there before"


def test_completion():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        nb.ok("%%dip\nclass Thing:\n    'of the ranks'\n    shiny = 1\nremote_thing = Thing()")

        def matches(code):
            # what a complete_request is answered with
            call = f"get_ipython().kernel.do_complete({code!r}, {len(code)})['matches']"
            return nb.ok(call).data()[0]

        assert "remote_thing" in matches("%%dip\nremote_t")
        assert "shiny" in matches("%%dip\nremote_thing.s")
        nb.ok(
            "%%dip\nimport json as js\nimport torch\nclass Inner:\n    def turn(self, angle):\n"
            "        'turns it'\n    @property\n    def costly(self): raise SystemExit\n"
            "remote_thing.inner = Inner()\nmodel = torch.nn.Linear(2, 2)"
        )
        for code, name in {
            "js.du": "dumps",
            "js.decoder.JSOND": "JSONDecoder",
            "remote_thing.inner.tu": "turn",
            "model.weight.req": "requires_grad",
            "js.dumps.__na": "__name__",
            "torc": "torch",
        }.items():
            assert f"'{name}'" in matches(f"%%dip\nx = {code}"), code
        assert "real" not in matches("%%dip\nremote_thing.inner.costly.re"), "it was computed"
        assert matches("%%dip\nlist()[0].js.du") == "[]", "the module is another object's attribute"
        assert "'remote_thing'" in matches("%dipull remo")
        assert "remote_thing" not in matches("remote_t")
        assert "remote_thing" not in matches("%%dip local\nremote_t")
        nb.ok("%autodip on")
        code = "remote_thing.sh"
        call = f"%%dip local\nget_ipython().kernel.do_complete({code!r}, 15)['matches']"
        assert "shiny" in nb.ok(call).data()[0]
        nb.ok("%autodip off")
        code = "%%dip\nremote_thing"
        call = f"get_ipython().kernel.do_inspect({code!r}, 10)['data']['text/plain']"
        assert "of the ranks" in nb.ok(call).data()[0]
        for code, text in (("remote_thing.inner.turn(", "turns it"), ("js.dumps(", "Serialize")):
            code = f"%%dip\n{code}"
            call = f"get_ipython().kernel.do_inspect({code!r}, {len(code)})['data']['text/plain']"
            assert text in nb.ok(call).data()[0], code
        _while_a_cell_runs(nb)


def _while_a_cell_runs(nb):
    """Completes and inspects while the ranks are busy with somebody else's cell."""
    gate = nb.mount + ".gate"
    nb.submit(
        f"import os, time\nprint('begun', flush=True)\n"
        f"while not os.path.exists({gate!r}):\n    time.sleep(0.01)"
    )
    notebook.wait(lambda: nb.is_printed("begun"))
    code = "%%dip\nremote_thing.s"
    call = f"get_ipython().kernel.do_complete({code!r}, {len(code)})['matches']"
    assert "shiny" in nb.ok(call).data()[0]
    call = f"get_ipython().kernel.do_inspect({code!r}, 12)['data']['text/plain']"
    assert "of the ranks" in nb.ok(call).data()[0]
    assert "(busy)" in nb.ok("%makedip -i").text()
    with open(gate, "w"):
        pass


def test_rank_lists():
    """One grammar for all options, that of the mount."""
    sys.path.insert(0, notebook.MAGICS)
    from ddip import ranks
    from ddip.errors import DipError

    for words, want in {
        ("all",): [0, 1, 2, 3],
        ("0,2-3",): [0, 2, 3],
        ("3", "0", "1-1"): [0, 1, 3],
        ("0,", "2"): [0, 2],
    }.items():
        assert ranks.parse(words, 4) == want, words
    for wrong in ("", "4", "2-1", "0,,1", "-1", "x", "0-", "all,1", "1 2"):
        try:
            found = ranks.parse([wrong], 4)
        except DipError:
            continue
        raise AssertionError(f"{wrong!r} is {found}")
    assert ranks.spell([5, 0, 1, 2]) == "0-2,5"


def test_import():
    code = (
        "import sys, time\nt = time.perf_counter()\nimport ddip\n"
        "ms = (time.perf_counter() - t) * 1e3\n"
        "assert ms < 50, ms\nassert not {'torch', 'numpy', 'IPython'} & set(sys.modules)\n"
        "import Ddip, ddipp\nassert Ddip.load_ipython_extension is ddip.load_ipython_extension"
    )
    environment = notebook.environment_of("/nowhere")
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_latency():
    with notebook.notebook("%load_ext ddip", "%makedip", "%%dip\npass") as nb:
        said = nb.ok(
            "import time\nip = get_ipython()\ndef median(call):\n    times = []\n"
            "    for _ in range(51):\n        t = time.perf_counter()\n        call()\n"
            "        times.append(time.perf_counter() - t)\n    return sorted(times)[25] * 1e3\n"
            "print(median(lambda: ip.run_cell_magic('dip', '', 'pass\\n'))\n"
            "      - median(lambda: ip.run_cell('pass')))"
        )
        print(f"%%dip pass takes {float(said.text()):.2f} ms more than a local cell")
        assert float(said.text()) < 50, "an order of magnitude above what is meant: not noise"
        begun = time.monotonic()
        nb.ok("%%dip\nfor i in range(100_000): print(i)")
        assert time.monotonic() - begun < 20


if __name__ == "__main__":
    notebook.run(globals())
