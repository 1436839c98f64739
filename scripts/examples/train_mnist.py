"""Trains an image classifier on Fashion-MNIST with DistributedDataParallel.

An ordinary program in torchrun's style; nothing in it knows ddipfs. Both run it as it is:

    torchrun --nproc-per-node 2 train_mnist.py --epochs 3
    ddip run train_mnist.py --epochs 3

The images are those of Debian's package dataset-fashion-mnist; --data names another folder with the
same four .gz files. Run through ddipfs, `model`, `history` and `fig` stay behind as variables.
"""

import argparse
import gzip
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def read_idx(path):
    """The array in a gzipped IDX file of bytes: two zeros, type 8, rank, big-endian sizes, data."""
    with gzip.open(path, "rb") as f:
        data = f.read()
    if data[:3] != b"\0\0\x08":
        raise ValueError(f"{path}: not an IDX file of unsigned bytes")
    sizes = np.frombuffer(data, ">i4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(sizes)


def load(folder, part):
    """The images (N, 1, 28, 28), about zero mean and unit variance, and their classes."""
    folder = Path(folder)
    images = torch.from_numpy(read_idx(folder / f"{part}-images-idx3-ubyte.gz").copy())
    labels = torch.from_numpy(read_idx(folder / f"{part}-labels-idx1-ubyte.gz").copy())
    return TensorDataset(((images.float() / 255 - 0.286) / 0.353)[:, None], labels.long())


def make_model():
    """A small convolutional network: 28 x 28 grey pixels to 10 classes."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train_epoch(model, loader, optimizer, device, epoch, history):
    """One pass over this rank's share; appends each step's loss to history."""
    model.train()
    begin, report = time.monotonic(), max(1, len(loader) // 4)
    for step, (images, labels) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        if step % report == 0 and dist.get_rank() == 0:
            rate = step * len(labels) * dist.get_world_size() / (time.monotonic() - begin)
            print(
                f"epoch {epoch}  {100 * step / len(loader):3.0f} %  "
                f"loss {np.mean(history[-report:]):.3f}  {rate:,.0f} images/s",
                flush=True,
            )


@torch.no_grad()
def evaluate(model, loader, device):
    """Loss and accuracy over the test images of all ranks (the same numbers on every rank)."""
    model.eval()
    sums = torch.zeros(3, device=device, dtype=torch.float64)  # loss, right answers, images
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        out = model(images)
        sums[0] += nn.functional.cross_entropy(out, labels, reduction="sum")
        sums[1] += (out.argmax(1) == labels).sum()
        sums[2] += len(labels)
    dist.all_reduce(sums)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def draw(history, steps_per_epoch, title):
    """The loss curve as a figure."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    epochs = np.arange(1, len(history) + 1) / steps_per_epoch
    axes.plot(epochs, history, linewidth=0.5, alpha=0.5, label="each step")
    width = max(1, steps_per_epoch // 20)
    smooth = np.convolve(history, np.ones(width) / width, mode="valid")
    axes.plot(epochs[width - 1 :], smooth, label=f"mean of {width} steps")
    axes.set(xlabel="epoch", ylabel="training loss", title=title, ylim=(0, None))
    axes.legend()
    return figure


def parse_args():
    parser = argparse.ArgumentParser(description="Fashion-MNIST with DistributedDataParallel")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128, help="images per step and rank")
    parser.add_argument("--lr", type=float, default=0.004)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--plot", help="save the loss curve to this file")
    return parser.parse_args()


def main(args):
    """Trains and evaluates.

    Returns the bare model, this rank's loss at each step, the last accuracy, the steps per epoch.
    """
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = DistributedDataParallel(make_model().to(device))
    train, test = load(args.data, "train"), load(args.data, "t10k")
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, args.batch, sampler=sampler, drop_last=True)
    # A strided share without the sampler's padding: each test image counts once.
    share = torch.utils.data.Subset(test, range(rank, len(test), world_size))
    test_loader = DataLoader(share, 500)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)

    if rank == 0:
        print(f"{world_size} ranks on {device.type}, {len(train)} images, {len(test)} to test")
    history, accuracy = [], 0.0
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        train_epoch(model, loader, optimizer, device, epoch, history)
        schedule.step()
        loss, accuracy = evaluate(model, test_loader, device)
        if rank == 0:
            print(f"epoch {epoch}  test loss {loss:.3f}  accuracy {accuracy:.2%}", flush=True)
    dist.destroy_process_group()
    return model.module, history, accuracy, len(loader)


if __name__ == "__main__":
    args = parse_args()
    model, history, accuracy, steps = main(args)
    fig = draw(history, steps, Path(args.data).name) if history else None
    if args.plot and fig and os.environ["RANK"] == "0":
        fig.savefig(args.plot)
