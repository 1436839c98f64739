"""An open file that is served on a socket."""

import os
import time

from ddip import p9
from ddip.opened import Opened

AHEAD = 64 << 10  # bytes asked for by who waits for data before reading it
_LOCK_AGAIN_S = 0.05


class File(Opened):
    """An open file, with the methods of files.File."""

    def __init__(self, path, inner, flags, mode):
        """path: of the socket; inner: below it. Raises OSError."""
        self._name = f"{path}/{inner}"
        self._connection = p9.Connection(path)
        self._ahead = None  # the tag of a read that was asked for and not taken
        self._left = b""  # what it gave beyond what the reads since wanted
        self._offset = 0
        try:
            self._fid = self._connection.open(inner, flags, mode)
        except BaseException:
            self._connection.close()
            raise
        self._end = flags & os.O_APPEND

    def _ask(self, count):
        return self._connection.ask(self._fid, self._offset, count)

    def arm(self):
        """Asks for data. Returns a descriptor that is readable when it has come, or failed.

        For who then reads AHEAD bytes or more: what is left of them is there without it.
        """
        if self._ahead is None:
            self._ahead = self._ask(AHEAD)
        return self._connection.fileno()

    def poll(self, wait_ms=None):
        """True if a read would not wait; waits so long for it (None: for ever)."""
        if self._left:
            return True
        self.arm()
        if self._connection.has(self._ahead):
            return True
        return self._connection.is_readable(wait_ms) and self._connection.has(self._ahead)

    def read(self, count):
        """Some bytes, b"" at the end."""
        if self._left or self._ahead is not None:
            return self._read_ahead(count)
        memory = bytearray(min(count, p9.MSIZE))
        del memory[self.readinto(memory) :]
        return bytes(memory)

    def _read_ahead(self, count):
        """What was asked for before; what is more than count is there for the next read."""
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

    def readinto(self, memory):
        """The same into memory. Returns the count."""
        view = memoryview(memory).cast("B")
        if self._left or self._ahead is not None:
            data = self._read_ahead(len(view))
            view[: len(data)] = data
            return len(data)
        tag = self._ask(len(view))
        count = self._wait(lambda: self._connection.receive_data(tag, view), tag)
        self._offset += count
        return count

    def write(self, data):
        """Writes some of it. Returns how much."""
        count = self._connection.write(self._fid, self._offset, data)
        self._offset += count
        return count

    def fsync(self):
        """Submits what was written, and waits. Raises OSError with the outcome."""
        self._connection.fsync(self._fid)

    def seek(self, offset):
        """The next read or write is there."""
        if self._ahead is not None:
            self._connection.cancel(self._ahead)
        self._ahead, self._left, self._offset = None, b"", offset

    def size(self):
        """Of the file as it is now."""
        return self._connection.fid_attributes(self._fid)[1]

    def lock(self, wait=False):
        """True if this file is locked for us now, until it is closed; wait: until it is."""
        while not self._connection.lock(self._fid):
            if not wait:
                return False
            time.sleep(_LOCK_AGAIN_S)  # the protocol has no other way
        return True

    def close(self):
        """Raises OSError with the outcome of what was written and not submitted."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.clunk(self._fid)
            finally:
                connection.close()

    def abandon(self):
        """Closes it without waiting for anything."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
