"""A process group for the workers of ranch(): TorchDDPCtx and in_torchddp().

torch is imported only when one of them is used.
"""

from __future__ import annotations

import contextlib
import os
import sys

from ddip.jobs.workers import ranch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any, Literal, TypeVar

    from typing_extensions import Self

    T = TypeVar("T")


_PORT = 29500  # the default of torch's own launchers, for groups over several hosts


class TorchDDPCtx(contextlib.AbstractContextManager):
    """Creates torch's default process group on entry and destroys it on exit.

    world_size: that of the group. base_rank: the rank of local worker 0. use_gpu: uses NCCL, and
    the GPU with the number LOCAL_RANK, if there are GPUs; otherwise gloo. addr, port: where rank 0
    hosts the store, for groups over several hosts; without a port, the workers of one call meet as
    the ranks of their group do. LOCAL_RANK and LOCAL_WORLD_SIZE must be set, as ranch() does.
    """

    def __init__(
        self,
        *args: object,
        world_size: int | None = None,
        base_rank: int = 0,
        use_gpu: bool = True,
        addr: str = "127.0.0.1",
        port: int | None = None,
        num_threads: int = 1,
        **kwargs: object,
    ) -> None:
        if not world_size or not 0 <= base_rank < world_size:
            raise ValueError(f"want world_size > base_rank >= 0, not {world_size} and {base_rank}")
        self._size = world_size
        self._base = base_rank
        self._use_gpu = use_gpu
        self._addr = addr
        self._port = port
        self._threads = num_threads
        self._before: dict[str, str | None] = {}
        self._made = False

    def ddip_backend(self, nprocs: int) -> str:
        """The backend if a group of nprocs ranks can serve as this one; otherwise "none"."""
        if self._port is not None or (self._size, self._base) != (nprocs, 0):
            return "none"
        return "auto" if self._use_gpu else "gloo"

    def __enter__(self) -> Self:
        import torch
        from torch import distributed

        rank = self._rank()
        backend = "gloo"
        if self._use_gpu and torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            backend = "nccl"
        self._set_environment(rank)
        if not distributed.is_initialized():
            self._join(distributed, backend, rank)
        return self

    def _rank(self):
        try:
            local, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        except KeyError as e:
            raise KeyError(f"{e.args[0]} is not set: run this by ranch()") from None
        if not 0 < local_size <= self._size or local + self._base >= self._size:
            raise ValueError(
                f"worker {local} of {local_size} from rank {self._base} on: no rank of {self._size}"
            )
        return local + self._base

    def _set_environment(self, rank):
        values = {"OMP_NUM_THREADS": str(self._threads)}
        place = {"RANK": str(rank), "WORLD_SIZE": str(self._size)}
        known = "MASTER_PORT" in os.environ and place.items() <= os.environ.items()
        if self._port is not None or not known:  # otherwise ranch() has set where to meet
            values |= place
            values |= {"MASTER_ADDR": self._addr, "MASTER_PORT": str(self._port or _PORT)}
            if self._addr.startswith("127.") and "GLOO_SOCKET_IFNAME" not in os.environ:
                values["GLOO_SOCKET_IFNAME"] = "lo"
        self._before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)

    def _join(self, distributed, backend, rank):
        hook = sys.excepthook  # each init_process_group() wraps it again
        alone = distributed.HashStore() if self._size == 1 and self._port is None else None
        distributed.init_process_group(backend, store=alone, rank=rank, world_size=self._size)
        sys.excepthook = hook
        self._made = True
        if backend == "gloo" and self._size > 1:
            # the first to be ready may finish and close its connections while others still connect
            distributed.barrier()

    def __exit__(self, *exc_info: object) -> Literal[False]:
        import torch

        if self._made:
            torch.distributed.destroy_process_group()
            self._made = False
        if self._use_gpu and torch.cuda.is_available():
            torch.cuda.empty_cache()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        return False


def in_torchddp(
    nprocs: int,
    fn: Callable[..., T],
    *args: Any,
    ctx: AbstractContextManager[Any] | None = None,
    world_size: int | None = None,
    base_rank: int = 0,
    use_gpu: bool = True,
    need: str = "",
    imports: str = "",
    **kwargs: Any,
) -> T:
    """Calls ranch() with a process group; this process is local rank 0. Returns fn's result here.

    ctx: a TorchDDPCtx; None: one with world_size ranks (None: nprocs), of which the local ones
    begin at base_rank. use_gpu=False: uses CPUs even if there are GPUs.
    """
    size = nprocs if world_size is None else world_size
    if base_rank + nprocs > size:
        raise ValueError(f"ranks {base_rank}..{base_rank + nprocs - 1}: world_size is {size}")
    if ctx is None:
        ctx = TorchDDPCtx(world_size=size, base_rank=base_rank, use_gpu=use_gpu)
    return ranch(
        nprocs,
        fn,
        *args,
        caller_rank=0,
        gather=False,
        ctx=ctx,
        need=need,
        imports=imports,
        **kwargs,
    )
