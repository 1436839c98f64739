"""What the examples on Fashion-MNIST share: the data, the network, the arguments, the accuracy.

No example needs more than this file beside it. The images are those of Debian's package
dataset-fashion-mnist; --data names another folder with the same four .gz files.
"""

import argparse
import gzip
import os
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset


def read_idx(path):
    """The array in a gzipped IDX file of bytes; ValueError if it is not one."""
    with gzip.open(path, "rb") as f:
        data = f.read()
    if data[:3] != b"\0\0\x08":
        raise ValueError(f"{path}: not an IDX file of unsigned bytes")
    sizes = np.frombuffer(data, ">i4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(sizes)


def load(args, part="train"):
    """The first --images images (N, 1, 28, 28), near zero mean and unit variance, and classes."""
    images, labels = (
        read_idx(Path(args.data) / f"{part}-{kind}-ubyte.gz")[: args.images].copy()
        for kind in ("images-idx3", "labels-idx1")
    )
    images, labels = torch.from_numpy(images), torch.from_numpy(labels)
    return TensorDataset(((images.float() / 255 - 0.286) / 0.353)[:, None], labels.long())


def make_model():
    """A small convolutional network: 28 x 28 grey pixels to 10 classes."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def pick_device():
    """This rank's GPU, made the current one; the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    return device


@torch.no_grad()
def count_right(model, data, device, batch=500):
    """How many images of a dataset the model puts into the right class."""
    model.eval()
    right = 0
    for images, labels in torch.utils.data.DataLoader(data, batch):
        right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
    model.train()
    return right


def arguments(description, **defaults):
    """A parser with what all examples take: --epochs --batch --lr --images --data."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--epochs", type=int, default=defaults.get("epochs", 3))
    parser.add_argument("--batch", type=int, default=64, help="images per step and rank")
    parser.add_argument("--lr", type=float, default=defaults.get("lr", 0.001))
    parser.add_argument("--images", type=int, help="use only so many (default: all)")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    return parser
