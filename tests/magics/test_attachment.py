#!/usr/bin/env python3
"""Cells run on the group that they ran on before: what happens once it is gone."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient")

# The tests that run at the same time mount, too.
ONLY_HERE = """
import os
from ddip.mounts import where
os.environ.pop('DDIP_MOUNT')
del os.environ['DDIP_GROUP']
plain = where.mounts
where.mounts = lambda: {path: name for path, name in plain().items() if path.startswith(FOLDER)}
"""


@contextlib.contextmanager
def daemon(path):
    """A daemon on path with a group of one rank, until the end or until this is called."""
    notebook.need_mount()
    os.makedirs(path, exist_ok=True)
    words = ["-f", "-o", f"size=1,python={notebook.PYTHON}", path]
    process = subprocess.Popen([os.path.join(notebook.BUILD, "ddipfs"), *words])

    def end():
        process.send_signal(signal.SIGTERM)
        process.wait()
        notebook.until(lambda: not os.path.ismount(path) and not notebook.is_served(path))

    try:
        notebook.until(lambda: os.path.ismount(path))
        notebook.until(lambda: os.path.exists(f"{path}/group/ctl"))
        write(f"{path}/group/ctl", "start")
        yield end
    finally:
        end()


def write(path, line):
    """Writes a line to a file of a mount."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{line}\n")


@contextlib.contextmanager
def two_places():
    """(a notebook that knows no mount yet, two paths to mount on)."""
    with tempfile.TemporaryDirectory() as folder:
        with notebook.Notebook(os.path.join(folder, "none"), {}, "group", folder) as nb:
            nb.ok(f"%load_ext ddip\nFOLDER = {folder!r}\n{ONLY_HERE}")
            yield nb, os.path.join(folder, "one"), os.path.join(folder, "two")


def completions(nb, code):
    """The completions of a cell."""
    call = f"get_ipython().kernel.do_complete({code!r}, {len(code)})['matches']"
    return nb.ok(call).data()[0]


def refused(nb, source):
    """The text with which a cell is refused."""
    name, value, text = nb.run(source).error
    assert name == "DipError", text
    return value


def test_chosen_group():
    """A group that -g chose and that is removed is missed, until it is there again."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 1", "%%dip\nkept = 1") as nb:
        path = f"{nb.mount}/chosen"
        os.mkdir(path)
        write(f"{path}/ctl", "size 1\nstart")
        nb.ok("%dip -g chosen")
        nb.ok("%%dip\nkept = 2")
        write(f"{path}/ctl", "stop")
        os.rmdir(path)
        assert "kept" not in completions(nb, "%%dip\nkep")
        for source in ("%%dip\nkept = 3", "%%dip -S all\nkept = 3", "%dipull kept", "%dip -S all"):
            assert f"{path} is gone: " in refused(nb, source), source
        assert nb.ok(f"%%dip -g {os.path.basename(nb.group)}\nkept").data()[0].endswith("1")
        os.mkdir(path)
        assert "NameError" in nb.run("%%dip\nkept").error[1], "the group of that name is new"
        nb.ok("%makedip -k")
        assert nb.status()["state"] == "idle", "-k ends the group that was chosen"
        nb.ok("%dip -g chosen")
        write(f"{path}/ctl", "stop")
        os.rmdir(path)
        assert f"Attached to {nb.group}: " in nb.ok("%makedip").text()
        assert nb.ok("%%dip\nkept").data()[0].endswith("1")


def test_left_group():
    """A group that a notebook has made ends when it is unused, and says what it keeps."""
    with notebook.notebook("%load_ext ddip", own=True) as nb:
        made = nb.ok("%makedip -n 2").text()
        assert "ends after 2 h without a cell" in made, made
        assert "idle 7200\n" in open(f"{nb.group}/ctl", encoding="utf-8").read()
        assert nb.ok("%makedip -n 2").text().endswith("idle, 2 CPU ranks\n")
        nb.ok("%%dip\na = b = 1")
        said = nb.ok("%makedip -n 2").text()
        assert said.endswith("idle, 2 CPU ranks; keeps 2 variables (%makedip -r starts anew)\n"), (
            said
        )
        with nb.other() as again:
            again.ok(
                "%load_ext ddip\nfrom ddip.notebook import attachment\nimport time\n"
                "class Later:\n    time = staticmethod(lambda: time.time() + 3 * 3600)\n"
                "attachment.time = Later"
            )
            said = again.ok("%makedip").text()
            assert re.search(r"idle, 2 CPU ranks, [\d.]+ GiB of memory, idle for 3 h", said), said
            assert "keeps 2 variables" in said and "ends after" not in said, said
        begun = nb.begin("%%dip\nimport time\nprint('begun', flush=True)\ntime.sleep(2)")
        nb.until(begun, "begun")
        write(f"{nb.group}/ctl", "idle 1")
        assert nb.finish(begun).error is None, "a running cell is not idle"
        notebook.until(lambda: nb.status()["state"] == "stopped")


def test_wrong_option():
    """A long option that there is not is no code."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 1") as nb:
        assert "%dip has no option --foo" in refused(nb, "%dip --foo print(1)")
        assert nb.ok("%dip -- --3").data() == ["Out[0:1]: 3"]
        assert nb.ok("%dip -(3)").data() == ["Out[0:2]: -3"]


def test_chosen_mount():
    """The same for a mount that -m chose, though there is another one."""
    with two_places() as (nb, one, two), daemon(two):
        with daemon(one) as end:
            nb.ok(f"%makedip -m {one}")
            nb.ok("%%dip\nkept = 1")
            nb.ok(f"%makedip -k -m {nb.folder}/nothing")
            assert nb.ok("%%dip\nkept").data()[0].endswith("1"), "it is still chosen"
            end()
            for _ in range(2):
                assert f"{one}/group is gone: " in refused(nb, "%%dip\nkept = 2")
        with daemon(one):
            nb.ok("%%dip\nkept = 3")
            assert nb.ok("%%dip\nkept").data()[0].endswith("3"), "it is there again"
        assert f"Attached to {two}/group: " in nb.ok("%makedip").text()


def test_found_mount():
    """A mount that was found is replaced by the next one, which is said; not by a completion."""
    with two_places() as (nb, one, two):
        with daemon(one):
            nb.ok("%dip -S 0\n%makedip -v")
            nb.ok("%%dip\nkept = 1")
            assert "kept" in completions(nb, "%%dip\nkep")
        assert "there is no DDP group" in refused(nb, "%%dip\n1")
        with daemon(two) as end:
            write(f"{two}/group/cell", "other = 1")
            completions(nb, "%%dip\noth")
            said = nb.ok("%dipull other").text()
            assert said.startswith(f"The group {one}/group is gone. Cells run on {two}/group\n")
            assert f"Attached to {two}/group: " in said, said
            assert "Attached" not in nb.ok("%%dip\nprint(other)").text(), "it is said once"
            end()
        with daemon(two):
            said = nb.ok("%%dip\nprint('again')").text()
            assert "gone" not in said and said.endswith("again\n"), "at the same place"


def test_end_in_a_cell():
    """A cell whose mount ends is not run again on another one."""
    with two_places() as (nb, one, two), daemon(one) as end:
        nb.ok("%%dip\nkept = 1")
        with daemon(two):
            begun = nb.begin("%%dip\nimport time\nprint('be' + 'gun')\ntime.sleep(10_000)")
            nb.until(begun, "begun")
            end()
            name, value, _ = nb.finish(begun).error
            assert name == "DipError" and "gone" in value, (name, value)
            assert "cell 0" in open(f"{two}/group/status", encoding="utf-8").read()


if __name__ == "__main__":
    notebook.run(globals())
