"""One of every kind of collective on two ranks, under torchrun and `ddip run`: the same lines.

usage: collectives.py DIR: writes DIR/RANK, a line for each: its name, and what this rank got, or
the type of what it raised, since not every version of torch has all of them for gloo.
DIR/RANK.warned has which lines the warnings name that are raised within them (warned.py).
"""

import os
import sys

import torch
import torch.distributed as dist
import warned


def inplace(value, function, *args, **kwargs):
    value = value.clone()
    function(value, *args, **kwargs)
    return value.tolist()


def parts_of(function, count=2, length=4):
    out = [torch.zeros(length) for _ in range(count)]
    function(out)
    return [each.tolist() for each in out]


def whole(length, function):
    out = torch.zeros(length)
    function(out)
    return out.tolist()


def objects(function, *given):
    out = list(given) or [None, None]
    function(out)
    return out


def tensors(mine, at_0):
    """(name, function that returns what this rank got), for tensors"""
    # the names of torch 2.13, before they were others
    gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    reduce_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    parts = list(mine.chunk(2))

    def later():
        value = mine.clone()
        work = dist.all_reduce(value, async_op=True)
        work.wait()
        return value.tolist(), work.is_completed()

    def reduce():
        got = inplace(mine, dist.reduce, 0)
        return got if at_0 else None  # else not defined

    return (
        ("all_reduce", lambda: inplace(mine, dist.all_reduce)),
        ("max", lambda: inplace(mine, dist.all_reduce, op=dist.ReduceOp.MAX)),
        ("async", later),
        ("group", lambda: inplace(mine, dist.all_reduce, group=dist.new_group([0, 1]))),
        ("broadcast", lambda: inplace(mine, dist.broadcast, 1)),
        ("reduce", reduce),
        ("all_gather", lambda: parts_of(lambda out: dist.all_gather(out, mine))),
        ("all_gather_single", lambda: whole(8, lambda out: gather_single(out, mine))),
        ("gather", lambda: parts_of(lambda out: dist.gather(mine, out if at_0 else None))),
        ("scatter", lambda: whole(2, lambda out: dist.scatter(out, parts if at_0 else None))),
        ("reduce_scatter", lambda: whole(2, lambda out: dist.reduce_scatter(out, parts))),
        ("reduce_scatter_single", lambda: whole(2, lambda out: reduce_single(out, mine))),
        ("all_to_all", lambda: parts_of(lambda out: dist.all_to_all(out, parts), length=2)),
        ("all_to_all_single", lambda: whole(4, lambda out: dist.all_to_all_single(out, mine))),
        ("barrier", dist.barrier),
        ("monitored_barrier", dist.monitored_barrier),
    )


def others(mine, rank):
    """The same, for messages from rank to rank, and for objects"""
    other, at_0 = 1 - rank, rank == 0

    def both_ways(value):
        work = dist.isend(mine, other)
        dist.recv(value, other)
        work.wait()

    def in_batch(value):
        ways = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, value, other)]
        for work in dist.batch_isend_irecv(ways):
            work.wait()

    def scatter(out):
        dist.scatter_object_list(out, ["a", "b"] if at_0 else None)

    return (
        ("send and recv", lambda: whole(4, both_ways)),
        ("batch", lambda: whole(4, in_batch)),
        ("all_gather_object", lambda: objects(lambda out: dist.all_gather_object(out, {rank: 1}))),
        (
            "gather_object",
            lambda: objects(lambda o: dist.gather_object([rank], o if at_0 else None)),
        ),
        ("scatter_object_list", lambda: objects(scatter, None)),
        ("broadcast_object_list", lambda: objects(dist.broadcast_object_list, rank, "text")),
    )


def main(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mine = torch.full((4,), rank + 1.0)
    with open(os.path.join(folder, str(rank)), "w", buffering=1, encoding="utf-8") as file:
        for name, function in (*tensors(mine, rank == 0), *others(mine, rank)):
            try:
                got = function()
            except (RuntimeError, ValueError, NotImplementedError) as e:
                got = type(e).__name__
            print(name, got, file=file)
    for name, function in warned.functions(rank):
        warned.of(name, function)
    warned.of("destroy", dist.destroy_process_group)
    with open(os.path.join(folder, f"{rank}.warned"), "w", encoding="utf-8") as file:
        print(*warned.LINES, sep="\n", file=file)


main(sys.argv[1])
