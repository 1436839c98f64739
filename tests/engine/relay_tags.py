#!/usr/bin/env python3
"""Behind relays, too, what comes after the end goes nowhere: tags and slots never come back."""

import os
import signal
import sys

import wire
from agent import refused
from relay import Relayed
from wire import PYTHON, same, until

COUNT = 1000  # bytes of a range
SEVENS = "import numpy; x = numpy.full(1 << 20, 7, 'u1')"


def answer(a, tag):
    """The reply to this tag."""
    return a.wait(lambda m: m.tag == tag and m.name[0] == "R", what="an answer")


def none_left(a, tag):
    """After another round trip to the rank: has nothing more come for this tag?"""
    same(a.run(0, "print(1)")[1], b"1\n")
    late = [m for m in a.seen if m.tag == tag]
    assert not late, late


def stop(a, pid):
    def is_stopped():
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] == "T"

    a.send("Nsignal", 0, signal.SIGSTOP, 1)
    until(is_stopped, what="the stop")


def test_a_range_of_a_released_object():
    """The rank, whose memory the agent may not read, still answers, after the agent has. The bytes
    do not travel."""
    engine = os.path.join(wire.BUILD, "fault", "ddip-engine")
    if not os.path.exists(engine):
        print(f"not tested: {engine} is not built")
        return
    with Relayed(engine=engine, env={"DDIP_FAULT": "ddip-agent/copy.process:1"}) as a:
        pid = a.spawn(0).pid
        a.run(0, SEVENS + "; y = x + 1")
        x, y = (a.call("Tget", 0, name, "npy", "").handle for name in "xy")
        same(a.call("Tread", 0, x, 0, COUNT).data, b"\7" * COUNT)
        stop(a, pid)
        tags = [a.ask("Tread", 0, x, 0, n) for n in (COUNT, 1 << 18)]
        a.send("Nfree", 0, x)
        for tag in tags:
            refused(answer(a, tag), "EINTR", "no longer wanted")
        other = a.ask("Tread", 0, y, 0, COUNT)
        before = a.carried("from")
        a.send("Nsignal", 0, signal.SIGCONT, 1)
        same(answer(a, other).data, b"\10" * COUNT)
        for tag in tags:
            none_left(a, tag)
        cost = a.carried("from") - before
        assert cost < 1 << 17, cost


def test_a_result_that_is_cancelled_half_way():
    """The rank has yet to answer a request for a piece of it."""
    with Relayed() as a:
        pid = a.spawn(0).pid
        a.spawn(1)
        a.run(0, f"import numpy; z = numpy.zeros({64 << 20}, 'u1')")
        a.run(1, f"import numpy; z = numpy.zeros({8 << 20}, 'u1')")
        z = a.call("Tget", 1, "z", "npy", "").handle
        begin = a.carried("from")
        a.hold("from", begin + (1 << 20))
        cancelled = a.ask("Tget", 0, "z", "npy", "same")
        until(lambda: a.carried("from") >= begin + (1 << 20), what="the first bytes")
        stop(a, pid)
        a.hold("from", None)
        # what is there of the first object comes beside the second
        reads = [a.ask("Tread", 1, z, i << 18, 1 << 18) for i in range(32)]
        for tag in reads:
            answer(a, tag)
        a.send("Ncancel", 0, cancelled)
        refused(answer(a, cancelled), "EINTR", "no longer wanted")
        tag = a.ask("Tget", 0, "nothing", "npy", "same")
        a.send("Nsignal", 0, signal.SIGCONT, 1)
        refused(answer(a, tag), "ENOENT", "nothing")
        none_left(a, cancelled)


def test_a_rank_and_its_successor():
    """Both have the same place. What was asked of the first is not answered by the second."""
    first, second = 0, 1 << 16
    with Relayed() as a:
        a.spawn(first)
        a.run(first, SEVENS)
        x = a.call("Tget", first, "x", "npy", "").handle
        a.send("Nsignal", first, signal.SIGKILL, 1)
        same(a.wait("Nexit").slot, first)
        a.spawn(second)
        a.run(second, "x = 2")
        refused(a.call("Trun", first, 1, 1, "x = 3"), "ESRCH", "slot 0 has no engine")
        refused(a.call("Tread", first, x, 0, COUNT), "ESRCH", "slot 0 has no engine")
        refused(a.call("Tget", first, "x", "npy", "same"), "ESRCH", "slot 0 has no engine")
        a.send("Nsignal", first, signal.SIGKILL, 1)
        same(a.run(second, "print(x)")[1], b"2\n")


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
