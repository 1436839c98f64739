"""The protocol from a client's side: starts build/ddip-engine --agent and talks to it. For tests.

The message formats are read from include/wire.h, so they cannot differ from it.
"""

import os
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.environ.get("PYTHON") or os.path.join(ROOT, ".venv", "bin", "python")
NO_TORCH = os.path.join(ROOT, "tests", "fake", "no_torch")
PLAIN_PYTHON = os.environ.get("PLAIN_PYTHON") or "/usr/bin/python3"
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
HANG_LIMIT_S = float(os.environ.get("HANG_LIMIT_S", "300"))  # only guards against hangs
ENGINE = os.path.join(BUILD, "ddip-engine")
AGENT = 0xFFFF  # slot of the agent itself
FLAG_FD, FLAG_MARK = 1, 2
HEADER = struct.Struct("<IBBIQ")  # size type flags slot tag
SIZES = {"1": "B", "2": "H", "4": "I", "8": "Q"}


with open(os.path.join(ROOT, "include", "wire.h"), encoding="utf-8") as header:
    WIRE_H = header.read()


def _forms():
    rows = re.findall(r'X\((\w+),\s*(\d+),\s*[01],\s*"(\w*)",\s*"([^"]*)"\)', WIRE_H)
    return {name: (int(number), form, fields.split()) for name, number, form, fields in rows}


FORMS = _forms()
NAMES = {number: name for name, (number, _, _) in FORMS.items()}
VERSION = int(re.search(r"WIRE_VERSION = (\d+)", WIRE_H)[1])


class Message:
    """A message; its fields are attributes. number: its position among all that were received."""

    number = 0

    def __init__(self, name, flags, slot, tag, fields, fd):
        self.name, self.flags, self.slot, self.tag, self.fd = name, flags, slot, tag, fd
        self.__dict__.update(fields)

    def __repr__(self):
        return f"<{' '.join(f'{k}={v!r}'[:200] for k, v in self.__dict__.items())}>"


def pack(name, slot, tag, *fields, flags=0):
    """Packs a whole frame."""
    number, form, _ = FORMS[name]
    body = b""
    for kind, value in zip(form, fields, strict=True):
        if kind in SIZES:
            body += struct.pack("<" + SIZES[kind], value)
        else:
            data = value.encode() if isinstance(value, str) else bytes(value)
            body += struct.pack("<I", len(data)) + data
    return HEADER.pack(HEADER.size + len(body), number, flags, slot, tag) + body


def unpack(frame, fd):
    """Unpacks the message in a whole frame."""
    _, number, flags, slot, tag = HEADER.unpack_from(frame)
    name = NAMES[number]
    _, form, words = FORMS[name]
    at, fields = HEADER.size, {}
    for kind, word in zip(form, words, strict=True):
        if kind in SIZES:
            code = "<" + SIZES[kind]
            (fields[word],) = struct.unpack_from(code, frame, at)
            at += struct.calcsize(code)
        else:
            (n,) = struct.unpack_from("<I", frame, at)
            data = frame[at + 4 : at + 4 + n]
            fields[word] = data.decode("utf-8", "replace") if kind == "s" else data
            at += 4 + n
    assert at == len(frame), (name, at, len(frame))
    return Message(name, flags, slot, tag, fields, fd)


def frames(data):
    """The whole frames in these bytes, and the rest."""
    whole, at = [], 0
    while len(data) - at >= 4:
        (size,) = struct.unpack_from("<I", data, at)
        if len(data) - at < size:
            break
        whole.append(data[at : at + size])
        at += size
    return whole, data[at:]


def each(m):
    """The messages that an Nmany stands for; else the message itself."""
    if m.name != "Nmany":
        return [m]
    found = []
    for at in range(0, len(m.who), 12 + m.tail):
        frame = bytearray(m.frame)
        frame[6:18] = m.who[at : at + 12]
        if m.tail:
            frame[-m.tail :] = m.who[at + 12 : at + 12 + m.tail]
        found.append(unpack(bytes(frame), -1))
    return found


class Agent:
    """A running agent. Received messages that nobody waits for yet are kept in `seen`.

    python: that of the ranks; None: the tests' own, in which no torch is found, since an import of
    torch takes a second.
    """

    live_kind = 2  # GET_LIVE: how it describes an object in a rank's memory

    def __init__(self, python=None, env=None, warm=True, command=None, **settings):
        without = {} if python else {"PYTHONPATH": NO_TORCH}
        python = python or (PYTHON if os.path.exists(PYTHON) else sys.executable)
        self.base = tempfile.mkdtemp(prefix="ddip-engine-test.")
        self.dir = os.path.join(self.base, "group")
        os.mkdir(self.dir)
        self.log = open(os.path.join(self.dir, "log"), "w+", encoding="utf-8")
        env = {**os.environ, **without, **(env or {})}
        self.process = self.start(command or [ENGINE, "--agent"], env)
        self.bytes, self.fds, self.seen, self.count = b"", [], [], 0
        self.tag = 0
        self.engines = {}
        self.hello = self.call("Thello", AGENT, VERSION, self.base)
        if warm:
            self.warm_phases = self.warm(1, python, **settings)

    def start(self, command, env):
        """Starts the process, with a socket for both directions."""
        self.sock, theirs = socket.socketpair()
        with theirs:
            return subprocess.Popen(
                command, stdin=theirs, stdout=theirs, stderr=self.log, env=env,
                start_new_session=True,
            )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close()
        if kind:
            self.log.seek(0)
            sys.stderr.write("---- the agent's log\n" + self.log.read()[-4000:])
        self.log.close()
        shutil.rmtree(self.base)

    def close(self):
        """Closes the connection, on which the agent ends, and waits for its end."""
        self.sock.close()
        self.process.wait(timeout=HANG_LIMIT_S)

    def send(self, name, slot, *fields, tag=0, fd=-1, mark=False):
        flags = (FLAG_FD if fd >= 0 else 0) | (FLAG_MARK if mark else 0)
        frame = pack(name, slot, tag, *fields, flags=flags)
        if fd >= 0:
            socket.send_fds(self.sock, [frame[:1]], [fd])
            frame = frame[1:]
        self.sock.sendall(frame)

    def ask(self, name, slot, *fields, **how):
        """Sends a T. Returns its tag."""
        self.tag += 1
        self.send(name, slot, *fields, tag=self.tag, **how)
        return self.tag

    def call(self, name, slot, *fields, timeout=HANG_LIMIT_S, **how):
        """Sends a T and waits for its R or Rerror."""
        tag = self.ask(name, slot, *fields, **how)
        return self.wait(lambda m: m.tag == tag and m.name[0] == "R", timeout, name)

    def wait(self, fits, timeout=HANG_LIMIT_S, what="a message"):
        """The first message that fits, also among those received earlier."""
        if isinstance(fits, str):
            what, name = fits, fits
            fits = lambda m: m.name == name  # noqa: E731
        deadline = time.monotonic() + timeout
        while True:
            for i, m in enumerate(self.seen):
                if fits(m):
                    return self.seen.pop(i)
            left = deadline - time.monotonic()
            if left <= 0 or not self.pull(left):
                raise TimeoutError(f"{what} did not come; there is {self.seen}")

    def pull(self, seconds=HANG_LIMIT_S):
        """Takes what has come, or comes in this time. Returns false if there is nothing."""
        if not select.select([self.sock], [], [], max(seconds, 0))[0]:
            return False
        data, fds, _, _ = socket.recv_fds(self.sock, 1 << 20, 16)
        if not data:
            raise EOFError("the agent hung up")
        self.fds += fds
        whole, self.bytes = frames(self.bytes + data)
        for frame in whole:
            self.take(unpack(frame, self.fds.pop(0) if frame[5] & FLAG_FD else -1))
        return True

    def take(self, message):
        for m in each(message):
            self.count += 1
            m.number = self.count
            if self.takes(m):
                self.seen.append(m)

    def takes(self, m):
        """Is the message for who waits?"""
        return True

    def warm(self, zygote, python=sys.executable, env="", cwd=None, preload=""):
        """Asks for a zygote. Returns Rzygote or Rerror."""
        return self.call("Tzygote", AGENT, zygote, python, env, cwd or self.dir, preload)

    def spawn(self, slot, kind=0, zygote=1, env="", cold=0, name=None):
        """Starts an engine and waits until it is up. Returns Rspawn (or Rerror)."""
        name = name or f"rank{slot}"
        r = self.call("Tspawn", slot, kind, zygote, "group", name, env, cold)
        if r.name == "Rspawn":
            self.wait(lambda m: m.name == "Nstarted" and m.slot == slot, what="Nstarted")
        return r

    def run(self, slot, source, cell=1, timeout=HANG_LIMIT_S):
        """Runs a cell. Returns (Rrun, its stdout, its stderr)."""
        tag = self.ask("Trun", slot, cell, 1, source, mark=True)
        return self.finish(slot, tag, timeout)

    def finish(self, slot, tag, timeout=HANG_LIMIT_S):
        mark = self.wait(lambda m: m.name == "Nmark" and m.tag == tag, timeout, "Nmark")
        r = self.wait(lambda m: m.tag == tag and m.name[0] == "R", timeout, "Rrun")
        assert r.name == "Rrun", (r.text, getattr(r, "traceback", b"").decode())
        out = self.spool(slot, "stdout")[mark.out : r.out]
        err = self.spool(slot, "stderr")[mark.err : r.err]
        return r, out, err

    def spool(self, slot, stream):
        with open(os.path.join(self.dir, f"rank{slot}.{stream}"), "rb") as f:
            return f.read()


def alive(pid):
    """Is there a process with this pid that is not a zombie?"""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def memfd(data):
    """A descriptor of these bytes, which the caller closes."""
    fd = os.memfd_create("test")
    os.write(fd, data)
    return fd


def until(condition, seconds=HANG_LIMIT_S, what="it"):
    """Waits for a condition that no event reports."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen in {seconds} s")
        time.sleep(0.002)


def same(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def run_tests(names, wanted):
    """Runs the test_* functions of a module, all or those wanted. Returns the exit status."""
    failed = 0
    for name, function in list(names.items()):
        if not name.startswith("test_") or (wanted and name[5:] not in wanted):
            continue
        started = time.monotonic()
        try:
            function()
            print(f"ok   {time.monotonic() - started:6.2f} s  {name[5:]}", flush=True)
        except Exception:
            traceback.print_exc()
            print(f"FAIL {name[5:]}", flush=True)
            failed += 1
    return 1 if failed else 0
