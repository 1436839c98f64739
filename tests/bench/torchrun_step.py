"""Run by torchrun: rank 0 writes when the all_reduce and the first DDP step were done."""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
reduced = time.time()
model = DDP(torch.nn.Linear(8, 8))
model(torch.ones(1, 8)).sum().backward()
step = time.time()
if dist.get_rank() == 0:
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        json.dump({"all_reduce": reduced, "step": step}, f)
dist.destroy_process_group()
