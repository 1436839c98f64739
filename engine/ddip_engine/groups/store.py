"""The store where the ranks of a group meet: keys and values behind a Unix socket in the group's
own directory, which no other user can enter; a TCPStore on the loopback is open to everyone. It
does not need torch.

A request is length[4] op[1] and fields, each length[4] and its bytes; a reply is length[4] and
bytes. GET and WAIT are answered once all their keys exist; a client has one request in flight at a
time.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn, TypeVar

    T = TypeVar("T")
    Data = dict[bytes, bytes]
    Answers = Callable[[bytes], None]

SET, GET, ADD, WAIT, CHECK, DELETE, COMPARE_SET, APPEND, COUNT, LIST = range(10)

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 16
_BACKLOG = 1024
_PAUSE_S = 0.05  # without accepting, after that has failed: for want of descriptors, for example
_CREDENTIALS = struct.Struct("iii")  # pid, uid, gid


def pack(fields: Iterable[bytes]) -> bytes:
    """Encodes fields as bytes."""
    return b"".join(_LENGTH.pack(len(field)) + field for field in fields)


def unpack(data: bytes) -> list[bytes]:
    """Decodes the list of fields that pack() encoded."""
    fields, at = [], 0
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        fields.append(bytes(data[at : at + size]))
        at += size
    return fields


def frame(body: bytes) -> bytes:
    """A body as it is sent, preceded by its length."""
    return _LENGTH.pack(len(body)) + body


def unframe(buffer: bytearray) -> bytes | None:
    """Removes the first complete body from a bytearray; None if it has not arrived yet."""
    if len(buffer) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack_from(buffer)
    end = _LENGTH.size + size
    if len(buffer) < end:
        return None
    body = bytes(buffer[_LENGTH.size : end])
    del buffer[:end]
    return body


def reach(path: str, use: Callable[[str], T]) -> T:
    """Calls use(address) with an address of the socket's path, however long the path is."""
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return use(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


def listen(path: str) -> socket.socket:
    """Returns a listening socket. Removes what another process left at this path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.path.lexists(path):
        os.unlink(path)
    reach(path, listener.bind)
    os.chmod(path, 0o600)
    listener.listen(_BACKLOG)
    return listener


class Server:
    """Serves the clients of a listening socket forever."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._data: Data = {}
        self._waiting: dict[socket.socket, tuple[int, list[bytes]]] = {}  # connection -> (op, keys)
        self._selector = selectors.DefaultSelector()
        self._pause: float | None = None  # in seconds, while it does not listen
        self._listen()

    def _listen(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._pause = None

    def serve(self) -> NoReturn:
        """Never returns."""
        while True:
            ready = self._selector.select(self._pause)
            if self._pause is not None:
                self._listen()
            for key, _ in ready:
                self._serve_one(key.fileobj, key.data)  # type: ignore[arg-type]  # a socket

    def _serve_one(self, ready: socket.socket, buffer: bytearray) -> None:
        """What fails ends its own connection, whose client finds it closed, and nothing else."""
        try:
            if ready is self._listener:
                self._accept()
            else:
                self._read(ready, buffer)
        except Exception:
            if ready is self._listener:
                self._selector.unregister(ready)
                self._pause = _PAUSE_S
            else:
                self._drop(ready)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(peer)[1] not in (os.getuid(), 0):
            connection.close()
            return
        self._selector.register(connection, selectors.EVENT_READ, bytearray())

    def _read(self, connection: socket.socket, buffer: bytearray) -> None:
        try:
            data = connection.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        buffer += data
        while (body := unframe(buffer)) is not None:
            self._run_command(connection, body[0], unpack(body[1:]))

    def _drop(self, connection: socket.socket) -> None:
        self._waiting.pop(connection, None)
        self._selector.unregister(connection)
        connection.close()

    def _answer(self, connection: socket.socket, body: bytes = b"") -> None:
        try:
            connection.sendall(frame(body))
        except OSError:
            connection.shutdown(socket.SHUT_RDWR)  # the next read drops it

    def _run_command(self, connection: socket.socket, op: int, fields: list[bytes]) -> None:
        if op in (GET, WAIT):
            self._waiting[connection] = (op, fields)
            self._look_at([connection])
            return
        changed = _ACTIONS[op](self._data, fields, lambda body: self._answer(connection, body))
        if changed:
            self._look_at(list(self._waiting))

    def _look_at(self, connections: Iterable[socket.socket]) -> None:
        for connection in connections:
            op, keys = self._waiting[connection]
            if all(key in self._data for key in keys):
                del self._waiting[connection]
                found = [self._data[key] for key in keys] if op == GET else []
                self._answer(connection, pack(found))


# ---- requests that are answered at once: functions of the data, the fields, and a function that
# ---- sends the reply; they return True if a key may be new


def _set(data: Data, fields: list[bytes], answer: Answers) -> bool:
    for key, value in zip(fields[::2], fields[1::2], strict=True):
        data[key] = value
    answer(b"")
    return True


def _add(data: Data, fields: list[bytes], answer: Answers) -> bool:
    key, amount = fields
    data[key] = b"%d" % (int(data.get(key, b"0")) + int(amount))
    answer(data[key])
    return True


def _check(data: Data, fields: list[bytes], answer: Answers) -> None:
    answer(b"%d" % all(key in data for key in fields))


def _delete(data: Data, fields: list[bytes], answer: Answers) -> None:
    answer(b"%d" % (data.pop(fields[0], None) is not None))


def _compare_set(data: Data, fields: list[bytes], answer: Answers) -> bool:
    """As in TCPStore, a missing key is set if nothing was expected. Replies with its value now."""
    key, expected, desired = fields
    if data.get(key, b"") == expected:
        data[key] = desired
    answer(data.get(key, expected))
    return True


def _append(data: Data, fields: list[bytes], answer: Answers) -> bool:
    data[fields[0]] = data.get(fields[0], b"") + fields[1]
    answer(b"")
    return True


def _count(data: Data, fields: list[bytes], answer: Answers) -> None:
    answer(b"%d" % len(data))


def _list(data: Data, fields: list[bytes], answer: Answers) -> None:
    answer(pack(data))


_ACTIONS: dict[int, Callable[[Data, list[bytes], Answers], bool | None]] = {
    SET: _set,
    ADD: _add,
    CHECK: _check,
    DELETE: _delete,
    COMPARE_SET: _compare_set,
    APPEND: _append,
    COUNT: _count,
    LIST: _list,
}
