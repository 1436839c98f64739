"""Which lines warnings name that are raised below what the engine wraps: those under torchrun.

of(name, function) calls a function of torch.distributed, within which every stacklevel is warned
of; functions(rank) are such. What was warned of, and at which line, is in LINES.
"""

import os
import threading
import warnings

import torch
import torch.distributed as dist

LINES = []
LEVELS = range(2, 8)  # the last ones name functions of this file
here = threading.local()  # torch has threads of its own
c10d = dist.distributed_c10d


def warns(real):
    """What torch's functions call, with a warning for each level"""

    def called(*args, **kwargs):
        for level in LEVELS if getattr(here, "warns", False) else ():
            warnings.warn(f"level {level}", stacklevel=level)
        return real(*args, **kwargs)

    return called


class Model(torch.nn.Linear):
    parameters = warns(torch.nn.Module.parameters)
    named_parameters = warns(torch.nn.Module.named_parameters)


def functions(rank):
    one = torch.ones(4) * (rank + 1)
    out = torch.zeros(8)
    return (
        ("all_reduce", lambda: dist.all_reduce(one)),
        ("async", lambda: dist.all_reduce(one, async_op=True).wait()),
        ("all_gather", lambda: dist.all_gather(list(out.chunk(2)), one)),
        ("all_gather_into_tensor", lambda: dist.all_gather_into_tensor(out, one)),
        ("_all_gather_base", lambda: dist._all_gather_base(out, one)),
        ("broadcast", lambda: dist.broadcast(one, 0)),
        ("barrier", lambda: dist.barrier()),
        ("all_gather_object", lambda: dist.all_gather_object([None, None], "text")),
        ("send and recv", lambda: dist.recv(one, 1) if rank == 0 else dist.send(one, 0)),
        ("new_group", lambda: dist.new_group([0, 1])),
        ("DDP", lambda: torch.nn.parallel.DistributedDataParallel(Model(4, 2))),
    )


def beneath(depth, function):
    """Calls it, from that many frames of this file"""
    return beneath(depth - 1, function) if depth else function()


def of(name, function):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        here.warns = True
        try:
            beneath(len(LEVELS), function)
        except RuntimeError as e:  # objects need NumPy
            LINES.append(f"{name}: {type(e).__name__}")
        finally:
            here.warns = False
    for each in seen:
        place = f"{os.path.basename(each.filename)}:{each.lineno}"
        LINES.append(f"{name}: {str(each.message)[:40]}: {place}")


# what many of its functions call, if this version of torch has it
for _name in ("_rank_not_in_group", "_get_default_group", "_check_valid_timeout"):
    if hasattr(c10d, _name):
        setattr(c10d, _name, warns(getattr(c10d, _name)))
