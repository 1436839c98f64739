"""Wraps torch's collectives: records which one a rank is in and how many it has completed.

The stall report and the abort use this.
"""

import functools
import inspect
import sys

import _ddip
from ddip_engine import revocable

_COLLECTIVES = """
    all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_gather_single
    all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier broadcast
    broadcast_object_list gather gather_object monitored_barrier new_group recv recv_object_list
    reduce reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter scatter_object_list
    send send_object_list split_group _all_gather_base _reduce_scatter_base
""".split()
# Not every rank makes these calls, so their number says nothing.
_BY_TWO = ("send", "recv", "send_object_list", "recv_object_list", "wait", "new_group")

c10d = None  # torch.distributed.distributed_c10d
api = None  # torch.distributed


def install():
    """Wraps what blocks on other ranks. Torch must have been imported."""
    global api, c10d
    api = sys.modules["torch"].distributed
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    for name in _COLLECTIVES:
        _count(name)
    _count_wait()
    _mark_others()


def _counted(function, name):
    enter, done = _ddip.collective, _ddip.collective_done
    alike = name not in _BY_TWO

    @functools.wraps(function)
    def counted(*args, **kwargs):
        try:  # first: an interrupt may be raised as soon as the rank is in it
            enter(name)
            result = function(*args, **kwargs)
            group = _group_of(args, kwargs)
            if alike and (group is None or group is c10d.GroupMember.WORLD):
                done()  # all ranks must make this call
            if alike:
                revocable.used(group)
            return result
        finally:
            enter(None)

    return counted


def _group_of(args, kwargs):
    """The group that the call names; None means the default one."""
    group = kwargs.get("group")
    if group is None:
        for each in args:
            if isinstance(each, c10d.ProcessGroup):
                group = each
    return group


def _mark(owner, function, name):
    """Marks what blocks in C++ as a collective does: parts of a wrapped model's step, the store."""
    real, enter = getattr(owner, function), _ddip.collective

    @functools.wraps(real)
    def marked(*args, **kwargs):
        if c10d.GroupMember.WORLD is None:
            return real(*args, **kwargs)
        try:  # first: an interrupt may be raised as soon as the rank is in it
            enter(name)
            result = real(*args, **kwargs)
            revocable.used(None)
            return result
        finally:
            enter(None)

    setattr(owner, function, marked)


def _mark_others():
    _mark(sys.modules["torch.autograd"], "_engine_run_backward", "backward")
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    if parallel is not None:
        _mark(parallel.DistributedDataParallel, "_pre_forward", "forward")
    for function in ("get", "wait"):
        _mark(c10d.Store, function, "store")


def _count(name):
    """Counts a collective. If torch's own decorator wraps it, replaces the inner function, so that
    the one that others have imported, and that torch.compile knows, stays the same object."""
    public = getattr(c10d, name, None)
    if public is None:
        return
    cells = dict(zip(public.__code__.co_freevars, public.__closure__ or (), strict=False))
    inner = cells.get("func")
    if inner is not None and inspect.isfunction(inner.cell_contents):
        inner.cell_contents = _counted(inner.cell_contents, name)
        return
    wrapper = _counted(public, name)
    for module in (c10d, api):
        if getattr(module, name, None) is public:
            setattr(module, name, wrapper)


def _count_wait():
    """`work.wait()` of an asynchronous collective blocks like a collective."""
    c10d.Work.wait = _counted(c10d.Work.wait, "wait")
