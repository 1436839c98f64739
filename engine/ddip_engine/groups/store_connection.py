"""A connection to a group's store (store.py): one request at a time. It does not need torch."""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import timedelta

import _ddip
from ddip_engine.groups import store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHUNK = 1 << 16


class Connection:
    """Sends requests and receives replies. A signal, a timeout or an abort ends a wait."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._socket: Any = None

    def call(self, op: int, *fields: bytes, timeout: timedelta = timedelta(0)) -> bytes:
        """Sends a request and waits for the reply. Any failure closes the connection, so that a
        late reply is never taken for that of another request. Raises TimeoutError, or
        ConnectionError if the store no longer exists."""
        end = time.monotonic() + timeout.total_seconds() if timeout else None
        with self._lock:
            try:
                self._connect()
                self._socket.settimeout(None)
                self._socket.sendall(store.frame(bytes([op]) + store.pack(fields)))
                return self._receive(end)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Closes the connection; the next call reconnects."""
        if self._socket is not None:
            _ddip.store_socket(self._socket.fileno(), False)
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        if self._socket is not None and self._is_over():
            self.close()
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            store.reach(self.path, self._socket.connect)
            _ddip.store_socket(self._socket.fileno(), True)

    def _is_over(self) -> bool:
        """True if the socket was shut down while idle: by an unrelated abort, or by the store."""
        self._socket.settimeout(0)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _receive(self, end: float | None) -> bytes:
        buffer = bytearray()
        while (body := store.unframe(buffer)) is None:
            if end is not None:
                self._socket.settimeout(max(end - time.monotonic(), 0.001))
            data = self._socket.recv(_CHUNK)
            if not data:
                raise ConnectionError(
                    f"the store of this group has closed the connection (pid {os.getpid()})"
                )
            buffer += data
        return body
