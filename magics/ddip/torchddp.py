"""A process group for the workers of ranch(): TorchDDPCtx and in_torchddp().

torch is imported when one of them is used, not before.
"""

import contextlib
import os
import sys
from uuid import uuid4

from ddip.herd import ranch


class TorchDDPCtx(contextlib.AbstractContextManager):
    """Makes the default process group of torch on entry, destroys it at the end.

    world_size: of the group. base_rank: the rank of the local worker 0. use_gpu: NCCL, and the GPU
    of LOCAL_RANK, where there are GPUs; else gloo. addr, port: where rank 0 hosts the store, for
    groups over several hosts; without a port the workers of one call find each other. LOCAL_RANK
    and LOCAL_WORLD_SIZE must be set, as ranch() does.
    """

    def __init__(
        self,
        *args,
        world_size=None,
        base_rank=0,
        use_gpu=True,
        addr="127.0.0.1",
        port=None,
        num_threads=1,
        **kwargs,
    ):
        if not world_size or not 0 <= base_rank < world_size:
            raise ValueError(f"want world_size > base_rank >= 0, not {world_size} and {base_rank}")
        self._size = world_size
        self._base = base_rank
        self._use_gpu = use_gpu
        self._addr = addr
        self._port = port
        self._threads = num_threads
        self._prefix = None  # of the keys in the store that this process hosts
        self._before = {}
        self._made = False

    @contextlib.contextmanager
    def ddip_host(self):
        """Hosts the store while the workers of one call run, unless a port was given."""
        if self._port is not None:
            yield
            return
        store = _listening_store(self._addr)
        self._port, self._prefix = store.port, uuid4().hex
        try:
            yield
        finally:
            self._port = self._prefix = None

    def __enter__(self):
        import torch
        from torch import distributed

        rank = self._rank()
        backend = "gloo"
        if self._use_gpu and torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            backend = "nccl"
        self._set_environment(rank)
        if not distributed.is_initialized() or self._prefix:
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
        values = {
            "RANK": str(rank),
            "WORLD_SIZE": str(self._size),
            "MASTER_ADDR": self._addr,
            "MASTER_PORT": str(self._port or 29500),
            "OMP_NUM_THREADS": str(self._threads),
        }
        if self._addr.startswith("127.") and "GLOO_SOCKET_IFNAME" not in os.environ:
            values["GLOO_SOCKET_IFNAME"] = "lo"
        self._before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)

    def _join(self, distributed, backend, rank):
        hook = sys.excepthook  # each init wraps it once more
        if self._prefix is None:
            distributed.init_process_group(backend, rank=rank, world_size=self._size)
        else:
            store = distributed.TCPStore(
                self._addr, self._port, is_master=False, wait_for_workers=False
            )
            store = distributed.PrefixStore(self._prefix, store)
            distributed.init_process_group(backend, store=store, rank=rank, world_size=self._size)
        sys.excepthook = hook
        self._made = True

    def __exit__(self, *exc_info):
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


def _listening_store(addr):
    """A store that listens on this address only, on a port of the system's choice."""
    import socket

    from torch.distributed import TCPStore

    family = socket.AF_INET6 if ":" in addr else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((addr, 0))
    listener.listen(1024)
    port = listener.getsockname()[1]
    return TCPStore(
        addr, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def in_torchddp(
    nprocs, fn, *args, ctx=None, world_size=None, base_rank=0, need="", imports="", **kwargs
):
    """ranch() within a process group, this process its first local rank. Returns fn's value here.

    ctx: a TorchDDPCtx, None: one of world_size (None: nprocs) ranks from base_rank on.
    """
    size = nprocs if world_size is None else world_size
    if base_rank + nprocs > size:
        raise ValueError(f"ranks {base_rank}..{base_rank + nprocs - 1}: world_size is {size}")
    if ctx is None:
        ctx = TorchDDPCtx(world_size=size, base_rank=base_rank)
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
