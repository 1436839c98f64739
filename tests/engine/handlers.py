#!/usr/bin/env python3
"""A program's signal handlers are held while the rank does its own work: none is lost, none runs
twice, and nothing else is held."""

import os
import signal
import sys

import wire
from wire import Agent, same, until

OK = 0
HANDLER = """
import atexit, faulthandler, os, signal, sys, threading, time
def told(*args): print("handled", flush=True)
signal.signal(signal.SIGUSR1, told)
"""
# as if it came while the engine makes the outcome of a cell
BETWEEN = """
from ddip_engine.data import table
text = table.text
def late(*args):
    table.text = text
    {}
    return text(*args)
table.text = late
"""


def begin(a, code=""):
    """Starts a rank that has HANDLER, and runs the code."""
    a.spawn(0)
    same(a.run(0, HANDLER + code)[0].error, "")


def between(a, code):
    """Runs the code while handlers are held."""
    same(a.run(0, BETWEEN.format(code))[0].outcome, OK)


def handled(a, count=1):
    until(lambda: a.spool(0, "stdout").count(b"handled\n") == count, what="its handler")


def test_one_forks():
    """Its child runs no cell, also if one is queued."""
    with Agent() as a:
        a.spawn(0)
        a.run(0, "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *args: os.fork())")
        source = BETWEEN.format("os.kill(os.getpid(), signal.SIGUSR1)")
        path = os.path.join(a.dir, "ran")
        tags = [a.ask("Trun", 0, 2, 1, source, mark=True)]
        tags.append(a.ask("Trun", 0, 3, 1, f"open({path!r}, 'a').write('once')", mark=True))
        for tag in tags:
            same(a.finish(0, tag)[0].outcome, OK)
        a.run(0, "os.waitpid(-1, 0)")  # its end
        with open(path, encoding="utf-8") as file:
            same(file.read(), "once")


def test_the_default_is_set_meanwhile():
    """As code of an object's may: what came before does not end the rank."""
    with Agent() as a:
        begin(a)
        kill = "os.kill(os.getpid(), signal.SIGUSR1)"
        between(a, f"{kill}; signal.signal(signal.SIGUSR1, signal.SIG_DFL)")
        same(a.run(0, "7")[0].value, b"7")


def test_the_main_thread_blocks_it():
    """Another thread takes it; Python runs the handler when the main thread goes on."""
    with Agent() as a:
        begin(
            a,
            """
end = threading.Event()
threading.Thread(target=end.wait).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])""",
        )
        between(a, "os.kill(os.getpid(), signal.SIGUSR1)")
        until(lambda: a.run(0, "end.set()") and b"handled" in a.spool(0, "stdout"), what="its end")


def test_system_in_a_thread():
    """system(3) sets again the handler that it finds."""
    with Agent() as a:
        begin(
            a,
            """
signal.signal(signal.SIGQUIT, told)
begin, reader, writer = threading.Event(), *os.pipe()
os.set_inheritable(reader, True)
thread = threading.Thread(target=lambda: (begin.wait(), os.system(f"read x </dev/fd/{reader}")))
thread.start()""",
        )
        ignores = "int(open('/proc/self/status').read().split('SigIgn:')[1].split()[0], 16) & 4"
        between(a, f"begin.set()\n    while not {ignores}: pass")
        a.run(0, "os.write(writer, b'x\\n'); thread.join()")
        for count in (1, 2):
            a.run(0, "os.kill(os.getpid(), signal.SIGQUIT)")
            handled(a, count)


def test_one_exits():
    """By sys.exit() while the rank is idle: the others run at its exit."""
    options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    with Agent(env={"ASAN_OPTIONS": options}) as a:
        begin(
            a,
            """
signal.signal(signal.SIGUSR2, lambda *args: sys.exit(3))
atexit.register(lambda: (os.kill(os.getpid(), signal.SIGUSR1), print("at exit", flush=True)))""",
        )
        a.send("Nsignal", 0, signal.SIGUSR2, 0)
        same(os.waitstatus_to_exitcode(a.wait("Nexit").status), 3)
        same(a.spool(0, "stdout"), b"handled\nat exit\n")


def test_a_handler_in_c():
    """That of faulthandler runs at any time: a fault that waited would be repeated for ever."""
    with Agent() as a:
        begin(
            a,
            """
signal.signal(signal.SIGUSR2, told)
faulthandler.register(signal.SIGUSR2)""",
        )
        between(a, "os.kill(os.getpid(), signal.SIGUSR2)")
        until(lambda: b"in late" in a.spool(0, "stderr"), what="its stack")


WITHIN = """
import _ddip
from ddip_engine.cells import cell as cells, run
pause = _ddip.pause
def raises():
    _ddip.pause = pause
    pause()
    raise TimeoutError("as the handler of a signal that came last")
_ddip.pause = raises
ended, stray = run.within(run.current(), lambda cell: cells.Ended(value="7"))
os.kill(os.getpid(), signal.SIGUSR1)
print(ended.value, repr(stray), flush=True)
"""


def test_one_raises_before_a_steer():
    """Its outcome is not lost, and the cell's handlers run on."""
    with Agent() as a:
        begin(a, WITHIN)
        text = "TimeoutError('as the handler of a signal that came last')"
        same(a.spool(0, "stdout").decode(), f"handled\n7 {text}\n")


if __name__ == "__main__":
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
