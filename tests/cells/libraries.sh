#!/usr/bin/env bash
# Unmodified Accelerate, Lightning and FSDP programs run, each twice in the same ranks.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2

for i in 1 2; do
	if has_module accelerate; then
		cell 'import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2, accelerator.num_processes
model, data = torch.nn.Linear(4, 1), torch.utils.data.DataLoader(torch.randn(32, 4), 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for batch in data:
    optimizer.zero_grad()
    accelerator.backward(model(batch).square().mean())
    optimizer.step()
total = accelerator.gather(torch.tensor([accelerator.process_index + 1])).sum().item()
w = accelerator.unwrap_model(model).weight.detach()
accelerator.end_training()' || bad "Accelerate, $i: $(cat "$G/traceback")"
		is "Accelerate, $i" "$(cat "$G/vars/total.same")" 3
		cmp "$G/rank0/vars/w.npy" "$G/rank1/vars/w.npy" || bad "Accelerate, $i: weights differ"
	fi
	cell 'import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (world_size,))
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
fully_shard(net, mesh=mesh)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
net(torch.randn(4, 8)).sum().backward()
optimizer.step()
full = net[0].weight.full_tensor().detach()' || bad "FSDP, $i: $(cat "$G/traceback")"
	cmp "$G/rank0/vars/full.npy" "$G/rank1/vars/full.npy" || bad "FSDP, $i: weights differ"
	if has_module lightning; then
		cell 'import logging, warnings, torch, lightning
warnings.simplefilter("ignore")
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, i):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
trainer = lightning.Trainer(strategy="ddp", accelerator="cpu", devices=2, max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
module = Module()
trainer.fit(module, torch.utils.data.DataLoader(torch.randn(32, 4), 4))
ranks, w = trainer.world_size, module.layer.weight.detach()' || bad "Lightning, $i: $(cat "$G/traceback")"
		is "Lightning, $i" "$(cat "$G/vars/ranks.same")" 2
		cmp "$G/rank0/vars/w.npy" "$G/rank1/vars/w.npy" || bad "Lightning, $i: weights differ"
	fi
done
