#!/usr/bin/env python3
"""Objects where the group's files are behind a socket, and how `%makedip` comes to it where nothing
can be mounted."""

import os
import tempfile

os.environ["DDIP_TEST_SOCKET"] = "1"

import notebook
import test_objects


def test_fallback():
    with tempfile.TemporaryDirectory() as folder, notebook.place(folder) as mount:
        program = f"{folder}/ddipfs"
        with open(program, "w", encoding="utf-8") as file:
            file.write(
                "#!/bin/sh\ncase $* in\n"
                f'*" -s "*) exec {notebook.BUILD}/ddipfs "$@" ;;\n'
                "*) exit 3 ;; # nothing can be mounted\nesac\n"
            )
        os.chmod(program, 0o700)
        place = {"DDIPFS": program, "DDIP_MOUNT": mount}
        with notebook.Notebook(mount, place.items()) as nb:
            nb.ok("%load_ext ddip")
            made = nb.ok("%makedip -n 2")
            assert made.text("stderr").count(f"served at {mount}/ddip-notebook.sock") == 1
            assert nb.ok("%%dip -S all\nrank").data() == ["Out[0:1]: 0", "Out[1:1]: 1"]
            with notebook.Notebook(mount, place.items()) as other:
                other.ok("%load_ext ddip")
                assert "Attached to" in other.ok("%makedip").text(), "another notebook finds it"
            nb.ok("%makedip -k")
            assert not os.path.exists(mount), "its end takes the place with it"


if __name__ == "__main__":
    notebook.run(vars(test_objects) | {"test_fallback": test_fallback})
