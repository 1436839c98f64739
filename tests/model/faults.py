#!/usr/bin/env python3
"""A mount survives its whole life cycle with one failure, for each place that can fail.

The programs are built with places that fail on request (fault() in include/util.h). Those of the
daemon are tested with the fake engine, those of the agent and the zygote with the real one and a
plain Python. In each run one place fails once, on the N-th pass, and the run goes through mount,
start, cells, push, pull, a death, restart, stop and unmount. Whatever fails, no step may hang, and
at the end the daemon either works (a start, a cell, a push and a pull succeed), or has exited and
said why; no process and no mount is left.

RUN=PROGRAM/PLACE:N repeats one run and shows it (ENGINE=real: with the real engine); STRIDE=N makes
only every N-th run, COUNT=N at most that many of each series; LIVES=N mounts at once; SEED=N
decides where the strides begin. The last lines repeat which runs failed. Exit 77: cannot run here.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time

import common
from common import HANG_LIMIT_S, ROOT, SEED, Mismatch, get, missing, processes

BUILD = os.path.join(common.BUILD, "fault")
PLAIN_PYTHON = os.environ.get("PLAIN_PYTHON", "/usr/bin/python3")
COUNT = int(os.environ.get("COUNT", "1000000"))
LIVES = int(os.environ.get("LIVES", "4"))  # mounts at once
MARK = "DDIP_FAULT_RUN"
failures = []  # RUN=…: why
# (program/place, stride) for places with many passes; SEED picks where the stride begins
SERIES = (("ddipfs/any", 5), ("fake-engine/any", 7), ("ddipfs/fuse.reply", 16),
          ("ddipfs/fuse.read", 61), ("ddipfs/alloc", 61))  # fmt: skip
REAL_SERIES = (("ddip-agent/any", 97), ("ddip-zygote/any", 4))


def put(path, text, make=0):
    """Writes a file and waits for the result."""
    fd = os.open(path, os.O_WRONLY | make, 0o600)
    try:
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)


class Life:
    """One mount with the fake engine, from its first request to its last, with one fault."""

    ENGINE, SETTINGS = BUILD + "/fake/engine", "backend gloo"
    FIRST, FAILS = "print hello\nset x 5\nreduce\nvalue 7", "@0 raise boom\nreduce"
    ONE = "flood 1000"
    SLEEPS, DIES, AGAIN, SETS = "sleep 100", "@1 die 3\nreduce", "reduce", "reduce\nset x 6"
    PUSHED = ("y", "a value\n")

    def __init__(self, fault):
        self.fault = fault
        self.dir = tempfile.mkdtemp(prefix="faults.")
        self.mnt, self.g = self.dir + "/mnt", self.dir + "/mnt/group"
        self.mark = f"{MARK}={os.path.basename(self.dir)}"
        self.late = None
        self.done = []  # steps and their results
        self.daemon = None

    # ---- steps: any may fail, none may hang

    def start(self):
        put(self.g + "/ctl", f"size 2\n{self.SETTINGS}\ngrace 0.01\nkillafter 0.05\nstart\n")

    def look(self):
        for where, _, files in itertools.islice(os.walk(self.mnt), 12):
            for name in ("status", "ranks", "error", "names", "stall", "stack", "README"):
                if name in files:
                    get(f"{where}/{name}")

    def cell(self):
        put(self.g + "/cell", self.FIRST)
        get(self.g + "/cells/last/rank0/stdout")
        get(self.g + "/cells/last/stream")

    def one_rank(self):
        put(self.g + "/rank1/cell", self.ONE)
        get(self.g + "/rank1/stdout")

    def failing(self):
        put(self.g + "/cell", self.FAILS)

    def push(self):
        name, text = self.PUSHED
        put(f"{self.g}/vars/{name}", text, os.O_CREAT | os.O_TRUNC)

    def pull(self):
        get(self.g + "/vars/y")
        get(self.g + "/rank1/vars/x")
        get(self.g + "/vars/y.same")

    def staged(self):
        put(self.g + "/vars/.new", "another\n", os.O_CREAT | os.O_TRUNC)
        os.truncate(self.g + "/vars/.new", 4)
        os.rename(self.g + "/vars/.new", self.g + "/vars/z")
        get(self.g + "/vars/z")
        os.unlink(self.g + "/vars/z")

    def interrupt(self):
        fd = os.open(self.g + "/cell", os.O_RDWR | os.O_NONBLOCK)
        try:
            os.write(fd, self.SLEEPS.encode())
            os.fsync(fd)
            number = int(os.read(fd, 16))
            put(f"{self.g}/cells/{number}/ctl", "interrupt\n")
            get(f"{self.g}/cells/{number}/wait")
        finally:
            # closing the file runs a cell left by a lost reply; its sleep would hold up the next
            with contextlib.suppress(OSError):
                os.close(fd)
            try:
                put(self.g + "/ctl", "cancel\ninterrupt\n")
            except OSError:  # the fault fires only once
                put(self.g + "/ctl", "cancel\ninterrupt\n")

    def events(self):
        fd = os.open(self.g + "/events", os.O_RDONLY | os.O_NONBLOCK)
        try:
            put(self.g + "/rank0/cell", "ok")
            if select.select([fd], [], [], HANG_LIMIT_S / 2)[0]:
                os.read(fd, 1 << 16)
        finally:
            os.close(fd)

    def death(self):
        put(self.g + "/cell", self.DIES)

    def groups(self):
        os.mkdir(self.mnt + "/other")
        os.rmdir(self.mnt + "/other")

    def restart(self):
        put(self.g + "/ctl", "restart\n")
        put(self.g + "/cell", self.AGAIN)

    def stop(self):
        put(self.g + "/ctl", "stop\n")

    STEPS = (start, look, cell, one_rank, failing, push, pull, staged, interrupt, events, death,
             groups, restart, stop)  # fmt: skip

    def step(self, fn):
        begin, came = time.monotonic(), "ok"
        try:
            fn(self)
        except (OSError, ValueError) as e:
            came = str(e)
        self.done.append(f"{fn.__name__}: {came} ({time.monotonic() - begin:.3f} s)")
        if self.late:
            raise Mismatch(f"{self.late} hangs")

    # ---- the frame

    def said(self):
        with open(self.dir + "/log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def end_daemon(self):
        self.late = self.done[-1] if self.done else "the mount"
        self.late = f"what comes after '{self.late}'"
        self.daemon.kill()

    def mount(self):
        os.mkdir(self.mnt)
        env = {**os.environ, "DDIP_ENGINE": self.ENGINE, "DDIP_STATE": self.dir,
               "DDIP_FAULT": self.fault, "DDIP_FAULT_ONCE": self.dir + "/once",
               "LSAN_OPTIONS": f"suppressions={ROOT}/tests/leaks:print_suppressions=0",
               MARK: self.mark.split("=")[1]}  # fmt: skip
        with open(self.dir + "/once", "x", encoding="utf-8"):
            pass
        with open(self.dir + "/log", "w", encoding="utf-8") as log:
            self.daemon = subprocess.Popen(
                [BUILD + "/ddipfs", "-f", "-o", f"python={PLAIN_PYTHON}", self.mnt],
                env=env, stdout=log, stderr=log)  # fmt: skip
        end = time.monotonic() + HANG_LIMIT_S
        while self.daemon.poll() is None and not os.path.ismount(self.mnt):
            if time.monotonic() > end:
                raise Mismatch("it neither mounts nor ends")
            time.sleep(0.002)

    def use(self):
        put(self.g + "/ctl", "start\n")
        put(self.g + "/cell", self.SETS)
        self.push()
        values = get(self.g + "/rank1/vars/x"), get(f"{self.g}/vars/{self.PUSHED[0]}")
        if values != ("6\n", self.PUSHED[1]):
            raise Mismatch(f"x and y are {values}")

    def check_works(self):
        """After the fault everything works again: a start recreates what was lost."""
        early = ": injected: " in self.said()
        try:
            try:
                self.use()
            except OSError:
                if early:
                    raise
                self.use()  # the fault was only now
        except OSError as e:
            if self.daemon.poll() is not None or not os.path.exists(self.mnt + "/version"):
                return  # it is exiting
            raise Mismatch(
                f"after it: {e}\n{get(self.g + '/error')}{get(self.g + '/status')}"
            ) from e

    def end(self):
        """Ends the daemon, which must leave nothing behind."""
        if self.daemon.poll() is None:
            self.daemon.terminate()
        try:
            status = self.daemon.wait(HANG_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Mismatch("the daemon does not end") from None
        text = "\n".join(s for s in self.said().splitlines() if ": injected: " not in s)
        if status < 0 or "Sanitizer" in text or "runtime error" in text:
            raise Mismatch(f"the daemon ended with status {status}")
        if status > 0 and not text:
            raise Mismatch(f"the daemon ended with status {status} and did not say why")
        end = time.monotonic() + HANG_LIMIT_S
        while True:
            left = processes(self.mark.encode())
            mounted = self.mnt in get("/proc/self/mountinfo")
            if not left and not mounted:
                return
            if time.monotonic() > end:
                raise Mismatch(f"left: {'the mount' if mounted else ''} processes {left}")
            time.sleep(0.01)

    def run(self):
        """The place that failed; None if none did."""
        watch = threading.Timer(HANG_LIMIT_S, self.end_daemon)
        try:
            self.mount()
            watch.start()
            for fn in self.STEPS:
                if self.daemon.poll() is None:
                    self.step(fn)
            if self.daemon.poll() is None:
                self.check_works()
            if self.late:
                raise Mismatch(f"{self.late} hangs")
            self.end()
        finally:
            watch.cancel()
            if self.daemon.poll() is None:
                self.daemon.kill()
            self.daemon.wait()
        m = re.search(r": injected: ([\w.]+)", self.said())
        return m and m[1]

    def tidy(self):
        for pid in processes(self.mark.encode()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.mnt in get("/proc/self/mountinfo"):
            subprocess.run(["fusermount3", "-u", "-z", "-q", self.mnt], check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", self.dir], check=True)


class RealLife(Life):
    """The same with the real engine and a Python that has nothing to import."""

    ENGINE, SETTINGS = BUILD + "/ddip-engine", "backend none"
    FIRST, ONE, FAILS = "print('hello'); x = 5\nx + 2", "print('a line\\n' * 1000)", "1 / 0"
    SLEEPS, DIES = "import time; time.sleep(100)", "import os\nif rank: os._exit(3)"
    AGAIN, SETS = "x = 1", "x = 6"
    PUSHED = ("y.json", "7\n")
    STEPS = (Life.start, Life.cell, Life.one_rank, Life.failing, Life.push, Life.pull,
             Life.interrupt, Life.death, Life.restart, Life.stop)  # fmt: skip


def live(fault, kind=Life, show=False):
    """Makes one run; (did it succeed, the place that failed or None)."""
    life = kind(fault)
    try:
        place = life.run()
        if show:
            print("\n".join(life.done) + "\n" + life.said())
        return True, place
    except Mismatch as e:
        failures.append(f"RUN={fault} {'ENGINE=real' if kind is RealLife else ''}: {e}")
        print(f"RUN={fault}: {e}\n  " + "\n  ".join(life.done) + "\n--- the daemon\n" + life.said(),
              flush=True)  # fmt: skip
        return False, "?"
    finally:
        life.tidy()


def series(what, stride, rng, kind):
    """All runs of one program and place, until no fault fires; (all good, Counter of places)."""
    places, good = collections.Counter(), True
    counter = itertools.count(1 + rng.randrange(stride), stride)
    over = threading.Event()
    lock = threading.Lock()

    def worker():
        nonlocal good
        while not over.is_set():
            with lock:
                n = next(counter)
                if sum(places.values()) >= COUNT:
                    return
            ok, place = live(f"{what}:{n}", kind)
            with lock:
                good &= ok
                places[place] += 1
            if place is None or places["?"] > 5:
                over.set()

    with concurrent.futures.ThreadPoolExecutor(LIVES) as pool:
        for f in [pool.submit(worker) for _ in range(LIVES)]:
            f.result()
    return good, places


def background():
    """A failure before the daemon is in the background is reported to whoever started it."""
    with tempfile.TemporaryDirectory() as d:
        env = {**os.environ, "DDIP_FAULT": "background:1", "DDIP_STATE": d,
               "DDIP_ENGINE": BUILD + "/fake/engine"}  # fmt: skip
        r = subprocess.run(
            [BUILD + "/ddipfs", d], env=env, capture_output=True, timeout=HANG_LIMIT_S
        )
    if r.returncode == 1 and b"background: " in r.stderr:
        return True
    print(f"background: status {r.returncode}: {r.stderr}")
    return False


def main():
    if lacks := missing(BUILD + "/ddipfs", Life.ENGINE, RealLife.ENGINE):
        print(lacks)
        return 77
    if os.environ.get("RUN"):
        kind = RealLife if os.environ.get("ENGINE") == "real" else Life
        return 0 if live(os.environ["RUN"], kind, show=True)[0] else 1
    print(f"SEED={SEED}")
    rng = random.Random(SEED)
    good = background()
    every = [(Life, *s) for s in SERIES] + [(RealLife, *s) for s in REAL_SERIES]
    for kind, what, stride in every:
        begin = time.monotonic()
        ok, places = series(what, int(os.environ.get("STRIDE", stride)), rng, kind)
        good &= ok
        del places[None]
        print(f"{what}: {sum(places.values())} faults in {time.monotonic() - begin:.1f} s: "
              + ", ".join(f"{k} {n}" for k, n in sorted(places.items())), flush=True)  # fmt: skip
    for failure in failures:
        print("failed:", failure)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
