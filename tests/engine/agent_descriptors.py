#!/usr/bin/env python3
"""An agent that has no descriptor left ends what it has to end, and loses nothing else."""

import itertools
import os
import resource
import signal
import sys

import wire
from agent import refused
from wire import AGENT, PYTHON, Agent, alive, same, until

# AddressSanitizer's leak check needs descriptors, and waits for one at the end for ever.
NO_LEAK_CHECK = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}

# a group, and a session, of its own
CHILDREN = """
import subprocess
kill = [subprocess.Popen(["sleep", "1000"], **how).pid
        for how in ({"process_group": 0}, {"start_new_session": True})]
print(*kill)
"""


def exhaust(a):
    """From now on the agent gets no descriptor, whichever it closes meanwhile."""
    _, hard = resource.prlimit(a.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(a.process.pid, resource.RLIMIT_NOFILE, (3, hard))


def leave(a, free):
    """From now on the agent gets so many more descriptors. Returns its limits before."""
    used = {int(fd) for fd in os.listdir(f"/proc/{a.process.pid}/fd")}
    limit = [fd for fd in range(len(used) + free + 1) if fd not in used][free]
    soft, hard = resource.prlimit(a.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(a.process.pid, resource.RLIMIT_NOFILE, (limit, hard))
    return soft, hard


def start(a, cold, free):
    """Starts a rank while so many descriptors are left. Returns the message that ends that."""
    before = leave(a, free)
    m = a.call("Tspawn", 0, 0, 1, "group", "rank0", "", cold)
    if m.name == "Rspawn":
        m = a.wait(lambda m: m.name in ("Nstarted", "Nexit"), what="the start")
    resource.prlimit(a.process.pid, resource.RLIMIT_NOFILE, before)
    return m


def test_a_rank_does_not_start():
    """However many are left: what fails says that it is for want of descriptors."""
    with Agent() as a:
        for cold in (0, 1):
            for free in itertools.count():
                m = start(a, cold, free)
                if m.name == "Nstarted":
                    break
                text = m.text if m.name == "Rerror" else str(m.lasterr)
                assert "Too many open files" in text, text
            a.send("Nsignal", 0, signal.SIGKILL, 1)
            a.wait("Nexit")


def test_a_rank_exits():
    with Agent(env=NO_LEAK_CHECK) as a:
        a.spawn(0)
        a.spawn(1)
        group, _ = map(int, a.run(0, CHILDREN)[1].split())
        exhaust(a)
        a.send("Nsignal", 0, signal.SIGKILL, 0)
        same(a.wait("Nexit").status, signal.SIGKILL)
        until(lambda: not alive(group), what="the end of the rank's child")
        same(a.run(1, "print(1)")[1], b"1\n")


def test_a_failed_fork_leaves_none_open():
    engine = os.path.join(wire.BUILD, "fault", "ddip-engine")
    if not os.path.exists(engine):
        print(f"not tested: {engine} is not built")
        return
    env = {"DDIP_FAULT": "ddip-agent/gpus.fork:1"}
    with Agent(env=env, command=[engine, "--agent"], warm=False) as a:
        before = os.listdir(f"/proc/{a.process.pid}/fd")
        refused(a.call("Tgpus", AGENT, 0), "EAGAIN", "asks NVML")
        same(os.listdir(f"/proc/{a.process.pid}/fd"), before)


def test_the_end():
    with Agent(env=NO_LEAK_CHECK) as a:
        a.spawn(0)
        children = list(map(int, a.run(0, CHILDREN)[1].split()))
        exhaust(a)
        a.close()
        same([pid for pid in children if alive(pid)], [])


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
