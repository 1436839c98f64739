"""Mounts of ddipfs: finding one, starting a daemon with one of one's own, ending it.

What lies in a mount is group.py's business.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

from ddip.errors import DipError

PRIVATE = "ddip-notebook"  # the fsname of mounts that were made in notebooks
_PROGRAMS = "ddip-program"  # of those that end with the program that made them, which others leave
_UNMOUNT_S = 20
_BUSY_S = 2  # the watchdog, which wakes watchers, has a file open for a moment after each change

# Runs as a child of the kernel and becomes the daemon: the kernel's end, whatever kind, ends it.
_WITH_KERNEL = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the kernel has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""


def _unescape(field):
    """A path of mountinfo, where blanks are \\040."""
    return field.encode("ascii", "surrogateescape").decode("unicode_escape").encode("latin-1")


def mounts():
    """This user's mounts of ddipfs: {path: fsname}."""
    found = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            kind, source, options = after.split()[:3]
            if kind == "fuse.ddipfs" and f"user_id={os.getuid()}" in options.split(","):
                path = before.split()[4]
                found[os.fsdecode(_unescape(path)) if "\\" in path else path] = source
    return found


def is_mounted(path):
    """True if a living ddipfs is mounted there."""
    try:
        os.stat(os.path.join(path, "version"))
    except OSError:
        return False
    return True


def is_private(path):
    """True for a mount that was started from a notebook."""
    return mounts().get(os.path.realpath(path)) == PRIVATE


def find():
    """The mount to use: $DDIP_MOUNT, else the only one of this user; None if there is none."""
    named = os.environ.get("DDIP_MOUNT")
    if named:
        return named if is_mounted(named) else None
    found = mounts()
    alive = [path for path in found if found[path] != _PROGRAMS and is_mounted(path)]
    if len(alive) > 1:
        raise DipError(
            "several mounts, choose one by %makedip -m or $DDIP_MOUNT: " + "  ".join(alive)
        )
    return alive[0] if alive else None


def private_path():
    """Where a daemon of one's own is mounted: $DDIP_MOUNT, else a directory of this user."""
    named = os.environ.get("DDIP_MOUNT")
    if named:
        return named
    return os.path.join(_base(), "ddip")


def _base():
    """A directory of this user alone."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if not base or not os.path.isdir(base):
        base = os.path.join(tempfile.gettempdir(), f"ddip-{os.getuid()}")
        os.makedirs(base, mode=0o700, exist_ok=True)
        owner = os.stat(base).st_uid
        if owner != os.getuid():
            raise DipError(f"{base} belongs to user {owner}: name a place by %makedip -m PATH")
    return base


def program():
    """The path of the daemon: $DDIPFS, in PATH, or in the tree that this package came from."""
    named = os.environ.get("DDIPFS")
    if named:
        if not os.access(named, os.X_OK):
            raise DipError(f"$DDIPFS is {named}: no such program")
        return named
    beside = os.path.dirname(sys.executable)
    found = shutil.which("ddipfs") or shutil.which("ddipfs", path=beside)
    for tree in () if found else _trees():
        found = found or shutil.which("ddipfs", path=os.path.join(tree, "build"))
    if not found:
        raise DipError(
            "no program ddipfs in PATH: run `make` and `make install` in its source, or set"
            " $DDIPFS to its path"
        )
    return os.path.realpath(found)


def _trees():
    """The source trees that this package may lie in or was installed from."""
    yield os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        origin = distribution("ddip").read_text("direct_url.json")
    except PackageNotFoundError:
        return
    if origin:
        yield os.path.dirname(unquote(urlsplit(json.loads(origin)["url"]).path).rstrip("/"))


_own = None  # the mount that ends with this program


def find_or_start():
    """The mount to use, started if there is none: in a program one that ends with it."""
    global _own
    path = find() or (_own if _own and is_mounted(_own) else None)
    if path is not None:
        return path
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    if get_ipython() is not None:
        return start(private_path())
    named = os.environ.get("DDIP_MOUNT")
    _own = start(named or tempfile.mkdtemp(prefix="ddip-", dir=_base()), True, _PROGRAMS)
    return _own


def start(path, with_kernel=False, source=PRIVATE):
    """Starts a daemon on path. Its ranks will run this kernel's Python in this directory.

    with_kernel: it ends when this process does. Returns the path. Raises DipError.
    """
    _make_directory(path)
    options = f"fsname={source},python={sys.executable}"
    command = [program(), "-o", options, path]
    try:
        if with_kernel:
            _start_with_kernel(command, path)
        else:
            _start_detached(command)
    except OSError as e:
        raise DipError(f"{command[0]} could not be started: {e.strerror}") from e
    return path


def _make_directory(path):
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        # a mount whose daemon is gone: ddipfs mounts over it
        if path not in mounts():
            raise DipError(f"{path} cannot be made: {e.strerror}") from e


def _start_detached(command):
    with tempfile.TemporaryFile() as said:
        status = subprocess.call(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        said.seek(0)
        text = said.read().decode("utf-8", "replace").strip()
    if status:
        raise DipError(text or f"{' '.join(command)} ended with status {status}")


def _start_with_kernel(command, path):
    import atexit

    command.insert(1, "-f")
    log = tempfile.TemporaryFile()
    daemon = subprocess.Popen(
        [sys.executable, "-c", _WITH_KERNEL, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    while not is_mounted(path):
        try:
            status = daemon.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
        log.seek(0)
        text = log.read().decode("utf-8", "replace").strip()
        raise DipError(text or f"{' '.join(command)} ended with status {status}")
    atexit.register(_end_with_kernel, daemon, path, os.getpid())


def _end_with_kernel(daemon, path, pid):
    if os.getpid() != pid:
        return  # in a child of this process, which ends
    daemon.terminate()
    daemon.wait()
    with contextlib.suppress(OSError):  # it was there before, with something in it
        os.rmdir(path)


def stop(path):
    """Ends the daemon of a mount, and its ranks with it. Raises DipError if the mount is in use."""
    command = ["fusermount3", "-u", path]
    deadline = time.monotonic() + _BUSY_S
    while (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        if "busy" not in done.stderr or time.monotonic() > deadline:
            raise DipError(f"{path} could not be unmounted: {done.stderr.strip()}")
        time.sleep(0.02)
    deadline = time.monotonic() + _UNMOUNT_S
    while os.path.realpath(path) in mounts() and time.monotonic() < deadline:
        time.sleep(0.005)
    if not os.path.ismount(path):
        os.rmdir(path)
