"""Trains a small model with DDP; prints the loss, and whether all ranks have the same weights."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)  # DDP makes the weights equal
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(256, 4)
    y = x.sum(1, keepdim=True)
    for _ in range(40):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total = torch.cat([p.detach().flatten() for p in model.parameters()])
    parts = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, total)
    same = all(torch.equal(part, total) for part in parts)
    print("loss", round(loss.item(), 6), "same", same, "times", os.environ.get("TIMES"))
    dist.destroy_process_group()


main()
