#!/usr/bin/env python3
"""Relays keep nothing under the tag of a request that is answered: the next one may have it."""

import os
import signal
import sys

import wire
from agent import refused
from relay import Relayed
from wire import PYTHON, same, until

COUNT = 1000  # bytes of a range
SEVENS = "import numpy; x = numpy.full(1 << 20, 7, 'u1')"


def ask_again(a, name, *fields):
    """Asks with the last tag. Returns the answer."""
    a.send(name, 0, *fields, tag=a.tag)
    return answer(a)


def answer(a):
    """The reply to the last tag."""
    return a.wait(lambda m: m.tag == a.tag and m.name[0] == "R", what="an answer")


def stop(a, pid):
    def is_stopped():
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] == "T"

    a.send("Nsignal", 0, signal.SIGSTOP, 1)
    until(is_stopped, what="the stop")


def test_a_result_that_came_with_its_bytes():
    with Relayed() as a:
        a.spawn(0)
        a.run(0, SEVENS + "; y = [bytes(1 << 20)]")
        x = a.call("Tget", 0, "x", "npy", "").handle
        assert a.call("Tget", 0, "y", "pkl", "same").fd >= 0
        same(ask_again(a, "Tread", x, 0, COUNT).data, b"\7" * COUNT)
        assert a.call("Tget", 0, "y", "pkl", "same").fd >= 0
        same(ask_again(a, "Tget", "x", "npy", "").kind, a.live_kind)


def test_an_error_with_the_tag_of_the_start():
    """It is not the end of the rank, whose output would be removed."""
    with Relayed() as a:
        tag = a.tag + 1
        a.spawn(0)
        a.tag = tag
        refused(ask_again(a, "Tget", "nothing", "npy", ""), "ENOENT", "nothing")
        a.tag = tag + 1
        same(a.run(0, "print(1)")[1], b"1\n")


def test_a_range_of_a_released_object():
    """The rank still answers the first request, after the relay has."""
    with Relayed() as a:
        pid = a.spawn(0).pid
        a.run(0, SEVENS + "; y = x + 1")
        x, y = (a.call("Tget", 0, name, "npy", "").handle for name in "xy")
        stop(a, pid)
        a.ask("Tread", 0, x, 0, COUNT)
        a.send("Nfree", 0, x)
        refused(answer(a), "EINTR", "no longer wanted")
        a.send("Tread", 0, y, 0, COUNT, tag=a.tag)
        a.send("Nsignal", 0, signal.SIGCONT, 1)
        same(answer(a).data, b"\10" * COUNT)
        same(a.run(0, "print(1)")[1], b"1\n")


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
            a.wait(lambda m, t=tag: m.tag == t, what="a range")
        a.tag = cancelled
        a.send("Ncancel", 0, cancelled)
        refused(answer(a), "EINTR", "no longer wanted")
        a.send("Tget", 0, "nothing", "npy", "same", tag=cancelled)
        a.send("Nsignal", 0, signal.SIGCONT, 1)
        refused(answer(a), "ENOENT", "nothing")
        a.tag = reads[-1]
        same(a.run(0, "print(1)")[1], b"1\n")


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
