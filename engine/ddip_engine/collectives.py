"""Wraps torch's collectives: records which one a rank is in and how many it has completed.

The stall report and the abort use this.
"""

import functools
import inspect
import sys

import _ddip
from ddip_engine import patches, revocable

# Not every rank makes these calls, so their number says nothing.
_BY_TWO = ("send", "recv", "send_object_list", "recv_object_list", "wait", "new_group")
# What blocks in C++ as a collective does, and what it is called.
_BLOCK = {
    patches.BACKWARD: "backward",
    patches.FORWARD: "forward",
    patches.STORE_GET: "store",
    patches.STORE_WAIT: "store",
}

c10d = None  # torch.distributed.distributed_c10d
api = None  # torch.distributed


def install():
    """Wraps what blocks on other ranks. Torch must have been imported."""
    global api, c10d
    api = sys.modules["torch"].distributed
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    for name, row in patches.COLLECTIVES.items():
        _count(row, name)
    # `work.wait()` of an asynchronous collective blocks like a collective
    patches.WORK_WAIT.replace(lambda real: _counted(patches.WORK_WAIT, real, "wait"))
    for row, name in _BLOCK.items():
        row.replace(functools.partial(_marked, row, name))


def _counted(row, function, name):
    enter = _ddip.collective

    @functools.wraps(function)
    def counted(*args, **kwargs):
        try:  # first: an interrupt may be raised as soon as the rank is in it
            enter(name)
            result = function(*args, **kwargs)
            if name not in _BY_TWO:
                with row:
                    _done(args, kwargs)
            return result
        finally:
            enter(None)

    return counted


def _done(args, kwargs):
    group = _group_of(args, kwargs)
    if group is None or group is c10d.GroupMember.WORLD:
        _ddip.collective_done()  # all ranks must make this call
    revocable.used(group)


def _group_of(args, kwargs):
    """The group that the call names; None means the default one."""
    group = kwargs.get("group")
    if group is None:
        for each in args:
            if isinstance(each, c10d.ProcessGroup):
                group = each
    return group


def _marked(row, name, real):
    enter = _ddip.collective

    @functools.wraps(real)
    def marked(*args, **kwargs):
        if c10d.GroupMember.WORLD is None:
            return real(*args, **kwargs)
        try:  # first: an interrupt may be raised as soon as the rank is in it
            enter(name)
            result = real(*args, **kwargs)
            with row:
                revocable.used(None)
            return result
        finally:
            enter(None)

    return marked


def _count(row, name):
    """Counts a collective. If torch's own decorator wraps it, replaces the inner function, so that
    the one that others have imported, and that torch.compile knows, stays the same object."""
    public = row.get()
    with row:
        names = public.__code__.co_freevars if inspect.isfunction(public) else ()
        inner = public.__closure__[names.index("func")] if "func" in names else None
        if inner is not None and inspect.isfunction(inner.cell_contents):
            counted = _counted(row, inner.cell_contents, name)
            inner.cell_contents = patches.passed_over(counted)
            return
    row.replace(lambda real: _counted(row, real, name), api)
