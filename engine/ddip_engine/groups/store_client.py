"""A rank's client of its group's store, as the Store that torch expects. Imports torch.

C++ holds only the C++ part of a store, which is useless without the Python object: the creator of a
client must keep it alive as long as it may be used.
"""

from __future__ import annotations

from datetime import timedelta

from ddip_engine import patches
from ddip_engine.groups import store
from ddip_engine.groups.store_connection import Connection
from torch.distributed import distributed_c10d as c10d

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Value = str | bytes | Sequence[int]  # of a key or a value; C++ gives lists of numbers


class Client(patches.STORE.get() or c10d.Store):  # type: ignore[misc]  # known when it runs
    """Keys and values behind a Unix socket. A signal, a timeout or an abort ends a wait."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._connection = Connection(path)
        self._clones: list[Client] = []

    def set(self, key: Value, value: Value) -> None:
        self._call(store.SET, _bytes(key), _bytes(value))

    def get(self, key: Value) -> bytes:
        return store.unpack(self._wait(store.GET, [key], self.timeout))[0]

    def add(self, key: Value, amount: int) -> int:
        return int(self._call(store.ADD, _bytes(key), b"%d" % amount))

    def wait(self, keys: Sequence[Value], timeout: timedelta | None = None) -> None:
        self._wait(store.WAIT, keys, self.timeout if timeout is None else timeout)

    def check(self, keys: Sequence[Value]) -> bool:
        return self._call(store.CHECK, *map(_bytes, keys)) == b"1"

    def delete_key(self, key: Value) -> bool:
        return self._call(store.DELETE, _bytes(key)) == b"1"

    def compare_set(self, key: Value, expected: Value, desired: Value) -> bytes:
        return self._call(store.COMPARE_SET, _bytes(key), _bytes(expected), _bytes(desired))

    def append(self, key: Value, value: Value) -> None:
        self._call(store.APPEND, _bytes(key), _bytes(value))

    def multi_get(self, keys: Sequence[Value]) -> list[bytes]:
        return store.unpack(self._wait(store.GET, keys, self.timeout))

    def multi_set(self, keys: Sequence[Value], values: Sequence[Value]) -> None:
        pairs = zip(keys, values, strict=True)
        self._call(store.SET, *(_bytes(each) for pair in pairs for each in pair))

    def num_keys(self) -> int:
        return int(self._call(store.COUNT))

    def list_keys(self) -> list[str]:
        return [key.decode() for key in store.unpack(self._call(store.LIST))]

    # their names in C++
    deleteKey, getNumKeys, listKeys = delete_key, num_keys, list_keys

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> Client:
        """Another client: each has at most one request in flight."""
        other = Client(self._connection.path)
        other.set_timeout(self.timeout)
        self._clones.append(other)
        return other

    def close(self) -> None:
        """Closes the connection; the next call reconnects."""
        self._connection.close()

    def _wait(self, op: int, keys: Sequence[Value], timeout: timedelta) -> bytes:
        try:
            return self._call(op, *map(_bytes, keys), timeout=timeout)
        except TimeoutError:
            text = f"wait timeout after {timeout}, keys: {', '.join(map(str, keys))}"
            raise patches.STORE_ERROR.get(RuntimeError)(text) from None

    def _call(self, op: int, *fields: bytes, timeout: timedelta = timedelta(0)) -> bytes:
        try:
            return self._connection.call(op, *fields, timeout=timeout)
        except ConnectionError as e:
            raise patches.NETWORK_ERROR.get(RuntimeError)(str(e)) from e


def _bytes(value: Value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
