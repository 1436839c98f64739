"""Model parallel: the network is cut into as many stages as there are ranks, one on each.

    torchrun --nproc-per-node 2 model_parallel.py
    ddip run model_parallel.py --pipelined

Plain, one stage works while the others wait. With --pipelined the batch is cut into micro-batches
that follow each other through the stages, so that all work at once. Both compute the same gradients
and print the same losses; pipelined is faster where stages are big and each has a processor.
"""

import time

import fashion
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.utils.data import DataLoader


def make_stage(me, size, width):
    """Stage `me` of `size`: a share of a deep, narrow network. All start from the same weights."""
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(28 * 28, width), nn.ReLU()]
    for _ in range(2 * size):
        layers += [nn.Linear(width, width), nn.ReLU()]
    layers.append(nn.Linear(width, 10))
    begin, end = (len(layers) * k // size for k in (me, me + 1))
    return nn.Sequential(*layers[begin:end])


class Plain:
    """Runs each batch in one piece through all stages and back."""

    def __init__(self, stage, shape, device):
        self.stage, self.shape, self.device = stage, shape, device
        self.me, self.size = dist.get_rank(), dist.get_world_size()

    def step(self, images, labels):
        """Forward and backward of one batch. Returns its loss on the last rank, else None."""
        first, last = self.me == 0, self.me == self.size - 1
        if first:
            given = images
        else:
            given = torch.empty(len(images), *self.shape[1:], device=self.device)
            dist.recv(given, self.me - 1)
            given.requires_grad_()
        out = self.stage(given)
        loss = nn.functional.cross_entropy(out, labels) if last else None
        if last:
            loss.backward()
        else:
            dist.send(out.detach(), self.me + 1)
            gradient = torch.empty_like(out)
            dist.recv(gradient, self.me + 1)
            out.backward(gradient)
        if not first:
            dist.send(given.grad, self.me - 1)
        return loss


class Pipelined:
    """Runs each batch in micro-batches: forward all of them, then back all of them (GPipe)."""

    def __init__(self, stage, count, device):
        self.me, self.size = dist.get_rank(), dist.get_world_size()
        place = PipelineStage(stage, self.me, self.size, device)
        self.schedule = ScheduleGPipe(place, count, loss_fn=nn.functional.cross_entropy)

    def step(self, images, labels):
        """As Plain.step."""
        losses = []
        inputs = (images,) if self.me == 0 else ()
        if self.me == self.size - 1:
            self.schedule.step(*inputs, target=labels, losses=losses)
            return torch.stack(losses).mean()
        self.schedule.step(*inputs)
        return None


if __name__ == "__main__":
    parser = fashion.arguments("Model parallel, plain or pipelined", epochs=1)
    parser.add_argument("--pipelined", action="store_true")
    parser.add_argument("--micro", type=int, default=4, help="micro-batches in a batch")
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    device = fashion.pick_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    me, size = dist.get_rank(), dist.get_world_size()

    stage = make_stage(me, size, args.width).to(device)
    runner = (
        Pipelined(stage, args.micro, device)
        if args.pipelined
        else Plain(stage, (args.batch, args.width), device)
    )
    optimizer = torch.optim.Adam(stage.parameters(), lr=args.lr)
    order = torch.Generator().manual_seed(0)  # the first and the last stage see the same batches
    train = fashion.load(args)
    loader = DataLoader(train, args.batch, shuffle=True, drop_last=True, generator=order)
    losses, begin = [], time.monotonic()
    for epoch in range(1, args.epochs + 1):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = runner.step(images.to(device), labels.to(device))
            optimizer.step()
            if loss is not None:
                losses.append(loss.item())
        if losses:
            took = f"{time.monotonic() - begin:.1f} s"
            print(f"epoch {epoch}  loss {losses[0]:.4f} to {losses[-1]:.4f}  {took}", flush=True)
    dist.destroy_process_group()
