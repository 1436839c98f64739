"""Where ranks meet: one store client for each rank, and the rendezvous handlers of env://, tcp://
and file://, which all lead the ranks of this group to the engine's store (store.py).

On a single host that is a Unix socket that only this user can open. MASTER_ADDR and MASTER_PORT
refer to a separate TCPStore, for external ranks, processes that programs spawn, and programs that
connect to it themselves.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import socket
import sys
from datetime import timedelta
from errno import EHOSTDOWN, EHOSTUNREACH, EOPNOTSUPP
from urllib.parse import parse_qsl, urlparse

from ddip_engine import patches, state
from ddip_engine.groups import store, store_connection
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any
    from urllib.parse import ParseResult

    Met = Iterator[tuple[Any, int, int]]  # a store, a rank, a world size

_CONNECT_S = 60  # timeout; the store exists before any rank

api: Any = None  # torch.distributed
c10d: Any = None  # torch.distributed.distributed_c10d
_real: dict[str, Callable[..., Met]] = {}  # scheme -> torch's own handler
_store: Any = None  # this rank's only client of the store
# the same without torch, for the engine's own keys
_connection: store_connection.Connection | None = None
_tcp_store: Any = None  # this rank's only client of the TCPStore
_endpoint = ("", 0)  # of that TCPStore
_path = ""  # of the store's Unix socket; "" if there is only the TCPStore
# init_process_group calls of this cell, by rendezvous
_inits: collections.Counter[str] = collections.Counter()
# the generation in which the external ranks were met; None: not yet
_external_joined_in: int | None = None


def install() -> None:
    """Replaces torch's handlers. Torch must have been imported."""
    global api, c10d
    api = sys.modules["torch.distributed"]
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    handlers = patches.HANDLERS.get()
    if handlers is not None:
        with patches.HANDLERS:
            _real.update((scheme, handlers[scheme]) for scheme in _OURS)
            handlers.update(_OURS)
    patches.SPAWN.replace(_own_job, sys.modules["torch.multiprocessing"])


def has_handlers() -> bool:
    """Does torch come here by itself? If not, its init needs with_store()."""
    return bool(_real)


def with_store(asked: dict[str, Any]) -> dict[str, Any]:
    """The arguments of init_process_group() with the store that its handler would give it."""
    url = asked.get("init_method") or "env://"
    handler = _OURS.get(url.partition("://")[0])
    if asked.get("store") is not None or handler is None:
        return asked
    given = [f"{name}={asked[name]}" for name in ("rank", "world_size") if asked[name] != -1]
    url += ("&" if "?" in url else "?") + "&".join(given)
    where = [int(each or -1) for each in numbers(url)[1:]]
    if handler is _file_rendezvous and not _is_ours(*where):
        return asked
    store, rank, size = next(handler(url, timeout=asked["timeout"]))
    store.set_timeout(asked["timeout"])
    store = c10d.PrefixStore("default_pg", store)  # as torch does
    return asked | {"init_method": None, "store": store, "rank": rank, "world_size": size}


def start(address: str, port: int, path: str) -> None:
    """Sets where the stores of this group are."""
    global _endpoint, _path
    _endpoint = (address, port)
    _path = path


def is_at(address: str, port: int, path: str) -> bool:
    """Are the stores already known to be there?"""
    return (_endpoint, _path) == ((address, port), path)


def begin_cell() -> None:
    """Restarts the counts: the keys contain the cell's number, so no other cell's can match."""
    _inits.clear()


def drop_clients() -> list[Any]:
    """Forgets and returns the clients, which this process must not use any more."""
    global _store, _tcp_store, _connection
    clients = [client for client in (_store, _tcp_store, _connection) if client is not None]
    _store = _tcp_store = _connection = None
    return clients


def _own_job(real: Callable[..., Any]) -> Callable[..., Any]:
    """Processes that user code spawns form a job of their own: their rank 0 hosts their store."""

    @functools.wraps(real)
    def start_processes(*args: Any, **kwargs: Any) -> Any:
        flag = os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        try:
            return real(*args, **kwargs)
        finally:
            if flag is not None:
                os.environ["TORCHELASTIC_USE_AGENT_STORE"] = flag

    return start_processes


def _client() -> Any:
    """The rank's client of its group's store; it reconnects if its socket was shut down."""
    global _store
    if not _path:
        return _tcp_client()
    if _store is None:
        from ddip_engine.groups import store_client

        _store = store_client.Client(_path)
    with contextlib.suppress(OSError, RuntimeError):  # it was shut down to free this rank
        _store.check(["ddip"])
    return _store


def has_store() -> bool:
    """Can store_set() and store_get() be used? Across hosts there is only the TCPStore."""
    return bool(_path)


def store_set(key: str, value: bytes) -> None:
    """Sets a key of the engine's own in the group's store to these bytes. Works without torch.
    Raises EngineError if there is no store, or it no longer exists."""
    _ask(store.SET, key.encode(), value)


def store_get(key: str) -> bytes:
    """Waits until the key is set. A signal whose handler raises ends the wait."""
    return store.unpack(_ask(store.GET, key.encode()))[0]


def _ask(op: int, *fields: bytes) -> bytes:
    global _connection
    if not _path:
        raise EngineError(EOPNOTSUPP, "the group has no store to meet at")
    if _connection is None:
        _connection = store_connection.Connection(_path)
    try:
        return _connection.call(op, *fields)
    except OSError as e:
        raise EngineError(EHOSTDOWN, f"the store of the group: {e}") from e


def tcp_store_type() -> Any:
    """Torch's TCPStore, or None."""
    other = getattr(sys.modules.get("torch.distributed.rendezvous"), "TCPStore", None)
    return patches.TCP_STORE.get() or other


def _tcp_client() -> Any:
    """The rank's client of the TCPStore; made again if its socket was shut down."""
    global _tcp_store
    if _tcp_store is not None:
        try:
            _tcp_store.check(["ddip"])
            return _tcp_store
        except RuntimeError:  # it was shut down to free this rank
            _tcp_store = None
    host, port = _endpoint
    try:
        socket.getaddrinfo(host, port)
    except (OSError, UnicodeError) as e:
        text = f"MASTER_ADDR {host}, rank 0's host, is not known on {socket.gethostname()} ({e})"
        raise state.EngineError(EHOSTUNREACH, f"{text}: set master_addr") from None
    _tcp_store = tcp_store_type()(
        host, port, is_master=False, timeout=timedelta(seconds=_CONNECT_S), wait_for_workers=False
    )
    return _tcp_store


def _is_ours_to_serve() -> bool:
    return os.getpid() == state.pid and _endpoint[1] != 0


def _is_ours(rank: int, size: int) -> bool:
    """True if this is the group of this mount, and it has no external ranks."""
    return _is_ours_to_serve() and not state.external and (rank, size) == (state.rank, state.size)


def _store_for(
    host: str | None, port: int, rank: int, size: int, timeout: timedelta, tag: str
) -> Any:
    """A store whose keys no other init of this mount sees.

    The engine's store serves the ranks of this group, whatever host and port the program names; a
    group of other processes hosts its own, as it would without the engine.
    """
    own = _is_ours_to_serve()
    if state.external and size == state.size:
        own = own and (host, port) == _endpoint
        if own:
            return _store_with_external()
    if own and ((rank, size) == (state.rank, state.size) or (host, port) == _endpoint):
        if size != state.size:
            tag += f".of{size}"
        _inits[tag] += 1
        prefix = f"{state.generation}.{state.cell}.{_inits[tag]}{tag}"
        return c10d.PrefixStore(prefix, _client())
    hosts = rank == 0 and (host, port) != _endpoint
    options = {"is_master": hosts, "timeout": timeout, "multi_tenant": True}
    return tcp_store_type()(host, port, size, **options)


def _store_with_external() -> Any:
    """The store with the keys that torch's own env:// uses. They can be used only once."""
    global _external_joined_in
    if _external_joined_in == state.generation:
        raise RuntimeError(
            f"the external ranks ({state.external}) can be met once: write `recover` (or `restart`)"
            " to ctl, let their processes join again, then call init_process_group() again"
        )
    _external_joined_in = state.generation
    return _tcp_client()


def forget_external() -> None:
    """Deletes what the ranks of an older generation wrote for the external ones.

    Runs while no rank of the group is in a rendezvous: at a rebuild, and when a new rank joins.
    """
    global _external_joined_in
    if not state.external or api is None or _endpoint[1] == 0:
        return
    client = _tcp_client()
    if not hasattr(client, "list_keys"):  # then they can be met once for each start
        _external_joined_in = state.generation if _external_joined_in is not None else None
        return
    for key in client.list_keys():
        client.delete_key(key)


def numbers(url: str) -> tuple[ParseResult, str | None, str | None]:
    """(parsed url, rank, world size); a number that the url's query does not have is None."""
    parsed = urlparse(url)
    query = dict(parse_qsl(parsed.query))
    return parsed, query.get("rank"), query.get("world_size")


def _environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ValueError(
            "Error initializing torch.distributed using env:// rendezvous: "
            f"environment variable {name} expected, but not set"
        )
    return value


def _env_rendezvous(url: str, timeout: timedelta = timedelta(minutes=30), **kwargs: Any) -> Met:
    """The handler of env://; see torch.distributed.rendezvous."""
    rank: str | int | None
    size: str | int | None
    _, rank, size = numbers(url)
    rank = int(rank if rank is not None else _environment("RANK"))
    size = int(size if size is not None else _environment("WORLD_SIZE"))
    host, port = _environment("MASTER_ADDR"), int(_environment("MASTER_PORT"))
    yield _store_for(host, port, rank, size, timeout, ""), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


def _file_rendezvous(url: str, **kwargs: Any) -> Met:
    """The handler of file://. The ranks of this group meet at the engine's store, under the file's
    name: torch's own handler leaves keys in the file that the next init of a process would find."""
    parsed, rank, size = numbers(url)
    if rank is None or size is None or not _is_ours(int(rank), int(size)):
        yield from _real["file"](url, **kwargs)
        return
    timeout = kwargs.get("timeout", timedelta(minutes=30))
    tag = f".file.{parsed.netloc}{parsed.path}"
    yield _store_for("", 0, int(rank), int(size), timeout, tag), int(rank), int(size)
    raise RuntimeError("Unable to perform rerendezvous using file method")


def _tcp_rendezvous(url: str, timeout: timedelta = timedelta(minutes=30), **kwargs: Any) -> Met:
    """The handler of tcp://; see torch.distributed.rendezvous."""
    parsed: Any  # mypy does not see that the loop leaves no None
    rank: Any
    size: Any
    parsed, rank, size = numbers(url)
    for value, what in (
        (parsed.port, "port number"),
        (rank, "rank parameter"),
        (size, "world size parameter"),
    ):
        if value is None:
            raise ValueError(
                "Error initializing torch.distributed using tcp:// rendezvous: " + what + " missing"
            )
    tag = f".tcp.{parsed.hostname}:{parsed.port}"
    store = _store_for(parsed.hostname, parsed.port, int(rank), int(size), timeout, tag)
    yield store, int(rank), int(size)
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


_OURS: dict[str, Callable[..., Met]] = {
    "env": _env_rendezvous,
    "tcp": _tcp_rendezvous,
    "file": _file_rendezvous,
}
