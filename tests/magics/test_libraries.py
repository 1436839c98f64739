#!/usr/bin/env python3
"""Notebook libraries work on the ranks: widgets' comms, launchers, fastai."""

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "comm")

COMM = """
import comm
end = comm.create_comm(target_name="a target", data={"begun": rank}, buffers=[b"bytes"])
def on_msg(message):
    print("rank", rank, "got", message["content"]["data"], bytes(message["buffers"][0]))
    end.send({"twice": 2 * message["content"]["data"]})
end.on_msg(on_msg)
end.send({"state": "sent"})
"""


def _messages(client, kind, count):
    """The contents of that many messages of this kind."""
    found = []
    while len(found) < count:
        message = client.get_iopub_msg(timeout=notebook.HANG_LIMIT_S)
        if message["msg_type"] == kind:
            found.append((message["content"], [bytes(each) for each in message["buffers"]]))
    return found


def test_comms():
    """The kernel sends what a widget on a rank sends; the front end's replies reach the rank."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        client, _ = nb.begin(f"%%dip -S 1\n{COMM}")
        ((opened, buffers),) = _messages(client, "comm_open", 1)
        assert opened["target_name"] == "a target" and opened["data"] == {"begun": 1}, opened
        assert buffers == [b"bytes"]
        ((sent, _),) = _messages(client, "comm_msg", 1)
        assert (sent["comm_id"], sent["data"]) == (opened["comm_id"], {"state": "sent"}), sent
        answer = client.session.msg("comm_msg", {"comm_id": opened["comm_id"], "data": 21})
        client.session.send(client.shell_channel.socket, answer, buffers=[b"there"])
        ((twice, _),) = _messages(client, "comm_msg", 1)
        assert twice["data"] == {"twice": 42}, twice
        notebook.until(lambda: nb.is_printed("rank 1 got 21 b'there'", 1))
        nb.ok("%dip -S 1 end.close()")
        ((closed, _),) = _messages(client, "comm_close", 1)
        assert closed["comm_id"] == opened["comm_id"]
        client.stop_channels()
        assert nb.ok("%%dip --ranks 0\nimport comm; len(comm.get_comm_manager().comms)").data()


def test_launchers():
    """What would start processes in a notebook calls the function on the existing ranks."""
    notebook.need("accelerate")
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        code = (
            "%%dip -S all\nfrom accelerate import Accelerator, notebook_launcher\nimport os\n"
            "def train(word):\n    a = Accelerator(cpu=True)\n"
            "    print(word, a.num_processes, a.process_index, os.getpid() == me)\n"
            "me = os.getpid()\nnotebook_launcher(train, ('trains',), num_processes=8)"
        )
        lines = sorted(nb.ok(code).text().splitlines())
        first = (
            "[0] notebook_launcher: the function is called on the 2 ranks that are here, not on 8"
        )
        assert lines == [first, "[0] trains 2 0 True", "[1] trains 2 1 True"], lines
        assert "launcher:" not in nb.ok("%dip notebook_launcher(train, ('x',))").text(), "said once"


def test_lightning():
    """Strategies for notebooks act as ddp: no process is started."""
    notebook.need("lightning")
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        shown = nb.ok(
            "%%dip -S all\nimport lightning as L\n"
            "names = ('ddp_notebook', 'ddp_notebook_find_unused_parameters_true')\n"
            "made = [L.Trainer(strategy=name, accelerator='cpu', devices=2) for name in names]\n"
            "print([type(t.strategy).__name__ + ' ' + t.strategy.launcher.__class__.__name__\n"
            "       for t in made], made[0].world_size)"
        )
        text = (
            "['DDPStrategy _SubprocessScriptLauncher', 'DDPStrategy _SubprocessScriptLauncher'] 2"
        )
        lines = [line for line in shown.text().splitlines() if "DDPStrategy" in line]
        assert sorted(lines) == [f"[0] {text}", f"[1] {text}"], shown.text()


FASTAI = """
from fastai.basics import *
from fastai.callback.schedule import *
x = torch.randn(64, 1); y = 2 * x + 1
data = [(x[i], y[i]) for i in range(64)]
dls = DataLoaders(DataLoader(data, bs=8, shuffle=True), DataLoader(data, bs=8))
seen = []
class Seen(Callback):
    def after_batch(self): seen.append(len(self.xb[0])) if self.training else None
learn = Learner(dls, nn.Linear(1, 1), loss_func=nn.MSELoss(), cbs=Seen())
"""


def test_fastai():
    """After -a fastai plain fit() trains with all ranks: equal weights, each with its own data."""
    notebook.need("fastai", "accelerate")
    with notebook.notebook("%load_ext ddip", "%makedip -n 2 -a fastai") as nb:
        nb.ok(f"%%dip\n{FASTAI}")
        for fit in ("fit(1)", "fit_one_cycle(1)", "fine_tune(1)"):
            nb.ok(f"%%dip\nseen.clear()\nlearn.{fit}")
            nb.ok("%%dip\nweights = [p.detach().clone() for p in learn.model.parameters()]")
            one, other = nb.ok("%dip -S all [float(w) for w in weights], sum(seen)").data()
            assert one.partition(" ")[2] == other.partition(" ")[2], (fit, one, other)
            assert ", 32)" in one or (", 64)" in one and fit.startswith("fine")), (fit, one)
        assert "distributed learners: off" in nb.ok("%dip -a 'ddp off'").text()
        nb.ok("%dip seen.clear(); learn.fit(1)")
        assert nb.ok("%dip sum(seen)").data()[0].endswith(" 64"), "each rank alone has all data"
        assert nb.ok("%dip type(learn.model).__name__").data()[0].endswith("'Linear'")


if __name__ == "__main__":
    notebook.run(globals())
