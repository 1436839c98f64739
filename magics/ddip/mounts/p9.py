"""A client for ddipfs's socket: 9P2000.L, as the kernel's v9fs speaks it.

Each open file has its own connection, so that threads need no lock and the daemon knows who
opened the file.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import select
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from typing_extensions import Buffer


MSIZE = 1 << 20
_NO_FID = 0xFFFFFFFF
_NO_TAG = 0xFFFF
_ROOT = 0
_HEAD = struct.Struct("<IBH")
_RLERROR = 7
_LINK = 0x02  # bit of a qid's type
_QID = 13
_NAMES = 16  # names in one Twalk, at most
_LINKS = 8  # symbolic links to follow, at most
_PIECE = 64 << 10  # room for one receive from the socket, at least
_DATA_HEAD = 11  # bytes of Rread before its data
_WRITE_HEAD = 23  # bytes of Twrite before its data
_REMOVE_DIR = 0x200

# open flag of this machine -> flag of 9P2000.L
_FLAGS = {
    os.O_CREAT: 0o100,
    os.O_EXCL: 0o200,
    os.O_TRUNC: 0o1000,
    os.O_APPEND: 0o2000,
    os.O_NONBLOCK: 0o4000,
    os.O_DIRECTORY: 0o200000,
    os.O_NOFOLLOW: 0o400000,
}
(_LOPEN, _LCREATE, _RENAMEAT, _UNLINKAT, _READLINK, _GETATTR, _READDIR) = 12, 14, 74, 76, 22, 24, 40
(_FSYNC, _LOCK, _MKDIR, _VERSION, _ATTACH, _FLUSH, _WALK) = 50, 52, 72, 100, 104, 108, 110
(_READ, _WRITE, _CLUNK) = 116, 118, 120
_LOCK_SUCCESS = 0


_HURRIED_MS = 500  # for which a thread that hurries waits for a reply
_hurried: int | None = None  # that thread


def hurry(on: bool) -> None:
    """From now on this thread waits for a reply only a moment, and then gets ETIMEDOUT; or it
    waits again as usual."""
    global _hurried
    _hurried = _thread.get_ident() if on else None


def _text(s):
    data = os.fsencode(s)
    return struct.pack("<H", len(data)) + data


def _flags(flags):
    own = [theirs for ours, theirs in _FLAGS.items() if flags & ours == ours]
    return flags & os.O_ACCMODE | sum(own)


def _parts(path):
    return [part for part in path.split("/") if part not in ("", ".")]


def connect(path: str) -> socket.socket:
    """A socket connected to path, which may be of any length. Raises OSError.

    Only to this user's own process: anybody can listen where a daemon of this user has been, or
    would be.
    """
    folder, name = os.path.split(os.path.abspath(path))
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    sock: Any = None
    try:
        place = f"/proc/self/fd/{fd}/{name}"
        owner = os.stat(place).st_uid
        if owner == os.geteuid():  # where others listen, connect(2) may never return
            sock = _connected(place)
            owner = _peer(sock)[1]
    except OSError as e:
        raise OSError(e.errno, os.strerror(e.errno or errno.EIO), path) from None
    finally:
        os.close(fd)
    if owner != os.geteuid():  # as the daemon treats its clients
        if sock is not None:
            sock.close()
        text = f"it is served by another user: {_user_name(owner)}"
        raise PermissionError(errno.EACCES, text, path)
    return sock


def _connected(place):
    import socket  # late: a mount needs none, and every call of `ddip` imports this module

    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(place)
    except BaseException:
        sock.close()
        raise
    return sock


def _peer(sock):
    """(pid, uid, gid) of the process that listens."""
    import socket

    return struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))


def _user_name(uid):
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def daemon_of(path: str) -> int:
    """The pid of the process that serves a socket. Raises OSError."""
    with connect(path) as sock:
        return _peer(sock)[0]


class Connection:
    """A connection to the daemon: messages and their replies."""

    def __init__(self, path: str) -> None:
        """path: the socket."""
        self.path = path
        self._sock = connect(path)
        self._tag = 0
        self._fid = _ROOT
        self._in = bytearray()
        self._torn = False  # a reply has been received in part
        # tag -> (type, body) of the replies not yet collected
        self._replies: dict[int, tuple[int, bytes]] = {}
        self._sock.sendall(self._hello())

    def _hello(self):
        attach = (
            struct.pack("<II", _ROOT, _NO_FID)
            + _text("")
            + _text("")
            + struct.pack("<I", os.getuid())
        )
        version = struct.pack("<I", MSIZE) + _text("9P2000.L")
        self._greeting = [(_VERSION, _NO_TAG), (_ATTACH, 0)]
        return self._pack(_VERSION, _NO_TAG, version) + self._pack(_ATTACH, 0, attach)

    @staticmethod
    def _pack(kind, tag, body):
        return _HEAD.pack(_HEAD.size + len(body), kind, tag) + body

    def fileno(self) -> int:
        """The descriptor, which is readable when a reply has arrived."""
        return self._sock.fileno()

    def close(self) -> None:
        """Closes it; the daemon treats open files as if this process had been killed."""
        self._sock.close()

    # ---- messages

    def new_fid(self) -> int:
        """An unused fid."""
        self._fid += 1
        return self._fid

    def send(self, kind: int, body: bytes, data: bytes | memoryview = b"") -> int:
        """Sends a message whose body ends with data. Returns the tag of its reply.

        An exception that Ctrl-C raises meanwhile closes the connection: part of the message may
        have been sent, and the daemon would take the next one for the rest.
        """
        self._tag = (self._tag + 1) % _NO_TAG
        self._replies.pop(self._tag, None)  # to an earlier one that nobody has waited for
        size = _HEAD.size + len(body) + len(data)
        try:
            self._send_all([_HEAD.pack(size, kind, self._tag) + body, data], size)
        except OSError:
            raise
        except BaseException:
            self.close()
            raise
        return self._tag

    def _send_all(self, parts, size):
        while size:
            sent = self._send_some(parts)
            size -= sent
            while parts and sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            if sent:
                parts[0] = memoryview(parts[0])[sent:]

    def _send_some(self, parts):
        try:
            return self._sock.sendmsg(parts)
        except BrokenPipeError:
            raise OSError(errno.ENOTCONN, "the daemon is gone", self.path) from None

    def receive(self, tag: int) -> bytes:
        """Waits for the reply with this tag. Returns its body. Raises OSError."""
        while tag not in self._replies:
            self._take()
        kind, body = self._replies.pop(tag)
        if kind == _RLERROR:
            number = struct.unpack_from("<I", body)[0]
            raise OSError(number, os.strerror(number))
        return body

    def receive_data(self, tag: int, view: memoryview) -> int:
        """Receives the data of a Tread right into view. Returns its length. Raises OSError."""
        while tag not in self._replies:
            self._need(_HEAD.size)
            _, kind, next_tag = _HEAD.unpack_from(self._in)
            if self._greeting or next_tag != tag or kind != _READ + 1:
                self._take()
                continue
            self._need(_DATA_HEAD)
            count = struct.unpack_from("<I", self._in, _HEAD.size)[0]
            at = min(len(self._in) - _DATA_HEAD, count)
            self._torn = True
            view[:at] = self._in[_DATA_HEAD : _DATA_HEAD + at]
            del self._in[: _DATA_HEAD + at]
            while at < count:
                at += self._receive_some(view[at:count])
            self._torn = False
            return count
        data = self.receive(tag)[4:]
        view[: len(data)] = data
        return len(data)

    def _receive_some(self, view):
        try:
            count = self._sock.recv_into(view)
        except ConnectionResetError:
            count = 0
        if not count:
            raise OSError(errno.ENOTCONN, "the daemon is gone", self.path)
        return count

    def is_readable(self, wait_ms: float | None = 0) -> bool:
        """True if data has arrived; waits up to wait_ms for it (None: forever)."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        return bool(poller.poll(wait_ms))

    def has(self, tag: int) -> bool:
        """True if that reply has arrived."""
        while tag not in self._replies and self.is_readable():
            self._take()
        return tag in self._replies

    def _take(self):
        """Receives one whole message."""
        self._need(_HEAD.size)
        self._need(struct.unpack_from("<I", self._in)[0])
        self._torn = True
        size, kind, tag = _HEAD.unpack_from(self._in)
        body = bytes(self._in[_HEAD.size : size])
        del self._in[:size]
        if self._greeting:
            self._greet(kind, body)
        else:
            self._replies[tag] = kind, body
        self._torn = False

    def _greet(self, kind, body):
        wanted, _ = self._greeting.pop(0)
        if kind != wanted + 1 or (wanted == _VERSION and body[6:] != b"9P2000.L"):
            raise OSError(errno.EPROTO, "no ddipfs answers there", self.path)

    def _need(self, count):
        """Receives until at least count bytes are in the buffer."""
        while len(self._in) < count:
            piece = bytearray(max(count - len(self._in), _PIECE))
            # Ctrl-C is raised here, where no data is lost
            if not self.is_readable(_HURRIED_MS if _hurried == _thread.get_ident() else None):
                raise OSError(errno.ETIMEDOUT, "the daemon does not answer", self.path)
            self._torn = True
            self._in += piece[: self._receive_some(piece)]
            self._torn = False

    def call(self, kind: int, body: bytes, data: bytes | memoryview = b"") -> bytes:
        """Sends a message, waits for its reply and returns the body. Raises OSError.

        An exception that Ctrl-C raises meanwhile cancels the request before it propagates.
        """
        tag = self.send(kind, body, data)
        try:
            return self.receive(tag)
        except OSError:
            raise
        except BaseException:
            self.cancel(tag)
            raise

    def cancel(self, tag: int) -> None:
        """Interrupts a request, as Ctrl-C interrupts a system call, and waits for its end."""
        if self._torn:  # in the middle of a reply: what follows cannot be parsed
            self.close()
            return
        with contextlib.suppress(OSError):  # it must not hide the exception in flight
            self.receive(self.send(_FLUSH, struct.pack("<H", tag)))
        self._replies.pop(tag, None)

    # ---- names

    def walk(self, path: str, follow: bool = True) -> tuple[int, int]:
        """(fid, its qid's type) of a path below the root; follow: also follows a link at its end.

        Raises OSError.
        """
        parts = _parts(path)
        for _ in range(_LINKS):
            fid, kinds, error = self._walk(parts)
            links = [i for i, kind in enumerate(kinds) if kind & _LINK]
            if links and (error or follow):
                target = _parts(self._target(parts[: links[0] + 1]))
                parts[links[0] : links[0] + 1] = target
                if not error:
                    self.clunk(fid)
                continue
            if error:
                raise OSError(error, os.strerror(error))
            return fid, kinds[-1] if kinds else 0x80
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def _walk(self, parts):
        """(fid, qid types, 0 or the errno); not an exception, which would keep frames alive."""
        fid, start, kinds, at = self.new_fid(), _ROOT, [], 0
        # the last name goes in its own message, so that its failure is reported with its errno
        while True:
            last = at >= len(parts) - 1
            names = parts[at:] if last else parts[at : min(at + _NAMES, len(parts) - 1)]
            body = struct.pack("<IIH", start, fid, len(names)) + b"".join(map(_text, names))
            try:
                reply = self.call(_WALK, body)
            except OSError as e:
                if start == fid:
                    self.clunk(fid)
                return fid, kinds, e.errno
            kinds += reply[2::_QID]
            if len(kinds) < at + len(names):
                if start == fid:
                    self.clunk(fid)
                return fid, kinds, errno.ENOENT
            start, at = fid, at + len(names)
            if last:
                return fid, kinds, 0

    def _target(self, parts):
        fid, _, error = self._walk(parts)
        if error:
            raise OSError(error, os.strerror(error))
        reply = self.call(_READLINK, struct.pack("<I", fid))
        self.clunk(fid)
        return os.fsdecode(reply[2:])

    def readlink(self, path: str) -> str:
        """The target of a symbolic link."""
        return self._target(_parts(path))

    def clunk(self, fid: int) -> None:
        """Releases a fid. Raises OSError if what was written is refused."""
        self.call(_CLUNK, struct.pack("<I", fid))

    # ---- files

    def open(self, path: str, flags: int, mode: int) -> int:
        """Opens a file, or creates it (O_CREAT). Returns its fid."""
        folder, name = os.path.split("/".join(_parts(path)))
        try:
            fid, _ = self.walk(path, not flags & os.O_NOFOLLOW)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
        else:
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
            self.call(_LOPEN, struct.pack("<II", fid, _flags(flags & ~os.O_CREAT)))
            return fid
        fid, _ = self.walk(folder)
        numbers = struct.pack("<III", _flags(flags), mode, os.getgid())
        self.call(_LCREATE, struct.pack("<I", fid) + _text(name) + numbers)
        return fid

    def ask(self, fid: int, offset: int, count: int) -> int:
        """Requests bytes of an open file. Returns the tag of the reply."""
        count = min(count, MSIZE - _DATA_HEAD)
        return self.send(_READ, struct.pack("<IQI", fid, offset, count))

    def taken(self, tag: int) -> bytes:
        """The bytes that ask() requested; waits for the reply. Raises OSError."""
        return self.receive(tag)[4:]

    def write(self, fid: int, offset: int, data: Buffer) -> int:
        """Writes some or all of data to an open file. Returns the number of bytes written."""
        view = memoryview(data).cast("B")[: MSIZE - _WRITE_HEAD]
        head = struct.pack("<IQI", fid, offset, len(view))
        return struct.unpack("<I", self.call(_WRITE, head, view))[0]

    def fsync(self, fid: int) -> None:
        """Submits what was written and waits for the outcome. Raises OSError if it failed."""
        self.call(_FSYNC, struct.pack("<II", fid, 0))

    def lock(self, fid: int) -> bool:
        """Locks an open file until it is closed. False if it is locked already."""
        body = struct.pack("<IBIQQI", fid, 1, 0, 0, 0, os.getpid()) + _text("")
        return self.call(_LOCK, body)[0] == _LOCK_SUCCESS

    def attributes(self, path: str, follow: bool = True) -> tuple[int, int, float, int]:
        """(mode, size, time of the last modification in seconds, inode number)."""
        fid, _ = self.walk(path, follow)
        return self.fid_attributes(fid)

    def fid_attributes(self, fid: int) -> tuple[int, int, float, int]:
        """Like attributes(), for a fid."""
        reply = self.call(_GETATTR, struct.pack("<IQ", fid, 0x7FF))
        _, _, _, ino, mode, _, _, _, _, size = struct.unpack_from("<QBIQIIIQQQ", reply)
        seconds, nanoseconds = struct.unpack_from("<QQ", reply, 8 + _QID + 12 + 40 + 16)
        return mode, size, seconds + nanoseconds / 1e9, ino

    def listdir(self, path: str) -> list[str]:
        """The names in a directory."""
        fid, _ = self.walk(path)
        self.call(_LOPEN, struct.pack("<II", fid, _flags(os.O_RDONLY | os.O_DIRECTORY)))
        names, offset = [], 0
        while data := self.call(_READDIR, struct.pack("<IQI", fid, offset, MSIZE))[4:]:
            at = 0
            while at < len(data):
                offset, _, n = struct.unpack_from("<QBH", data, at + _QID)
                at += _QID + 11
                names.append(os.fsdecode(data[at : at + n]))
                at += n
        return [name for name in names if name not in (".", "..")]

    def remove(self, path: str, folder: bool = False) -> None:
        """Removes a file, or a directory."""
        above, name = os.path.split("/".join(_parts(path)))
        fid, _ = self.walk(above)
        flags = struct.pack("<I", _REMOVE_DIR if folder else 0)
        self.call(_UNLINKAT, struct.pack("<I", fid) + _text(name) + flags)

    def rename(self, path: str, to: str) -> None:
        """Renames a file."""
        above, name = os.path.split("/".join(_parts(path)))
        to_above, to_name = os.path.split("/".join(_parts(to)))
        fid, _ = self.walk(above)
        to_fid, _ = self.walk(to_above)
        body = struct.pack("<I", fid) + _text(name) + struct.pack("<I", to_fid) + _text(to_name)
        self.call(_RENAMEAT, body)

    def mkdir(self, path: str) -> None:
        """Makes a directory."""
        above, name = os.path.split("/".join(_parts(path)))
        fid, _ = self.walk(above)
        body = struct.pack("<I", fid) + _text(name) + struct.pack("<II", 0o700, os.getgid())
        self.call(_MKDIR, body)
