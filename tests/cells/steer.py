"""A program whose variables live in main(): trains until a steer sets `last`, then again from the
beginning with what the steers did in its own source, and compares."""

import hashlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

PAUSE = 0.02  # what it computes takes less: other tests have that time


def digest(model):
    weights = [p.detach().numpy().tobytes() for p in model.parameters()]
    return hashlib.sha256(b"".join(weights)).hexdigest()


def train(last, log, replay):
    torch.manual_seed(3)
    model = DistributedDataParallel(torch.nn.Linear(3, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    step, lr, pause = 0, 0.01, PAUSE
    while step != last:
        data = torch.randn(4, 3) + dist.get_rank()
        loss = model(data).square().mean()
        loss.backward()
        opt.step()
        for at, value in replay:
            if at == step:
                with torch.no_grad():
                    model.module.weight.add_(value)
        opt.zero_grad()
        step += 1
        time.sleep(0 if replay else pause)
    return model, step, lr


def main():
    dist.init_process_group("gloo")
    log = []
    model, step, lr = train(-1, log, [])
    again, _, _ = train(step, [], log or [(-1, 0)])
    hashes = [None] * dist.get_world_size()
    dist.all_gather_object(hashes, (step, log, digest(model)))
    equal = hashes.count(hashes[0]) == len(hashes), digest(model) == digest(again)
    print("steered", len(log), "lr", lr, "equal", *equal)


if __name__ == "__main__":
    main()
