"""The files of ddipfs: one set of operations, whether they are mounted or served on a socket.

A path lies below a mount point, or below a socket known to learn() (SOCKET/group/cell). Failures
raise OSError with the daemon's errno. Needs only the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import time

from ddip.mounts import p9, p9_file
from ddip.mounts.opened import Opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Buffer

    OpenFile: TypeAlias = "File | p9_file.File"


# Delay before a live file is read again: over sshfs it ends after the data available so far.
LOOK_S = 0.05
# A read takes time for every byte that it requests, available or not (half a millisecond per
# megabyte), so reads start small, and each one that is filled makes the next one larger.
FIRST_READ = 16 << 10
_LARGEST_READ = 1 << 20
_WRITTEN = 64 << 20  # the largest write: Ctrl-C is handled between two writes
# To write verbs, by a program that reports failures: the daemon then says none on its stderr.
WRITE_VERBS = os.O_WRONLY | os.O_NOFOLLOW
_sockets: list[str] = []  # sockets that paths may lead through


def learn(root: str) -> bool:
    """True if root is a socket; paths below it then lead into the tree that it serves."""
    if root in _sockets:
        return True
    try:
        is_socket = stat.S_ISSOCK(os.stat(root).st_mode)
    except OSError:
        return False
    if is_socket:
        _sockets.append(root)
    return is_socket


def _split(path: str) -> tuple[str, str] | None:
    """(socket, path below it); None if the path leads through no known socket."""
    for root in _sockets:
        if path == root or path.startswith(root + "/"):
            return root, path[len(root) + 1 :]
    return None


@contextlib.contextmanager
def _tree(place, path):
    """A connection for one operation; an OSError within names the whole path."""
    connection = None
    try:
        connection = p9.Connection(place[0])
        yield connection
    except OSError as e:
        raise OSError(e.errno, e.strerror, path) from None
    finally:
        if connection is not None:
            connection.close()


class File(Opened):
    """An open file of a mount. p9_file.File has the same methods."""

    def __init__(self, path: str, flags: int, mode: int) -> None:
        self._fd = os.open(path, flags | os.O_CLOEXEC, mode)

    def arm(self) -> int:
        """A descriptor that is readable when a read would not block."""
        return self._fd

    def poll(self, wait_ms: float | None = None) -> bool:
        """True if a read would not block; waits up to wait_ms for that (None: forever)."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(wait_ms))

    def read(self, count: int) -> bytes:
        """Reads at most count bytes. Returns b"" at the end."""
        return os.read(self._fd, count)

    def readinto(self, memory: Buffer) -> int:
        """Like read(), into memory. Returns the number of bytes."""
        return os.readv(self._fd, [memory])

    def write(self, data: Buffer) -> int:
        """Writes some or all of data. Returns the number of bytes written."""
        return os.write(self._fd, data)

    def fsync(self) -> None:
        """Submits what was written and waits for the outcome. Raises OSError if it failed."""
        os.fsync(self._fd)

    def seek(self, offset: int) -> None:
        """Sets the offset of the next read or write."""
        os.lseek(self._fd, offset, os.SEEK_SET)

    def size(self) -> int:
        """The current size of the file."""
        return os.fstat(self._fd).st_size

    def lock(self, wait: bool = False) -> bool:
        """Locks the file until it is closed. False if it is locked already; wait: waits instead."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Closes the file. Raises OSError if data written but not yet submitted is refused."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def abandon(self) -> None:
        """Closes a `ctl` without waiting for its verbs: a write passes O_NONBLOCK to the daemon."""
        os.set_blocking(self._fd, False)
        with contextlib.suppress(OSError):
            os.write(self._fd, b"\n")
        self.close()


def open_(path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> OpenFile:
    """Opens a file, unbuffered."""
    place = _split(path)
    if not place:
        return File(path, flags, mode)
    try:
        return p9_file.File(*place, flags, mode)
    except OSError as e:
        raise OSError(e.errno, e.strerror, path) from None


def read(path: str, flags: int = os.O_RDONLY) -> bytes:
    """All bytes of a file."""
    pieces, count = [], FIRST_READ
    with open_(path, flags) as file:
        while piece := file.read(count):
            pieces.append(piece)
            count = next_read(count, len(piece))
    return b"".join(pieces)


def next_read(count: int, got: int) -> int:
    """How many bytes to request after a read that requested `count` bytes and returned `got`."""
    return min(4 * count, _LARGEST_READ) if got == count else count


def read_live(file: OpenFile, count: int, folder: str) -> bytes:
    """Reads from a live file, however long that takes; b"" once its folder no longer exists."""
    while not (data := file.read(count)) and exists(folder):
        time.sleep(LOOK_S)
    return data


def read_text(path: str, flags: int = os.O_RDONLY) -> str:
    """All of a file as text."""
    return read(path, flags).decode("utf-8", "replace")


def read_end(path: str, count: int) -> tuple[bytes, int]:
    """(the last bytes of a file, at most count of them, and its size)."""
    with open_(path) as file:
        size = file.size()
        return read_range(file, max(0, size - count), size), size


def read_range(file: OpenFile, begin: int, end: int) -> bytes:
    """The bytes of an open file from offset begin to offset end, as far as they exist."""
    file.seek(begin)
    data = b""
    while begin + len(data) < end and (piece := file.read(end - begin - len(data))):
        data += piece
    return data


def write_all(file: OpenFile, data: Buffer) -> None:
    """Writes all of data to an open file."""
    view = memoryview(data).cast("B")
    while view:
        view = view[file.write(view[:_WRITTEN]) :]


def write(path: str, data: Buffer) -> None:
    """Opens a file that acts on what is written, writes all of data to it and closes it."""
    with open_(path, WRITE_VERBS) as file:
        write_all(file, data)


def attributes(path: str, follow: bool = True) -> tuple[int, int, float]:
    """(mode, size, time of the last modification in seconds)."""
    place = _split(path)
    if place:
        with _tree(place, path) as tree:
            return tree.attributes(place[1], follow)[:3]
    got = os.stat(path, follow_symlinks=follow)
    return got.st_mode, got.st_size, got.st_mtime


def exists(path: str) -> bool:
    """True if the path exists."""
    try:
        attributes(path)
    except OSError:
        return False
    return True


def isdir(path: str) -> bool:
    """True if it is a directory."""
    try:
        return stat.S_ISDIR(attributes(path)[0])
    except OSError:
        return False


def listdir(path: str) -> list[str]:
    """The names in a directory."""
    place = _split(path)
    if not place:
        return os.listdir(path)
    with _tree(place, path) as tree:
        return tree.listdir(place[1])


def readlink(path: str) -> str:
    """The target of a symbolic link."""
    place = _split(path)
    if not place:
        return os.readlink(path)
    with _tree(place, path) as tree:
        return tree.readlink(place[1])


def remove(path: str) -> None:
    """Removes a file."""
    place = _split(path)
    if not place:
        os.unlink(path)
        return
    with _tree(place, path) as tree:
        tree.remove(place[1])


def rmdir(path: str) -> None:
    """Removes a directory."""
    place = _split(path)
    if not place:
        os.rmdir(path)
        return
    with _tree(place, path) as tree:
        tree.remove(place[1], folder=True)


def mkdir(path: str) -> None:
    """Makes a directory."""
    place = _split(path)
    if not place:
        os.mkdir(path)
        return
    with _tree(place, path) as tree:
        tree.mkdir(place[1])


def rename(path: str, to: str) -> None:
    """Renames a file."""
    place, to_place = _split(path), _split(to)
    if bool(place) != bool(to_place) or (place and to_place and place[0] != to_place[0]):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path, None, to)
    if not place or not to_place:
        os.rename(path, to)
        return
    with _tree(place, path) as tree:
        tree.rename(place[1], to_place[1])
