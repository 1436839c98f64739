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
    with _prepared() as nb:
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


def _prepared():
    """A group that is prepared for fastai, whose import takes each rank two seconds, for several
    tests."""
    shared = notebook.shared_notebook("%load_ext ddip", "%makedip -n 2 -a fastai")
    with shared as nb:
        nb.ok("%dip -a 'ddp on'")
    return shared


def _learner(nb):
    nb.ok(f"%%dip\ntorch = __import__('torch')\ntorch.manual_seed(3)\n{FASTAI}")
    nb.ok("%%dip\ndef weights():\n    return [p.tolist() for p in learn.model.parameters()]")


def _values(nb, code):
    """The value of an expression on each rank, as text."""
    return [text.partition(" ")[2] for text in nb.ok(f"%dip -S all {code}").data()[-2:]]


def test_fastai_predictions():
    """Outside fit() each rank predicts and measures all, in order, and needs no other rank."""
    notebook.need("fastai", "accelerate")
    with _prepared() as nb:
        _learner(nb)
        nb.ok("%dip learn.fit(1)")
        nb.ok(
            "%%dip\npreds, ys = learn.get_preds()\nassert torch.equal(ys, y), 'in order'\n"
            "with torch.no_grad(): wanted = learn.model(x)\n"
            "assert torch.allclose(preds, wanted), (preds, wanted)"
        )
        one, other = _values(nb, "learn.validate()")
        assert one == other, (one, other)
        # what another rank takes no part in
        assert nb.ok("%%dip --ranks 1\nlen(learn.get_preds()[0])").data()[-1].endswith(" 64")
        assert nb.ok("%%dip --ranks 0\nround(learn.validate()[0], 3)").data()


def test_fastai_lr_find():
    """lr_find() tries all its rates, suggests the same on all ranks and restores the learner, also
    if it is interrupted."""
    notebook.need("fastai", "accelerate")
    with _prepared() as nb:
        _learner(nb)
        nb.ok("%dip learn.fit(1); before = weights(), str(learn.opt.state_dict())")
        nb.ok("%dip found = learn.lr_find(num_it=60, stop_div=False, show_plot=False)")
        one, other = _values(nb, "found, len(learn.recorder.lrs)")
        assert one == other and one.endswith(", 60)"), (one, other)
        kept = "before == (weights(), str(learn.opt.state_dict()))"
        assert _values(nb, kept) == ["True", "True"]
        nb.ok(
            "%%dip\nclass Stop(Callback):\n    def after_batch(self):\n"
            "        if self.train_iter == 9: raise KeyboardInterrupt"
        )
        shown = nb.run("%dip learn.add_cb(Stop()); learn.lr_find(num_it=60, show_plot=False)")
        assert shown.error[0] == "KeyboardInterrupt", shown.error
        assert _values(nb, kept) == ["True", "True"]
        # each rank for itself
        nb.ok("%dip -a 'ddp off'")
        nb.ok("%dip learn.remove_cb(Stop); learn.lr_find(num_it=20 + 9 * rank, show_plot=False)")
        assert _values(nb, kept) == ["True", "True"]


def test_fastai_differs():
    """Ranks that would train with other settings are told so, and train no further."""
    notebook.need("fastai", "accelerate")
    with _prepared() as nb:
        _learner(nb)
        for code, said in (
            ("learn.fit(1, lr=0.1 if rank == 0 else 0.01)", "lr is 0.1 on rank 0 and 0.01 on rank"),
            ("learn.fit_one_cycle(1, (rank + 1) / 10)", "the schedule of lr is "),
            ("learn.fit(1 + rank)", "n_epoch is 1 on rank 0 and 2 on rank 1"),
            ("learn.fit(3, start_epoch=rank)", "start_epoch is 0 on rank 0 and 1 on rank 1"),
            ("learn.opt.set_hyper('mom', 1 / (2 + rank)); learn.fit(1)", "mom is 0.5 on rank 0"),
        ):
            shown = nb.run(f"%dip {code}")
            assert said in shown.error[2], (code, shown.error)
        nb.ok("%dip learn.opt.set_hyper('mom', 0.9); learn.fit(1)")
        one, other = _values(nb, "weights()")
        assert one == other, (one, other)


def test_fastai_again():
    """A fit() that was interrupted leaves a learner that trains; new ranks are prepared."""
    notebook.need("fastai", "accelerate")
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        said = nb.run("%dip -a 'ddp off'").error[1]
        assert "%makedip -a prepares one of fastai" in said, said
        nb.ok("%makedip -a fastai")
        _learner(nb)
        for wrong in ("ddp", "ddp of", "dpp on", "ddp on on"):
            said = nb.run(f"%dip -a '{wrong}'").error[1]
            assert "it has 'ddp on|off' and 'progress 0|all'" in said, said
        nb.ok(
            "%%dip\nclass Slow(Callback):\n    def after_batch(self):\n"
            "        print('a step', flush=True); __import__('time').sleep(0.01)"
        )
        begun = nb.begin("%dip learn.fit(10**6, cbs=Slow())")
        nb.until(begun, "a step")
        nb.interrupt()
        assert nb.finish(begun).error[0] == "KeyboardInterrupt"
        state = "type(learn.model).__name__, [type(d).__name__ for d in learn.dls]"
        assert _values(nb, state) == ["('Linear', ['DataLoader', 'DataLoader'])"] * 2
        nb.ok("%dip -a 'ddp on'")
        nb.ok("%dip -a 'ddp on'")
        nb.ok("%dip learn.opt.state.clear() if rank else None")  # as if it had made fewer steps
        nb.ok("%dip learn.fit(1); learn.get_preds()")
        one, other = _values(nb, "weights()")
        assert one == other, (one, other)
        nb.run("%%dip --ranks 1\nimport os; os.kill(os.getpid(), 9)")
        assert "fastai: rank 1 is new, and is prepared" in nb.ok(f"%%dip\n{FASTAI}").text()
        nb.ok("%dip learn.fit(1)")
        one, other = _values(nb, "[p.tolist() for p in learn.model.parameters()]")
        assert one == other, (one, other)
        nb.ok("%dip -a 'ddp off'")
        nb.ok("%makedip -r")
        nb.ok(f"%%dip\n{FASTAI}")
        assert _values(nb, "learn.fit(1 + rank), sum(seen)") == ["(None, 64)", "(None, 128)"]


if __name__ == "__main__":
    notebook.run(globals())
