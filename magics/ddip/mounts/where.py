"""Where ddipfs serves files: mounts of this user, and sockets. mount.py starts and ends daemons.

Every call of `ddip` imports this, so it imports little.
"""

from __future__ import annotations

import contextlib
import os
import stat

from ddip.errors import DipError
from ddip.mounts import files, p9

PRIVATE = "ddip-notebook"  # the fsname of mounts that notebooks made
PROGRAMS = "ddip-program"  # of mounts that end with the program that made them; others ignore them
SOCKETS = ("ddip.sock", f"{PRIVATE}.sock")  # in a directory, if nothing can be mounted


def _unescape(field):
    """Decodes a field of mountinfo, where a blank is \\040 and non-ASCII bytes are not escaped."""
    first, *rest = field.split(b"\\")
    return os.fsdecode(first + b"".join(bytes([int(r[:3], 8)]) + r[3:] for r in rest))


def mounts() -> dict[str, str]:
    """This user's mounts of ddipfs: {path: fsname}."""
    found = {}
    mine = b"user_id=%d" % os.getuid()
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            before, _, after = line.rstrip(b"\n").partition(b" - ")
            kind, source, options = after.split(b" ")[:3]
            if kind == b"fuse.ddipfs" and mine in options.split(b","):
                found[_unescape(before.split(b" ")[4])] = _unescape(source)
    return found


def is_mounted(path: str) -> bool:
    """True if a live ddipfs is mounted at this path, or serves it as a socket."""
    files.learn(path)
    return files.exists(os.path.join(path, "version"))


def locate(path: str) -> str | None:
    """The place where ddipfs serves path: path itself, or a socket in it; None if neither.

    Raises DipError if there is only a socket that this user may not use.
    """
    if is_mounted(path):
        return path
    sockets = [path, *(os.path.join(path, name) for name in SOCKETS)]
    found = next(filter(_is_served, sockets), None)
    for socket in () if found else filter(files.learn, sockets):
        _check_access(socket)
    return found


def _is_served(socket):
    """True if a live ddipfs of this user serves a socket. Files of others may be in its place."""
    return files.learn(socket) and is_mounted(socket)


def _check_access(socket):
    try:
        p9.connect(socket).close()
    except PermissionError as e:
        raise DipError(f"{socket}: {e.strerror}", e.errno) from None
    except OSError:  # nobody listens
        pass


def find() -> str | None:
    """The place to use: $DDIP_MOUNT, else the mount that the working directory is in, else the only
    mount below it, else the only mount of this user, else a socket.

    None if there is none. Raises DipError, e.g. if there are several mounts.
    """
    named = os.environ.get("DDIP_MOUNT")
    if named:
        return locate(named)
    found = mounts()
    alive = [path for path in found if found[path] != PROGRAMS and is_mounted(path)]
    here = os.path.join(_working_directory(), "")
    around = [path for path in alive if here.startswith(os.path.join(path, ""))]
    alive = around or [path for path in alive if path.startswith(here)] or alive
    if len(alive) > 1:
        raise DipError("several mounts, choose one by -m or $DDIP_MOUNT: " + "  ".join(alive))
    return alive[0] if alive else next(filter(_is_served, _default_sockets()), None)


def _working_directory():
    try:
        return os.getcwd()
    except OSError:  # it was removed, or its mount is dead
        return ""


def _default_sockets():
    """Where `ddip mount` and `%makedip` serve if they get no path and cannot mount."""
    yield default_socket()
    with contextlib.suppress(OSError):  # there is no directory for temporary files
        yield os.path.join(user_folder(), "ddip", SOCKETS[1])


def runtime_folder() -> str | None:
    """$XDG_RUNTIME_DIR, if there is one; else None."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return base if base and os.path.isdir(base) else None


def default_socket() -> str:
    """Where `ddip mount` serves if it gets no path and cannot mount."""
    variables = (os.environ.get(name) for name in ("DDIP_STATE", "TMPDIR"))
    parent = next(filter(None, variables), "/var/tmp")
    return os.path.join(runtime_folder() or _own_in(parent, "ddipfs"), SOCKETS[0])


def user_folder() -> str:
    """The directory for this user's mounts and sockets; it may not exist."""
    import tempfile  # late: it takes as long as all else here

    return runtime_folder() or _own_in(tempfile.gettempdir(), "ddip")


def _own_in(parent, name):
    """This user's directory there, of another name if somebody has taken the first."""
    import glob  # late, too

    first = os.path.join(parent, f"{name}-{os.getuid()}")
    return next(filter(is_own, [first, *sorted(glob.glob(glob.escape(first) + ".*"))]), first)


def is_own(path: str) -> bool:
    """True for a directory of this user's."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
