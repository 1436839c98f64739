# shellcheck shell=bash disable=SC2034
# What cells of tests define whose objects are to come to other ranks, for those that source this after lib.sh.

classes='import enum, random, sys, threading, types, numpy as np, torch
from dataclasses import dataclass
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(2))
    def forward(self, x):
        self.seen += 1
        return scale * self.lin(x)

@dataclass
class Config:
    lr: float
    tags: list

class Mode(enum.Enum):
    A = 1
    B = 2
'
