"""A program that trains a model sharded by fully_shard() for a number of steps, whose data is
random and different on each rank, and prints what the ranks have come to."""

import hashlib
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("gloo")
    last, pause = int(sys.argv[1]), float(sys.argv[2])
    torch.manual_seed(3)
    layers = torch.nn.Linear(3, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2)
    model = torch.nn.Sequential(*layers)
    fully_shard(model[0])
    fully_shard(model)
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(8 + dist.get_rank())
    step = 0
    while step < last:
        opt.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        opt.step()
        step += 1
        time.sleep(pause)
    weights = b"".join(p.full_tensor().detach().numpy().tobytes() for p in model.parameters())
    print(dist.get_rank(), step, hashlib.sha256(weights).hexdigest(), torch.rand(1).item())


if __name__ == "__main__":
    main()
