"""The engine's own NCCL communicator: of all ranks of the group, each with its GPU, made when it is
first needed, between cells. The program's own communicators know nothing of it.

The ranks meet at the group's store. An interrupt, a failure and a new generation of the process
group end it; the next one is made when it is needed again.
"""

import sys
from errno import EREMOTEIO

import _ddip
from ddip_engine import gpu, rendezvous, state
from ddip_engine.state import EngineError

_joined = False
_attempts = 0  # to make one, in this generation: all ranks make as many


def join():
    """Waits until all ranks have a communicator. EngineError; KeyboardInterrupt."""
    global _joined, _attempts
    if _joined:
        return
    _attempts += 1
    key = f"nccl.{state.generation}.{_attempts}"
    gpu.load("nccl")
    if state.rank == 0:
        made = _guarded(_ddip.nccl_id)
        rendezvous.store_set(key, made)
    else:
        made = rendezvous.store_get(key)
    _call("nccl_join", _ddip.nccl_join, made, state.rank, state.size, device())
    _joined = True


def leave():
    """Ends it, if there is one, whatever the other ranks do."""
    global _joined
    if _joined:
        _joined = False
        _guarded(_ddip.nccl_leave)


def new_generation():
    """Ranks that come anew have made none yet."""
    global _attempts
    _attempts = 0
    leave()


def device():
    """The number of this rank's GPU."""
    torch = gpu.torch_module()
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.current_device()
    return state.local_rank


def measure(name, count, repeats, to, source):
    """(microseconds, wrong elements) of an operation, see _ddip.nccl_measure."""
    return _call(name, _ddip.nccl_measure, name, count, repeats, to, source)


def _call(name, function, *args):
    """Waits in a call of all ranks. Whatever ends it ends the communicator."""
    global _joined
    _ddip.collective(sys.intern(name))
    try:
        return _guarded(function, *args)
    except BaseException:
        _joined = False  # the call has aborted it
        raise
    finally:
        _ddip.collective(None)


def _guarded(function, *args):
    try:
        return function(*args)
    except OSError as e:
        raise EngineError(e.errno or EREMOTEIO, e.strerror) from e
