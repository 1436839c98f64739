#!/usr/bin/env python3
"""Daemons that several processes or threads start at once, and when they end."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile

import notebook

notebook.need("torch")

# Counts how often it is called, and waits for the gate. $3: nothing can be mounted.
PROGRAM = """#!/bin/sh
echo begun >> {folder}/begun
until [ -e {folder}/gate ]; do sleep 0.01; done
case {fails}$* in
fails-o*" -s "*) exec {build}/ddipfs "$@" ;;
fails*) exit 3 ;;
esac
exec {build}/ddipfs "$@"
"""

START = """
import sys
from ddip.mounts import mount
print(*mount.start(sys.argv[1]))
"""


def environment(**more):
    """The environment of a program that starts a daemon."""
    ddipfs = os.path.join(notebook.BUILD, "ddipfs")
    return {**os.environ, "PYTHONPATH": notebook.MAGICS, "DDIPFS": ddipfs, **more}


@contextlib.contextmanager
def program(folder, fails=""):
    """The environment in which ddipfs is a program that waits for folder/gate."""
    path = f"{folder}/ddipfs"
    with open(path, "w", encoding="utf-8") as file:
        file.write(PROGRAM.format(folder=folder, build=notebook.BUILD, fails=fails))
    os.chmod(path, 0o700)
    yield environment(DDIPFS=path)


def begun(folder):
    """How often ddipfs was started."""
    try:
        with open(f"{folder}/begun", encoding="utf-8") as file:
            return len(file.readlines())
    except FileNotFoundError:
        return 0


def waits(pid):
    """True if the process waits for a lock of a file."""
    with open("/proc/locks", encoding="utf-8") as file:
        return any(re.search(rf"-> FLOCK .* {pid} ", line) for line in file)


def test_at_once():
    """Of two that start a daemon at one place, one does; the other one uses it."""
    for name, fails in (("mnt", ""), ("mnt.sock", ""), ("mnt", "fails")):
        with tempfile.TemporaryDirectory() as folder, notebook.place(folder):
            with program(folder, fails) as waiting:
                _start_two(folder, f"{folder}/{name}", waiting, bool(fails))


def _start_two(folder, path, waiting, falls_back):
    command = [sys.executable, "-c", START, path]
    said = {"env": waiting, "stdout": subprocess.PIPE, "text": True}
    one = subprocess.Popen(command, **said)
    notebook.until(lambda: begun(folder) == 1)
    two = subprocess.Popen(command, **said)
    notebook.until(lambda: begun(folder) == 2 or waits(two.pid))
    with open(f"{folder}/gate", "w", encoding="utf-8"):
        pass
    place = f"{path}/ddip-notebook.sock" if falls_back else path
    assert one.communicate()[0] == f"{place} True\n"
    assert two.communicate()[0] == f"{place} False\n"
    assert begun(folder) == (2 if falls_back else 1)
    left = {"ddipfs", "begun", "gate", os.path.basename(path)}
    assert {*os.listdir(folder)} == left, "there is no lock left"
    end(place)


def test_files_of_others():
    """A file beside a mount is nobody's lock."""
    with tempfile.TemporaryDirectory() as folder, notebook.place(folder):
        with open(f"{folder}/poetry.lock", "w", encoding="utf-8") as file:
            file.write("content")
        command = [sys.executable, "-c", START, f"{folder}/poetry"]
        subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True)
        with open(f"{folder}/poetry.lock", encoding="utf-8") as file:
            assert file.read() == "content"
        end(f"{folder}/poetry")


def end(place):
    """Ends the daemon that serves a place."""
    tool = [os.path.join(notebook.BUILD, "ddip"), "umount", place]
    subprocess.run(tool, check=True)
    notebook.until(lambda: not notebook.is_served(place))


# Prints the daemon's place, and waits for a line.
THREADS = """
import os, sys, threading, ddip
from ddip.mounts import mount

def thread(act):
    made = threading.Thread(target=act)
    made.start()
    return made

def ended(made):
    made.join()
    while str(made.native_id) in os.listdir("/proc/self/task"):
        pass

places, tasks = [], []
meet = threading.Barrier(3)
def find():
    meet.wait()
    places.append(mount.find_or_start())
    tasks.append(ddip.ranch(2, os.getpid, caller_rank=None))
for made in [thread(find) for _ in range(3)]:
    ended(made)
assert len({*places}) == 1, places
assert len(tasks) == 3, tasks
assert ddip.ranch(2, os.getpid, caller_rank=None) and mount.find_or_start() == places[0]
if not os.fork():
    sys.exit()
os.wait()
assert ddip.ranch(2, os.getpid, caller_rank=None) and mount.find_or_start() == places[0]
print(places[0], flush=True)
sys.stdin.readline()
"""


def test_threads():
    """All threads use the daemon that one starts, and it ends with the program in any case."""
    ends = (("", 0), ("os.kill(os.getpid(), 9)", -9), ("os.execv('/bin/true', ['true'])", 0))
    for last, status in ends:
        with tempfile.TemporaryDirectory() as folder, notebook.place(folder):
            clean = environment(TMPDIR=folder)
            clean.pop("DDIP_MOUNT", None)
            clean.pop("XDG_RUNTIME_DIR", None)
            _run_threads(folder, THREADS + last, clean, status)


def _run_threads(folder, source, clean, status):
    # other tests' mounts, which it would find, come and go
    own = "from ddip.mounts import where\nwhere.mounts = lambda: {}\n"
    with open(f"{folder}/program.py", "w", encoding="utf-8") as file:
        file.write(own + source)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, f"{folder}/program.py"]
    with subprocess.Popen(command, env=clean, cwd=folder, **pipes) as process:
        place = process.stdout.readline().strip()
        assert notebook.is_served(place), place
        process.communicate("\n")
        assert process.returncode == status
    notebook.until(lambda: not notebook.is_served(place) and not os.path.ismount(place))


# The first time it is busy, in the user's language.
UMOUNT = """#!/bin/sh
[ ! -e {folder}/tried ] || exit 0
: >{folder}/tried
[ "$LC_ALL" = C ] && echo "umount: target is busy." >&2 || echo "umount: Ziel belegt" >&2
exit 32
"""


def test_language():
    """A mount that is briefly busy is unmounted, whatever the language of umount is."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/umount", "w", encoding="utf-8") as file:
            file.write(UMOUNT.format(folder=folder))
        os.chmod(f"{folder}/umount", 0o700)
        german = {"PATH": folder, "PYTHONPATH": notebook.MAGICS, "LC_ALL": "de_DE.UTF-8"}
        code = f"from ddip.mounts import mount; mount.stop({folder!r})"
        subprocess.run([sys.executable, "-c", code], env=german, check=True)


def python_in(folder):
    """A Python in a new folder."""
    os.mkdir(folder)
    os.symlink("/usr/bin/python3", f"{folder}/python3")
    return f"{folder}/python3"


def test_commas():
    """The ranks run this Python wherever it lies."""
    with tempfile.TemporaryDirectory() as folder, notebook.place(folder) as mount:
        python = python_in(f"{folder}/a, b\\,c")
        for path in (mount, f"{folder}/sock.sock"):
            subprocess.run([python, "-c", START, path], env=environment(), check=True)
            code = "import sys; from ddip import groups; from ddip.mounts import where"
            code += "; place = where.locate(sys.argv[1])"
            code += "; print(groups.Group(f'{place}/group').read('ctl'))"
            command = [sys.executable, "-c", code, path]
            options = {"env": environment(), "check": True, "capture_output": True}
            said = subprocess.run(command, **options).stdout
            end(path)
            assert f"\npython '{python}'\n" in said.decode(), said


TELL = """
import os, sys
from ddip import groups
from ddip.mounts import mount
from ddip.notebook import attachment
place, _ = mount.start(sys.argv[1])
holder = attachment.Attachment()
holder.group = groups.Group(place + "/group")
holder._tell()
"""


def test_blanks():
    """A second notebook with the same Python in the same directory is told of no difference."""
    with tempfile.TemporaryDirectory() as folder, notebook.place(folder) as mount:
        here = f"{folder}/it's here"
        python = python_in(here)
        options = {"env": environment(), "cwd": here, "check": True, "capture_output": True}
        for _ in range(2):
            said = subprocess.run([python, "-c", TELL, mount], **options).stdout
            assert said == b"", said
        end(mount)


if __name__ == "__main__":
    notebook.run(globals())
