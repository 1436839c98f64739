"""A self-test of the process group: times its collectives and checks their results.

All ranks do the same steps; each reports its results in lines that fs/group/selftest.c parses. The
ranks send small whole numbers that depend on the rank, so that each sum is exact and a result from
another rank, or a stale one, is noticed.
"""

from __future__ import annotations

import sys
import time
from errno import EINTR, EOPNOTSUPP, EREMOTEIO

from ddip_engine import patches, state
from ddip_engine.data import gpu
from ddip_engine.groups import communicator, dist, nccl_graphs, rendezvous
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Peer = tuple[int, int] | None  # (to, from)
    Prepared = tuple[Callable[[], object], Any, Any]  # operation, buffer, expected contents
    Timed = tuple[float, int]  # microseconds, wrong elements

_COLLECTIVES = ("all_reduce", "all_gather", "broadcast", "sendrecv")
_ITEM_BYTES = 4  # of a float32
_PERIOD = 61  # of the numbers that a rank sends
_RANK_PERIOD = 509  # of what ranks add to them in sums: exact in float32 up to 16,384 ranks
_ROUNDS = ((64 << 10, 20), (4 << 20, 10), (1 << 62, 3))  # (up to this many bytes, timed rounds)
_PAIRS_TOLD = 256  # limit of pairs that one rank reports
_CHECKS = (1, 2)  # added to the numbers in the checks before and after the timed rounds
_STALE = -1.0  # what a buffer holds before it receives
_WRONG_MAX = (1 << 32) - 1  # the largest number that a reply can hold


def _run_on(link: _Link, sizes: list[int]) -> tuple[str, int]:
    """(lines, wrong elements): what this rank measured and received over a _Link."""
    lines, wrong = [f"about {link.about}\n", *(f"chosen {text}\n" for text in link.chosen())], 0
    for name in _COLLECTIVES if link.size > 1 else _COLLECTIVES[:-1]:
        for size in sizes:
            count = _elements(name, size, link.size)
            us, bad = link.measure(name, count, _rounds(size), link.neighbours())
            whole = count * link.size if name == "all_gather" else count
            facts = f"{whole * _ITEM_BYTES} {count} float32 {us:.1f} {bad}"
            lines.append(f"{name} {facts}\n")
            wrong += bad
    pairs = []
    for peer in peers(link.rank, link.size):
        count = _elements("sendrecv", max(sizes), link.size)
        us, bad = link.measure("sendrecv", count, _rounds(max(sizes)), peer)
        if peer is not None:
            pairs.append((us, bad, f"pair {peer[0]} {count * _ITEM_BYTES} {us:.1f} {bad}\n"))
            wrong += bad
    return "".join(lines + told(pairs)), min(wrong, _WRONG_MAX)


def told(pairs: list[tuple[float, int, str]]) -> list[str]:
    """The lines of these (microseconds, wrong elements, line). Of very many, only those that the
    table needs: the ranks together would otherwise report the square of their number."""
    if len(pairs) > _PAIRS_TOLD:
        pairs = sorted(pairs)
        marks = {0, len(pairs) // 2, len(pairs) - 1}  # the quickest, the middle, the slowest
        pairs = [pair for i, pair in enumerate(pairs) if i in marks or pair[1]]
    return [line for _, _, line in pairs]


def _rounds(size: int) -> int:
    """How many times an operation of that many bytes is timed."""
    return next(count for limit, count in _ROUNDS if size <= limit)


def _elements(name: str, size: int, ranks: int) -> int:
    """Elements that one rank sends in an operation of that many bytes: of the result, if it is an
    all_gather."""
    return max(size // _ITEM_BYTES // (ranks if name == "all_gather" else 1), 1)


def peers(rank: int, size: int) -> Iterator[Peer]:
    """(to, from) of each round of a round-robin tournament, in which each rank is paired with every
    other one in turn; None means that this rank sits the round out."""
    places = size + size % 2
    for turn in range(places - 1):
        if rank == places - 1:
            peer = turn
        else:
            peer = (2 * turn - rank) % (places - 1)
            peer = places - 1 if peer == rank else peer
        yield (peer, peer) if peer < size else None


def summand(rank: int) -> int:
    """What this rank adds to the numbers of all_reduce."""
    return rank % _RANK_PERIOD


def sum_of_summands(size: int) -> int:
    """The sum of summand() over all ranks."""
    whole, rest = divmod(size, _RANK_PERIOD)
    return whole * (_RANK_PERIOD * (_RANK_PERIOD - 1) // 2) + rest * (rest - 1) // 2


class _Link:
    """What the ranks are tested over. about: what it consists of."""

    def __init__(self, rank: int, size: int, about: str) -> None:
        self.rank, self.size, self.about = rank, size, about

    def neighbours(self) -> tuple[int, int]:
        """(to, from) of the ring of all ranks."""
        return (self.rank + 1) % self.size, (self.rank - 1) % self.size

    def chosen(self) -> list[str]:
        """Lines of text that describe the paths of the data, if they can be known."""
        return []

    def measure(self, name: str, count: int, repeats: int, peer: Peer) -> Timed:
        """(microseconds of one operation, wrong elements). peer: (to, from) of sendrecv; None: this
        rank only takes part in the barrier."""
        raise NotImplementedError


class _TorchLink(_Link):
    """Torch's default process group, on the device that its backend serves."""

    def __init__(self) -> None:
        self._torch = sys.modules["torch"]
        self._api = dist.api
        self._device, backend = dist.device_of_default()
        if self._device == "cuda":
            self._device = f"cuda:{gpu.current_device()}"
        version = patches.VERSION.get("unknown")
        about = f"{backend}, torch {version}, float32 on {self._device.partition(':')[0]}"
        world = dist.c10d.GroupMember.WORLD
        super().__init__(world.rank(), world.size(), about)

    def measure(self, name: str, count: int, repeats: int, peer: Peer) -> Timed:
        if peer is None:
            self._api.barrier()
            return 0.0, 0
        prepare = getattr(self, "_" + name)
        base = self._torch.arange(count, device=self._device).remainder_(_PERIOD).float()
        wrong = self._check(*prepare(base, _CHECKS[0], peer))
        operation, _, _ = prepare(base, 0, peer)
        self._api.barrier()
        self._synchronize()
        begin = time.perf_counter()
        for _ in range(repeats):
            operation()
        self._synchronize()
        us = (time.perf_counter() - begin) / repeats * 1e6
        return us, wrong + self._check(*prepare(base, _CHECKS[1], peer))

    def _synchronize(self) -> None:
        if self._device == "cpu":
            return
        if (synchronize := patches.SYNCHRONIZE.get()) is not None:
            synchronize()
        else:
            self._torch.ones(1, device=self._device).item()  # waits for what is queued before it

    def _check(self, operation: Callable[[], object], received: Any, expected: Any) -> int:
        operation()
        self._synchronize()
        return int((received != expected).sum())

    # each returns (the operation, the buffer that it fills, the expected contents)

    def _all_reduce(self, base: Any, added: int, _: Peer) -> Prepared:
        data = base + (summand(self.rank) + added)
        expected = base * self.size + (sum_of_summands(self.size) + self.size * added)
        return lambda: self._api.all_reduce(data), data, expected

    def _all_gather(self, base: Any, added: int, _: Peer) -> Prepared:
        data, ranks = base + (self.rank + added), range(self.size)
        received = self._stale((self.size, *base.shape))
        expected = self._torch.stack([base + (rank + added) for rank in ranks])
        return lambda: self._api.all_gather(list(received), data), received, expected

    def _broadcast(self, base: Any, added: int, _: Peer) -> Prepared:
        expected = base + added
        data = expected.clone() if self.rank == 0 else self._stale(base.shape)
        return lambda: self._api.broadcast(data, 0), data, expected

    def _sendrecv(self, base: Any, added: int, peer: tuple[int, int]) -> Prepared:
        to, source = peer
        data, received = base + (self.rank + added), self._stale(base.shape)
        parts = [
            self._api.P2POp(self._api.isend, data, to),
            self._api.P2POp(self._api.irecv, received, source),
        ]

        def operation() -> None:
            for work in self._api.batch_isend_irecv(parts):
                work.wait()

        return operation, received, base + (source + added)

    def _stale(self, shape: tuple[int, ...]) -> Any:
        kind = {"dtype": self._torch.float32, "device": self._device}
        return self._torch.full(shape, _STALE, **kind)


class _NcclLink(_Link):
    """The engine's own communicator: NCCL by itself, as in nccl-tests. chosen: see _Link."""

    def __init__(self, chosen: Callable[[], list[str]]) -> None:
        super().__init__(state.rank, state.size, f"{gpu.load('nccl')}, float32 on cuda")
        self.chosen = chosen  # type: ignore[method-assign]  # has the same form

    def measure(self, name: str, count: int, repeats: int, peer: Peer) -> Timed:
        if peer is None:
            return communicator.measure("barrier", 1, 1, 0, 0)
        return communicator.measure(name, count, repeats, *peer)


def _test(sizes: list[int]) -> tuple[str, int]:
    if not _is_nccl():
        return _run_on(_TorchLink(), sizes)
    if gpu.uses_cuda() and (synchronize := patches.SYNCHRONIZE.get()) is not None:
        synchronize()  # so that no work of the program runs during the test
    with nccl_graphs.dumped() as chosen, communicator.joined():
        return _run_on(_NcclLink(chosen), sizes)


def _is_nccl() -> bool:
    """True if NCCL itself is tested, not torch. Raises EOPNOTSUPP if nothing can be tested."""
    if dist.has_own_nccl():
        return True
    world = dist.c10d.GroupMember.WORLD if dist.c10d is not None else None
    if world is None:
        raise EngineError(
            EOPNOTSUPP,
            "there is no process group to test: set backend gloo or nccl and restart, "
            "or call init_process_group() in a cell",
        )
    if world.size() != state.size:
        text = f"the default process group has {world.size()} of {state.size} ranks"
        raise EngineError(EOPNOTSUPP, f"{text}: write recover to ctl for one of all ranks")
    # the engine's own communicator needs a store where the ranks meet
    return dist.device_of_default()[0] == "cuda" and rendezvous.has_store() and gpu.has_nccl()


def run_all(
    sizes: str, call: Callable[[Callable[[], tuple[str, int]]], tuple[str, int]]
) -> tuple[str, int]:
    """Runs the self-test with these sizes ("1024 4096", bytes), by call(function), which raises
    KeyboardInterrupt if an interrupt ended it. See _run_on()."""
    try:
        each = [int(size) for size in sizes.split()]
        return call(lambda: _test(each))
    except KeyboardInterrupt:
        raise EngineError(EINTR, f"rank {state.rank}: interrupted") from None
    except EngineError as e:
        raise EngineError(e.errno, f"rank {state.rank}: {e}") from None
    except Exception as e:  # a link is broken, or memory is short
        text = f"rank {state.rank}: {type(e).__name__}: {e}"
        raise EngineError(EREMOTEIO, text) from e
