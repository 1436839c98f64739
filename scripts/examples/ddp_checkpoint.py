"""DDP with metrics gathered from all ranks, a checkpoint after each epoch, and resuming from it.

    torchrun --nproc-per-node 2 ddp_checkpoint.py --epochs 2 --savefile run.pt
    ddip run ddp_checkpoint.py --epochs 4 --savefile run.pt      # goes on with epoch 3

--epochs is the number of the last epoch. What an epoch does depends on its number and on what the
checkpoint holds, so a run that was cut in two ends with the same weights as one in a piece, on the
same number of ranks.
"""

import os
from pathlib import Path

import fashion
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset


def save(path, **parts):
    """Rank 0 writes aside and renames: whoever reads finds a whole checkpoint, old or new."""
    if dist.get_rank() == 0:
        aside = path.with_name(path.name + ".new")
        torch.save(parts, aside)
        os.replace(aside, path)
    dist.barrier()


def resume(path, model, optimizer, device):
    """Loads what save() wrote. Returns the number of the last epoch, and the metrics until then."""
    if not path or not path.exists():
        return 0, []
    parts = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(parts["model"])
    optimizer.load_state_dict(parts["optimizer"])
    return parts["epoch"], parts["metrics"]


def train_epoch(ddp, loader, optimizer, device):
    """One pass over this rank's share. Returns the mean of its steps' losses."""
    losses = []
    for images, labels in loader:
        loss = nn.functional.cross_entropy(ddp(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / max(1, len(losses))


def gather_metrics(**mine):
    """What each rank measured, in order of rank, on every rank."""
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


if __name__ == "__main__":
    parser = fashion.arguments("Fashion-MNIST with DDP, checkpoints and gathered metrics")
    parser.add_argument("--savefile", type=Path, help="checkpoint: written, and resumed from")
    args = parser.parse_args()
    device = fashion.pick_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    me, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = fashion.make_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    done, metrics = resume(args.savefile, model, optimizer, device)
    ddp = DistributedDataParallel(model)
    train, test = fashion.load(args), fashion.load(args, "t10k")
    share = Subset(test, range(me, len(test), size))
    sampler = DistributedSampler(train)
    loader = DataLoader(train, args.batch, sampler=sampler)
    if me == 0 and done:
        print(f"resumed after epoch {done} from {args.savefile}")

    for epoch in range(done + 1, args.epochs + 1):
        sampler.set_epoch(epoch)
        mean = train_epoch(ddp, loader, optimizer, device)
        right = fashion.count_right(model, share, device)
        ranks = gather_metrics(loss=mean, right=right, images=len(share))
        accuracy = sum(r["right"] for r in ranks) / sum(r["images"] for r in ranks)
        metrics.append({"epoch": epoch, "accuracy": accuracy, "loss": [r["loss"] for r in ranks]})
        if args.savefile:
            save(
                args.savefile,
                epoch=epoch,
                metrics=metrics,
                model=model.state_dict(),
                optimizer=optimizer.state_dict(),
            )
        if me == 0:
            losses = " ".join(f"{r['loss']:.3f}" for r in ranks)
            print(f"epoch {epoch}  loss by rank {losses}  accuracy {accuracy:.2%}", flush=True)
    dist.destroy_process_group()
