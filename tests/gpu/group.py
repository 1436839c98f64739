"""Shared by the tests and benchmarks on GPUs: a group of one's own, on a mount or, if nothing can
be mounted, on a socket; in a source tree or in the bundle that `make bundle` makes of it.

With DDIP_REHEARSE=1 the device is the CPU and the backend gloo: code for machines that are hard to
get runs everywhere.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REHEARSES = bool(os.environ.get("DDIP_REHEARSE"))
HANG_LIMIT_S = int(os.environ.get("HANG_LIMIT_S") or 120)
_LIMIT_S = int(os.environ.get("LIMIT") or 86400)  # after which this program is ended
_SPARE_S = min(60, _LIMIT_S // 2)  # of that, to report what hangs, and to end
_UNBLOCK_S = 20  # for the group to answer, and to stop
_PART_S = 90  # the limit of a part of a test
_END = time.monotonic() + _LIMIT_S - _SPARE_S
_NO_MOUNT = 3  # exit status of ddipfs: nothing can be mounted here
_POLL_S = 0.01


def _first(*places):
    """The first of these that exists, else the last."""
    return next((place for place in places if os.path.exists(place)), places[-1])


_BUILD = os.path.join(ROOT, os.environ.get("BUILD") or "build")
PROGRAM = _first(os.path.join(ROOT, "bin", "ddipfs"), os.path.join(_BUILD, "ddipfs"))
PYTHON = os.environ.get("PYTHON") or _first(
    os.path.join(ROOT, ".venv", "bin", "python"), shutil.which("python3") or "python3"
)
if os.path.exists(PYTHON) and not os.environ.get("DDIP_TEST_AGAIN"):
    os.environ["DDIP_TEST_AGAIN"] = "yes"
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(
    0, _first(os.path.join(ROOT, "libexec", "ddipfs", "ddip_tool"), os.path.join(ROOT, "magics"))
)

from ddip.mounts import files  # noqa: E402 - it lies there


class Late(BaseException):
    """The time for something is over: it hangs."""


def _late(signo, frame):
    raise Late("it hangs")


def time_left():
    return max(_END - time.monotonic(), 0)


signal.signal(signal.SIGALRM, _late)

# Used by cells of all ranks: the device, and how to wait for it.
PRELUDE = """
import os, time
import torch, torch.distributed as dist
CUDA = torch.cuda.is_available()
device = torch.device("cuda", torch.cuda.current_device()) if CUDA else torch.device("cpu")

def finish():
    if CUDA:
        torch.cuda.synchronize()
"""


def skip(why):
    """Ends the program as skipped; tests/run shows why."""
    print(why)
    sys.exit(77)


class _Later:
    """torch, which is imported when something of it is used."""

    def __getattr__(self, name):
        import torch

        return getattr(torch, name)


def need_gpu():
    """torch, if it can use a GPU or this is a rehearsal; else the test is skipped."""
    if REHEARSES and importlib.util.find_spec("torch"):
        return _Later()
    try:
        import torch
    except ImportError as e:
        skip(f"{sys.executable}: {e}")
    if not torch.cuda.is_available():
        skip(f"no GPU that torch of {sys.executable} can use")
    return torch


def until(function, what):
    """Waits until function() returns something true, and returns that."""
    end = time.monotonic() + HANG_LIMIT_S
    while not (found := function()):
        if time.monotonic() > end:
            raise AssertionError(f"it never comes true: {what}")
        time.sleep(_POLL_S)
    return found


class Group:
    """`with Group(backend="gloo") as g`: the first group of a new daemon."""

    def __init__(self, env=None, **options):
        self.folder = tempfile.mkdtemp(prefix="ddip-gpu.")
        self._options = {"python": sys.executable} | options
        self._env = dict(os.environ, DDIP_STATE=self.folder, **(env or {}))
        self._daemon = self.place = None
        self._limit = contextlib.ExitStack()
        self._hung = False  # and was stopped for that

    def __enter__(self):
        mount = os.path.join(self.folder, "mnt")
        os.mkdir(mount)
        if not self._start(mount, mount) and not self._start(
            f"{mount}.sock", "-s", f"{mount}.sock"
        ):
            raise AssertionError(f"{PROGRAM} neither mounts nor serves a socket")
        self._limit.enter_context(self.limit(time_left()))
        return self

    def _start(self, place, *words):
        """False: it is not possible here."""
        options = ",".join(f"{key}={value}" for key, value in self._options.items())
        command = [PROGRAM, "-f", "-o", options, *words]
        self._daemon = subprocess.Popen(command, env=self._env, stdin=subprocess.DEVNULL)
        until(lambda: self._daemon.poll() is not None or _is_served(place), "the daemon is there")
        if self._daemon.poll() is not None:
            assert self._daemon.returncode == _NO_MOUNT, f"{command}: {self._daemon.returncode}"
            return False
        self.place = place
        return True

    def __exit__(self, kind, *exc_info):
        try:
            self._limit.close()
            if kind is not None:
                self.report()
        finally:
            self._daemon.terminate()
            self._daemon.wait(HANG_LIMIT_S)
            shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def limit(self, seconds):
        """Raises Late in what takes longer. What waits for the daemon ends only if the group does:
        then it is reported and stopped."""
        timer = threading.Timer(seconds, self._unblock)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _unblock(self):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
        self.report()
        self._hung = True
        with self._answering(), contextlib.suppress(OSError):
            self.ctl("stop")

    def revive(self):
        """Starts the group again if it hung."""
        if self._hung:
            self._hung = False
            self.ctl("start")

    @contextlib.contextmanager
    def _answering(self):
        """Kills a daemon that does not answer in time."""
        timer = threading.Timer(_UNBLOCK_S, self._daemon.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def report(self):
        """Prints what may show why something failed or hangs."""
        with self._answering():
            for name in ("status", "error", "stall"):
                with contextlib.suppress(OSError):
                    print(f"--- {name}\n{self.read(name)}", flush=True)

    def path(self, name):
        return f"{self.place}/group/{name}"

    def read(self, name):
        return files.read_text(self.path(name))

    def read_bytes(self, name):
        return files.read(self.path(name))

    def open(self, name, flags=os.O_RDONLY):
        return files.open_(self.path(name), flags)

    def write(self, name, data):
        """Writes and closes; an OSError reports a failure."""
        data = data.encode() if isinstance(data, str) else data
        with self.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            files.write_all(file, data)
            file.fsync()

    def ctl(self, *lines):
        """Writes verbs and waits until they are done."""
        with self.open("ctl", os.O_RDWR) as file:
            files.write_all(file, "".join(f"{line}\n" for line in lines).encode())
            file.fsync()

    @contextlib.contextmanager
    def trace(self):
        """The daemon's messages from now on; read() returns the text that is new."""
        with files.open_(f"{self.place}/trace", os.O_RDONLY) as file:
            yield _Trace(file)

    def cell(self, code, where="cell"):
        """Runs a cell; OSError if it fails."""
        self.write(where, code + "\n")

    def fails(self, function, *args):
        """The OSError of a call that must fail."""
        try:
            function(*args)
        except OSError as e:
            return e
        raise AssertionError(f"{args} went well")

    def submit(self, code, where="cell"):
        """Submits a cell without waiting. Returns its number."""
        with self.open(where, os.O_RDWR | os.O_NONBLOCK) as file:
            files.write_all(file, f"{code}\n".encode())
            file.fsync()
        return self.last()

    def last(self):
        """The number of the last cell."""
        return files.readlink(self.path("cells/last"))

    def value(self, expression, rank=0):
        """The value of an expression on a rank: the text of the cell's result."""
        self.cell(expression, f"rank{rank}/cell")
        return self.read(f"cells/last/rank{rank}/result").strip()

    def state(self, cell="last"):
        return self.key(f"cells/{cell}/status", "state")

    def key(self, name, key):
        """The value in a line `key value`."""
        rows = (line.split(" ", 1) for line in self.read(name).splitlines())
        return next((row[1] for row in rows if row[0] == key), "")

    def wait(self, cell):
        """Waits for the end of a cell. Returns its state."""
        self.read(f"cells/{cell}/wait")
        return self.state(cell)


class _Trace:
    def __init__(self, file):
        self._file = file

    def read(self):
        text = b""
        while self._file.poll(0):
            text += self._file.read(1 << 16)
        return text.decode()


def _is_served(place):
    files.learn(place)
    return files.exists(f"{place}/version")


def gpus(n):
    """The setting that gives n ranks a GPU each, or the first GPU to all of them."""
    if REHEARSES:
        return "gpus none"
    import torch

    have = torch.cuda.device_count()
    return "gpus " + ",".join(str(rank if n <= have else 0) for rank in range(n))


def backend():
    return "gloo" if REHEARSES else "nccl"


class Checks:
    """Counts wrong results; the program ends with done()."""

    def __init__(self):
        self._bad = 0

    def equal(self, what, found, wanted):
        if found != wanted:
            self._bad += 1
            print(f"FAILED: {what}: {str(found)[:2000]!r}, not {str(wanted)[:2000]!r}", flush=True)

    def true(self, what, found, why=""):
        if not found:
            self._bad += 1
            print(f"FAILED: {what}: {str(why)[:2000]}", flush=True)

    def part(self, g, function, *args):
        """Runs a part of the test on a group. If it raises or hangs, the other parts run all the
        same, as long as there is time."""
        name = " ".join(map(str, (function.__name__, *args)))
        before, begin = self._bad, time.monotonic()
        try:
            if not time_left():
                raise Late("no time is left for it")
            with g.limit(min(_PART_S, time_left())):
                g.revive()
                function(g, *args)
        except (Exception, Late):
            self._bad += 1
            print(f"FAILED: {name}: {traceback.format_exc()}", flush=True)
        if self._bad > before and time_left():
            g.report()
        print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)

    def done(self):
        sys.exit(1 if self._bad else 0)
