"""The files of ddipfs: one set of operations, whether they are mounted or served on a socket.

A path leads below a mount point, or through a socket that learn() was told of (SOCKET/group/cell).
Failures are OSError, with the errno that the daemon gives. Standard library alone.
"""

import contextlib
import errno
import fcntl
import os
import select
import stat
import time

from ddip import p9, p9_file
from ddip.opened import Opened

# Over sshfs a live file gives what is there, and then ends: so long until it is read again.
LOOK_S = 0.05
# A read costs time for all the bytes that it asks for, there or not (a megabyte: half a
# millisecond): it asks for few, and for more as long as it gets all of them.
FIRST_READ = 16 << 10
_LARGEST_READ = 1 << 20
_WRITTEN = 64 << 20  # of one write: between two of them Ctrl-C is heard
_sockets = []  # paths that lead into a tree


def learn(root):
    """True if root is a socket; from now on paths through it lead into what is served there."""
    if root in _sockets:
        return True
    try:
        is_socket = stat.S_ISSOCK(os.stat(root).st_mode)
    except OSError:
        return False
    if is_socket:
        _sockets.append(root)
    return is_socket


def _split(path):
    """(socket, path below it), None: it leads through none."""
    for root in _sockets:
        if path == root or path.startswith(root + "/"):
            return root, path[len(root) + 1 :]
    return None


@contextlib.contextmanager
def _tree(place, path):
    """A connection for one operation, whose failure tells the path."""
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

    def __init__(self, path, flags, mode):
        self._fd = os.open(path, flags | os.O_CLOEXEC, mode)

    def arm(self):
        """A descriptor that is readable when a read would not wait."""
        return self._fd

    def poll(self, wait_ms=None):
        """True if a read would not wait; waits so long for it (None: for ever)."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(wait_ms))

    def read(self, count):
        """Some bytes, b"" at the end."""
        return os.read(self._fd, count)

    def readinto(self, memory):
        """The same into memory. Returns the count."""
        return os.readv(self._fd, [memory])

    def write(self, data):
        """Writes some of it. Returns how much."""
        return os.write(self._fd, data)

    def fsync(self):
        """Submits what was written, and waits. Raises OSError with the outcome."""
        os.fsync(self._fd)

    def seek(self, offset):
        """The next read or write is there."""
        os.lseek(self._fd, offset, os.SEEK_SET)

    def size(self):
        """Of the file as it is now."""
        return os.fstat(self._fd).st_size

    def lock(self, wait=False):
        """True if this file is locked for us now, until it is closed; wait: until it is."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def close(self):
        """Raises OSError with the outcome of what was written and not submitted."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def abandon(self):
        """Closes a ctl without waiting for what it was told: a write tells the daemon so."""
        os.set_blocking(self._fd, False)
        with contextlib.suppress(OSError):
            os.write(self._fd, b"\n")
        self.close()


def open_(path, flags=os.O_RDONLY, mode=0o600):
    """An open file, unbuffered."""
    place = _split(path)
    if not place:
        return File(path, flags, mode)
    try:
        return p9_file.File(*place, flags, mode)
    except OSError as e:
        raise OSError(e.errno, e.strerror, path) from None


def read(path, flags=os.O_RDONLY):
    """All bytes of a file."""
    pieces, count = [], FIRST_READ
    with open_(path, flags) as file:
        while piece := file.read(count):
            pieces.append(piece)
            count = next_read(count, len(piece))
    return b"".join(pieces)


def next_read(count, got):
    """How many bytes to ask for after a read of so many, which got so many."""
    return min(4 * count, _LARGEST_READ) if got == count else count


def read_live(file, count, folder):
    """Some bytes of a live file, however long they take to come; b"" when its folder is gone."""
    while not (data := file.read(count)) and exists(folder):
        time.sleep(LOOK_S)
    return data


def read_text(path, flags=os.O_RDONLY):
    """All of a file as text."""
    return read(path, flags).decode("utf-8", "replace")


def read_end(path, count):
    """(the last bytes of a file, so many at most, its size)."""
    with open_(path) as file:
        size = file.size()
        return read_range(file, max(0, size - count), size), size


def read_range(file, begin, end):
    """The bytes of an open file between two places, as far as they are there."""
    file.seek(begin)
    data = b""
    while begin + len(data) < end and (piece := file.read(end - begin - len(data))):
        data += piece
    return data


def write_all(file, data):
    """Writes all of it to an open file."""
    view = memoryview(data).cast("B")
    while view:
        view = view[file.write(view[:_WRITTEN]) :]


def write(path, data, flags=os.O_WRONLY):
    """Writes bytes into a file and closes it."""
    with open_(path, flags) as file:
        write_all(file, data)


def attributes(path, follow=True):
    """(mode, size, seconds of the last change)."""
    place = _split(path)
    if place:
        with _tree(place, path) as tree:
            return tree.attributes(place[1], follow)[:3]
    got = os.stat(path, follow_symlinks=follow)
    return got.st_mode, got.st_size, got.st_mtime


def exists(path):
    """True if there is something."""
    try:
        attributes(path)
    except OSError:
        return False
    return True


def isdir(path):
    """True if it is a directory."""
    try:
        return stat.S_ISDIR(attributes(path)[0])
    except OSError:
        return False


def listdir(path):
    """The names in a directory."""
    place = _split(path)
    if not place:
        return os.listdir(path)
    with _tree(place, path) as tree:
        return tree.listdir(place[1])


def readlink(path):
    """What a symbolic link says."""
    place = _split(path)
    if not place:
        return os.readlink(path)
    with _tree(place, path) as tree:
        return tree.readlink(place[1])


def remove(path):
    """Removes a file."""
    place = _split(path)
    if not place:
        os.unlink(path)
        return
    with _tree(place, path) as tree:
        tree.remove(place[1])


def rmdir(path):
    """Removes a directory."""
    place = _split(path)
    if not place:
        os.rmdir(path)
        return
    with _tree(place, path) as tree:
        tree.remove(place[1], folder=True)


def mkdir(path):
    """Makes a directory."""
    place = _split(path)
    if not place:
        os.mkdir(path)
        return
    with _tree(place, path) as tree:
        tree.mkdir(place[1])


def rename(path, to):
    """Renames a file."""
    place, to_place = _split(path), _split(to)
    if bool(place) != bool(to_place) or (place and place[0] != to_place[0]):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path, None, to)
    if not place:
        os.rename(path, to)
        return
    with _tree(place, path) as tree:
        tree.rename(place[1], to_place[1])
