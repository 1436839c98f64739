#!/usr/bin/env python3
"""The script that brings the programs to a host, by itself and in each shell that is here: what it
asks for, keeps and runs, and what it says where it cannot."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

import wire
from wire import ROOT, same

SCRIPT = os.path.join(ROOT, "engine", "line", "bring.sh")
SHELLS = [["sh"], ["bash"], ["dash"], ["busybox", "sh"], ["ksh"], ["mksh"], ["yash"]]
WANT = "@ddipfs want " + " ".join((os.uname().sysname, os.uname().machine))
TOOLS = "sh ls id mkdir rm chmod umask uname sha256sum head mktemp mv".split()


def program(what):
    """In place of ddip-engine: tells how it was run, and the umask that ranks will have."""
    return (
        f'#!/bin/sh\n[ "$1" = --version ] || echo "{what} $((DDIP_UMASK)) $(umask) $*"\n'.encode()
    )


class Host:
    """A directory in which a host's files are, and the programs to be brought there."""

    def __init__(self, shell=("sh",)):
        self.dir = tempfile.mkdtemp(prefix="ddip-bring-test.")
        self.shell = [shutil.which(shell[0]), *shell[1:]]
        self.files = [program("first"), b"an object"]
        self.env = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": self.dir + "/cache"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir)

    def start(self, engine="auto", option="--linger", value="30"):
        sums = [hashlib.sha256(data).hexdigest() for data in self.files]
        words = [engine, option, value]
        if engine == "auto" or engine.endswith("/"):
            words.append(sums[0][:8] + sums[1][:8])
            for data, digest in zip(self.files, sums, strict=True):
                words += [str(len(data)), digest]
        return subprocess.Popen(
            [*self.shell, SCRIPT, *words],
            env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, umask=0o027, text=False,
        )  # fmt: skip

    def run(self, given=None, **how):
        """The lines that the script prints."""
        given = b"go\n" + b"".join(self.files) if given is None else given
        p = self.start(**how)
        out, _ = p.communicate(given, timeout=wire.HANG_LIMIT_S)
        return out.decode().splitlines()

    def kept(self, place="cache/ddipfs"):
        """The files that are kept in this place."""
        place = os.path.join(self.dir, place)
        return sorted(os.path.join(folder, f) for folder, _, files in os.walk(place) for f in files)


def each_shell(test):
    def run():
        for shell in SHELLS:
            if shutil.which(shell[0]):
                with Host(shell) as h:
                    test(h)

    return run


RUN = "23 0077 far --linger 30"


@each_shell
def test_once(h):
    """It asks for the programs once, and again if one has changed; nobody else may enter."""
    same(h.run(), [WANT, "first " + RUN])
    files = h.kept()
    same([os.path.basename(f) for f in files], ["ddip-engine", "ddip_engine.so"])
    same([os.stat(f).st_mode & 0o777 for f in files], [0o700, 0o600])
    same(os.stat(os.path.dirname(files[0])).st_mode & 0o777, 0o700)
    same(h.run(b""), ["first " + RUN])
    with open(files[1], "ab") as f:
        f.write(b"more")
    same(h.run(), [WANT, "first " + RUN])
    same(h.run(b"", option="--attach", value="/a b"), ["first 23 0077 far --attach /a b"])
    h.files[0] = program("second")
    same(h.run(), [WANT, "second " + RUN])
    same(len(h.kept()), 4)


@each_shell
def test_two_at_once(h):
    """Both get all bytes; one copy is left."""
    both = [h.start(), h.start()]
    for p in both:
        same(p.stdout.readline().decode(), WANT + "\n")
    for p in both:
        out, _ = p.communicate(b"go\n" + b"".join(h.files), timeout=wire.HANG_LIMIT_S)
        same(out.decode(), f"first {RUN}\n")
    same([os.path.basename(f) for f in h.kept()], ["ddip-engine", "ddip_engine.so"])


@each_shell
def test_cut_off(h):
    """What did not come whole is not kept, nor run."""
    given = b"go\n" + b"".join(h.files)
    error = f"@ddipfs error the programs were not written to {h.dir}/cache/ddipfs: they came out"
    same(h.run(given[:-1]), [WANT, error + " different"])
    same(h.run(given[:-1] + b"!"), [WANT, error + " different"])
    for given in b"", b"no\n":
        same(h.run(given), [WANT, "@ddipfs error the launcher passes no standard input on"])
    same(os.listdir(h.dir + "/cache/ddipfs"), [])


@each_shell
def test_next_place(h):
    """Without a home, the programs are kept elsewhere; a copy is found before another is made."""
    os.mkdir(h.dir + "/tmp")
    h.env |= {"TMPDIR": h.dir + "/tmp", "XDG_CACHE_HOME": "", "HOME": "/proc/none"}
    same(h.run(), [WANT, "first " + RUN])
    same(len(h.kept("tmp")), 2)
    h.env["HOME"] = h.dir + "/home"
    same(h.run(b""), ["first " + RUN])
    same(h.run(engine=h.dir + "/set/"), [WANT, "first " + RUN])
    same(len(h.kept("set/ddipfs")), 2)


@each_shell
def test_a_place_of_others(h):
    """A directory that others may enter is not used; the message names all that were tried."""
    place = h.dir + "/set/ddipfs"
    os.makedirs(place)
    os.chmod(place, 0o755)
    (error,) = h.run(engine=h.dir + "/set/")
    same(
        error,
        f"@ddipfs error {place}: want a directory of yours that nobody else may enter, mode 0700; "
        "name another directory by the setting engine: engine DIR/",
    )
    (error,) = h.run(engine="/proc/none/")
    assert "/proc/none" in error and error.endswith("engine DIR/"), error


@each_shell
def test_tools(h):
    """A tool that is missing there is named; without find(1) it works."""
    tools = h.dir + "/tools"
    for missing in ("sha256sum", "head", "mktemp", "mv", ""):
        shutil.rmtree(tools, ignore_errors=True)
        os.mkdir(tools)
        for tool in TOOLS:
            with contextlib.suppress(TypeError):  # a word of the shell
                if tool != missing:
                    os.symlink(shutil.which(tool), f"{tools}/{tool}")
        h.env["PATH"] = tools
        if missing:
            same(h.run(), [f"@ddipfs error there is no {missing} there"])
    same(h.run(), [WANT, "first " + RUN])


@each_shell
def test_a_program_there(h):
    """It is run as it is; if it cannot run, what it says is one line."""
    path = h.dir + "/an engine"
    with open(path, "wb") as f:
        f.write(program("there"))
    os.chmod(path, 0o755)
    same(h.run(b"", engine=path), ["there " + RUN])
    with open(path, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\necho 'not found: *'; echo \"version 'GLIBC_2.99'\" >&2; exit 1\n")
    why = f"@ddipfs error {path} does not run there: not found: * version 'GLIBC_2.99'"
    same(h.run(b"", engine=path), [why])


if __name__ == "__main__":
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
