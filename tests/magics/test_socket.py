#!/usr/bin/env python3
"""Objects work with the group's files behind a socket, and `%makedip` finds it where nothing can
be mounted."""

import os
import sys
import tempfile

os.environ["DDIP_TEST_SOCKET"] = "1"

import notebook
import test_objects


def test_interrupted():
    """Ctrl-C after part of a reply was read is a KeyboardInterrupt, whatever that part is."""
    sys.path.insert(0, notebook.MAGICS)
    from ddip.mounts import p9

    path = f"{notebook.shared_mount()}.sock"
    interrupted = 0
    for last in range(1, 6):
        connection = p9.Connection(path)
        plain, left = connection._receive_some, iter(range(last))

        def receive(view, plain=plain, left=left):
            count = plain(view)
            if next(left, None) is None:
                raise KeyboardInterrupt
            return count

        connection._receive_some = receive
        try:
            connection.open("group/status", os.O_RDONLY, 0)
            connection.walk("group/cells")
        except KeyboardInterrupt:
            interrupted += 1
        connection.close()
    assert interrupted, "nothing was taken in so many parts"


def test_interrupted_write():
    """Ctrl-C within a message ends the write at once; what was written has no effect."""
    sys.path.insert(0, notebook.MAGICS)
    from ddip.mounts import files, p9

    root = f"{notebook.shared_mount()}.sock"
    assert files.learn(root)
    path, flags = f"{root}/group/vars/torn.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC

    def write(data):
        with files.open_(path, flags) as file:
            files.write_all(file, data)

    write(b"1")
    plain = p9.Connection._send_some

    def send_part(self, parts):
        if len(parts[-1]) < 1000:
            return plain(self, parts)
        plain(self, [parts[0], parts[1][:500]])
        raise KeyboardInterrupt

    p9.Connection._send_some = send_part
    try:
        write(b"2" + b" " * 1000)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("it was not interrupted")
    finally:
        p9.Connection._send_some = plain
    assert files.read(path).strip() == b"1"
    write(b"3")
    assert files.read(path).strip() == b"3"


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
    mine = (test_interrupted, test_interrupted_write, test_fallback)
    names = "objects functions interrupted_push big completion completion_without_a_group group"
    objects = notebook.some(test_objects, f"{names} forgotten_cell")
    notebook.run(objects | {test.__name__: test for test in mine})
