#!/usr/bin/env python3
"""ranch() and in_torchddp() work in a notebook, and in a program (this one, started again)."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient")


def report(*args, **kwargs):
    """What a worker knows about itself."""
    numbers = {name: int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    return {**numbers, "pid": os.getpid(), "args": args, **kwargs}


def program():
    """The published cases, which test_program() runs as a program of its own."""
    import ddip

    for nprocs, caller in ((1, 0), (1, None), (3, 0), (3, 2)):
        for args in (("arg_1", 20, "arg_3"), ()):
            for kwargs in ({}, {"a": "foo", "b": "goo", "c": 100}):
                found = ddip.ranch(
                    nprocs, report, *args, caller_rank=caller, imports="import os", **kwargs
                )
                assert [r["LOCAL_RANK"] for r in found] == list(range(nprocs))
                assert all(r["LOCAL_WORLD_SIZE"] == nprocs for r in found)
                assert all(r["args"] == args for r in found)
                assert all(r[key] == kwargs[key] for r in found for key in kwargs)
                assert len({r["pid"] for r in found}) == nprocs
                assert caller is None or found[caller]["pid"] == os.getpid()
                assert caller is not None or os.getpid() not in [r["pid"] for r in found]
    assert "LOCAL_RANK" not in os.environ and "torch" not in sys.modules
    assert ddip.ranch(2, report, gather=False)["LOCAL_RANK"] == 0
    assert ddip.ranch(2, report, gather=False, caller_rank=None) is None
    assert ddip.in_torchddp(2, report, use_gpu=False)["args"] == ()
    space = {}
    ddip.import_star(["math"], ns=space)
    ddip.global_imports("import os.path as here", ns=space)
    assert space["floor"](2.5) == 2 and space["here"] is os.path


def test_program():
    with tempfile.TemporaryDirectory() as folder, notebook.place(folder) as mount:
        environment = {**os.environ, **notebook.environment_of(mount)}
        command = [sys.executable, os.path.abspath(__file__), "program"]
        subprocess.run(command, env=environment, check=True, cwd=folder)
        assert not os.path.ismount(mount), "what ranch() started has ended with the program"
        assert not notebook.is_served(mount), "its daemon has, too"


CELLS = """
import os
import torch
import torch.distributed as dist

def in_rank(fn):
    def run(*args, **kwargs):
        import os
        return fn(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), *args, **kwargs)
    return run

def blocking(rank, size):
    tensor = torch.zeros(1)
    if rank == 0:
        for peer in range(1, size):
            tensor += 1
            dist.send(tensor=tensor, dst=peer)
    else:
        dist.recv(tensor=tensor, src=0)
    return tensor.item()

def nonblocking(rank, size):
    tensor = torch.zeros(1)
    if rank == 0:
        for peer in range(1, size):
            tensor = tensor + 1
            dist.isend(tensor=tensor, dst=peer).wait()
    else:
        dist.irecv(tensor=tensor, src=0).wait()
    print("rank", rank, "has", tensor.item())
    return tensor.item()

def summed(rank, size):
    tensor = torch.ones(1)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return tensor.item()
"""


def test_torchddp():
    with notebook.notebook("import ddip", CELLS) as nb:
        nb.ok("assert ddip.in_torchddp(5, in_rank(blocking)) == 4")
        said = nb.ok("assert ddip.in_torchddp(5, in_rank(nonblocking)) == 4").text()
        assert [f"rank {k} has {k}.0" in said for k in range(1, 5)] == [True] * 4, said
        nb.ok("for _ in range(3): assert ddip.in_torchddp(5, in_rank(summed)) == 5")
        ctx = "ctx=ddip.TorchDDPCtx(world_size=3, use_gpu=False)"
        for caller in ("2", "None"):
            call = f"ddip.ranch(3, in_rank(summed), {ctx}, caller_rank={caller})"
            assert nb.ok(call).data() == ["[3.0, 3.0, 3.0]"]
        nb.ok("assert not dist.is_initialized() and 'RANK' not in os.environ")
        nb.ok("def port(rank, size): return os.environ['MASTER_PORT']")
        ports = nb.ok(f"ddip.ranch(3, in_rank(port), {ctx}, caller_rank=1, imports='import os')")
        first, *others = ports.data()[0].strip("[]").split(", ")
        assert others == [first] * 2 and first != "'29500'", ports.data()  # the group's own store
        alone = "ddip.in_torchddp(1, in_rank(summed), ctx=ddip.TorchDDPCtx(world_size=1))"
        assert nb.ok(alone).data() == ["1.0"]
        assert [name for name in os.listdir(nb.mount) if name.startswith("ranch")] == []


def test_names():
    with notebook.notebook("import ddip") as nb:
        nb.ok(
            "K = 3\ndef helper(x): return x + 1\ndef fn(x): return helper(x) * K + floor(x)\n"
            "def star():\n    ddip.import_star(['math'])\n    return floor(2.5)"
        )
        imports = "\n    import os\n    from math import (\n        floor,\n        ceil)\n"
        call = f"ddip.ranch(2, fn, 5, need='K helper', imports={imports!r})"
        assert nb.ok(call).data() == ["[23, 23]"]
        assert nb.ok("ddip.ranch(2, star)").data() == ["[2, 2]"]
        assert nb.run("ddip.ranch(2, fn, 5, need='nix')").error[0] == "NameError"
        assert nb.run("ddip.ranch(0, fn)").error[0] == "ValueError"
        assert nb.run("ddip.ranch(2, fn, caller_rank=2)").error[0] == "ValueError"


def test_failures():
    with notebook.notebook("import ddip", CELLS) as nb:
        nb.ok(
            "class Bad(Exception): pass\ndef fails(rank, size):\n    if rank == who:\n"
            "        raise Bad('no luck')\n    dist.barrier()\n"
            "def dies(rank, size):\n    if rank == 1: os._exit(4)\n    dist.barrier()\n"
            "def dies_unseen(rank, size):\n    if rank == 1:\n        import subprocess\n"
            "        stops = f'kill -STOP {os.getppid()}; sleep 1; kill -CONT {os.getppid()}'\n"
            "        subprocess.Popen(stops, shell=True, start_new_session=True)\n"
            "        while open(f'/proc/{os.getppid()}/stat').read().split()[2] != 'T': pass\n"
            "    dies(rank, size)"
        )
        for who in (0, 1):
            nb.ok(f"who = {who}")
            name, value, text = nb.run("ddip.in_torchddp(3, in_rank(fails), need='who Bad')").error
            assert (name, value) == ("Bad", "no luck"), text
            assert "raise Bad('no luck')" in text, text
        for how in ("dies", "dies_unseen"):  # a lost connection may be reported before the death
            name, value, _ = nb.run(f"ddip.in_torchddp(3, in_rank({how}), need='dies')").error
            assert "worker 1 died" in value and "4" in value, (how, value)
        thread = nb.when(
            lambda: any(name.startswith("ranch") for name in os.listdir(nb.mount)), nb.interrupt
        )
        nb.ok("import time\ndef sleep(): time.sleep(10_000)")
        name, value, text = nb.run("ddip.ranch(2, sleep)").error
        assert name == "KeyboardInterrupt", text
        thread.join()
        assert nb.ok("ddip.in_torchddp(2, in_rank(summed))").data() == ["2.0"]
        assert [name for name in os.listdir(nb.mount) if name.startswith("ranch")] == []
        _interrupted_between(nb)


def test_killed():
    """What a killed kernel leaves goes with the next call; the workers of others stay."""
    with notebook.notebook("import ddip, time") as killed, killed.other() as other:
        wait = "def wait():\n    print('be' + 'gun')\n    time.sleep(10_000)\n"
        call = "ddip.ranch(2, wait, caller_rank=None, imports='import time')"
        living = other.begin(f"import ddip, time\n{wait}{call}")
        other.until(living, "begun")
        (theirs,) = _groups(killed)
        begun = killed.begin(wait + call)
        killed.until(begun, "begun")
        begun[0].stop_channels()
        (left,) = _groups(killed) - {theirs}
        with open(os.path.join(killed.mount, left, "ranks"), encoding="utf-8") as ranks:
            pids = [int(pid) for pid in re.findall(r" pid=(\d+)", ranks.read())]
        assert len(pids) == 2, pids
        os.kill(killed.pid, signal.SIGKILL)
        with open(os.path.join(killed.mount, left, "status"), encoding="utf-8") as owned:
            fcntl.flock(owned, fcntl.LOCK_EX)  # the daemon has seen its end
        with killed.other() as third:
            third.ok("import ddip\nassert ddip.ranch(2, max, 1, 2) == [2, 2]")
        assert _groups(killed) == {theirs}
        assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        other.interrupt()
        assert other.finish(living).error[0] == "KeyboardInterrupt"
        assert _groups(killed) == set()


def _groups(nb):
    return {name for name in os.listdir(nb.mount) if name.startswith("ranch")}


def _interrupted_between(nb):
    """An interrupt while the workers' group is made or removed leaves no group."""
    nb.ok(
        "import signal\ndef press(): os.kill(os.getpid(), signal.SIGINT)\n"
        "mkdir, rmdir = os.mkdir, os.rmdir\ndef make(path): mkdir(path); press()\n"
        "def remove(path): press(); rmdir(path)\ndef nothing(): pass"
    )
    for name, change in (("mkdir", "make"), ("rmdir", "remove")):
        nb.ok(f"os.{name} = {change}")
        assert nb.run("ddip.ranch(2, nothing)").error[0] == "KeyboardInterrupt", name
        nb.ok(f"os.{name} = {name}")
        left = [group for group in os.listdir(nb.mount) if group.startswith("ranch")]
        assert left == [], (name, left)


if __name__ == "__main__":
    if sys.argv[1:] == ["program"]:
        program()
    else:
        notebook.run(globals())
