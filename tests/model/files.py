#!/usr/bin/env python3
"""A live mount survives random file operations from several processes that may be killed any time.

The daemon serves a fake engine (tests/fake). Workers open, read and write at any offset, truncate,
rename, remove and create whatever the name space has, with any flags and in any order of closing.
These must hold at all times: a call that waits for no data and no cell returns, and any call does
once its process is killed; the daemon lives; a push is there whole or not at all. At the end
the groups work, ranks agree on what was pushed to all, and no process and no mount is left.

COUNT=N operations, SEED=N; the seed is printed. The operations of worker I depend only on SEED and
I, their timing does not. Exit 77: cannot run here.
"""

import fcntl
import mmap
import os
import random
import select
import signal
import struct
import sys
import time
import zlib

from common import (
    BUILD,
    HANG_LIMIT_S,
    SEED,
    Hang,
    Mismatch,
    Mount,
    get,
    keys,
    missing,
    processes,
    put,
)

COUNT = int(os.environ.get("COUNT", "10000"))
WORKERS = 4  # at once
LIFE = 150  # operations per worker, at most
WAIT_S = 0.2  # how long a call that may wait gets before its process is killed
REPEAT_S = 5  # after this, a killed process that still lives gets SIGKILL
OPEN_MAX = 8
# Signals that end a process while it writes.
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
           signal.SIGPIPE, signal.SIGALRM, signal.SIGUSR1)  # fmt: skip
INCONSISTENT = 3  # exit status of a worker that found something wrong

GROUPS = ("group", "group", "group", "group", "g1", "g2", "g3")
SIZES = (0, 1, 7, 511, 4096, 65536, 1 << 20)
FLAGS = ((os.O_CREAT, 0.2), (os.O_EXCL, 0.05), (os.O_TRUNC, 0.2), (os.O_APPEND, 0.1),
         (os.O_DIRECTORY, 0.02))  # fmt: skip
PLACES = (0, 0, 0, 1, 100, 4096, 1 << 20, (1 << 31) - 1, 1 << 40, (1 << 62) + 3)
NAMES = (
    "x", "y", "long_name", "x.json", "y.npy", "x.mean", "x.gather.json", "y.same", "x.cat.npy",
    "x.nonsense", "class", "1abc", "a-b", "é", "n" * 255, ".aside", "tmp~", "4913",
)  # fmt: skip
ROOT_FILES = ("README", "SKILL.md", "version", "trace", "", "nothing")
GROUP_FILES = (
    "", "ctl", "ctl", "cell", "cell", "cell.0", "cell.0-1", "cell.1,7", "cell.x", "status",
    "ranks", "gpus", "events", "error", "log", "names", "stall", "result", "traceback", "cells",
    "vars", "nothing", "status.json", "ranks.json", "hosts.json", "stall.json", "error.json",
    "events.last", "log.last",
)  # fmt: skip
CELL_FILES = (
    "", "source", "status", "wait", "result", "error", "traceback", "stream", "ctl", "report",
    "report.json", "status.json", "error.json",
)  # fmt: skip
JOB_FILES = ("", "stdout", "stderr", "result", "traceback", "status")
RANK_FILES = (
    "", "status", "env", "ctl", "cell", "stdout", "stderr", "follow", "stdin", "stack", "vars",
)  # fmt: skip
SOURCES = (
    "ok", "print some words", "flood 5000", "sleep 0.01", "raise boom", "syntax", "exit 3",
    "reduce", "set x 5", "set y text", "del x", "stuck", "input", "@0 raise one\nreduce",
    "@1 die 3\nreduce", "value 7", "err words\nprint words",
)  # fmt: skip
VERBS = (
    "start", "start", "start", "stop", "restart", "reset", "recover", "free", "cancel", "selftest",
    "clone 0 1", "clone 0 all", "clone 0 0",
    "interrupt", "interrupt 1", "kill", "kill 0", "size 2", "size 3", "size 99999", "history 3",
    "history 100", "spool 1000", "spool 0", "autogc off", "env A=b", "backend none", "nonsense",
    "'open", "clock forward", "grace 0", "stop\nsize 2\nstart",
)  # fmt: skip
TEXTS = ("5", "words", "[1, 2", "bad bytes", "\0\0", "x" * 10000, "interrupt", "kill", "")

# What a worker shows to the driver: its number of calls so far, when the current one began,
# whether it may wait, its text; then the last texts.
HEAD = struct.Struct("Qd?120s")
RING = 40


class Board:
    """A worker's record in memory that the driver reads, whatever happens to the worker."""

    def __init__(self):
        self.memory = mmap.mmap(-1, HEAD.size * (RING + 1))
        self.clear()

    def clear(self):
        self.memory[:] = bytes(len(self.memory))
        self.number = 0

    def begin(self, text, may_wait):
        self.number += 1
        record = HEAD.pack(
            self.number, time.monotonic(), may_wait, text.encode(errors="replace")[:120]
        )
        place = HEAD.size * (1 + self.number % RING)
        self.memory[place : place + HEAD.size] = record
        self.memory[: HEAD.size] = record

    def end(self):
        number, _, _, text = HEAD.unpack_from(self.memory)
        self.memory[: HEAD.size] = HEAD.pack(number, 0.0, False, text)

    def now(self):
        """(number, began, may_wait, text); began is 0 between calls."""
        number, began, may_wait, text = HEAD.unpack_from(self.memory)
        return number, began, may_wait, text.rstrip(b"\0").decode(errors="replace")

    def past(self):
        rows = [HEAD.unpack_from(self.memory, HEAD.size * (1 + i)) for i in range(RING)]
        return [
            f"{n} {t.rstrip(bytes(1)).decode(errors='replace')}" for n, _, _, t in sorted(rows) if n
        ]


class Worker:
    """Runs in a process of its own."""

    def __init__(self, mount, rng, board):
        self.mount, self.rng, self.board = mount, rng, board
        self.open = []  # (descriptor, path, is it non-blocking)

    def path(self):
        rng, pick = self.rng, self.rng.choice
        if rng.random() < 0.05:
            return f"{self.mount}/{pick(ROOT_FILES)}"
        group = f"{self.mount}/{pick(GROUPS)}"
        kind = rng.random()
        if kind < 0.35:
            return f"{group}/{pick(GROUP_FILES)}"
        if kind < 0.6:
            return f"{group}/{pick(('', 'rank0/', 'rank1/'))}vars/{pick(NAMES)}"
        if kind < 0.8:
            return f"{group}/rank{pick((0, 0, 1, 1, 2, 7))}/{pick(RANK_FILES)}"
        cell = f"{group}/cells/{pick(('last', 'last', 0, 1, 2, rng.randrange(60)))}"
        if rng.random() < 0.7:
            return f"{cell}/{pick(CELL_FILES)}"
        return f"{cell}/rank{pick((0, 1, 2))}/{pick(JOB_FILES)}"

    def text_for(self, path):
        name = path.rpartition("/")[2]
        words = SOURCES if name.startswith("cell") else VERBS if name == "ctl" else TEXTS
        return (self.rng.choice(words) + self.rng.choice(("\n", ""))).encode()

    def call(self, text, may_wait, function, *args, **how):
        """Makes one call; an OSError is as good a result as any. Returns None then."""
        self.board.begin(text.replace(self.mount, ""), may_wait)
        try:
            return function(*args, **how)
        except (OSError, OverflowError, ValueError):
            return None
        finally:
            self.board.end()

    def pick(self):
        while not self.open:
            self.op_open()
        return self.rng.choice(self.open)

    def op_open(self):
        rng = self.rng
        path = self.path()
        flags = rng.choice((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY, os.O_RDWR))
        for flag, often in FLAGS:
            flags |= flag if rng.random() < often else 0
        free = rng.random() < 0.7
        flags |= os.O_NONBLOCK if free else 0
        fd = self.call(f"open {path} {flags:o}", not free, os.open, path, flags, 0o600)
        if fd is not None:
            self.open.append((fd, path, free))
        if len(self.open) > OPEN_MAX:
            self.op_close()

    def op_close(self):
        if self.open:
            fd, path, free = self.open.pop(self.rng.randrange(len(self.open)))
            self.call(f"close {path}", not free, os.close, fd)

    def op_read(self):
        fd, path, free = self.pick()
        size = self.rng.choice(SIZES)
        self.call(f"read {path} {size}", not free, os.read, fd, size)

    def op_pread(self):
        fd, path, free = self.pick()
        size, place = self.rng.choice(SIZES), self.rng.choice(PLACES)
        self.call(f"pread {path} {size} {place}", not free, os.pread, fd, size, place)

    def op_write(self):
        fd, path, _ = self.pick()
        data = self.text_for(path)
        self.call(f"write {path} {data[:40]}", False, os.write, fd, data)

    def op_pwrite(self):
        fd, path, _ = self.pick()
        data, place = self.text_for(path), self.rng.choice(PLACES)
        self.call(f"pwrite {path} {data[:40]} {place}", False, os.pwrite, fd, data, place)

    def op_fsync(self):
        fd, path, free = self.pick()
        self.call(f"fsync {path}", not free, os.fsync, fd)

    def op_lseek(self):
        fd, path, _ = self.pick()
        place, whence = self.rng.choice(PLACES), self.rng.choice((0, 1, 2, os.SEEK_DATA))
        self.call(f"lseek {path} {place} {whence}", False, os.lseek, fd, place, whence)

    def op_ftruncate(self):
        fd, path, _ = self.pick()
        place = self.rng.choice(PLACES)
        self.call(f"ftruncate {path} {place}", False, os.ftruncate, fd, place)

    def op_dup(self):
        fd, path, free = self.pick()
        copy = self.call(f"dup {path}", False, os.dup, fd)
        if copy is not None:
            self.open.append((copy, path, free))

    def op_poll(self):
        poll = select.poll()
        for fd, _, _ in self.open:
            poll.register(fd)
        self.call("poll", False, poll.poll, 0)

    def op_lock(self):
        fd, path, _ = self.pick()
        self.call(f"flock {path}", False, fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def op_names(self):
        rng, path = self.rng, self.path()
        other = self.path()
        choices = [
            ("stat", os.lstat, path), ("list", os.listdir, path), ("readlink", os.readlink, path),
            ("unlink", os.unlink, path), ("rmdir", os.rmdir, path), ("mkdir", os.mkdir, path),
            ("mkdir", os.mkdir, f"{self.mount}/{rng.choice(GROUPS)}"),
            ("rmdir", os.rmdir, f"{self.mount}/g1"),
            ("truncate", os.truncate, path, rng.choice(PLACES)),
            ("rename", os.rename, path, other), ("link", os.link, path, other),
            ("symlink", os.symlink, path, other), ("chmod", os.chmod, path, 0o644),
            ("utime", os.utime, path), ("mkfifo", os.mkfifo, path), ("statvfs", os.statvfs, path),
            ("listxattr", os.listxattr, path),
        ]  # fmt: skip
        what, function, *args = rng.choice(choices)
        self.call(f"{what} {' '.join(map(str, args))}", what == "truncate", function, *args)

    def op_push(self):
        """Pushes, in pieces, a value that shows whether it is whole."""
        rng, path = self.rng, f"{self.mount}/group/vars/whole"
        body = bytes(rng.choice(b"0123456789abcdef") for _ in range(rng.choice((1, 100, 20000))))
        data = b"w%d.%d.%s" % (len(body), zlib.crc32(body), body)
        fd = self.call(
            "push: open", True, os.open, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
        )
        if fd is None:
            return
        while data:
            piece = rng.randrange(1, len(data) + 1)
            if self.call(f"push: write {piece}", False, os.write, fd, data[:piece]) is None:
                # an incomplete push must not become a value: die as in an unplanned exit
                os.kill(os.getpid(), signal.SIGKILL)
            data = data[piece:]
        self.call("push: close", True, os.close, fd)

    def op_pull(self):
        path = f"{self.mount}/group/{self.rng.choice(('', 'rank0/', 'rank1/'))}vars/whole"
        value = self.call("pull", True, read_all, path)
        if value is not None and not is_whole(value):
            self.board.begin(
                f"half a push: {value[:60]} … {value[-20:]} ({len(value)} bytes)", False
            )
            os._exit(INCONSISTENT)

    def run(self, count):
        operations = (
            (self.op_open, 12), (self.op_close, 7), (self.op_read, 6), (self.op_pread, 10),
            (self.op_write, 10), (self.op_pwrite, 5), (self.op_fsync, 4), (self.op_lseek, 2),
            (self.op_ftruncate, 3), (self.op_dup, 1), (self.op_poll, 1), (self.op_lock, 1),
            (self.op_names, 12), (self.op_push, 4), (self.op_pull, 4),
        )  # fmt: skip
        functions, weights = zip(*operations, strict=True)
        for _ in range(count):
            self.rng.choices(functions, weights)[0]()


def read_all(path):
    with open(path, "rb") as f:
        return f.read()


def is_whole(value):
    """Is this a whole value of op_push, as the text view shows it?"""
    head, dot, rest = value.rstrip(b"\n").partition(b".")
    crc, dot2, body = rest.partition(b".")
    return bool(dot and dot2) and head == b"w%d" % len(body) and crc == b"%d" % zlib.crc32(body)


class Process:
    """A worker's process, from the driver's side."""

    def __init__(self, board, work):
        self.board = board
        board.clear()
        self.killed = 0.0
        self.status = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = INCONSISTENT
            try:
                for signo in (signal.SIGINT, signal.SIGPIPE):
                    signal.signal(signo, signal.SIG_DFL)
                work()
                code = 0
            except BaseException as e:  # the driver reports it
                board.begin(f"{type(e).__name__}: {e}", False)
            finally:
                os._exit(code)

    def kill(self, signo):
        self.killed = self.killed or time.monotonic()
        os.kill(self.pid, signo)

    def ended(self):
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.status = status
        return pid != 0

    def late(self):
        """The text of a call that does not return, or of a process that does not die; else None."""
        _, began, may_wait, text = self.board.now()
        now = time.monotonic()
        if self.killed and now - self.killed > HANG_LIMIT_S:
            return f"killed, and still in: {text}"
        if began and not may_wait and not self.killed and now - began > HANG_LIMIT_S:
            return f"does not end: {text}"
        return None

    def where(self):
        """What the kernel reports about the process."""
        lines = []
        for name in ("stat", "wchan", "syscall", "stack"):
            try:
                lines.append(f"{name}: {get(f'/proc/{self.pid}/{name}').strip()}")
            except OSError as e:
                lines.append(f"{name}: {e.strerror}")
        return "\n".join("  " + line for line in lines)


class Driver:
    """Keeps workers running, kills them, and watches."""

    def __init__(self, mount):
        self.mount = mount
        self.rng = random.Random(SEED)
        self.boards = [Board() for _ in range(WORKERS)]
        self.at_work = {}  # board -> (process, number of the call at which to kill it)
        self.made = self.done = self.kills = 0

    def hire(self, board):
        self.made += 1
        number = self.made
        count = min(LIFE, max(1, COUNT - self.done))
        rng = random.Random(SEED * 1000003 + number)
        process = Process(board, lambda: Worker(self.mount.path, rng, board).run(count))
        self.at_work[board] = process, self.rng.randrange(1, 2 * LIFE)

    def look(self, board):
        process, end_at = self.at_work[board]
        if process.ended():
            if os.WIFEXITED(process.status) and os.WEXITSTATUS(process.status) != 0:
                raise Mismatch(self.past(process, board.now()[3]))
            self.done += board.now()[0]
            del self.at_work[board]
            return
        number, began, may_wait, _ = board.now()
        if (late := process.late()) is not None:
            raise Hang(self.past(process, late) + "\n" + process.where())
        waits = began and may_wait and time.monotonic() - began > WAIT_S
        if not process.killed and (number >= end_at or waits):
            self.kills += 1
            process.kill(self.rng.choice(SIGNALS))
        elif process.killed and time.monotonic() - process.killed > REPEAT_S:
            process.kill(signal.SIGKILL)

    def past(self, process, what):
        last = "\n".join("  " + line for line in process.board.past())
        return f"process {process.pid}: {what}\nits last calls:\n{last}"

    def check_daemon(self):
        if self.mount.daemon.poll() is not None:
            pasts = "\n".join(self.past(p, b.now()[3]) for b, (p, _) in self.at_work.items())
            raise Mismatch(f"the daemon ended with {self.mount.daemon.returncode}\n{pasts}")

    def run(self):
        while self.done < COUNT or self.at_work:
            for board in self.boards:
                if board in self.at_work:
                    self.look(board)
                elif self.done < COUNT:
                    self.hire(board)
            self.check_daemon()
            time.sleep(0.002)
        self.finish()

    def finish(self):
        """The last worker: everything works, and ranks agree."""
        board = self.boards[0]
        process = Process(board, lambda: settle(self.mount.path, board))
        while not process.ended():
            _, began, _, text = board.now()
            self.check_daemon()
            if began and time.monotonic() - began > HANG_LIMIT_S:
                raise Hang(self.past(process, text) + "\n" + process.where())
            time.sleep(0.002)
        if process.status != 0:
            raise Mismatch(f"at the end: {board.now()[3]}")


def settle(mount, board):
    """Verbs have their effect; variables agree; no group but the first is left."""

    def step(text, function, *args, **how):
        board.begin(text, False)
        result = function(*args, **how)
        board.end()
        return result

    def expect(text, have, want):
        if have != want:
            board.begin(f"{text}: {have!r}, not {want!r}", False)
            os._exit(INCONSISTENT)

    g = mount + "/group"
    if not os.path.exists(g):
        step("mkdir", os.mkdir, g)
    for verb in ("cancel", "interrupt"):  # refused if nothing runs
        step(verb, put, g + "/ctl", verb + "\n", wait=True)
    expect("start", step("start", put, g + "/ctl", "start\n", wait=True), 0)
    # runs behind cells that had begun and could not be dropped
    expect("a cell", step("a cell", put, g + "/cell", "ok", wait=True), 0)
    status = keys(step("status", get, g + "/status"))
    values = set()
    for rank in range(int(status["size"])):
        try:
            values.add(step(f"rank {rank}", read_all, f"{g}/rank{rank}/vars/whole"))
        except FileNotFoundError:
            continue  # a new process
    expect("values of one name", len(values) <= 1 and all(map(is_whole, values)), True)
    expect("restart", step("restart", put, g + "/ctl", "restart\n", wait=True), 0)
    expect("state", keys(step("status", get, g + "/status"))["state"], "idle")
    size = int(keys(get(g + "/status"))["size"])
    expect("a collective", step("reduce", put, g + "/cell", "reduce", wait=True), 0)
    expect("its sum", step("result", get, g + "/result"), f"{size * (size - 1) // 2}\n")
    for name in os.listdir(mount):
        if name in GROUPS and name != "group":
            step(f"stop {name}", put, f"{mount}/{name}/ctl", "stop\n", wait=True)
            expect(f"rmdir {name}", step(f"rmdir {name}", os.rmdir, f"{mount}/{name}"), None)
    expect("stop", step("stop", put, g + "/ctl", "stop\n", wait=True), 0)


def main():
    if lacks := missing(BUILD + "/fake/engine"):
        print(lacks)
        return 77
    print(f"seed {SEED}, {COUNT} operations (SEED=N COUNT=N)", flush=True)
    begin = time.monotonic()
    mount = Mount(SEED)
    driver = Driver(mount)
    try:
        limits = "size 2\ngrace 0.1\nkillafter 0.5\ntimeout 0.5\n"
        if put(mount.path + "/group/ctl", limits + "start\n", wait=True) != 0:
            raise Mismatch("it does not start")
        driver.run()
        mount.end()
        end = time.monotonic() + HANG_LIMIT_S
        while rest := processes(mount.dir.encode()) or mount.path in get("/proc/self/mountinfo"):
            if time.monotonic() > end:
                raise Mismatch(f"left behind: {mount.path if rest is True else rest}")
            time.sleep(0.01)
    except (Hang, Mismatch) as e:
        print(f"{type(e).__name__} after {driver.done} operations: {e}")
        for process, _ in driver.at_work.values():
            os.kill(process.pid, signal.SIGKILL)
        print("--- the daemon\n" + mount.said())
        mount.daemon.kill()
        mount.daemon.wait()
        os.system(f"fusermount3 -u -z -q '{mount.path}'")
        return 1
    print(f"{driver.done} operations, {driver.kills} kills in {time.monotonic() - begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
