#!/usr/bin/env python3
"""Interrupts over the wire: Nsignalled reports whether one reached Python, and who handled it."""

import os
import signal
import subprocess
import sys
import time

import wire
from wire import PLAIN_PYTHON, PYTHON, Agent, same, until


def begin(a, cell, source, says=b"on\n"):
    """Starts a cell and waits until it has printed `says`. Returns the tag of its Trun."""
    a.seen = [m for m in a.seen if m.name not in ("Nsignalled", "Ninput")]
    before = len(a.spool(0, "stdout"))
    tag = a.ask("Trun", 0, cell, 1, "print('on')\n" + source, mark=True)
    until(lambda: a.spool(0, "stdout")[before:] == says, what=source)
    return tag


def check_raised(a):
    """KeyboardInterrupt is raised in the cell; its handlers may go on; a second one is reported."""
    source = """
import time
for i in range(2):
    try:
        print('try', i)
        time.sleep(60)
    except KeyboardInterrupt:
        pass
i"""
    tag = begin(a, 80, source, b"on\ntry 0\n")
    a.send("Nintr", 0, 80, 0)
    m = a.wait("Nsignalled")
    same((m.cell, m.raised), (80, 1))
    until(lambda: a.spool(0, "stdout").endswith(b"try 1\n"), what="its handler")
    a.send("Nintr", 0, 80, 0)
    same(a.wait("Nsignalled").raised, 1)
    same(a.finish(0, tag)[0].value, b"1")
    for loop in ("while True: pass", "import subprocess; subprocess.run(['sleep', '60'])"):
        tag = begin(a, 81, loop)
        a.send("Nintr", 0, 81, 0)
        same(a.wait("Nsignalled").raised, 1)
        same(a.finish(0, tag)[0].outcome, 2)


def check_own_handler(a):
    """A handler of the program's own takes the signal; a program may also ignore it."""
    for handler in ("lambda *_: taken.append(1)", "signal.SIG_IGN"):
        source = f"""
import signal, time
taken = []
signal.signal(signal.SIGINT, {handler})
while not input(): pass
len(taken)"""
        tag = begin(a, 82, source)
        a.wait(lambda m: m.name == "Ninput" and m.waits == 1, what="input")
        a.send("Nintr", 0, 82, 0)
        a.send("Nstdin", 0, "\n")
        m = a.wait("Nsignalled")
        same((m.cell, m.raised), (82, 0))
        a.send("Nstdin", 0, "done\n")
        same(a.finish(0, tag)[0].value, b"0" if "IGN" in handler else b"1")


def check_blocked(a):
    """A blocked signal has reached nobody, though Python runs (a wrong report would have time)."""
    source = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print('on')
while not input(): pass
end = time.monotonic() + 0.2
while time.monotonic() < end: pass
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])"""
    tag = begin(a, 84, source, b"on\non\n")
    a.send("Nintr", 0, 84, 0)
    a.send("Nstdin", 0, "go\n")
    same(a.wait("Nsignalled").raised, 1)
    same(a.finish(0, tag)[0].outcome, 2)


def is_probed(noticed):
    """Has C code taken SIGINT, and the signal that asks whether Python's handler has run? A thread
    that did not run meanwhile is asked again, and may take them in any order."""
    return noticed.count(signal.SIGINT) == 1 and {*noticed} == {signal.SIGINT, signal.SIGRTMAX - 4}


def check_importing(a):
    """During an import it reaches nobody; after it, it arrives once, at whoever handles it then."""
    # each signal writes its number: once the probe is there, SIGINT has been deferred
    module = """
import os, signal, sys, time
os.set_blocking(1, False); old = signal.set_wakeup_fd(1)
print('imports')
while not os.path.exists(__file__ + '.go'): time.sleep(0.01)
signal.set_wakeup_fd(old)
"""
    blocks = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])"
    handles = "taken = []\nsignal.signal(signal.SIGINT, lambda *_: taken.append(1))"
    for number, (name, then) in enumerate((("blocks", blocks), ("handles", handles)), 90):
        path = os.path.join(a.dir, f"{name}.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write(module + then)
        source = f"""
import signal, sys, time
sys.path.insert(0, {a.dir!r})
import {name}
while not input(): pass
end = time.monotonic() + 0.2  # a wrong answer has its time, and so have two where one is right
while time.monotonic() < end: pass
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
len(getattr({name}, 'taken', ()))"""
        tag = begin(a, number, source, b"on\nimports\n")
        before = len(a.spool(0, "stdout"))
        a.send("Nintr", 0, number, 0)
        until(lambda at=before: is_probed(a.spool(0, "stdout")[at:]), what="the probe")
        a.call("Tstack", 0)  # earlier messages have arrived by now
        assert not [m for m in a.seen if m.name == "Nsignalled"], a.seen
        open(path + ".go", "w").close()
        a.wait(lambda m: m.name == "Ninput" and m.waits == 1, what="input")
        if name == "handles":
            a.send("Nstdin", 0, "\n")  # now Python runs handlers
            same(a.wait("Nsignalled").raised, 0)
        a.send("Nstdin", 0, "go\n")
        if name == "blocks":
            same(a.wait("Nsignalled").raised, 1)
        r = a.finish(0, tag)[0]
        same((r.outcome, r.value), (2, b"") if name == "blocks" else (0, b"1"))


def check_importing_torch(a):
    """An import of torch's modules has more time: they can't be imported again."""
    path = os.path.join(a.dir, "slow.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"""
import os, time
print('imports')
while not os.path.exists({path!r} + '.go'): time.sleep(0.01)
""")
    setup = f"""
import sys, types
from ddip_engine.cells import imports
imports.WAIT_S, usual = 0.1, imports.WAIT_S
torch = sys.modules.setdefault('torch', types.ModuleType('torch'))
torch.__path__ = [*getattr(torch, '__path__', ()), {a.dir!r}]"""
    a.run(0, setup)
    tag = begin(a, 93, "import time, torch.slow; time.sleep(60)", b"on\nimports\n")
    a.send("Nintr", 0, 93, 0)
    time.sleep(0.5)  # a wrong interrupt has its time
    a.call("Tstack", 0)  # earlier messages have arrived by now
    assert not [m for m in a.seen if m.name == "Nsignalled" and m.raised], a.seen
    open(path + ".go", "w").close()
    same(a.finish(0, tag)[0].outcome, 2)
    same(a.run(0, "'torch.slow' in sys.modules")[0].value, b"True")
    a.run(0, "imports.WAIT_S = usual; del sys.modules['torch.slow'], torch.__path__[-1], torch")


LOCKS = "import logging; print(hasattr(logging, '_releaseLock'))"  # before Python 3.13


def check_forking(a):
    """While a fork releases logging's lock it waits: the lock would stay taken."""
    tag = begin(
        a,
        92,
        """
import logging, os, threading, time
class Slow:
    def __init__(self, lock):
        self.acquire, self.own = lock.acquire, lock
    def release(self):
        print('releases', flush=True)
        time.sleep(0.2)
        self.own.release()
real, logging._lock = logging._lock, Slow(logging._lock)
try:
    pid = os.fork()
    if not pid: os._exit(0)
    time.sleep(60)
finally:
    os.waitpid(pid, 0)
    logging._lock, got = real, []
    other = threading.Thread(target=lambda: got.append(real.acquire(timeout=1)))
    other.start(); other.join()
    print('free', got, flush=True)
""",
        b"on\nreleases\n",
    )
    before = len(a.spool(0, "stdout"))
    a.send("Nintr", 0, 92, 0)
    same(a.finish(0, tag)[0].outcome, 2)
    same(a.spool(0, "stdout")[before:], b"free [True]\n")


def check_nccl(a):
    """What NCCL has queued is ended in a rank that is in no collective, but not if the program
    handles SIGINT: then only without any condition."""
    known, always, nccl = 0, 1, 2
    source = """
import time
from ddip_engine import rank as engine
ended = []
engine._RESCUE["Nabort"] = (lambda fd, what, ms: ended.append(what), None)"""
    same(a.run(0, source, cell=86)[0].outcome, 0)
    own = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    for number, first, kinds in ((87, "ended", (known, nccl)), (88, own, (known, nccl, always))):
        tag = begin(a, number, f"{first}\nwhile not ended: time.sleep(0.01)\nended.pop(0)")
        for what in kinds:
            a.send("Nabort", 0, what, 0)
        same(a.finish(0, tag)[0].value, b"%d" % kinds[-1])


def check_in_c(a):
    """While C code keeps the main thread nothing is reported, though the probe has arrived."""
    waits = b"trap '' INT; echo in C; exec sleep 1000"
    source = f"""
import ctypes, os, signal
os.set_blocking(1, False); signal.set_wakeup_fd(1)
ctypes.PyDLL(None).system({waits})"""
    begin(a, 83, source, b"on\nin C\n")
    a.send("Nintr", 0, 83, 0)
    until(lambda: a.spool(0, "stdout").endswith(b"%c" % (signal.SIGRTMAX - 4)), what="the probe")
    a.call("Tstack", 0)  # earlier messages have arrived by now
    assert not [m for m in a.seen if m.name == "Nsignalled"], a.seen
    a.send("Nsignal", 0, signal.SIGKILL, 1)
    a.wait("Nexit")


KEYBOARD = "KeyboardInterrupt"
AROUND = """
armed, log = [], []
def waits(*args):
    if armed:
        armed.pop()
        print('waits')
        while not input(): pass
    return args[0] if args else None
def slow(function):
    def call(*args):
        waits()
        return function(*args)
    return call
def wrong(*args): raise ValueError('its own')
"""


def await_raised(a):
    """On a busy machine a report that it went elsewhere may come first."""
    a.wait(lambda m: m.name == "Nsignalled" and m.raised, what="Nsignalled")


def check_callbacks(a):
    """Before the cell's code an interrupt ends the cell, and afterwards a callback of the user's;
    IPython reports no error of its own."""

    def ends(source, says):
        tag = begin(a, 100, source, says)
        a.send("Nintr", 0, 100, 0)
        await_raised(a)
        r, out, err = a.finish(0, tag)
        same((r.outcome, r.error.strip(), out, err), (2, KEYBOARD, says, b""))

    same(a.run(0, AROUND + "ip = get_ipython()")[0].outcome, 0)
    waiting = "import asyncio\nawait asyncio.sleep(0)\nran = 1"
    for watched in (False, True):  # with a callback that wants IPython's result
        if watched:
            watch = "ip.events.register('post_run_cell', lambda result: log.append(result.success))"
            same(a.run(0, watch)[0].outcome, 0)
        for event in ("post_execute", "post_run_cell")[: 1 + watched]:
            hook = f"ip.events.callbacks['{event}']"
            ends(f"{hook}.append(waits); ran = 1; armed.append(1)", b"on\nwaits\n")
            ends(f"armed.append(1)\n{waiting}", b"on\nwaits\n")
            same(a.run(0, f"{hook}.remove(waits)")[0].outcome, 0)
        events = [f"events.callbacks['{event}']" for event in ("pre_execute", "pre_run_cell")]
        for hook in (*events, "input_transformers_post"):
            for source in ("ran = 1", waiting, "1 +"):
                setup = f"ip.{hook}.append(waits); ran = 0; armed.append(1); log.clear()"
                same(a.run(0, setup)[0].outcome, 0)
                ends(source, b"waits\n")
                r = a.run(0, f"ip.{hook}.remove(waits); ran, log[-1:]")[0]
                same(r.value, b"(0, [False])" if watched else b"(0, [])")
    same(a.run(0, "ip.events.callbacks['post_run_cell'].clear()")[0].outcome, 0)
    r, out, _ = a.run(0, "ip.events.register('post_execute', wrong); 1")
    same((r.outcome, b"Error in callback <function wrong" in out), (1, True))
    same(a.run(0, "ip.events.unregister('post_execute', wrong)")[0].outcome, 0)


def check_over(a):
    """An interrupt while it is shown how the cell's code has failed ends what is slow, and then the
    error is the true one. A second one ends the cell."""
    setup = "import traceback"
    for name in ("format_exception", "format_exception_only", "walk_tb"):  # what shows errors
        setup += f"\ntraceback.{name} = slow(traceback.{name})"
    same(a.run(0, f"{AROUND}\n{setup}")[0].outcome, 0)
    for error in ("ZeroDivisionError: division by zero", KEYBOARD):
        waits = 1 + (error == KEYBOARD)
        before = len(a.spool(0, "stdout"))
        tag = begin(a, 101, f"armed.extend([1] * {waits})\n1 / 0", b"on\nwaits\n")
        a.send("Nintr", 0, 101, 0)
        await_raised(a)
        if waits == 2:
            says = b"on\nwaits\nwaits\n"
            until(lambda at=before, says=says: a.spool(0, "stdout")[at:] == says, what="a wait")
            a.send("Nintr", 0, 101, 0)
        r, out, _ = a.finish(0, tag)
        same((r.outcome, r.error.strip(), out), (2, error, b"on\n" + b"waits\n" * waits))
    if a.run(0, "get_ipython()")[0].outcome != 0:
        return
    endless = """
def endless():
    while log: pass
get_ipython().events.register('post_execute', endless)"""
    same(a.run(0, f"log.clear(){endless}")[0].outcome, 0)
    tag = begin(a, 101, "log.append(1)\narmed.append(1)\n1 / 0", b"on\nwaits\n")
    a.send("Nintr", 0, 101, 0)
    await_raised(a)
    r, out, _ = a.finish(0, tag)
    same((r.outcome, out), (1, b"on\nwaits\n"))
    same(a.run(0, "log.clear()")[0].outcome, 0)


def check_program_over(a):
    """While it is shown how a program has failed, too: then it still ends as a process does."""
    source = f"""# ddip run: {{"argv": ["-"]}}
{AROUND}
import atexit, traceback
plain = traceback.format_exception
traceback.format_exception = slow(plain)
atexit.register(lambda: print('at exit'))
atexit.register(setattr, traceback, 'format_exception', plain)
armed.append(1)
1 / 0"""
    a.seen = []
    tag = a.ask("Trun", 0, 102, 1, source, mark=True)
    a.wait(lambda m: m.name == "Ninput" and m.waits == 1, what="input")
    a.send("Nintr", 0, 102, 0)
    await_raised(a)
    r, out, _ = a.finish(0, tag)
    same((r.error.strip(), out), ("ZeroDivisionError: division by zero", b"waits\nat exit\n"))


def test_around():
    """The code of a cell, and IPython's or the engine's own around it."""
    for python in (PYTHON, PLAIN_PYTHON):
        with Agent(python) as a:
            a.spawn(0)
            if a.run(0, "get_ipython()")[0].outcome == 0:
                check_callbacks(a)
            check_over(a)
            check_program_over(a)


def test_signalled():
    with Agent(PYTHON) as a:
        a.spawn(0)
        check_raised(a)
        check_own_handler(a)
        check_blocked(a)
        check_importing(a)
        check_importing_torch(a)
        if subprocess.check_output([PYTHON, "-c", LOCKS]) == b"True\n":
            check_forking(a)
        check_nccl(a)
        check_in_c(a)


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
