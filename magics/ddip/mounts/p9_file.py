"""An open file that is served on a socket."""

from __future__ import annotations

import time

from ddip.mounts import p9
from ddip.mounts.opened import Opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Buffer


AHEAD = 64 << 10  # bytes to request when waiting for data before reading it
_LOCK_AGAIN_S = 0.05


class File(Opened):
    """An open file, with the methods of files.File."""

    def __init__(self, path: str, inner: str, flags: int, mode: int) -> None:
        """path: the socket; inner: the path below it. Raises OSError."""
        self._name = f"{path}/{inner}"
        self._connection: Any = p9.Connection(path)  # None once it is closed
        # the tag of a read that was requested ahead and not yet collected
        self._ahead: int | None = None
        self._left = b""  # data that was read ahead and not yet returned
        self._offset = 0
        try:
            self._fid = self._connection.open(inner, flags, mode)
        except BaseException:
            self._connection.close()
            raise

    def _ask(self, count):
        return self._connection.ask(self._fid, self._offset, count)

    def arm(self) -> int:
        """Requests data. Returns a descriptor that is readable when it has arrived, or failed.

        Then read at least AHEAD bytes: data left over from a smaller read does not make the
        descriptor readable.
        """
        if self._ahead is None:
            self._ahead = self._ask(AHEAD)
        return self._connection.fileno()

    def poll(self, wait_ms: float | None = None) -> bool:
        """True if a read would not block; waits up to wait_ms for that (None: forever)."""
        if self._left:
            return True
        self.arm()
        if self._connection.has(self._ahead):
            return True
        return self._connection.is_readable(wait_ms) and self._connection.has(self._ahead)

    def read(self, count: int) -> bytes:
        """Reads at most count bytes. Returns b"" at the end."""
        if self._left or self._ahead is not None:
            return self._read_ahead(count)
        memory = bytearray(min(count, p9.MSIZE))
        del memory[self.readinto(memory) :]
        return bytes(memory)

    def _read_ahead(self, count):
        """At most count bytes of the data requested ahead; the rest is kept for the next read."""
        if not self._left:
            tag, self._ahead = self._ahead, None
            self._left = self._wait(lambda: self._connection.taken(tag), tag)
            self._offset += len(self._left)
        data, self._left = self._left[:count], self._left[count:]
        return data

    def _wait(self, receive, tag):
        try:
            return receive()
        except OSError:
            raise
        except BaseException:
            self._connection.cancel(tag)
            raise

    def readinto(self, memory: Buffer) -> int:
        """Like read(), into memory. Returns the number of bytes."""
        view = memoryview(memory).cast("B")
        if self._left or self._ahead is not None:
            data = self._read_ahead(len(view))
            view[: len(data)] = data
            return len(data)
        tag = self._ask(len(view))
        count = self._wait(lambda: self._connection.receive_data(tag, view), tag)
        self._offset += count
        return count

    def write(self, data: Buffer) -> int:
        """Writes some or all of data. Returns the number of bytes written."""
        count = self._connection.write(self._fid, self._offset, data)
        self._offset += count
        return count

    def fsync(self) -> None:
        """Submits what was written and waits for the outcome. Raises OSError if it failed."""
        self._connection.fsync(self._fid)

    def seek(self, offset: int) -> None:
        """Sets the offset of the next read or write."""
        if self._ahead is not None:
            self._connection.cancel(self._ahead)
        self._ahead, self._left, self._offset = None, b"", offset

    def size(self) -> int:
        """The current size of the file."""
        return self._connection.fid_attributes(self._fid)[1]

    def lock(self, wait: bool = False) -> bool:
        """Locks the file until it is closed. False if it is locked already; wait: waits instead."""
        while not self._connection.lock(self._fid):
            if not wait:
                return False
            time.sleep(_LOCK_AGAIN_S)  # the protocol has no way to wait for a lock
        return True

    def close(self) -> None:
        """Closes the file. Raises OSError if data written but not yet submitted is refused."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.clunk(self._fid)
            finally:
                connection.close()

    def abandon(self) -> None:
        """Closes the file without waiting for anything."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
