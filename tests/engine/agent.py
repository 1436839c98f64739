#!/usr/bin/env python3
"""The agent, zygotes and ranks work over the wire: start, cells, output, interrupts, death, end."""

import array
import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile

import wire
from wire import HANG_LIMIT_S, PYTHON, Agent, alive, same, until

NAP = f".{os.getpid()}"  # the fraction of a second that identifies sleeping children


def refused(m, errno_name, text):
    same((m.name, errno.errorcode.get(getattr(m, "errno", 0))), ("Rerror", errno_name))
    assert text in m.text, (m.text, text)


def test_hello_version():
    with Agent(warm=False) as a:
        same((a.hello.name, a.hello.version, a.hello.pid), ("Rhello", wire.VERSION, a.process.pid))
        mismatch = f"protocol mismatch (99, expected {wire.VERSION})"
        refused(a.call("Thello", wire.AGENT, 99, ""), "EPROTO", mismatch)
        same(a.process.wait(timeout=HANG_LIMIT_S), 1)


def test_bad_python():
    with Agent("/no/such/python") as a:
        refused(a.warm_phases, "EHOSTDOWN", "there is no Python at '/no/such/python'")
        refused(a.spawn(0), "EHOSTDOWN", "there is no Python")
        refused(a.spawn(0, zygote=7), "EINVAL", "zygote 7 was not asked for")
        refused(a.call("Trun", 0, 1, 1, "x"), "ESRCH", "slot 0 has no engine")
        refused(
            a.warm(2, PYTHON, cwd="/no/such/dir"), "EHOSTDOWN", "directory /no/such/dir: No such"
        )
        refused(a.warm(3, "/bin/false"), "EHOSTDOWN", "/bin/false ended before it was ready")


WITH_NO_READER = """
import os, signal, sys
os.dup2(os.pipe()[1], 2)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_nobody_reads_the_log():
    """As when the relay that reads it has died: the agent still ends what it runs."""
    command = [sys.executable, "-c", WITH_NO_READER, wire.ENGINE, "--agent"]
    with Agent("/no/such/python", command=command) as a:
        refused(a.warm_phases, "EHOSTDOWN", "there is no Python at '/no/such/python'")
        same(a.call("Thello", wire.AGENT, wire.VERSION, "").name, "Rhello")


def environment(a, slot, name):
    return a.run(slot, f"import os; print(os.environ['{name}'])")[1].decode().strip()


def check_output(a):
    source = "print('a'); print('b', end=''); import sys; print('c', file=sys.stderr)"
    r, out, err = a.run(0, source)
    same((r.outcome, out, err), (0, b"a\nb", b"c\n"))
    # output is in order, whoever writes it: Python, C, a child, the descriptor itself
    mix = """
import ctypes, os, subprocess
c = ctypes.CDLL(None)
for i in range(40):
    print('p%d' % i)
    os.write(1, b'w%d\\n' % i)
    print('q%d' % i)
    c.printf(b'c%d\\n', i)
    print('r%d' % i)
print('before'); subprocess.run(['echo', 'child']); print('after')
"""
    _, out, _ = a.run(0, mix)
    lines = [f"{k}{i}" for i in range(40) for k in "pwqcr"] + ["before", "child", "after"]
    same(out.decode().split(), lines)
    # output follows a redirected descriptor
    redirected = """
import os, tempfile
f = tempfile.TemporaryFile(); saved = os.dup(1)
os.dup2(f.fileno(), 1); print('hidden'); os.dup2(saved, 1); os.close(saved)
print('shown'); f.seek(0); assert f.read() == b'hidden\\n'
"""
    r, out, _ = a.run(0, redirected)
    same((r.outcome, out), (0, b"shown\n"))
    r, out, _ = a.run(0, "print('\\ud800 \\u00e9 \\x00.')")
    same(out, b"\\ud800 \xc3\xa9 \x00.\n")
    # forked children print their own output, and exit
    forked = """
import os
print('parent', end=' ')
p = os.fork()
if p == 0:
    print('child'); os._exit(0)
os.waitpid(p, 0)
print('end')
"""
    _, out, _ = a.run(0, forked)
    same(out, b"parent child\nend\n")


def check_shared_memory(a):
    """A rank cannot truncate the memory that it shares with the agent."""
    source = """
import os
fds = [int(n) for n in os.listdir('/proc/self/fd')]
ours = [n for n in fds if os.path.exists(f'/proc/self/fd/{n}')
        and 'ddip-output' in os.readlink(f'/proc/self/fd/{n}')]
for n in ours:
    for size in (0, 1 << 30):
        try:
            os.ftruncate(n, size)
        except PermissionError as e:
            print(e.strerror)
len(ours)"""
    r, out, _ = a.run(0, source)
    same((r.value, out), (b"1", b"Operation not permitted\n" * 2))


def check_flood(a):
    source = "for i in range(300000): print(i, 'x' * 20)"
    _, out, _ = a.run(0, source)
    same(out, b"".join(b"%d xxxxxxxxxxxxxxxxxxxx\n" % i for i in range(300000)))
    # C code that holds the GIL prints more than a pipe holds
    held = "import ctypes; n = ctypes.PyDLL(None).write(1, b'y' * 5000000, 5000000)"
    _, out, _ = a.run(0, held)
    same(len(out), 5000000)
    switches = "import sys\nfor i in range(5000): print(i); print(i, file=sys.stderr)"
    _, out, err = a.run(0, switches)
    same(out, err)
    same(out, b"".join(b"%d\n" % i for i in range(5000)))


def check_interrupt(a):
    for source in ("import time; time.sleep(60)", "while True: pass", "input()",
                   "import subprocess; subprocess.run(['sleep', '60'])"):  # fmt: skip
        tag = a.ask("Trun", 0, 50, 1, "print('on')\n" + source, mark=True)
        until(lambda: a.spool(0, "stdout").endswith(b"on\n"), what=source)
        a.send("Nintr", 0, 49, 0)  # for another cell: nothing happens
        a.send("Nintr", 0, 50, 0)
        r, _, _ = a.finish(0, tag)
        same(r.outcome, 2)
        a.run(0, "print('off')")
    # an interrupt that arrives before its cell, and one that arrives after it
    a.send("Nintr", 0, 61, 0)
    r, _, _ = a.run(0, "import time; time.sleep(60)", cell=61)
    same(r.outcome, 2)
    a.send("Nintr", 0, 61, 0)
    r, _, _ = a.run(0, "1 + 1", cell=62)
    same((r.outcome, r.value), (0, b"2"))


RECURSIVE = """
def recurse(n):
    return n and recurse(n - 1)
for _ in range(3000):
    own = {}
    exec("def recurse(n): return n and recurse(n - 1)", own)
    own["recurse"](200)
    recurse(200)
"""

RECURSIVE_THREADS = """
import threading
running = True
def recurse(n):
    return n and recurse(n - 1)
def work():
    while running:
        own = {}
        exec("def recurse(n): return n and recurse(n - 1)", own)
        own["recurse"](200)
        recurse(200)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
"""


def begin(a, cell, source):
    """Runs a cell until it prints. Returns the tag of its Trun."""
    before = len(a.spool(0, "stdout"))
    tag = a.ask("Trun", 0, cell, 1, source, mark=True)
    until(lambda: len(a.spool(0, "stdout")) > before, what="the cell")
    return tag


def check_stacks(a):
    """Each of many stacks, requested in quick succession, shows where the rank is."""
    source = "import time\ndef waits_here(): time.sleep(60)\nprint('on'); waits_here()"
    tag = begin(a, 75, source)
    for _ in range(300):
        text = a.call("Tstack", 0).text
        assert b"Thread" in text, text
    until(lambda: b"waits_here" in a.call("Tstack", 0).text, what="its function")
    a.send("Nintr", 0, 75, 0)
    same(a.finish(0, tag)[0].outcome, 2)


KEEPS_ON = """
import sys
sys.setswitchinterval(5)
print('on')
while True: list(map(abs, range(1000)))
"""

MATCHES = """
import re
print('on')
re.match("(a|aa)+$", 100 * "a" + "b")
"""


def check_own_stack(a):
    """No signal's handler in C walks the stack of code that does not let go of the GIL, if Python
    runs there, or C code that checks for signals: it might crash. The main thread looks itself."""
    for number, source in (74, KEEPS_ON), (73, MATCHES):
        tag = begin(a, number, source)
        text = a.call("Tstack", 0).text
        assert b" in <module>" in text and b"<no Python frame>" not in text, text
        a.send("Nintr", 0, number, 0)
        same(a.finish(0, tag)[0].outcome, 2)
        same(a.run(0, "__import__('sys').setswitchinterval(0.005)")[0].outcome, 0)


CALLS = """
def same(x): return x
for _ in range(1500): list(map(same, range(1000)))
"""

KEEPS_GIL = """
import ctypes, time
def in_c(): ctypes.PyDLL(None).usleep(300000)
print('on')
while True: in_c()
"""


def check_looks(a):
    """Several looks at the main thread: its stack alone."""
    head = b"Stack (most recent call first):"
    same(a.call("Tlook", 0, 0).text.count(b"line 1 in <module>"), 0)  # between cells
    source = "import time\ndef sleeps(): time.sleep(60)\nprint('on'); sleeps()"
    tag = begin(a, 76, source)
    r = a.call("Tlook", 0, 200)
    assert r.text.count(b"line 2 in sleeps") > 10, r.text
    assert r.text.startswith(head) and b"Thread" not in r.text, r.text
    same(r.span_ms, 200)
    same(a.call("Tlook", 0, 100).text, r.text)
    a.send("Nintr", 0, 76, 0)
    same(a.finish(0, tag)[0].outcome, 2)
    for source in [RECURSIVE] * 3 + [CALLS] * 20:
        tag = a.ask("Trun", 0, 77, 1, source, mark=True)
        assert head in a.call("Tlook", 0, 40).text
        same(a.finish(0, tag)[0].outcome, 0)


def check_looks_in_c(a):
    """C code that keeps the GIL counts for as long as it takes."""
    tag = begin(a, 78, KEEPS_GIL)
    text = a.call("Tlook", 0, 1000).text
    assert text.count(b"line 3 in in_c") > 10, text
    a.send("Nintr", 0, 78, 0)
    same(a.finish(0, tag)[0].outcome, 2)


TRACED = """
import os, sys, time, weakref
class Thing: pass
def hook(frame, event, arg):
    if REMOVES: sys.SETTER(None)
    if event == 'EVENT' and frame.f_code.co_name == 'train' and not os.path.exists(GO):
        print('on', flush=True)
        while not os.path.exists(GO): time.sleep(0.01)
def train(model='model', loss=1.0):
    len('')
    return model, loss
def untraced():
    thing = Thing()
    gone = weakref.ref(thing)
    print('on', flush=True)
    while not os.path.exists(GO): time.sleep(0.01)
    del thing
    return gone()
sys.SETTER(hook if not GO.endswith('None') else None)
said = train() if not GO.endswith('None') else untraced()
sys.SETTER(None)
said
"""


def check_traced(a, folder):
    """Reading a local variable leaves nothing behind; nor does it delete one whose function a
    tracer, or a profiler, holds up."""
    traced = ("setprofile", "c_call", 0), ("settrace", "call", 0), ("settrace", "call", 1)
    for setter, event, removes in (*traced, ("settrace", "None", 0)):
        go = f"{folder}/{setter}.{removes}.{event}"
        source = TRACED.replace("SETTER", setter).replace("EVENT", event).replace("GO", repr(go))
        source = source.replace("REMOVES", str(removes))
        tag = begin(a, 79, source)
        name = "thing" if event == "None" else "model"
        same(a.call("Tget", 0, f"frames:{name}", "", "").name, "Rget")
        with open(go, "w"):
            pass
        said = a.finish(0, tag)[0]
        same((said.outcome, said.value), (0, b"" if event == "None" else b"('model', 1.0)"))


WAITING_FINALIZERS = """
import threading, time, _ddip
class Worker:
    def __init__(self):
        self.itself, self.ended = self, threading.Event()
        self.thread = threading.Thread(target=self.ended.wait, daemon=True)
        self.thread.start()
    def __del__(self):
        self.ended.set()
        self.thread.join()
def look():
    while looking:
        time.sleep(0.0005)
        _ddip.current_frames()
def deep(n):
    if n: return deep(n - 1)
    worker, others = Worker(), [[each] for each in range(30)]
looking, until = True, time.monotonic() + 1
looker = threading.Thread(target=look)
looker.start()
while time.monotonic() < until: deep(20)
looking = False
looker.join()
"""


def check_finalizers(a):
    """A look at the frames runs no finalizer, which may wait for a thread that cannot end then."""
    same(a.run(0, WAITING_FINALIZERS)[0].outcome, 0)


def check_stacks_of_threads(a):
    """The rank does not crash while its stacks are read and other threads change theirs."""
    a.run(0, RECURSIVE_THREADS)
    for _ in range(150):
        r = a.call("Tstack", 0)
        assert r.text and b"<no Python frame>" not in r.text, r.text
    a.run(0, "running = False\nfor t in threads: t.join()")


def check_services(a):
    tag = a.ask("Trun", 0, 70, 1, "import numpy as np; big = np.arange(1 << 20); 'here'", mark=True)
    a.finish(0, tag)
    gate = os.path.join(a.dir, "gate")
    os.mkfifo(gate)
    held = f"import ctypes; print('held', flush=True); ctypes.PyDLL(None).system(b'read x <{gate}')"
    tag = a.ask("Trun", 0, 71, 1, held, mark=True)
    until(lambda: a.spool(0, "stdout").endswith(b"held\n"), what="the cell")
    r = a.call("Tstack", 0)  # C code holds the GIL
    assert b"<cell 71>" in r.text, r.text
    with open(gate, "w", encoding="utf-8"):
        pass
    a.wait(lambda m: m.tag == tag and m.name == "Rrun")
    r = a.call("Tget", 0, "big", "npy", "")
    same((r.name, r.kind), ("Rget", a.live_kind))
    whole = r.head
    while len(whole) < r.size:
        n = min(1 << 20, r.size - len(whole))
        whole += a.call("Tread", 0, r.handle, len(whole) - len(r.head), n).data
    assert whole.startswith(b"\x93NUMPY") and len(whole) == r.size
    same(whole[-8 << 20 :] == array.array("q", range(1 << 20)).tobytes(), True)
    refused(a.call("Tread", 0, r.handle, 8 << 20, 1), "EINVAL", "an object of 8388608")
    a.send("Nfree", 0, r.handle)
    until(lambda: a.call("Tread", 0, r.handle, 0, 1).name == "Rerror", what="Nfree")
    refused(a.call("Tncclid", 0), "ENOTSUP", "NCCL is not loaded")
    tag = a.ask("Trun", 0, 72, 1, "print(input() + '!')", mark=True)
    a.wait(lambda m: m.name == "Ninput" and m.waits == 1)
    a.send("Nstdin", 0, "typed\n")
    same(a.finish(0, tag)[1], b"typed!\n")
    a.seen = [m for m in a.seen if m.name != "Ninput"]


def check_death(a, slot):
    """A rank that is killed: its last output, its children, its page."""
    source = f"""
import os, subprocess, sys, signal
subprocess.Popen(['sleep', '1000{NAP}'])
p = subprocess.Popen(['sh', '-c', 'sleep 1001{NAP} & sleep 1002{NAP}'])
print('words', end=''); sys.stderr.write('last'); sys.stderr.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    before = len(a.spool(slot, "stdout"))
    a.ask("Trun", slot, 80, 1, source, mark=True)
    m = a.wait("Nexit")
    same((m.slot, m.status, m.lasterr[-4:]), (slot, 9, "last"))
    same(a.spool(slot, "stdout")[before:], b"words")
    same((m.out, m.err), (len(a.spool(slot, "stdout")), len(a.spool(slot, "stderr"))))
    until(lambda: not sleepers(), what="the end of its children")
    a.seen.clear()


def sleepers():
    """Children of ranks that still sleep."""
    found = subprocess.run(["ps", "-wweo", "pid,args"], capture_output=True, text=True).stdout
    return [line for line in found.splitlines() if line.endswith(NAP)]


def check_flood_death(a, slot):
    """A rank is killed while it prints: no byte is duplicated or missing before the last one."""
    a.ask("Trun", slot, 90, 1, "i = 0\nwhile True:\n    print(i); i += 1", mark=True)
    mark = a.wait("Nmark")
    until(lambda: len(a.spool(slot, "stdout")) > mark.out + 200000, what="output")
    a.send("Nsignal", slot, signal.SIGKILL, 0)
    a.wait("Nexit")
    *lines, rest = a.spool(slot, "stdout")[mark.out :].split(b"\n")
    same(lines, [b"%d" % i for i in range(len(lines))])
    assert (b"%d" % len(lines)).startswith(rest), rest
    a.seen.clear()


def test_ranks():
    with Agent(env={"DDIP_DAEMON_PID": "1"}) as a:
        same(a.warm_phases.name, "Rzygote")
        r = a.spawn(0, env="OMP_NUM_THREADS=3\0MARK=yes\0")
        same((r.name, r.how), ("Rspawn", "zygote"))
        same(environment(a, 0, "DDIP_RUN_DIR"), a.dir)
        same(environment(a, 0, "DDIP_DAEMON_PID"), str(os.getpid()))
        for message in (("Tinit", 0, 0, 1, 0, 1, "none", ""),):
            same(a.call(*message).name, "Rinit")
        r, _, _ = a.run(0, "import os; [os.environ.get(k) for k in ('OMP_NUM_THREADS', 'MARK', "
                        "'MKL_NUM_THREADS', 'DDIP_FD_CTL', 'DDIP_ENGINE_SO')]")  # fmt: skip
        same(r.value, b"['3', 'yes', None, None, None]")
        check_output(a)
        check_shared_memory(a)
        check_flood(a)
        check_interrupt(a)
        check_services(a)
        check_stacks(a)
        check_own_stack(a)
        check_looks(a)
        check_looks_in_c(a)
        check_finalizers(a)
        with tempfile.TemporaryDirectory() as folder:
            check_traced(a, folder)
        check_stacks_of_threads(a)
        check_death(a, 0)
        a.spawn(1, name="rank1")
        check_flood_death(a, 1)
        a.spawn(2)
        a.send("Nquit", 2)
        same(a.wait("Nexit").status, 0)
        a.close()


def test_store():
    with Agent(PYTHON) as a:
        r = a.call("Tspawn", 5, 1, 1, "group", "store", "", 0)
        same(r.name, "Rspawn")
        started = a.wait("Nstarted")
        assert started.port > 0
        a.send("Nsignal", 5, signal.SIGKILL, 0)
        m = a.wait("Nexit")
        same((m.slot, m.status), (5, 9))


def test_collective():
    """A rank that waits in a collective is released; after a rebuild the group works again."""
    with Agent(PYTHON) as a:
        a.call("Tspawn", 5, 1, 1, "group", "store", "", 0)
        port = a.wait("Nstarted").port
        env = f"MASTER_ADDR=127.0.0.1\0MASTER_PORT={port}\0"
        for rank in (0, 1):
            a.spawn(rank)
        tags = [a.ask("Tinit", k, k, 2, k, 1, "gloo", env) for k in (0, 1)]
        for tag in tags:
            same(a.wait(lambda m, tag=tag: m.tag == tag and m.name[0] == "R").name, "Rinit")
        works = """
import torch, torch.distributed as dist
t = torch.ones(4); dist.all_reduce(t); float(t.sum())
"""
        for cell in (1, 2):
            tags = [a.ask("Trun", k, cell, 1, works, mark=True) for k in (0, 1)]
            for k, tag in enumerate(tags):
                same(a.finish(k, tag)[0].value, b"8.0")
        # a server and a client of the program's own, which must not be touched
        own = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname()); peer, _ = server.accept()
"""
        same(a.run(0, own, cell=2)[0].outcome, 0)
        # of torch's library the same may be written as without us: its data, and nothing else
        count = """
import torch
sum("libtorch_cpu" in line and " rw" in line for line in open("/proc/self/maps"))"""
        code = count.replace("sum(", "print(sum(") + ")"
        plain = subprocess.run([PYTHON, "-c", code], capture_output=True, check=True).stdout
        same(a.run(0, count, cell=2)[0].value, plain.strip())
        own = "client.sendall(b'mine'); peer.recv(4)"
        for always in (0, 1):
            tag = a.ask("Trun", 0, 3, 1 + always, "dist.all_reduce(t)", mark=True)
            same(a.run(1, "raise ValueError", cell=3)[0].outcome, 1)
            until(lambda: b"all_reduce" in a.call("Tstack", 0).text, what="all_reduce")
            a.send("Nabort", 0, 0, 600000)  # no effect: it has not waited for ten minutes yet
            stack = a.call("Tstack", 0)
            assert b"all_reduce" in stack.text, stack.text
            a.send("Nabort", 0, always, 0)
            r, _, _ = a.finish(0, tag)
            same(r.outcome, 5)  # cut off
            same(a.run(0, own, cell=3)[0].value, b"b'mine'")
            tags = [a.ask("Trebuild", k, 2 + always, b"") for k in (0, 1)]
            for tag in tags:
                m = a.wait(lambda m, tag=tag: m.tag == tag and m.name[0] == "R")
                same(m.name, "Rrebuild")
            tags = [a.ask("Trun", k, 4 + always, 2 + always, works, mark=True) for k in (0, 1)]
            for k, tag in enumerate(tags):
                same(a.finish(k, tag)[0].value, b"8.0")
        # not in a collective: the group is left alone
        source = "import time; print('on'); time.sleep(0.3); 'unharmed'"
        tag = a.ask("Trun", 0, 8, 3, source, mark=True)
        until(lambda: a.spool(0, "stdout").endswith(b"on\n"), what="the cell")
        a.send("Nabort", 0, 0, 0)
        same(a.finish(0, tag)[0].value, b"'unharmed'")


EMBEDDED = """
import importlib.util, sys
loader = sys.modules["ddip_engine.boot"].__loader__
names = type(loader).get_code.__globals__
def codes(**others):
    names.update(others)
    return {name: loader.get_code(f"ddip_engine.{name}") for name in names["sources"]}
loaded, compiled = codes(), codes(is_loadable=False)
names["is_loadable"] = importlib.util.MAGIC_NUMBER == names["magic"]
len(loaded) > 50, loaded == compiled, not names["is_loadable"] or codes(compile=None) == compiled
"""


def test_the_code_that_is_embedded():
    """It is what the sources compile to; the version of Python that made it compiles nothing."""
    with Agent() as a:
        a.spawn(0)
        same(a.run(0, EMBEDDED)[0].value, b"(True, True, True)")


def descendants(pid):
    """Pids of all processes below pid."""
    below, found = [pid], []
    while below:
        at = below.pop()
        try:
            with open(f"/proc/{at}/task/{at}/children", encoding="utf-8") as f:
                kids = [int(k) for k in f.read().split()]
        except OSError:
            kids = []
        found += kids
        below += kids
    return found


def end_of_all(how):
    with Agent() as a:
        for slot in (0, 1):
            a.spawn(slot)
        # one in its own session, one that ignores signals, one in an endless loop
        source = f"""
import subprocess
subprocess.Popen(['setsid', 'sleep', '1000{NAP}'])
subprocess.Popen(['sh', '-c', 'trap "" TERM HUP INT; sleep 1001{NAP}; sleep 1'])
print('on')
while True: pass
"""
        a.ask("Trun", 0, 1, 1, source, mark=True)
        until(lambda: a.spool(0, "stdout").endswith(b"on\n"), what="the cell")
        until(lambda: len(sleepers()) >= 2, what="its children")
        pids = descendants(a.process.pid)
        assert len(pids) >= 5, pids
        how(a)
        until(lambda: not any(alive(p) for p in [*pids, a.process.pid]), what="the end of all")
        assert not sleepers(), sleepers()


def nvml_process(a):
    """The pid of the agent's child that asks NVML; None if there is none."""
    with open(f"/proc/{a.process.pid}/task/{a.process.pid}/children", encoding="utf-8") as f:
        pids = [int(pid) for pid in f.read().split()]
    for pid in pids:
        # one may be exiting right now
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as f:
            if f.read() == "ddip-gpus\n":
                return pid
    return None


def test_the_process_that_asks_nvml_stays_for_a_while():
    with Agent(env={"DDIP_NVML": "/no/such/library"}, warm=False) as a:

        def ask():
            r = a.call("Tgpus", wire.AGENT, 1)
            same((r.name, r.no, r.gpus), ("Rgpus", errno.ENOENT, b""))
            return nvml_process(a)

        first = ask()
        same(ask(), first)
        os.kill(first, signal.SIGKILL)
        until(lambda: nvml_process(a) is None, what="its end")
        second = ask()
        assert second not in (None, first), (first, second)
        until(lambda: nvml_process(a) is None, what="its leave")
        assert ask() not in (None, second), second


def test_end_by_eof():
    end_of_all(lambda a: a.close())


def test_end_by_term():
    end_of_all(lambda a: (a.process.terminate(), a.process.wait()))


def test_agent_killed():
    """If the agent is killed and cannot clean up, ranks and zygotes still die with it."""
    with Agent() as a:
        for slot in (0, 1):
            a.spawn(slot)
        pids = descendants(a.process.pid)
        a.process.kill()
        a.process.wait()
        until(lambda: not any(alive(p) for p in pids), what="the end of its children")


def test_many():
    """Restarts leak no descriptors and no processes."""
    with Agent() as a:

        def descriptors():
            return len(os.listdir(f"/proc/{a.process.pid}/fd"))

        a.spawn(0)
        a.send("Nsignal", 0, signal.SIGKILL, 1)
        a.wait("Nexit")
        a.call("Tgc", 0)  # once it replies, the end has been processed
        before = descriptors()
        for slot in range(1, 41):
            a.spawn(slot, name="rank1")
            a.send("Nsignal", slot, signal.SIGKILL, 1)
            a.wait("Nexit")
        a.call("Tgc", 0)
        until(lambda: len(descendants(a.process.pid)) <= 2, what="one zygote and one spare")
        # a zygote that has exited has a descriptor until the agent notices
        until(lambda: descriptors() <= before + 1, what=f"{before} descriptors, as before")


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
