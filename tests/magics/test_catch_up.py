#!/usr/bin/env python3
"""A rank that dies in the middle of a training comes to where the other is, and the training ends
with the numbers of one that nothing has disturbed."""

import json

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "cloudpickle")

MODEL = """%%dip
import os, signal, torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 4))
    def forward(self, x):
        return self.body(x)

def batch():
    torch.manual_seed(100 * step + rank)  # of this step on this rank, also if it is repeated
    x = torch.randn(8, 16)
    return x, x[:, :4].sin()

def train(last):
    global step
    while step < last:
        x, y = batch()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(ddp(x), y)
        if rank == 1 and step == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        step += 1
"""
BEGIN = """%%dip
torch.manual_seed(0)
model = Net()
ddp = DDP(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
step, losses, dies_at = 0, [], None
"""
END = """%%dip -S all
import hashlib
tensors = [*model.state_dict().values(), *(t for s in optimizer.state.values() for t in s.values())]
data = b"".join(t.numpy().tobytes() for t in tensors)
hashlib.sha256(data).hexdigest(), len(losses), optimizer.param_groups[0]["lr"]
"""


def rows(nb):
    with open(f"{nb.group}/ranks.json", encoding="utf-8") as file:
        return json.load(file)


def numbers(nb):
    """What both ranks have at the end."""
    return sorted(each.partition(":\n")[2] for each in nb.ok(END).data())


def test_training():
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        nb.ok(MODEL)
        nb.ok(BEGIN)
        nb.ok("%%dip\ntrain(6)")
        nb.ok("%%dip\ntrain(12)")
        right = numbers(nb)
        assert len(right) == 2, right
        nb.ok(BEGIN)
        nb.ok("%%dip\nhere = model.body[0].weight\nlog = open('/dev/null')\ntrain(6)\ndies_at = 9")
        value = nb.run("%%dip\ntrain(12)").error[1]
        assert "rank 1" in value, value
        _, _, text = nb.run("%%dip\ntrain(12)").error
        told = "rank 1 is new since cell 8: %dip --catch-up 1 copies what another rank has"
        assert told in text, text
        assert rows(nb)[1]["new_since"] == 8
        told = nb.ok("%dip --catch-up 1").text("stdout")
        assert "rank 1 has 1" in told.splitlines()[0] and "KiB" in told.splitlines()[0], told
        assert told.splitlines()[1:] == ["rank 1 has not: log: an open file"], told
        nb.ok("%%dip\nassert here is model.body[0].weight and step == 9, step")
        nb.ok("%%dip\ndies_at = None\ntrain(12)")
        assert numbers(nb) == right, (numbers(nb), right)
        assert "new_since" not in rows(nb)[1]


def test_refusals():
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", "%dip x = rank") as nb:
        assert "there are ranks 0-1" in nb.run("%dip --catch-up 2").error[1]
        assert "NameError" in nb.run("%dip nix").error[2]
        assert "--catch-up" not in nb.run("%dip nix").error[2], "no rank is new"
        shown = nb.ok("%%dip --catch-up 1 -S all\nx")
        assert [each[-3:] for each in shown.data()] == [": 0", ": 0"], shown.data()
        nb.run("%dip import os; os._exit(rank + 3)")
        assert "all other ranks are new, too" in nb.run("%dip --catch-up 1").error[1]


if __name__ == "__main__":
    notebook.run(globals())
