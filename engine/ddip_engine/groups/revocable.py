"""Reports torch's NCCL communicators to C, which ends the operations in flight in them if Python
cannot, because a thread that waits for a collective holds the GIL.

C revokes them (rank_revoke.c) and never aborts them. ncclCommAbort frees a communicator behind
torch's back: NCCLComm keeps the pointer, sets `aborted_` only in its own abort(), and would query
the freed one for errors and free it again. A revoked one stays valid: torch aborts or destroys it
as usual. While C uses one, nothing may free it: see claimed(). Never run on a GPU.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys

import _ddip
from ddip_engine import patches
from ddip_engine.data import gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_LIBRARY = "libtorch_cuda.so"  # its NCCL must be the one that revokes

_c10d: Any = None  # torch.distributed.distributed_c10d; None: it has no NCCL
_served: Any = None  # returns the groups that NCCL serves, the oldest first
_seen: set[int] = set()  # ids of groups whose communicators, if there are any, are known
_kept: list[Any] = []  # backends with a communicator that C knows: kept alive until claimed()


def install(c10d: Any, served: Callable[[], list[Any]]) -> None:
    """Call before user code. served(): the groups that NCCL serves, the oldest first."""
    global _c10d, _served
    if not hasattr(c10d, "ProcessGroupNCCL"):
        return
    _c10d, _served = c10d, served
    for row in patches.ABORTS.values():
        row.replace(_claiming)


def _claiming(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def claims(*args: Any, **kwargs: Any) -> Any:
        with claimed():
            return real(*args, **kwargs)

    return claims


@contextlib.contextmanager
def claimed() -> Iterator[None]:
    """Surrounds code that frees communicators. Raises RuntimeError if C is still using them."""
    if _c10d is None:
        yield
        return
    if not _ddip.nccl_claim():
        raise RuntimeError("NCCL does not come back from ending the collectives of this rank")
    try:
        _seen.clear()
        _kept.clear()
        yield
    finally:
        _ddip.nccl_release()


def _groups() -> Iterator[tuple[Any, Any]]:
    """(group, backend) of all groups that NCCL serves, in the order of their creation."""
    if _c10d is None:
        return
    cuda = sys.modules["torch"].device("cuda")
    for group in _served():
        get = patches.GET_BACKEND.of(group)
        backend = get(cuda) if get is not None else None
        if isinstance(backend, (_c10d.ProcessGroupNCCL, patches.NCCL2.get(()))):
            yield group, backend


def backends() -> list[Any]:
    """The backends of all groups that NCCL serves, in the order of their creation."""
    return [backend for _, backend in _groups()]


def used(group: Any) -> None:
    """This group (None: the default one) has done a collective: it may have a communicator now."""
    if _c10d is None or id(group) in _seen:
        return
    if not _can_revoke() or _tell(group or _c10d.GroupMember.WORLD):
        _seen.add(id(group))


def _can_revoke() -> bool:
    """True if torch frees no communicator on its own, its NCCL can revoke, and there are other
    ranks: one that is alone waits for nobody, and no new group would be made for it."""
    world = _c10d.GroupMember.WORLD
    if world is not None and world.size() == 1:
        return False
    by_itself = os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") != "0"
    if by_itself or patches.COMM_PTR.of(_c10d.ProcessGroupNCCL) is None or not gpu.has_nccl():
        return False
    return _ddip.nccl_can_revoke(_LIBRARY)


def _tell(group: Any) -> bool:
    """Tells C all communicators. False: this group has none yet; its collective was for the CPU."""
    claims = _ddip.nccl_claims()
    rows = [(each, backend, _address(backend)) for each, backend in _groups()]
    made = [(backend, address) for _, backend, address in rows if address]
    # Asked only where there is a communicator, and so a GPU: without a driver, torch raises.
    device = gpu.current_device() if made else -1  # whose torch returns
    _kept[:] = [backend for backend, _ in made]
    _ddip.nccl_revocable(claims, [(address, device) for _, address in made])
    return all(address for each, _, address in rows if each is group)


def _address(backend: Any) -> int:
    """The address of the communicator; 0 if there is none, or it no longer exists."""
    try:
        return patches.COMM_PTR.of(backend)()
    except RuntimeError:  # it was aborted
        return 0
