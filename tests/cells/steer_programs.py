"""Programs of several kinds that a steer changes: trains until a steer sets `last`, then again from
the beginning with what the steers did in its own source, and compares.

steer_programs.py KIND: that. steer_programs.py KIND…, two or more: prints the digest of each after
some steps that nothing steers.
"""

import contextlib
import hashlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

PAUSE, FEW = 0.002, 12
_CHANGES = [(3, 1, 0.5), (3, 0, 0.25), (7, 1, -0.125)]


def digest(model):
    weights = [getattr(p, "to_local", lambda p=p: p)().detach() for p in model.parameters()]
    return hashlib.sha256(b"".join(w.numpy().tobytes() for w in weights)).hexdigest()


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))


class Ddp:
    """DistributedDataParallel; the other kinds differ in some way."""

    def __init__(self):
        self.model = DistributedDataParallel(net())
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.5)
        self.update = self.opt.step

    def around(self):
        return contextlib.nullcontext()

    def backward(self, data):
        self.model(data).square().mean().backward()


class Compiled(Ddp):
    def __init__(self):
        super().__init__()
        self.model.forward = torch.compile(self.model.forward, backend="eager")


class CompiledStep(Ddp):
    """Its optimizer's steps are not seen, so that forwards are the clock."""

    def __init__(self):
        super().__init__()
        self.update = torch.compile(self.opt.step, backend="eager")


class Hooked(Ddp):
    """A comm hook, and hooks of optimizers."""

    def __init__(self):
        super().__init__()

        def sum_up(group, bucket):
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda done: done.value()[0] / 2)

        def clip(opt, args, kwargs):
            nn.utils.clip_grad_norm_(opt.param_groups[0]["params"], 0.5)

        def decay(opt, args, kwargs):
            opt.param_groups[0]["lr"] *= 0.999

        self.model.register_comm_hook(None, sum_up)
        self.opt.register_step_pre_hook(clip)
        self.opt.register_step_post_hook(decay)


class Accumulated(Ddp):
    def backward(self, data):
        for i, part in enumerate(data.chunk(2)):
            with contextlib.nullcontext() if i else self.model.no_sync():
                super().backward(part)


class Uneven(Ddp):
    """Rank 0 has fewer batches, by the last steer: the other one goes on without it."""

    def around(self):
        return Join([self.model])


class Sharded(Ddp):
    """FSDP2."""

    def __init__(self):
        from torch.distributed.fsdp import fully_shard

        self.model = net()
        for layer in self.model:
            fully_shard(layer)
        fully_shard(self.model)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.5)
        self.update = self.opt.step


class Flat(Ddp):
    """FSDP1."""

    def __init__(self):
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        self.model = FullyShardedDataParallel(
            net(), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.device("cpu")
        )
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.5)
        self.update = self.opt.step


class Pipelined(Ddp):
    def __init__(self):
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        rank = dist.get_rank()
        self.model = nn.Sequential(*net()[:2]) if rank == 0 else nn.Sequential(*net()[2:])
        stage = PipelineStage(self.model, rank, 2, torch.device("cpu"))
        self.schedule = ScheduleGPipe(stage, 2, loss_fn=nn.MSELoss())
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.5)
        self.update = self.opt.step

    def backward(self, data):
        if dist.get_rank() == 0:
            self.schedule.step(data)
        else:
            self.schedule.step(target=data)


KINDS = {
    "ddp": Ddp,
    "compiled": Compiled,
    "compiled_step": CompiledStep,
    "hooked": Hooked,
    "accumulated": Accumulated,
    "uneven": Uneven,
    "sharded": Sharded,
    "flat": Flat,
    "pipelined": Pipelined,
}


class now:
    """What steers see, in whatever frame; place: BEFORE a step's forward or AFTER its update."""

    step = place = first = None
    last = -1
    log = []


BEFORE, AFTER = range(2)


def change(value):
    with torch.no_grad():
        now.first.add_(value)


def steered(value):
    """What a steer calls."""
    now.log.append((now.step, now.place, value))
    change(value)
    return now.step, now.place


def train(kind, last, replay=(), pause=0):
    torch.manual_seed(3)
    program = KINDS[kind]()
    now.first, now.step, now.last = next(program.model.parameters()), 0, last
    with program.around():
        while now.step != now.last:
            data = torch.randn(4, 4) + dist.get_rank()
            now.place = BEFORE
            do(replay)
            program.backward(data)
            now.place = AFTER
            program.update()
            do(replay)
            program.opt.zero_grad()
            now.step += 1
            time.sleep(pause)
    return program.model


def do(replay):
    for step, place, value in replay:
        if (step, place) == (now.step, now.place):
            change(value)


def compare(kinds):
    for kind in kinds:
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, digest(train(kind, FEW, _CHANGES)))
        if dist.get_rank() == 0:
            print(kind, *found, flush=True)


def main():
    dist.init_process_group("gloo")
    kinds = sys.argv[1:]
    if len(kinds) > 1:
        compare(kinds)
        dist.destroy_process_group()  # as torch asks of programs
        return
    model = train(kinds[0], -1, pause=PAUSE)
    again = train(kinds[0], now.step, now.log)
    both = [None] * dist.get_world_size()
    dist.all_gather_object(both, (now.log, digest(model) == digest(again)))
    equal = [log == both[0][0] and same for log, same in both]
    print("steered", len(now.log), "equal", *equal)


if __name__ == "__main__":
    main()
