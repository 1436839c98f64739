"""Trains with torch.nn.DataParallel: one process, the batch split over all GPUs it sees.

PyTorch keeps it for old programs; DistributedDataParallel (ddp.py) is faster. Without a GPU, or
with one, it is the model itself.

    python data_parallel.py --epochs 1
    ddip run -r 0 data_parallel.py --epochs 1
"""

import fashion
import torch
from torch import nn
from torch.utils.data import DataLoader

if __name__ == "__main__":
    args = fashion.arguments("Fashion-MNIST with DataParallel").parse_args()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(0)
    model = nn.DataParallel(fashion.make_model().to(device))
    devices = max(1, len(model.device_ids))
    train, test = fashion.load(args), fashion.load(args, "t10k")
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    print(f"the batch is split over {devices} x {device.type}")

    for epoch in range(1, args.epochs + 1):
        for images, labels in DataLoader(train, args.batch * devices, shuffle=True):
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = fashion.count_right(model, test, device) / len(test)
        print(f"epoch {epoch}  loss {loss.item():.3f}  accuracy {accuracy:.2%}", flush=True)
