"""Trains with DistributedDataParallel, in as few lines as it takes.

    torchrun --nproc-per-node 2 ddp.py --epochs 2
    ddip run ddp.py --epochs 2

Run through ddipfs its variables can be looked at while it trains, and stay: `loss` is the loss of
this rank's share of the test images after the last epoch (vars/loss.mean: over all ranks), `model`
the bare network. early-stop.sh, watch.sh and checkpoint.sh live on that.
"""

import fashion
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset


@torch.no_grad()
def mean_loss(model, data, device):
    """The mean cross entropy of a dataset."""
    total = 0.0
    for images, labels in DataLoader(data, 500):
        out = model(images.to(device))
        total += nn.functional.cross_entropy(out, labels.to(device), reduction="sum").item()
    return total / len(data)


if __name__ == "__main__":
    args = fashion.arguments("Fashion-MNIST with DDP").parse_args()
    device = fashion.pick_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    me, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    ddp = DistributedDataParallel(fashion.make_model().to(device))
    model = ddp.module
    train, test = fashion.load(args), fashion.load(args, "t10k")
    share = Subset(test, range(me, len(test), size))
    sampler = DistributedSampler(train)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=args.lr)

    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(train, args.batch, sampler=sampler):
            step_loss = nn.functional.cross_entropy(ddp(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            step_loss.backward()
            optimizer.step()
        loss = mean_loss(model, share, device)
        dist.barrier()  # who reads vars/loss.mean after this line finds the same epoch on all ranks
        print(f"epoch {epoch}  loss of this rank's share {loss:.4f}", flush=True)
    dist.destroy_process_group()
