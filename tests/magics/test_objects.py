#!/usr/bin/env python3
"""Objects and functions move between notebook and ranks; names are completed; imports work."""

import os
import subprocess
import sys
import tempfile

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
        nb.ok("%dipull -r 1 m.d/weight d.d/list")
        nb.ok("assert weight.shape == (300, 300) and globals()['list'] == [1, 'x', None]\ndel list")
        assert "'0' can be no variable here" in nb.run("%dipull d.d/list.d/0").error[1]
        nb.ok("%dipper g\nassert g['d.d/list.d/0', 1] == 1 and g['m.d/bias'].shape == (300,)")
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
        nb.ok(
            "from collections import namedtuple\nfrom typing import NamedTuple\n"
            "Pair = namedtuple('Pair', 'a b')\nclass One(NamedTuple):\n    a: int\n"
            "space = {}\nexec('def made(): return other()\\ndef other(): return 8', space)\n"
            "made, pair, one = space['made'], Pair(1, 2), One(3)\n%dipush made pair one Pair"
        )
        found = nb.ok("%%dip\nmade(), pair, one, Pair(4, 5).b").data()[0]
        assert found.endswith("(8, Pair(a=1, b=2), One(a=3), 5)"), found


_TIMED = """
import functools, logging
log = logging.getLogger("timed")
def timed(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        log.debug("begins")
        return LABEL, function(*args, **kwargs)
    return wrapper
LABEL = "the library's"
"""


def test_decorated_functions():
    """A wrapper has the globals of the module that it was written in, whatever it wraps."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "timing.py"), "w", encoding="utf-8") as file:
            file.write(_TIMED)
        find = f"import sys; sys.path.insert(0, {folder!r})"
        with notebook.notebook("%load_ext ddip", "%makedip", f"%%dip everywhere\n{find}") as nb:
            nb.ok("%%dip\nLABEL, mine = 'of the ranks', 'of the ranks, too'")
            nb.ok(
                "import functools, operator, ddip\nfrom timing import timed\n"
                "@timed\ndef there(): return rank\n"
                "@timed\ndef train(): return 'trained'\n"
                "@functools.wraps(operator.add)\ndef added(a, b): return mine, operator.add(a, b)\n"
                "class Model:\n    @timed\n    def fit(self): return 'fitted'\nmodel = Model()\n"
                "%dipush there added model"
            )
            found = nb.ok("%%dip\nthere(), added(1, 2), model.fit()").data()[0]
            library, ranks = "the library's", "of the ranks, too"
            assert found.endswith(f"{((library, 0), (ranks, 3), (library, 'fitted'))}"), found
            found = nb.ok("ddip.ranch(2, train)").data()[0]
            assert found == f"{[(library, 'trained')] * 2}", found


def test_cached_functions():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        nb.ok(
            "import functools\n"
            "@functools.lru_cache(maxsize=7)\ndef f(x): return x, rank\n"
            "@functools.cache\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
            "@functools.cache\ndef even(n): return n == 0 or odd(n - 1)\n"
            "@functools.cache\ndef odd(n): return n > 0 and even(n - 1)\n"
            "def g(): return fib(20)\n"
            "class Model:\n    @functools.lru_cache\n    def fit(self): return 5\nmodel = Model()\n"
            "%dipush f g even model"
        )
        said = nb.ok("%%dip\nf(1), f.cache_parameters()['maxsize'], g(), even(4), model.fit()")
        assert said.data()[0].endswith("((1, 0), 7, 6765, True, 5)"), said.data()
        assert nb.ok("%%dip\nfib is g.__globals__['fib'] and odd(3)").data()[0].endswith("True")
        assert nb.ok("%dipush fib\nimport ddip\nddip.ranch(2, g)").data() == ["[6765, 6765]"]


def test_annotations():
    """Functions keep their annotations, except those that cannot be pickled."""
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        nb.ok("%%dip\nclass Here: where = 'on the rank'")
        nb.ok(
            "import threading\nfrom typing import Optional\nclass Here: where = 'in the notebook'\n"
            "class New: pass\nclass Model:\n    def fit(self, n: int) -> 'Model': pass\n"
            "def f(a: int, b: Optional[New], *, c: New, d: Here) -> list[str]: pass\n"
            "def g(a: threading.Lock(), b: str): pass\n"
            "def again(x: Model): pass\nModel.again, model = again, Model()\n"
            "%dipush f g model again"
        )
        nb.ok(
            "%%dip\nimport functools, typing\nhints = typing.get_type_hints(f)\n"
            "assert hints['a'] is int and hints['return'] == list[str], hints\n"
            "assert hints['b'] == typing.Optional[New] and hints['c'] is New, hints\n"
            "assert hints['d'] is Here and Here.where == 'on the rank', hints\n"
            "assert g.__annotations__ == {'b': str}, g.__annotations__\n"
            "assert model.fit.__annotations__ == {'n': int, 'return': 'Model'}\n"
            "assert again.__annotations__['x'] is type(model), again.__annotations__\n"
            "functools.singledispatch(f).register(f)"
        )


def test_interrupted_push():
    """A push interrupted within its bytes reports that, and leaves the variable unchanged."""
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        nb.ok("a = 1\n%dipush a\nfrom ddip.mounts import files\nwhole = files.write_all")
        nb.ok(
            "a = 2\ndef stop(file, data):\n    whole(file, data)\n    raise KeyboardInterrupt\n"
            "files.write_all = stop"
        )
        error = nb.run("%dipush a").error
        assert error[0] == "KeyboardInterrupt", error[2]
        nb.ok("files.write_all = whole")
        assert nb.ok("%%dip\na").data()[0].endswith("1")


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


def test_forked():
    """What a forked child writes into a pulled array stays its own."""
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        nb.ok("%%dip\nimport torch\na = torch.zeros(70_000)")
        nb.ok(
            "import os\nimport torch\n%dipull a\npid = os.fork()\nif pid == 0:\n"
            "    a += 1\n    os._exit(0)\nos.waitpid(pid, 0)\nassert a.sum() == 0, a.sum()"
        )


def test_completion():
    # a user waits a second; on a busy machine completion takes longer
    patient = f"from ddip.notebook import complete\ncomplete._PATIENCE_S = {notebook.HANG_LIMIT_S}"
    with notebook.notebook("%load_ext ddip", "%makedip", patient) as nb:
        nb.ok("%%dip\nclass Thing:\n    'of the ranks'\n    shiny = 1\nremote_thing = Thing()")

        def matches(code):
            # the reply to a complete_request
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
        for line in ("%dip remote_t", "r = %dip remote_t", "x = 1\n%dip -S all remote_t"):
            assert "remote_thing" in matches(line), line
        assert "shiny" in matches("r = %dip remote_thing.s")
        assert "shiny" in matches("d['r'] = %dip remote_thing.s")
        for line in ("%dip --push remote_t", "%dip --scatter remote_t", "%dip local remote_t"):
            assert "remote_thing" not in matches(line), line
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


def test_completion_without_a_group():
    """Where a cell would fail because there are several mounts, the notebook's own names remain."""
    with notebook.notebook("%load_ext ddip") as nb:
        nb.ok(
            "import os\nfrom ddip.mounts import where\nos.environ.pop('DDIP_MOUNT', None)\n"
            "where.mounts = lambda: {'/a': 'a', '/b': 'b'}\nwhere.is_mounted = lambda path: True"
        )
        assert "several mounts" in nb.run("%%dip\n1").error[1]
        for code in ("%%dip\nsorted", "%dipull sorted"):
            call = f"get_ipython().kernel.do_inspect({code!r}, {len(code)})['data']['text/plain']"
            assert "Return a new list" in nb.ok(call).data()[0]
            call = f"get_ipython().kernel.do_complete({code!r}, {len(code)})['matches']"
            out = nb.ok(call)
            assert "'sorted'" in out.data()[0] or code.startswith("%dipull")
            assert "Traceback" not in out.text() + out.text("stderr"), out.outputs


def _while_a_cell_runs(nb):
    """Completes and inspects while the ranks run another client's cell."""
    gate = nb.gate
    nb.submit(
        f"import os, time\nprint('begun', flush=True)\n"
        f"while not os.path.exists({gate!r}):\n    time.sleep(0.01)"
    )
    notebook.until(lambda: nb.is_printed("begun"))
    code = "%%dip\nremote_thing.s"
    call = f"get_ipython().kernel.do_complete({code!r}, {len(code)})['matches']"
    assert "shiny" in nb.ok(call).data()[0]
    call = f"get_ipython().kernel.do_inspect({code!r}, 12)['data']['text/plain']"
    assert "of the ranks" in nb.ok(call).data()[0]
    assert "(busy)" in nb.ok("%makedip -i").text()
    nb.open_gate()


def test_rank_lists():
    """All options share one grammar, that of the mount."""
    sys.path.insert(0, notebook.MAGICS)
    from ddip import ranks
    from ddip.errors import DipError

    for words, want in {
        ("all",): [0, 1, 2, 3],
        ("0,2-3",): [0, 2, 3],
        ("3", "0", "1-1"): [0, 1, 3],
        ("0,", "2"): [0, 2],
        ("::2",): [0, 2],
        ("[0:4:3]",): [0, 3],
        ("[0,", "2]"): [0, 2],
        ("1:",): [1, 2, 3],
    }.items():
        assert ranks.parse(words, 4) == want, words
    for wrong in ("", "4", "2-1", "0,,1", "-1", "x", "0-", "all,1", "1 2"):
        try:
            found = ranks.parse([wrong], 4)
        except DipError:
            continue
        raise AssertionError(f"{wrong!r} is {found}")
    assert ranks.spell([5, 0, 1, 2]) == "0-2,5"


def test_lines():
    """The line of %dip: options, then the code."""
    sys.path.insert(0, notebook.MAGICS)
    from ddip.notebook import magics, options

    parser = magics.DdipMagics.dip.parser
    for line, want in {
        "print(rank)": ("", "print(rank)"),
        "-S all print( 'a  b' )": ("-S all", "print( 'a  b' )"),
        "-S 0 1 x = 5": ("-S 0 1", "x = 5"),
        "--ranks 0,2-3 ::2 f()": ("--ranks 0,2-3 ::2", "f()"),
        "--targets=1 -q f()": ("--targets=1 -q", "f()"),
        "-g other --noblock -- -x": ("-g other --noblock", "-x"),
        "-p a b": ("-p a b", ""),
        "--replay": ("--replay", ""),
        "--replay 3": ("--replay 3", ""),
        "local -a 'progress all' [1, 2]": ("local -a 'progress all'", "[1, 2]"),
        "-S all": ("-S all", ""),
        "-S all 3 + rank": ("-S all", "3 + rank"),
    }.items():
        assert options.split(parser, line) == want, (line, options.split(parser, line))


def test_group():
    """ddip.group() does from any program what a notebook's magics do; the magics' options too."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 3", own=True) as nb:
        nb.ok(
            "import ddip, numpy as np\ng = ddip.group()\ng['x'] = [1, 2]\ng['x', 1] = 5\n"
            "assert g['x'] == [1, 2] and g['x', 1] == 5 and g.pull(['x'], 2) == {'x': [1, 2]}\n"
            "assert g.run('rank * 10') == 0 and g.run('rank', see='all') == {0: 0, 1: 1, 2: 2}\n"
            "assert g.run('rank', ranks=[2]) == 2 and len(g.ranks()) == 3\n"
            "assert g.status()['state'] == 'idle'\ng.scatter('part', np.arange(7))\n"
            "assert g['part', 2].tolist() == [5, 6] and g.gather('part').tolist() == list(range(7))"
        )
        nb.ok("words = list('abcde')\nt = (1, 2, 3)")
        assert nb.ok("%%dip --scatter words t -S all\nwords, t").data() == [
            f"Out[{k}:4]: {value}"
            for k, value in enumerate([(["a", "b"], (1,)), (["c", "d"], (2,)), (["e"], (3,))])
        ]
        nb.ok("%dip --ranks 1 words.append('z')")
        nb.ok("%dip --gather words t")
        assert nb.ok("words, t").data() == ["(['a', 'b', 'c', 'd', 'z', 'e'], (1, 2, 3))"]
        assert "a dict" in nb.run("d = {}\n%dip --scatter d").error[1]
        assert nb.ok("%dip -S 1 rank").data() == ["Out[1:6]: 1"]
        assert "ranks 0-2" in nb.ok("%dip -S all").text()
        assert len(nb.ok("%%dip\nrank").data()) == 3 and len(nb.ok("%dip -S 0 rank").data()) == 1
        nb.ok("%dip -S 0")
        assert nb.ok("%dip --targets 0:3:2 rank").data() == ["Out[0:9]: 0"]
        os.mkdir(f"{nb.mount}/two")
        assert "no group" in nb.run("%dip -g three 1").error[1]
        with open(f"{nb.mount}/two/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("size 1\n")
        assert nb.ok("%dip -g two world_size").data() == ["Out[0:1]: 1"]
        assert nb.ok("%dip world_size").data() == ["Out[0:10]: 3"]
        assert "two" in nb.ok("%dip -g two").text()
        assert nb.ok("%%dip\nworld_size").data() == ["Out[0:2]: 1"]
        nb.ok("%dip -g group")
        _detached(nb)


def _detached(nb):
    gate = nb.gate
    code = f"import os, time\nwhile not os.path.exists({gate!r}): time.sleep(0.01)\nprint(5); rank"
    nb.ok(f"cell = get_ipython().run_cell_magic('dip', '-S all --noblock', {code!r})")
    said = nb.ok("print(cell.wait(0), cell.done(), cell)").text()
    assert said.startswith("False False <cell 11 of ") and said.endswith(": running>\n"), said
    assert nb.run("cell.result(0.01)").error[0] == "TimeoutError"
    nb.open_gate()
    assert nb.ok("cell.result()").data() == ["{0: 0, 1: 1, 2: 2}"]
    assert nb.ok("cell.show()").text() == "".join(f"[{k}] 5\n" for k in range(3))
    nb.ok("cell = %dip --noblock import time; time.sleep(100)")
    nb.ok("cell.interrupt()")
    assert nb.run("cell.result()").error[0] == "KeyboardInterrupt"
    assert nb.run("%dip --noblock 1 / 0").error is None
    assert nb.run("_.result()").error[1] == "ZeroDivisionError(division by zero)"


def test_forgotten_cell():
    """A cell that has left the history, or whose group is gone, is said to have."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 1") as nb:
        path = f"{nb.mount}/brief"
        os.mkdir(path)
        with open(f"{path}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("size 1\nhistory 1\nstart\n")
        nb.ok("cell = %dip -g brief --noblock 1")
        nb.ok("cell.wait()\ngroup = cell._cell.group")
        for _ in range(2):
            nb.ok("%dip -g brief 2")
        ways = {"cell.state", "cell.wait()", "cell.done()", "cell.result()", "cell.show()"}
        for way in ways:
            name, value, text = nb.run(way).error
            assert name == "DipError" and " in the history of /" in value, text
        assert nb.ok("cell").data()[0].endswith("/brief: gone>")
        nb.ok("cell.interrupt()")
        with open(f"{path}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("stop\n")
        os.rmdir(path)
        ways = (ways | {"group.run('1', see='all')", "group.run('1', ranks=0)"}) - {"cell.show()"}
        for way in ways:
            name, value, text = nb.run(way).error
            wanted = "GroupGone" if way.startswith("group.") else "DipError"
            assert name == wanted and "gone" in value, text
        assert nb.ok("cell").data()[0].endswith("/brief: gone>")


def test_import():
    code = (
        "import sys\nimport ddip\nassert not {'torch', 'numpy', 'IPython'} & set(sys.modules)\n"
        "import Ddip, ddipp\nassert Ddip.load_ipython_extension is ddip.load_ipython_extension"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": notebook.MAGICS}, check=True)


if __name__ == "__main__":
    notebook.run(globals())
