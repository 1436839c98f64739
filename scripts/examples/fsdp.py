"""FSDP2: parameters, gradients and optimizer state are sharded over the ranks by fully_shard.

    torchrun --nproc-per-node 2 fsdp.py --epochs 1
    ddip run fsdp.py --epochs 1

Each rank holds its share of every parameter; a layer's parameters are gathered just before it
computes, and freed after it. `weights` is the whole state, gathered at the end, on every rank.
"""

import fashion
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

if __name__ == "__main__":
    args = fashion.arguments("Fashion-MNIST with FSDP2").parse_args()
    device = fashion.pick_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    me, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (size,))

    torch.manual_seed(0)
    model = fashion.make_model().to(device)
    whole = sum(p.numel() for p in model.parameters())
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    mine = sum(p.to_local().numel() for p in model.parameters())
    print(f"rank {me} holds {mine} of {whole} parameters")

    train, test = fashion.load(args), fashion.load(args, "t10k")
    sampler = DistributedSampler(train)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(train, args.batch, sampler=sampler):
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        # Every rank evaluates all images: a forward pass is a collective, so all must make as many.
        accuracy = fashion.count_right(model, test, device) / len(test)
        if me == 0:
            print(f"epoch {epoch}  loss {loss.item():.3f}  accuracy {accuracy:.2%}", flush=True)
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    dist.destroy_process_group()
