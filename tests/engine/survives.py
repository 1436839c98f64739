#!/usr/bin/env python3
"""A rank survives what user code leaves in it: the next cell runs, and finds its variables."""

import os
import signal
import sys
from errno import EIO

import wire
from wire import Agent, same, until

OK, RAISED, INTERRUPTED = range(3)
HANDLER = """
import signal
kept = 7
def stray(*args): raise TimeoutError("stray")
signal.signal(signal.SIGUSR1, stray)
"""
# as if a signal had come while the engine sends the outcome of a cell, or makes it
IN_SEND = """
from ddip_engine import rank as engine
send = engine._send
def late(*args):
    engine._send = send
    {}
engine._send = late
"""
GONE = "FileNotFoundError: [Errno 2] No such file or directory"
IN_TABLE = """
from ddip_engine.data import table
text = table.text
def late(*args):
    table.text = text
    raise TimeoutError("late")
table.text = late
"""


def check_next(a):
    """The rank has its variables, and each request got one answer."""
    r, _, _ = a.run(0, "kept")
    same((r.outcome, r.value), (OK, b"7"))
    same([m for m in a.seen if m.name in ("Nexit", "Rerror")], [])


def test_a_signal_handler_raises():
    with Agent() as a:
        a.spawn(0)
        same(a.run(0, HANDLER)[0].outcome, OK)
        for count in (1, 2):
            a.send("Nsignal", 0, signal.SIGUSR1, 0)
            until(lambda n=count: a.spool(0, "stderr").count(b"TimeoutError: stray") == n,
                  what="its traceback")  # fmt: skip
            check_next(a)
        assert b"in stray" in a.spool(0, "stderr"), a.spool(0, "stderr")
        r, _, _ = a.run(0, IN_SEND.format("send(*args); raise TimeoutError('late')"))
        same(r.outcome, OK)
        check_next(a)
        r, _, _ = a.run(0, IN_TABLE)
        same((r.outcome, r.error), (RAISED, "TimeoutError: late"))
        assert b"ddip_engine" not in r.traceback and b"in late" in r.traceback, r.traceback
        check_next(a)


IN_IMPORT = """
import sys
def raises(frame, event, arg):
    if frame.f_code.co_filename == "<ddip_engine importer>":
        sys.setprofile(None)
        raise TimeoutError("late")
sys.setprofile(raises)
import colorsys
"""


def test_an_import_fails_in_our_importer():
    """Its frame is not the user's."""
    with Agent() as a:
        a.spawn(0)
        r, _, _ = a.run(0, IN_IMPORT)
        same((r.outcome, r.error), (RAISED, "TimeoutError: late"))
        assert b"import colorsys" in r.traceback and b"ddip_engine" not in r.traceback, r.traceback


STORM = """
left = 2000
def stray(*args):
    global left
    left -= 1
    if not left:
        signal.setitimer(signal.ITIMER_REAL, 0)
    raise TimeoutError("stray")
signal.signal(signal.SIGALRM, stray)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
"""


def test_a_signal_handler_raises_all_the_time():
    """It ends the code of cells, IPython's that runs around them among it, and nothing of what the
    rank does between cells: each request gets its answer."""
    with Agent() as a:
        a.spawn(0)
        same(a.run(0, HANDLER)[0].outcome, OK)
        a.run(0, STORM)
        ended = [a.run(0, "kept, left")[0]]
        while ended[-1].value != b"(7, 0)":
            ended.append(a.run(0, "kept, left")[0])
        assert {r.outcome for r in ended} == {OK, RAISED}, {(r.outcome, r.error) for r in ended}
        for r in ended:
            assert r.error or r.value.startswith(b"(7, "), (r.outcome, r.value)
            assert b"ddip_engine" not in r.traceback, r.traceback.decode()
        check_next(a)
        told = a.spool(0, "stderr")  # of those that came between cells, none within another's text
        assert b"During handling" not in told, told.decode()


FORKS = """
import os, signal, threading
def fork():
    global status
    pid = os.fork()
    if not pid:
        signal.raise_signal(signal.SIGUSR1)
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
thread = threading.Thread(target=fork)
signal.signal(signal.SIGUSR1, lambda *args: os._exit(7))
"""


def test_a_thread_forks():
    """Within the rank's own work, too, its child handles signals as the program does."""
    with Agent() as a:
        a.spawn(0)
        forks = IN_SEND.format("thread.start(); thread.join(); send(*args)")
        same(a.run(0, FORKS + forks)[0].outcome, OK)
        same(a.run(0, "status")[0].value, b"7")


def test_streams_of_none():
    """Its own are there, whatever `sys` has in their place."""
    with Agent() as a:
        a.spawn(0)
        for how in ("import sys; {0} = None", "del {0}"):
            names = (f"sys.{name}" for name in ("stdout", "__stdout__", "stderr", "__stderr__"))
            code = "\n".join(map(how.format, names))
            r, _, err = a.run(0, code)
            same((r.outcome, err.count(b"it is the rank's own again")), (OK, 2))
            a.run(0, "sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr")
            same(a.run(0, "print('shown')")[1], b"shown\n")


ENDS = """
import os, sys
def forked():
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""
CLOSES = """
if (status := forked()) is None:
    {}
"""


def test_a_child_closes_its_streams():
    """It ends as with Python, not as a rank."""
    with Agent() as a:
        a.spawn(0)
        a.run(0, ENDS)
        for status, code in (
            (0, "sys.stdout.close(); sys.stderr.close()"),
            (0, "sys.stdout = sys.stderr = None"),
            (1, "sys.stderr.close(); 1 / 0"),
            (3, "sys.stdout.close(); sys.exit(3)"),
            (120, "sys.stdout = open('/dev/full', 'w'); print(1)"),
        ):
            same(a.run(0, CLOSES.format(code))[2], b"")
            same(a.run(0, "status")[0].value, b"%d" % status)


ENDED = """
import atexit, os
from ddip_engine.cells import program
getpid, program._running = os.getpid, object()
def late():
    program._running, os.getpid = None, getpid
    return getpid()
os.getpid = late
program._register(print)
atexit.unregister(print)
"""


def test_a_thread_registers_at_the_end():
    """A thread of a program that has just ended: the function is the rank's."""
    with Agent() as a:
        a.spawn(0)
        same(a.run(0, ENDED)[0].error, "")


ALL_SIGNALS = """
import signal
seen = []
never = {signal.SIGKILL, signal.SIGSTOP}
def take(signum, frame):
    seen.append(signum)
before = [signal.signal(each, take) for each in signal.valid_signals() - never]
"""


def test_a_program_handles_all_signals():
    """The rank's own are not among them."""
    with Agent() as a:
        a.spawn(0)
        same(a.run(0, ALL_SIGNALS)[0].outcome, OK)
        assert b"most recent call first" in a.call("Tstack", 0).text, a.call("Tstack", 0).text
        a.call("Tlook", 0, 1)
        same(a.run(0, "signal.raise_signal(signal.SIGUSR1); seen")[0].value, b"[10]")


AT_EXIT = """
import atexit, signal
signal.signal(signal.SIGUSR1, lambda *args: print("handled"))
atexit.register(signal.raise_signal, signal.SIGUSR1)
"""


def test_a_signal_at_exit():
    with Agent() as a:
        a.spawn(0)
        same(a.run(0, AT_EXIT)[0].outcome, OK)
        a.send("Nquit", 0)
        same(a.wait("Nexit").status, 0)
        same(a.spool(0, "stdout"), b"handled\n")


UNANSWERED = """
from ddip_engine import rank as engine
send, fail = engine._send, engine._fail
def late(*args):
    if args[0] != 0:
        raise TimeoutError("late")
    engine._send, engine._fail = send, fail  # told as between cells
    print("told", flush=True)
engine._send = engine._fail = late
"""


def test_an_answer_cannot_be_made():
    """As if a thread of the program's let a handler run, while the rank tells what one raised."""
    with Agent() as a:
        a.spawn(0)
        same(a.run(0, HANDLER)[0].outcome, OK)
        r = a.call("Trun", 0, 2, 1, UNANSWERED, mark=True)
        same((r.name, r.errno, r.text), ("Rerror", EIO, "an exception has ended the rank's answer"))
        a.send("Nsignal", 0, signal.SIGUSR1, 0)
        until(lambda: a.spool(0, "stdout") == b"told\n", what="its handler")
        check_next(a)


def test_a_signal_handler_exits():
    """As in any process. (Of what Python leaves at its exit, LeakSanitizer has no idea.)"""
    options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    with Agent(env={"ASAN_OPTIONS": options}) as a:
        a.spawn(0)
        source = "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *args: sys.exit(3))"
        same(a.run(0, source)[0].outcome, OK)
        a.send("Nsignal", 0, signal.SIGUSR1, 0)
        same(os.waitstatus_to_exitcode(a.wait("Nexit").status), 3)


def test_threads_cannot_be_looked_at():
    """Before a destroyed group is released: one has just ended, or there are no descriptors."""
    for cannot in (
        "def gone(*args, **how): raise ProcessLookupError\ndist.open = gone",
        "import resource; limit = resource.RLIMIT_NOFILE\n"
        "resource.setrlimit(limit, (3, resource.getrlimit(limit)[1]))",
    ):
        with Agent() as a:
            a.spawn(0)
            source = (
                "from ddip_engine.groups import dist; dist._retired_groups.append((0.0, 'a group'))"
            )
            same(a.run(0, f"kept = 7\n{source}\n{cannot}")[0].outcome, OK)
            check_next(a)
            same(a.spool(0, "stderr"), b"")


FROZEN = """
import dataclasses
@dataclasses.dataclass(frozen=True)
class Frozen(KeyboardInterrupt if {} else Exception):
    where: list
raise Frozen([1])
"""


def test_an_exception_cannot_be_changed():
    """As a frozen dataclass cannot: the user's error is the one that is told."""
    for python in (wire.PYTHON, wire.PLAIN_PYTHON):
        with Agent(python) as a:
            a.spawn(0)
            for interrupts, outcome in ((False, RAISED), (True, INTERRUPTED)):
                source = FROZEN.format(interrupts)
                r, _, _ = a.run(0, source)
                same((r.outcome, r.error), (outcome, "Frozen: [1]"))
                assert b"line 6" in r.traceback and b"ddip_engine" not in r.traceback, r.traceback
                at_exit = "import atexit; atexit.register(print, 'at exit')"
                r, out, _ = a.run(0, f'# ddip run: {{"argv": ["-"]}}\n{at_exit}{source}')
                same((r.outcome, r.error, out), (outcome, "Frozen: [1]", b"at exit\n"))


def test_a_comment_names_a_coding():
    """One that Python knows, but that no text has."""
    with Agent() as a:
        a.spawn(0)
        for name in ("hex", "rot13", "base64", "zlib", "undefined", "punycode", "idna", "mbcs"):
            r, _, _ = a.run(0, f"# coding: {name}\n'é' + '..' + {'x' * 64!r}")
            same((r.outcome, r.value.decode()), (OK, repr("é.." + "x" * 64)))


def test_the_directory_is_gone():
    """A path is relative to it: the cell fails, and says why."""
    with Agent() as a:
        a.spawn(0)
        a.run(0, "import os, tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())")
        for first in ("# ddip: file.py", '# ddip run: {"argv": ["-"]}'):
            r, _, _ = a.run(0, f"{first}\n1")
            same(r.outcome, RAISED)
            same((r.error, r.traceback.decode()), (GONE, f"{GONE}\n"))
            assert a.spool(0, "display").endswith(b'"rank": 0}\n'), a.spool(0, "display")
        same(a.run(0, "# ddip: /file.py\n__file__")[0].value, b"'/file.py'")


def test_a_repr_raises():
    """It is the cell's error in its stream, too."""
    for python in (wire.PYTHON, wire.PLAIN_PYTHON):
        with Agent(python) as a:
            a.spawn(0)
            r, _, _ = a.run(0, "class Bad:\n    def __repr__(self): return 1 / 0\nBad()")
            same((r.outcome, r.error), (RAISED, "ZeroDivisionError: division by zero"))
            assert b"line 2, in __repr__" in r.traceback, r.traceback
            shown = [line for line in a.spool(0, "display").splitlines() if b'"error"' in line]
            same(len(shown), 1)
            assert b"ZeroDivisionError" in shown[0], shown


def test_no_thread_can_be_started():
    """For the wait of an interrupt until an import is done: it is raised at once."""
    with Agent() as a:
        a.spawn(0)
        with open(os.path.join(a.dir, "slow.py"), "w", encoding="utf-8") as f:
            f.write("import time\nprint('imports', flush=True)\ntime.sleep(1000)\n")
        source = f"""
import sys
sys.path.insert(0, {a.dir!r})
from ddip_engine.cells import imports
def refused(*args): raise RuntimeError("can't start new thread")
imports.start_new_thread = refused
kept = 7
import slow"""
        tag = a.ask("Trun", 0, 3, 1, source, mark=True)
        until(lambda: a.spool(0, "stdout") == b"imports\n", what="the import")
        a.send("Nintr", 0, 3, 0)
        r, _, _ = a.finish(0, tag)
        same((r.outcome, r.error), (INTERRUPTED, "KeyboardInterrupt"))
        check_next(a)


# C code that fails, after which a signal's handler raises
COLLECTIVE = """
import _thread, functools, signal, types
from ddip_engine import patches
from ddip_engine.groups import collectives
class Group:
    group_name = "0"
def interrupted():
    return functools.partial(sum, map(_thread.interrupt_main, [signal.SIGUSR1]))
collectives.c10d = types.SimpleNamespace(
    GroupMember=types.SimpleNamespace(WORLD=1, NON_GROUP_MEMBER=2), ProcessGroup=Group)
told = []
for function in (
    collectives._counted(patches.COLLECTIVES["barrier"], interrupted(), "barrier"),
    collectives._marked(patches.FORWARD, "forward", interrupted()),
):
    try:
        try:
            function(Group())
        except TypeError:
            _thread.get_ident()  # a call, after which the handler runs at the latest
    except TimeoutError:
        told.append(1)
told"""


def test_an_interrupt_as_a_collective_fails():
    """The rank is in none afterwards."""
    with Agent() as a:
        a.spawn(0)
        r = a.run(0, HANDLER + COLLECTIVE)[0]
        same((r.value, r.error), (b"[1, 1]", ""))
        same(a.call("Tstack", 0).collective, "")


if __name__ == "__main__":
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
