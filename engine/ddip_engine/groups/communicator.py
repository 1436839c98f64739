"""The engine's own NCCL communicator over all ranks of the group, each with its GPU. It is created
between cells when it is needed, and destroyed after use because it takes GPU memory. It is
independent of the program's own communicators.

The ranks meet at the group's store. An interrupt or a failure aborts the communicator.
"""

from __future__ import annotations

import contextlib
import sys
from errno import EREMOTEIO

import _ddip
from ddip_engine import state
from ddip_engine.data import gpu
from ddip_engine.groups import rendezvous
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")

_attempts = 0  # to create one in this generation: as many on every rank


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """All ranks have the communicator inside; each waits for the others on entry and on exit.
    Raises EngineError or KeyboardInterrupt."""
    _join()
    try:
        yield
        _call("finalize", _ddip.nccl_leave)
    except BaseException:
        _guarded(_ddip.nccl_abort)  # what is left of it
        raise


def _join() -> None:
    global _attempts
    _attempts += 1
    key = f"nccl.{state.generation}.{_attempts}"
    gpu.load("nccl")
    if state.rank == 0:
        made = _guarded(_ddip.nccl_id)
        rendezvous.store_set(key, made)
    else:
        made = rendezvous.store_get(key)
    _call("init", _ddip.nccl_join, made, state.rank, state.size, _device())


def new_generation() -> None:
    """Restarts the count: ranks that join have made no attempt yet."""
    global _attempts
    _attempts = 0


def _device() -> int:
    """The number of this rank's GPU."""
    return gpu.current_device() if gpu.uses_cuda() else state.local_rank


def measure(name: str, count: int, repeats: int, to: int, source: int) -> tuple[float, int]:
    """(microseconds, wrong elements) of an operation; see _ddip.nccl_measure."""
    return _call(name, _ddip.nccl_measure, name, count, repeats, to, source)


def _call(name: str, function: Callable[..., T], *args: Any) -> T:
    """Makes a call that all ranks make, recorded as a collective."""
    return _ddip.within(sys.intern(name), _guarded, (function, *args), {})


def _guarded(function: Callable[..., T], *args: Any) -> T:
    try:
        return function(*args)
    except OSError as e:
        # C raises it with a text
        raise EngineError(e.errno or EREMOTEIO, e.strerror) from e  # type: ignore[arg-type]
