#!/usr/bin/env python3
"""Each private name that the magics use is taken away, as if IPython, ipykernel or Python had
renamed it: what is lost is what its row of the register says, and `%makedip -i` says it."""

import os
import sys

import notebook

notebook.need("nbclient", "ipykernel")

HIDE = """
import builtins, sys
real = builtins.getattr
def getattr_without(owner, name, *default):
    if name == {name!r} and sys._getframe(1).f_globals["__name__"] == "ddip.patches":
        if default:
            return default[0]
        raise AttributeError(name)
    return real(owner, name, *default)
builtins.getattr = getattr_without
"""


def traceback_once(nb):
    done = nb.run("%%dip local\nraise ValueError('mine')")
    assert done.error[0] == "ValueError", done.error
    return sum(output.output_type == "error" for output in done.outputs) == 1


def remote_help(nb):
    found = r"get_ipython().kernel.do_inspect('%%dip\ntheirs', 9)['data'].get('text/plain', '')"
    return "a docstring" in nb.ok(f"#dip_locally\nprint({found})").text()


def options_of_dip(nb):
    done = nb.run("%dip --see 1 print('seen')")
    assert (done.error is None) == (done.text() == "seen\n"), done.error
    return done.error is None


def shutdown_is_noticed(nb):
    looks = "with shutdown.noticed(get_ipython()) as leaves: print(leaves is not None)"
    return nb.ok(f"#dip_locally\nfrom ddip.cells import shutdown\n{looks}").text() == "True\n"


SCENES = {
    "ZMQInteractiveShell._showtraceback": traceback_once,
    "Kernel.do_inspect": remote_help,
    "Kernel.do_shutdown": shutdown_is_noticed,
    "ArgumentParser._option_string_actions": options_of_dip,
}


def check_without(row):
    hide = HIDE.format(name=row.path.rpartition(".")[2] if row else "")
    with notebook.notebook(hide, "%load_ext ddip") as nb:
        nb.ok('%%dip\ndef theirs():\n    """a docstring"""')
        for path, works in SCENES.items():
            assert works(nb) == (row is None or path != row.path), (row and row.name, path)
        assert nb.ok("%%dip --see 1\nprint('seen', rank)").text() == "seen 1\n"
        info = nb.ok("%makedip -i").text().splitlines()
        said = [line for line in info if line.startswith("patch_")]
        assert said == ([f"patch_missing {row.name}: {row.lost}"] if row else []), said


def test_without_names():
    sys.path.insert(0, os.path.join(notebook.ROOT, "magics"))
    from ddip import patches

    rows = [row for row in patches.ROWS.values() if row.kind == patches.MAGICS]
    assert {row.path for row in rows} == set(SCENES), "a scene for each"
    for row in [None, *rows]:
        check_without(row)


if __name__ == "__main__":
    notebook.run(globals())
