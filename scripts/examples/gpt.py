"""A small GPT that learns to write like a text, character by character, with DDP.

    torchrun --nproc-per-node 2 gpt.py --steps 300
    ddip run gpt.py --text README.md --steps 300
    cat ~/ddip/group/vars/fig.png > loss.png

Without --text it learns from a text that is generated: sums of two numbers, in words. Run through
ddipfs, `model`, `history`, `sample` and `fig` (the loss curve) stay behind as variables.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from fashion import pick_device
from matplotlib.figure import Figure
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NUMBERS = "nought one two three four five six seven eight nine ten".split()
NUMBERS += "eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen".split()


class Block(nn.Module):
    """Causal self-attention and a two-layer network, each behind a norm and beside a residual."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Characters (as indices) in, logits of each next character out."""

    def __init__(self, characters, length, width, layers, heads):
        super().__init__()
        self.length = length
        self.token = nn.Embedding(characters, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)
        self.head.weight = self.token.weight
        for embedding in (self.token, self.place):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, indices):
        places = torch.arange(indices.shape[1], device=indices.device)
        return self.head(self.norm(self.blocks(self.token(indices) + self.place(places))))

    @torch.no_grad()
    def write(self, start, count, generator):
        """Goes on from `start` (indices) by count characters; returns all of them."""
        indices = start[None]
        for _ in range(count):
            logits = self(indices[:, -self.length :])[0, -1].float().cpu()
            following = torch.multinomial(logits.softmax(0), 1, generator=generator)
            indices = torch.cat([indices, following[None].to(indices.device)], dim=1)
        return indices[0]


def make_text(lines=2000):
    """Lines like 'two and three make five', the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    pairs = torch.randint(10, (lines, 2), generator=generator).tolist()
    return "".join(f"{NUMBERS[a]} and {NUMBERS[b]} make {NUMBERS[a + b]}\n" for a, b in pairs)


def batches(data, args, seed, device):
    """Endless random pieces of the text, and the same one character later."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.arange(args.length)
    while True:
        begins = torch.randint(len(data) - args.length, (args.batch, 1), generator=generator)
        yield data[begins + steps].to(device), data[begins + steps + 1].to(device)


def draw(history):
    """The loss curve as a figure."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(history) + 1), history)
    axes.set(xlabel="step", ylabel="loss (nats per character)", title="GPT", ylim=(0, None))
    return figure


def parse_args():
    parser = argparse.ArgumentParser(description="A character-level GPT with DDP")
    parser.add_argument("--text", type=Path, help="what to learn (default: generated)")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16, help="pieces per step and rank")
    parser.add_argument("--length", type=int, default=64, help="characters it looks back")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.003)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    device = pick_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    text = args.text.read_text(encoding="utf-8") if args.text else make_text()
    characters = sorted(set(text))
    if len(text) <= args.length:
        raise SystemExit(f"{args.text}: {len(text)} characters; more than --length are needed")
    index = {c: k for k, c in enumerate(characters)}
    data = torch.tensor([index[c] for c in text])

    torch.manual_seed(0)
    model = GPT(len(characters), args.length, args.width, args.layers, args.heads).to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    history = []
    pieces = batches(data, args, 1 + dist.get_rank(), device)
    for step in range(1, args.steps + 1):
        given, wanted = next(pieces)
        loss = nn.functional.cross_entropy(ddp(given).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # The mean over ranks, so that the curve is that of the whole batch.
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        history.append(mean.item() / dist.get_world_size())
        if step % 50 == 0 and dist.get_rank() == 0:
            print(f"step {step}  loss {history[-1]:.3f}", flush=True)
    written = model.write(data[:1].to(device), 200, torch.Generator().manual_seed(0))
    sample = "".join(characters[k] for k in written.tolist())
    fig = draw(history) if history else None
    if os.environ["RANK"] == "0":
        print(sample)
    dist.destroy_process_group()
