"""Shared by the model tests: the seed, the limit against hangs, a mount with the fake engine."""

import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
SEED = int(os.environ.get("SEED", "20240229"))
HANG_LIMIT_S = float(os.environ.get("HANG_LIMIT_S", "300"))  # only guards against hangs


class Hang(Exception):
    """Something did not happen in HANG_LIMIT_S seconds."""


class Mismatch(Exception):
    """What was found is not what it must be."""


def put(path, text, wait=False, make=0):
    """Writes a file; with wait, waits for the result. Returns the errno, 0 if none."""
    flags = os.O_WRONLY | make | (0 if wait else os.O_NONBLOCK)
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as e:
        return e.errno
    result = 0
    try:
        data = text.encode()
        while data:
            data = data[os.write(fd, data) :]
        if wait:
            os.fsync(fd)
    except OSError as e:
        result = e.errno
    try:
        os.close(fd)
    except OSError as e:
        result = result or e.errno
    return result


def get(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def keys(text):
    """`key value` lines as a dict."""
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes(mark):
    """Pids of processes with this mark in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def missing(*needed):
    """What a test lacks of these files and of what a mount needs, as a text; "" if nothing."""
    for path in (BUILD + "/ddipfs", *needed):
        if not os.path.exists(path):
            return f"there is no {path} (make check-built)"
    return "it needs a mount" if os.environ.get("DDIP_TEST_NO_MOUNT") else ""


class Mount:
    """A daemon of the test's own, with the fake engine."""

    def __init__(self, seed):
        self.dir = tempfile.mkdtemp(prefix="model.")
        self.path = self.dir + "/mnt"
        os.mkdir(self.path)
        env = {**os.environ, "DDIP_ENGINE": BUILD + "/fake/engine", "DDIP_FAKE_SEED": str(seed + 1),
               "DDIP_STATE": self.dir}  # fmt: skip
        self.log = open(self.dir + "/log", "w+", encoding="utf-8")
        self.daemon = subprocess.Popen(
            [BUILD + "/ddipfs", "-f", "-o", f"python={sys.executable}", self.path],
            env=env, stdout=self.log, stderr=self.log)  # fmt: skip
        end = time.monotonic() + HANG_LIMIT_S
        while not os.path.exists(self.path + "/version"):
            if self.daemon.poll() is not None or time.monotonic() > end:
                raise Mismatch("no mount: " + self.said())
            time.sleep(0.005)

    def said(self):
        with open(self.dir + "/log", encoding="utf-8", errors="replace") as f:
            return f.read()[-12000:]

    def end(self):
        """Ends the daemon by SIGTERM; raises if anything was wrong with it."""
        self.daemon.terminate()
        try:
            status = self.daemon.wait(HANG_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
            raise Hang("the daemon did not end\n" + self.said()) from None
        said = self.said()
        if status != 0 or "Sanitizer" in said or "runtime error" in said:
            raise Mismatch(f"the daemon ended with {status}\n{said}")
        subprocess.run(["rm", "-rf", self.dir], check=True)
