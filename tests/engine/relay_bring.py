#!/usr/bin/env python3
"""A relay brings the programs to a host that lacks them: once, complete, and for this user only."""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

import wire
from agent import refused
from relay import Relayed, failing
from wire import PYTHON, same


def brought(cache):
    return sorted(glob.glob(cache + "/ddipfs/*/*"))


def test_bring_along():
    """The programs are sent once, and again if a file has changed."""
    cache = tempfile.mkdtemp(prefix="ddip-relay-cache.")
    env = {"XDG_CACHE_HOME": cache}
    try:
        with Relayed(engine="auto", env=env) as a:
            same(a.warm_phases.name, "Rzygote")
            a.spawn(0)
            same(a.run(0, "print(6 * 7)")[1], b"42\n")
            same(os.readlink(f"/proc/{a.hello.pid}/exe"), brought(cache)[0])
            a.cut()
            same(a.run(0, "print(6 * 8)")[1], b"48\n")
        files = brought(cache)
        same([os.path.basename(f) for f in files], ["ddip-engine", "ddip_engine.so"])
        same([oct(os.stat(f).st_mode & 0o777) for f in files], ["0o700", "0o600"])
        same([oct(os.stat(os.path.dirname(f)).st_mode & 0o777) for f in files], ["0o700"] * 2)
        nodes = [os.stat(f).st_ino for f in files]
        with Relayed(engine="auto", env=env, warm=False) as a:
            same(a.hello.name, "Rhello")
        same([os.stat(f).st_ino for f in files], nodes)
        with open(files[0], "rb") as f, open(cache + "/changed", "wb") as g:
            g.write(f.read() + b"more")
        os.chmod(g.name, 0o700)
        os.replace(g.name, files[0])
        nodes = [os.stat(f).st_ino for f in files]
        left = [f"{cache}/ddipfs/new.{name}" for name in ("killed", "under-way")]
        for folder in left:
            os.mkdir(folder)
        os.utime(left[0], (0, 0))
        with Relayed(engine="auto", env=env, warm=False) as a:
            same(a.hello.name, "Rhello")
        same([os.path.exists(folder) for folder in left], [False, True])
        assert os.stat(files[0]).st_ino != nodes[0], "a changed program was run"
    finally:
        shutil.rmtree(cache)


def test_shell_over_there():
    """Leftovers of the same pid are not in the way; ranks have the shell's umask, not its traps."""
    left = 'umask 077; mkdir -p "$XDG_CACHE_HOME/ddipfs/new.$$"'
    there = failing(f'{left}; trap "" HUP TERM; umask 027; exec sh -c "$1"')
    with Relayed(engine="auto", launcher=there) as a:
        a.spawn(0)
        source = "import os, signal as s; print(oct(os.umask(0)), s.pthread_sigmask(0, []))"
        out = a.run(0, source)[1]
        assert out.startswith(b"0o27 ") and b"SIGTERM" not in out, out


def test_bring_along_refused():
    """If the programs cannot be stored, or cannot run, a message says on which host and why."""
    cache = tempfile.mkdtemp(prefix="ddip-relay-cache.")
    env = {"XDG_CACHE_HOME": cache}
    try:
        tools = cache + "/tools"
        os.mkdir(tools)
        with open(tools + "/uname", "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho Linux pdp11\n")
        os.chmod(f.name, 0o755)
        other = failing(f'PATH={tools}:$PATH; export PATH; exec sh -c "$1"')
        with Relayed(engine="auto", env=env, launcher=other, warm=False) as a:
            refused(a.hello, "ENOEXEC", "host there: it is a Linux pdp11")
        small = failing("ulimit -f 8; trap '' XFSZ; exec sh -c \"$1\"")
        with Relayed(engine="auto", env=env, launcher=small, warm=False) as a:
            refused(a.hello, "EHOSTDOWN", "the programs were not written to")
            assert "File too large" in a.hello.text, a.hello.text
        same(brought(cache), [])
        os.chmod(cache + "/ddipfs", 0o777)
        with Relayed(engine=cache + "/", env=env, warm=False) as a:
            refused(a.hello, "EHOSTDOWN", "nobody else may enter")
        with open(tools + "/engine", "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho \"version 'GLIBC_2.99' not found\" >&2; exit 1\n")
        os.chmod(f.name, 0o755)
        with Relayed(engine=tools + "/engine", warm=False) as a:
            refused(a.hello, "EHOSTDOWN", "does not run there: version 'GLIBC_2.99' not found")
    finally:
        shutil.rmtree(cache)


def kept(place, **settings):
    """Brings the programs along. Returns the path at which they run, below `place`."""
    with Relayed(engine="auto", warm=False, **settings) as a:
        same(a.hello.name, "Rhello")
        path = os.readlink(f"/proc/{a.hello.pid}/exe")
    assert path.startswith(place), (path, place)
    return path


def test_next_place():
    """Where the home cannot hold the programs, they are kept elsewhere; a copy is found again."""
    here = tempfile.mkdtemp(prefix="ddip-relay-cache.")
    try:
        shared, spare = here + "/shared/ddipfs", here + "/spare"
        env = {"XDG_CACHE_HOME": here + "/shared", "TMPDIR": spare}
        os.makedirs(spare)
        os.makedirs(shared)
        os.chmod(shared, 0o777)
        first = kept(spare, env=env)
        node = os.stat(first).st_ino
        same(kept(spare, env=env), first)
        os.chmod(shared, 0o700)
        same(kept(spare, env=env), first)  # rather than a second copy
        same(os.stat(first).st_ino, node)
        shutil.rmtree(spare)
        none = here + "/none"
        kept(shared, env={**env, "TMPDIR": none})
        env_without = {"XDG_CACHE_HOME": "", "HOME": "/proc/none", "TMPDIR": none}
        shutil.rmtree(os.path.dirname(kept("/", env=env_without)))
        with Relayed(engine=here + "/set/", env=env, warm=False) as a:
            same(a.hello.name, "Rhello")
            same(
                os.path.dirname(os.path.dirname(os.readlink(f"/proc/{a.hello.pid}/exe"))),
                here + "/set/ddipfs",
            )
        with Relayed(engine="/proc/none/", env=env, warm=False) as a:
            refused(a.hello, "EHOSTDOWN", "name another directory by the setting engine")
    finally:
        shutil.rmtree(here)


def test_login_shells():
    """The command is one line, which any login shell takes as it is."""
    here = tempfile.mkdtemp(prefix="ddip-relay-cache.")
    env = {"XDG_CACHE_HOME": here, "LINE": here + "/line"}
    try:
        kept(here, env=env, launcher=failing('printf %s "$1" >"$LINE"; exec sh -c "$1"'))
        with open(env["LINE"], encoding="ascii") as f:
            line = f.read()
        assert not set("\n\\`!") & set(line), line
        same(line.count("'"), 6)  # around the script, and two of its arguments
        for shell in "bash", "zsh", "fish", "ksh", "mksh", "yash", "csh":
            if shutil.which(shell):
                kept(here, env=env, launcher=failing(f'exec {shell} -c "$1"'))
    finally:
        shutil.rmtree(here)


def test_no_sums_here():
    here = tempfile.mkdtemp(prefix="ddip-relay-path.")
    try:
        os.symlink(shutil.which("sh"), here + "/sh")
        with Relayed(engine="auto", env={"PATH": here}, warm=False) as a:
            refused(a.hello, "ENOEXEC", "host there: sha256sum, which is needed")
    finally:
        shutil.rmtree(here)


def mounted(options, place):
    """A launcher for a host whose directory `place` is a file system with these options."""
    mount = f"mount -t tmpfs -o {options} none {place}"
    return failing(f'exec unshare -m sh -c \'{mount} && exec sh -c "$1"\' sh "$1"')


def test_homes():
    """A home that is full, read-only, or on which nothing may run, is passed over."""
    if os.geteuid():
        print("not tested: only root can mount")
        return
    here = tempfile.mkdtemp(prefix="ddip-relay-cache.")
    try:
        home, spare = here + "/home", here + "/spare"
        os.mkdir(home)
        os.mkdir(spare)
        env = {"XDG_CACHE_HOME": home, "TMPDIR": spare}
        for options in "noexec", "ro", "size=64k":
            kept(spare, env=env, launcher=mounted(options, home))
            shutil.rmtree(spare)
            os.mkdir(spare)
    finally:
        shutil.rmtree(here)


def test_state_is_missing():
    """DDIP_STATE is made over there; if it cannot be, the next place serves."""
    here = tempfile.mkdtemp(prefix="ddip-relay-state.")
    places = (
        ({"DDIP_STATE": here + "/made", "TMPDIR": here + "/none"}, here + "/made"),
        ({"DDIP_STATE": "/proc/none", "TMPDIR": here}, here),
        ({"DDIP_STATE": "/proc/none", "TMPDIR": here + "/none"}, "/var/tmp"),
    )
    try:
        for env, place in places:
            before = set(glob.glob(place + "/ddipfs-far.*"))
            exported = " ".join(f"{name}={value}" for name, value in env.items())
            with Relayed(launcher=failing(f'export {exported}; exec sh -c "$1"'), warm=False) as a:
                same(a.hello.name, "Rhello")
                assert set(glob.glob(place + "/ddipfs-far.*")) - before, place
        same(os.path.exists(here + "/none"), False)
    finally:
        shutil.rmtree(here)


def test_no_inotify():
    """Where this user may have no further inotify instance, output comes nevertheless."""
    none = [
        "unshare",
        "-r",
        "sh",
        "-c",
        'echo 0 >/proc/sys/user/max_inotify_instances && exec "$@"',
    ]
    if subprocess.run([*none, "sh", "true"], check=False).returncode:
        print("not tested: no user namespace")
        return
    with Relayed(via=[*none, "sh"]) as a:
        a.spawn(0)
        same(a.run(0, "print('here')")[1], b"here\n")


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
