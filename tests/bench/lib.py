"""Shared by the benchmarks: a mount of one's own, timing, one line per result.

A benchmark is a program tests/bench/NAME.py whose `main(report)` measures one thing in turn with
its peer, so that both see the same machine in the same minutes; `tests/bench/run` runs them.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD") or "build")
PYTHON = os.environ.get("PYTHON") or os.path.join(ROOT, ".venv", "bin", "python")
PEER = os.path.join(ROOT, "build", "bench-venv", "bin", "python")


class Report:
    """Collects the rows: what was measured, our result, the peer's, the ratio, the goal."""

    def __init__(self):
        self.rows = []

    def add(self, work, ours, peer="", ratio="", goal=""):
        row = (work, ours, peer, ratio, goal)
        self.rows.append(row)
        print("| " + " | ".join(row) + " |", flush=True)


class Mount:
    """A daemon with a directory of its own; `with Mount(size=2) as m: … m.group`."""

    def __init__(self, python=PYTHON, build=BUILD, **settings):
        self.build = build
        self.dir = tempfile.mkdtemp(prefix="ddip-bench.")
        self.path = os.path.join(self.dir, "mnt")
        self.group = os.path.join(self.path, "group")
        os.mkdir(self.path)
        options = ",".join([f"python={python}"] + [f"{k}={v}" for k, v in settings.items()])
        self.command = [os.path.join(build, "ddipfs"), "-o", options, self.path]
        self.env = dict(os.environ, DDIP_STATE=self.dir)

    def __enter__(self):
        subprocess.run(self.command, env=self.env, check=True)
        return self

    def __exit__(self, *_):
        if os.path.ismount(self.path):  # a benchmark may have killed the daemon
            subprocess.run(["fusermount3", "-u", "-z", self.path], check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", self.dir], check=False)

    def daemon(self):
        """The daemon's process id."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:  # it has exited in the meantime
                continue
            if words[:1] == [self.command[0].encode()] and self.path.encode() in words:
                return int(pid)
        raise LookupError("no daemon has this mount")

    def settle(self):
        """Waits until the zygote's successor makes the ranks and no longer keeps a core busy."""
        self.write("cell", "pass")
        while b" successor\n" not in self.read("rank0/status"):
            time.sleep(1)  # it is made in a quiet moment
            self.write("ctl", "restart\n")

    def file(self, name):
        return os.path.join(self.group, name)

    def read(self, name):
        with open(self.file(name), "rb") as f:
            return f.read()

    def write(self, name, data):
        """Writes and closes; an OSError reports a failure."""
        fd = os.open(self.file(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            data = data.encode() if isinstance(data, str) else data
            while data:
                data = data[os.write(fd, data) :]
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def cells(self, name="cell"):
        """A descriptor that stays open: run(source) submits a cell and waits for its end."""
        fd = os.open(self.file(name), os.O_WRONLY)

        def run(source):
            os.write(fd, source.encode())
            os.fsync(fd)

        yield run
        os.close(fd)

    def pids(self):
        rows = self.read("ranks").decode().split()
        return [int(word[4:]) for word in rows if word.startswith("pid=") and word != "pid=-"]


def timed(fn, times, warm=3):
    """The seconds of each call."""
    for _ in range(warm):
        fn()
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        fn()
        taken.append(time.perf_counter() - begin)
    return taken


def median(values):
    return statistics.median(values)


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p / 100))]


def ms(seconds, digits=2):
    return f"{seconds * 1000:.{digits}f} ms"


def times(peer, ours):
    return f"{peer / ours:.1f}×"


def ipyparallel(what, *args):
    """Runs a measurement of peer.py in the environment with ipyparallel. Returns its numbers."""
    run = subprocess.run(
        [PEER, os.path.join(ROOT, "tests", "bench", "peer.py"), what, *map(str, args)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(run.stdout.splitlines()[-1])


def alone(path, *args):
    """Runs a program of this folder with the ranks' Python. Returns its last line, from JSON."""
    run = subprocess.run([PYTHON, path, *args], stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def here(name):
    return os.path.join(ROOT, "tests", "bench", name)


if __name__ == "__main__":
    sys.exit("this is a module; tests/bench/run runs the benchmarks")
