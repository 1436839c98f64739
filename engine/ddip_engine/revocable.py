"""Torch's communicators of NCCL, which C is told of: it ends what is under way in them where Python
does not come to it, because a thread that waits for a collective holds the GIL.

C revokes them (rank_revoke.c), it never aborts them. ncclCommAbort frees a communicator behind
torch's back: NCCLComm keeps the pointer, sets `aborted_` in its own abort() only, and would ask the
freed one for errors and free it again. A revoked one is whole: torch aborts or destroys it as ever.
While C is at it nobody may free it: claimed(). Never run with a GPU.
"""

import contextlib
import functools
import os
import sys

import _ddip
from ddip_engine import gpu

_LIBRARY = "libtorch_cuda.so"  # whose NCCL must be the one that is revoked with
_FREE = ("abort", "shutdown")  # methods of torch's that free communicators

_c10d = None  # torch.distributed.distributed_c10d; None: it has no NCCL
_devices = None  # dist's function
_seen = set()  # ids of groups whose communicators are known as far as there are any
_kept = []  # backends that C knows a communicator of: they live until claimed()


def install(c10d, devices):
    """Before user code. devices(name): which backend of a group serves which device."""
    global _c10d, _devices
    if not c10d.is_nccl_available():
        return
    _c10d, _devices = c10d, devices
    for owner in (c10d.ProcessGroup, c10d.ProcessGroupNCCL):
        for name in _FREE:
            if hasattr(owner, name):
                setattr(owner, name, _claiming(getattr(owner, name)))


def _claiming(real):
    @functools.wraps(real)
    def claims(*args, **kwargs):
        with claimed():
            return real(*args, **kwargs)

    return claims


@contextlib.contextmanager
def claimed():
    """Around what frees communicators. RuntimeError: C is at them, and none may be freed."""
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


def _groups():
    """(group, backend) of all that NCCL serves, in the order in which they were made."""
    if _c10d is None:
        return
    cuda = sys.modules["torch"].device("cuda")
    for group, (name, _) in list(_c10d._world.pg_map.items()):
        if "nccl" in _devices(name).values():
            backend = group._get_backend(cuda)
            if isinstance(backend, _c10d.ProcessGroupNCCL):
                yield group, backend


def backends():
    """Of all groups that NCCL serves, in the order in which they were made."""
    return [backend for _, backend in _groups()]


def used(group):
    """A collective of this group (None: the default one) was made: it may have a communicator."""
    if _c10d is None or id(group) in _seen:
        return
    if not _can_revoke() or _tell(group or _c10d.GroupMember.WORLD):
        _seen.add(id(group))


def _can_revoke():
    """Torch by itself frees no communicator, and its NCCL can revoke."""
    by_itself = os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") != "0"
    if by_itself or not hasattr(_c10d.ProcessGroupNCCL, "_comm_ptr") or not gpu.has_nccl():
        return False
    return _ddip.nccl_can_revoke(_LIBRARY)


def _tell(group):
    """Tells of all there are. False: this group is to get one yet; what it did was for the CPU."""
    claims = _ddip.nccl_claims()
    device = sys.modules["torch"].cuda.current_device()  # whose communicators torch tells
    rows = [(each, backend, _address(backend)) for each, backend in _groups()]
    _kept[:] = [backend for _, backend, address in rows if address]
    _ddip.nccl_revocable(claims, [(address, device) for _, _, address in rows if address])
    return all(address for each, _, address in rows if each is group)


def _address(backend):
    """0: there is no communicator, or none any more."""
    try:
        return backend._comm_ptr()
    except RuntimeError:  # it was aborted
        return 0
