"""Trains a classifier on one GPU, or on the CPU: where all the others begin.

    python single.py --epochs 1
    ddip run -r 0 single.py --epochs 1          # on rank 0 alone
    sweep.sh --lr 0.0003,0.001,0.003 single.py  # a learning rate on each rank, side by side

Its `accuracy` is what sweep.sh compares.
"""

import fashion
import torch
from torch import nn
from torch.utils.data import DataLoader

if __name__ == "__main__":
    args = fashion.arguments("Fashion-MNIST on one device").parse_args()
    device = fashion.pick_device()
    torch.manual_seed(0)
    model = fashion.make_model().to(device)
    train, test = fashion.load(args), fashion.load(args, "t10k")
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(1, args.epochs + 1):
        for images, labels in DataLoader(train, args.batch, shuffle=True):
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = fashion.count_right(model, test, device) / len(test)
        print(f"epoch {epoch}  loss {loss.item():.3f}  accuracy {accuracy:.2%}", flush=True)
