#!/usr/bin/env python3
"""Random sequences of verbs, cells, kills and interrupts agree with a model of a group.

The daemon serves a fake engine (tests/fake) that sends everything a few milliseconds late, at
random. Steps do not wait for the previous one; now and then the driver lets the group settle and
checks what must hold then: the state is what the last verb asked for, each cell has an outcome
that the steps allow, ranks that have lived on have their variables, no process is left of ranks
that have not, and a collective over all ranks works and meets only its own cell.

SEED=N repeats a run, COUNT=N says how many; the seed is printed. Exit 77: cannot run here.
"""

import concurrent.futures
import errno
import os
import random
import re
import select
import signal
import subprocess
import sys
import threading
import time

from common import BUILD, HANG_LIMIT_S, SEED, Hang, Mismatch, Mount, alive, get, keys, missing, put

SEQUENCES = int(os.environ.get("COUNT", "250"))
GROUPS_PER_MOUNT = 50
MOUNTS = 4  # at once
STEPS = 9

HANGS = ("stuck", "hard", "input", "sleep 100")
# a cell's source -> its outcome if nothing interferes
PLAIN = {
    "ok": "ok", "print some words": "ok", "sleep 0.005": "ok", "raise boom": "error",
    "syntax": "error", "exit 3": "error", "reduce": "ok",
    "@0 raise one of them\nreduce": "error", "@0 raise first\nsleep 100": "error",
    "@1 raise second\nstuck": "error", "@0 die 3\nreduce": "lost", "@1 signal 9": "lost",
    "flood 100000": "ok", "@1 raise it\nhard": "error",
}  # fmt: skip
DISTURBED = {
    "interrupt": {"interrupted", "error", "lost"},
    "kill": {"lost", "error", "interrupted"},
    "stop": {"cancelled", "interrupted", "error", "lost"},
    "cancel": {"cancelled"},
    "agent": {"lost", "error", "cancelled"},
}


class Watch:
    """Ends the daemon when a step takes too long: then every call on the mount returns."""

    def __init__(self):
        self.late = False
        self.timer = None

    def start(self, sequence, daemon):
        self.stop()
        self.timer = threading.Timer(HANG_LIMIT_S, self.end_daemon, (sequence, daemon))
        self.timer.daemon = True
        self.timer.start()

    def stop(self):
        if self.timer:
            self.timer.cancel()

    def end_daemon(self, sequence, daemon):
        self.late = True
        try:
            for name in ("status", "ranks", "error", "ctl"):
                print(f"--- {name}\n{get(sequence.g + '/' + name)}")
        finally:
            daemon.send_signal(signal.SIGABRT if os.environ.get("CORE") else signal.SIGKILL)


class Events:
    """The lines of `events` from now on."""

    def __init__(self, group):
        self.fd = os.open(group + "/events", os.O_RDONLY | os.O_NONBLOCK)

    def close(self):
        os.close(self.fd)

    def wait(self, seconds):
        """Waits for an event. False: there was none."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        os.read(self.fd, 1 << 16)
        return True


class Cell:
    """A submitted cell and the outcomes that it may have."""

    def __init__(self, number, words, ranks, size):
        self.number, self.words, self.ranks = number, words, ranks
        self.hangs = any(h in words for h in HANGS) and words not in PLAIN
        self.allowed = {self.plain(size)}
        if self.alone(size):  # another cell like it may meet it, or the group may be rebuilt
            self.allowed |= {"ok", "error"}

    def alone(self, size):
        return len(self.ranks) < size and "reduce" in self.words.split("\n")

    def plain(self, size):
        # lines for ranks that do not run the cell have no effect
        lines = []
        for line in self.words.split("\n"):
            m = re.match(r"@(\d+) (.*)", line)
            if m is None:
                lines.append(line)
            elif int(m[1]) in self.ranks:
                return "lost" if re.match("die|signal", m[2]) else "error"
        if self.alone(size) or any(h in line for h in HANGS for line in lines):
            self.hangs = True
            return "interrupted"
        return PLAIN.get("\n".join(lines), "ok")

    def disturb(self, what):
        self.allowed |= DISTURBED[what]


class Sequence:
    """One group and its steps."""

    def __init__(self, mount, name, rng):
        self.rng, self.name, self.g = rng, name, f"{mount}/{name}"
        self.size = rng.choice((1, 2, 2, 3))
        self.log = []
        os.mkdir(self.g)
        self.events = Events(self.g)
        for line in (
            f"size {self.size}",
            "backend " + rng.choice(("none", "gloo")),
            "grace 0.01",
            "killafter 0.02",
            f"history {rng.choice((1, 3, 200))}",
        ):
            self.verb(line)
        self.want = "new"  # what the last verb asked for
        self.sure = True  # nothing is in progress: the state is `want`
        self.may_fail = False  # a start may have failed
        self.cells = []
        self.kept, self.before, self.killed = {}, set(), set()
        self.generation = 0

    def verb(self, line, wait=False):
        self.log.append(f"ctl {line}{' (waits)' if wait else ''}")
        result = put(self.g + "/ctl", line + "\n", wait)
        self.log[-1] += f" -> {errno.errorcode.get(result, result)}"
        return result

    def disturb(self, what):
        for c in self.cells:
            c.disturb(what)
        self.sure = False

    def expect(self, what, got, *want):
        if got not in want:
            raise Mismatch(f"{what}: {got!r}, not {' or '.join(map(repr, want))}")

    # ---- steps

    def step_cell(self):
        ranks = list(range(self.size))
        path = self.g + "/cell"
        if self.rng.random() < 0.3:
            ranks = [self.rng.randrange(self.size)]
            path = self.rng.choice((f"{self.g}/rank{ranks[0]}/cell", f"{self.g}/cell.{ranks[0]}"))
        words = self.rng.choice(tuple(PLAIN) + HANGS)
        self.submit(path, words, ranks)

    def submit(self, path, words, ranks, wait=False):
        """Submits a cell. Returns its errno."""
        flags = os.O_RDWR | (0 if wait else os.O_NONBLOCK)
        self.log.append(f"cell {words!r} on {ranks}")
        try:
            fd = os.open(path, flags)
        except OSError as e:
            self.log[-1] += f" -> open {errno.errorcode[e.errno]}"
            if self.sure or e.errno != errno.ESRCH:
                self.expect(
                    "open of cell", e.errno, *([errno.ESRCH] if self.want == "stopped" else [])
                )
            return e.errno
        result = 0
        try:
            os.write(fd, words.encode())
            try:
                os.fsync(fd)
            except OSError as e:
                result = e.errno
            number = int(os.read(fd, 16))
        finally:
            try:
                os.close(fd)
            except OSError:
                pass
        self.log[-1] += f" -> cell {number} {errno.errorcode.get(result, result)}"
        if result == errno.ESRCH:
            if self.sure:
                self.expect("state for ESRCH", self.want, "stopped")
            return result
        if not wait:
            self.expect("nonblocking cell", result, 0)
        c = Cell(number, words, ranks, self.size)
        if not self.sure:
            # earlier requests may still hit it
            for what in ("interrupt", "kill", "stop"):
                c.disturb(what)
        self.cells.append(c)
        if self.want == "new":
            self.want = "idle"
            self.sure = False
        return result

    def step_start(self):
        wait = self.rng.random() < 0.3
        was_sure = self.sure
        result = self.verb("start", wait)
        self.expect("start", result, 0, *(() if was_sure else (errno.EHOSTDOWN, errno.ECANCELED)))
        if self.want != "idle":
            self.want = "idle"
            self.sure = self.sure and wait and result == 0

    def step_stop(self):
        wait = self.rng.random() < 0.3
        started = self.want != "new"
        self.expect("stop", self.verb("stop", wait), 0)
        self.disturb("stop")
        self.want = "stopped" if started else "new"
        self.sure = wait or not started

    def step_restart(self):
        wait = self.rng.random() < 0.3
        self.disturb("stop")
        self.expect(
            "restart", self.verb("restart", wait), 0, *((errno.EHOSTDOWN,) if self.may_fail else ())
        )
        self.want = "idle"

    def step_interrupt(self):
        self.disturb("interrupt")
        self.expect("interrupt", self.verb("interrupt"), *self.running())

    def running(self):
        """The possible results of a verb that needs engines."""
        if self.sure:
            return (0,) if self.want == "idle" else (errno.ESRCH,)
        return (0, errno.ESRCH)

    def step_kill(self):
        self.kill_begins()
        self.expect("kill", self.verb(f"kill {self.rng.randrange(self.size)}"), *self.running())

    def step_kill_process(self):
        self.kill_begins()
        pids = self.ranks()
        if pids:
            self.log.append("SIGKILL to a rank")
            pid = self.rng.choice(list(pids.values()))
            self.killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                self.log[-1] += ": it has ended"

    def kill_begins(self):
        was_sure = self.sure
        self.disturb("kill")
        if self.want == "new":
            self.sure = True
        elif not was_sure:
            self.may_fail = True  # killing ranks that are starting fails the start

    def step_cancel(self):
        self.disturb("cancel")
        self.expect("cancel", self.verb("cancel"), 0)

    def step_recover(self):
        was = self.running()
        self.expect("recover", self.verb("recover"), *was)
        if self.want == "idle":
            self.sure = False

    def step_reset(self):
        result = self.verb(self.rng.choice(("reset", "free")))
        self.expect("reset", result, *self.running())
        self.kept.clear()

    def step_size(self):
        if not self.sure or self.cells:
            return
        size = self.rng.randint(1, 3)
        result = self.verb(f"size {size}")
        self.expect("size", result, errno.EBUSY if self.want == "idle" else 0)
        if result == 0:
            self.size = size
            self.kept.clear()

    def step_rmdir(self):
        if not self.sure or self.want != "idle":
            return
        try:
            os.rmdir(self.g)
            raise Mismatch("rmdir of a live group went well")
        except OSError as e:
            self.expect("rmdir", e.errno, errno.EBUSY)

    def step_variable(self):
        name = self.rng.choice(("x", "y"))
        self.log.append(f"push {name}")
        result = put(f"{self.g}/vars/{name}", self.rng.choice(("a value\n", "bad\n")),
                     make=os.O_CREAT | os.O_TRUNC)  # fmt: skip
        self.expect(
            "push", result, 0, *((errno.ESRCH,) if not self.sure or self.want == "stopped" else ())
        )
        self.kept.clear()
        if self.want == "new":
            self.want = "idle"
        self.sure = False

    def step_drop_cell(self):
        if self.cells:
            self.interrupt_cell(self.rng.choice(self.cells))

    def interrupt_cell(self, c):
        c.disturb("interrupt")
        self.log.append(f"interrupt of cell {c.number}")
        result = put(f"{self.g}/cells/{c.number}/ctl", "interrupt\n")
        self.expect("interrupt of a cell", result, 0, errno.ENOENT)  # pruned by `history`

    def step_agent(self):
        if self.rng.random() > 0.1 or self.want != "idle":
            return
        self.submit(self.g + "/cell", "agent 1", list(range(self.size)))
        self.disturb("agent")
        self.disturb("kill")
        self.want, self.may_fail = "stopped", True
        self.log.append("(the agent ends)")
        for c in self.cells:
            c.allowed.add("ok")

    # ---- checks

    def ranks(self):
        """rank -> pid of live ranks."""
        return {
            int(m[1]): int(m[2])
            for m in re.finditer(r"(?m)^(\d+) .*? pid=(\d+) ", get(self.g + "/ranks"))
        }

    def wait_until(self, what, condition):
        end = time.monotonic() + HANG_LIMIT_S
        while not condition():
            left = end - time.monotonic()
            # an exiting process, and states that depend on the agent, raise no event
            if left <= 0 or (not self.events.wait(min(left, 0.05)) and time.monotonic() > end):
                raise Hang(f"{what} did not come")

    def end_cells(self):
        for c in self.cells:
            path = f"{self.g}/cells/{c.number}/wait"
            if c.hangs:
                for _ in range(3):  # one for each step of the escalation: no timeout has to pass
                    self.interrupt_cell(c)
            try:
                state = keys(get(path))["state"]
            except FileNotFoundError:
                continue  # pruned by `history`: it has ended
            self.log.append(f"cell {c.number} {state}")
            self.expect(f"cell {c.number} ({c.words!r})", state, *sorted(c.allowed))
        self.cells.clear()

    def settle(self):
        self.log.append("settle")
        self.end_cells()
        self.wait_until(
            "news of who was killed", lambda: not self.killed & set(self.ranks().values())
        )
        allowed = {self.want}
        if self.may_fail:
            allowed |= {"stopped", "idle"}
        self.wait_until(
            f"state {allowed}", lambda: keys(get(self.g + "/status"))["state"] in allowed
        )
        status = keys(get(self.g + "/status"))
        self.want, self.sure, self.may_fail = status["state"], True, False
        self.wait_until("an empty queue", lambda: keys(get(self.g + "/status"))["queued"] == "0")
        generation = int(status["generation"])
        if generation < self.generation:
            raise Mismatch(f"generation {generation} after {self.generation}")
        self.generation = generation
        pids = self.ranks()
        self.wait_until(
            "the end of old processes",
            lambda: not any(alive(p) for p in self.before - set(pids.values())),
        )
        self.before |= set(pids.values())
        self.check_idle(pids) if self.want == "idle" else self.expect("ranks", pids, {})

    def check_idle(self, pids):
        self.expect("ranks that live", sorted(pids), list(range(self.size)))
        for rank, (pid, value) in self.kept.items():
            if pids.get(rank) == pid:
                self.expect(
                    f"variable of rank {rank}", get(f"{self.g}/rank{rank}/vars/kept"), value + "\n"
                )
        everybody = list(range(self.size))
        mark = f"{self.rng.random()}"
        result = self.submit(self.g + "/cell", f"reduce\nset kept {mark}", everybody, wait=True)
        self.expect("a collective after it all", result, 0)
        n = self.cells.pop().number
        self.expect(
            "its sum", get(f"{self.g}/cells/{n}/result"), f"{self.size * (self.size - 1) // 2}\n"
        )
        self.kept = {k: (pid, mark) for k, pid in self.ranks().items()}
        self.expect("ranks that ran it", self.ranks(), pids)

    def run(self, watch, daemon):
        steps = [getattr(self, s) for s in dir(self) if s.startswith("step_")]
        often = [self.step_cell] * 8
        for _ in range(STEPS):
            watch.start(self, daemon)
            self.rng.choice(steps + often)()
            if self.rng.random() < 0.15:
                self.settle()
        watch.start(self, daemon)
        self.settle()
        self.expect("stop", self.verb("stop", True), 0)
        self.want = "stopped" if self.want != "new" else "new"
        self.settle()
        self.events.close()
        os.rmdir(self.g)
        watch.stop()


def one_mount(first, count):
    mount = Mount(SEED + first)
    watch = Watch()
    for i in range(first, first + count):
        s = None
        try:
            s = Sequence(mount.path, f"g{i}", random.Random(SEED * 1000003 + i))
            s.run(watch, mount.daemon)
        except (Hang, Mismatch, OSError, KeyError, ValueError) as e:
            watch.stop()
            what = "it hangs" if watch.late else f"{type(e).__name__}: {e}"
            print(f"sequence {i} of seed {SEED}: {what}")
            print("\n".join("  " + line for line in (s.log if s else [])))
            if mount.daemon.poll() is None and s and not watch.late:
                for name in ("status", "ranks", "error"):
                    print(f"--- {name}\n{get(s.g + '/' + name)}")
            mount.daemon.kill()
            mount.daemon.wait()
            print("--- the daemon\n" + mount.said())
            subprocess.run(["fusermount3", "-u", "-z", "-q", mount.path], check=False)
            return False
    mount.end()
    return True


def main():
    if lacks := missing(BUILD + "/fake/engine"):
        print(lacks)
        return 77
    only = os.environ.get("ONLY")
    print(f"seed {SEED}, {SEQUENCES} sequences (SEED=N COUNT=N ONLY=I to repeat)")
    begin = time.monotonic()
    if only:
        return 0 if one_mount(int(only), 1) else 1
    # they mostly wait for steps of the escalation
    firsts = range(0, SEQUENCES, GROUPS_PER_MOUNT)
    with concurrent.futures.ThreadPoolExecutor(MOUNTS) as pool:
        counts = [min(GROUPS_PER_MOUNT, SEQUENCES - first) for first in firsts]
        if not all(list(pool.map(one_mount, firsts, counts))):
            return 1
    print(f"{SEQUENCES} sequences in {time.monotonic() - begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
