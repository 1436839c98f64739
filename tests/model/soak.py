#!/usr/bin/env python3
"""Clients leave nothing behind in the daemon, however long they work.

Four random clients run cells, push, stage, rename and read objects, list everything, restart, and
make, resize and remove groups. The daemon serves a fake engine (tests/fake). At rest, after a
first part and at the end, its descriptors, its memory, the bytes of spools on disk and those of
objects that are being written are compared: none of them may have grown.

SECS=N seconds (15), SEED=N. A run of SECS=1200 or more finds what grows by a few bytes each time.
"""

import collections
import errno
import os
import random
import sys
import threading
import time

from common import BUILD, HANG_LIMIT_S, SEED, Hang, Mismatch, Mount, get, put

SECS = float(os.environ.get("SECS") or 15)
CLIENTS = 4
SPOOL = 100_000  # bytes that are kept of each stream
GROWTH = {"descriptors": 2, "memory": 3 << 20, "spools": 1 << 20, "staged": 0}
# What clients of one group do to each other.
EXPECTED = {0, errno.EREMOTEIO, errno.EINTR, errno.ECANCELED, errno.ENOENT, errno.EEXIST,
            errno.EHOSTDOWN, errno.ENODEV, errno.EBUSY, errno.ENOEXEC, errno.ESTALE, errno.EAGAIN,
            errno.ESHUTDOWN, errno.ESRCH}  # fmt: skip


class Client:
    def __init__(self, mount, number):
        self.rng = random.Random(f"{SEED} {number}")
        self.root, self.group = mount.path, mount.path + "/group"
        self.own = f"{mount.path}/own{number}"
        self.name, self.staged = f"x{number}", f"{self.group}/vars/.s{number}"
        self.went_well = collections.Counter()

    def cell(self):
        words = "ok", "print words", "flood 30000", f"set {self.name} 5", "raise boom"
        return put(self.group + "/cell", self.rng.choice(words), wait=True)

    def text(self):
        return "x" * self.rng.choice((0, 5, 4096, 1 << 16, 1 << 19))

    def push(self):
        return put(f"{self.group}/vars/{self.name}", self.text(), wait=True, make=os.O_CREAT)

    def stage(self):
        result = put(self.staged, self.text(), make=os.O_CREAT | os.O_TRUNC)
        if self.rng.random() < 0.5:
            os.rename(self.staged, f"{self.group}/vars/{self.name}")
        elif self.rng.random() < 0.5:
            os.unlink(self.staged)
        return result

    def read(self):
        where = self.rng.choice(("vars", "rank0/vars", "rank1/vars"))
        get(f"{self.group}/{where}/{self.name}")
        return 0

    def look(self):
        for place, _, files in os.walk(self.rng.choice((self.group, self.own))):
            for file in files:
                os.stat(os.path.join(place, file))
        for name in ("status", "names", "ranks", "stall", "cells/last/rank0/stdout"):
            get(f"{self.group}/{name}")
        return 0

    def restart(self):
        return put(self.group + "/ctl", self.rng.choice(("reset", "free", "restart")), wait=True)

    def group_of_its_own(self):
        os.mkdir(self.own)
        try:
            for size in self.rng.choices((1, 2, 8), k=2):
                put(self.own + "/ctl", f"stop\nsize {size}\nspool {SPOOL}\nstart", wait=True)
                put(self.own + "/cell", "print words\nset x 5", wait=True)
                get(self.own + "/names")
        finally:
            put(self.own + "/ctl", "stop", wait=True)
            os.rmdir(self.own)
        return 0

    def run(self, ends):
        kinds = (self.cell,) * 8 + (self.push, self.stage, self.read) * 4 + (self.look,) * 2
        kinds += (self.restart, self.group_of_its_own)
        while time.monotonic() < ends:
            kind = self.rng.choice(kinds)
            try:
                result = kind()
            except OSError as e:
                result = e.errno
            if result not in EXPECTED:
                raise Mismatch(f"{kind.__name__}: {errno.errorcode.get(result, result)}")
            self.went_well[kind.__name__] += result == 0


def work(clients, seconds):
    """All clients work for some seconds."""
    failures = []

    def run(client):
        try:
            client.run(time.monotonic() + seconds)
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=run, args=(c,), daemon=True) for c in clients]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0, end - time.monotonic()) + HANG_LIMIT_S)
        if thread.is_alive():
            raise Hang("a client does not end")
    if failures:
        raise failures[0]


def descriptors(pid):
    """What the daemon has open, {descriptor: link}, once it closes and opens nothing more."""
    found, before = {}, None
    end = time.monotonic() + HANG_LIMIT_S
    while found != before:
        if time.monotonic() > end:
            raise Hang("the daemon does not come to rest")
        time.sleep(0.05)
        found, before = {}, found
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                found[fd] = os.readlink(f"/proc/{pid}/fd/{fd}")
            except FileNotFoundError:
                found[fd] = ""
    return found


def at_rest(mount, clients):
    """What the daemon holds when nobody does anything and nothing is staged."""
    for client in clients:
        for path in client.staged, f"{client.group}/vars/{client.name}":
            if os.path.exists(path):
                os.unlink(path)
    for text in "reset", "restart":
        put(mount.path + "/group/ctl", text, wait=True)
    put(mount.path + "/group/cell", "flood 300000", wait=True)
    proc = f"/proc/{mount.daemon.pid}"
    fds = descriptors(mount.daemon.pid)
    memory = next(s for s in get(proc + "/status").splitlines() if s.startswith("RssAnon"))
    state = os.walk(f"{mount.dir}/ddipfs-{os.getuid()}")
    spools = [
        os.path.join(place, file)
        for place, _, files in state
        for file in files
        if not file.startswith(("ddipfs.log", "events"))  # these have bounds of their own
    ]
    return {
        "descriptors": len(fds),
        "memory": int(memory.split()[1]) << 10,
        "spools": sum(os.stat(path).st_blocks * 512 for path in spools),
        "staged": sum(
            os.stat(f"{proc}/fd/{fd}").st_blocks for fd in fds if fds[fd].startswith("/memfd:")
        ),
    }


def main():
    mount = Mount(SEED)
    try:
        clients = [Client(mount, i) for i in range(CLIENTS)]
        put(mount.path + "/group/ctl", f"size 2\nspool {SPOOL}\nhistory 100\nstart", wait=True)
        work(clients, SECS / 3)
        before = at_rest(mount, clients)
        work(clients, SECS * 2 / 3)
        after = at_rest(mount, clients)
    finally:
        mount.end()
    did = sum((c.went_well for c in clients), collections.Counter())
    print(f"seed {SEED}, {SECS:g} s: {dict(did)}\nbefore {before}\nafter  {after}")
    if len(did) < 7 or min(did.values()) == 0:
        raise Mismatch("some kind of operation never went well")
    for key, most in GROWTH.items():
        if key == "memory" and "san" in BUILD:
            continue  # freed memory is kept for a while
        if after[key] > before[key] + most:
            raise Mismatch(f"{key}: {before[key]} before, {after[key]} after")


if __name__ == "__main__":
    if not os.path.exists("/dev/fuse"):
        print("there is no /dev/fuse")
        sys.exit(77)
    try:
        main()
    except (Hang, Mismatch) as e:
        sys.exit(f"FAILED: {e}")
