"""Shared by the tests of 9P: a daemon that serves a socket, and a client that sends messages."""

import errno
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
PYTHON = os.environ.get("PLAIN_PYTHON", "/usr/bin/python3")
HANG_S = float(os.environ.get("HANG_LIMIT_S", "120"))  # after this, something hangs
NO_FID = 0xFFFFFFFF
RERROR, RLERROR = 107, 7


class Daemon:
    """A ddipfs that serves a socket in a directory of its own."""

    def __init__(self, *words, mount=False):
        self.folder = tempfile.mkdtemp()
        self.socket = os.path.join(self.folder, "socket")
        self.mount = os.path.join(self.folder, "mnt") if mount else None
        self.words = [*words, *([self.mount] if mount else [])]
        if mount:
            os.mkdir(self.mount)
        self.environment = {**os.environ, "DDIP_STATE": self.folder}
        self.process = self.start()

    def command(self):
        """The command that starts it."""
        options = f"python={PYTHON},backend=none,size=2"
        return [os.path.join(BUILD, "ddipfs"), "-f", "-o", options, "-s", self.socket, *self.words]

    def start(self):
        """Starts it and waits until it serves."""
        before = self.made()
        process = subprocess.Popen(self.command(), env=self.environment)
        wait(
            lambda: process.poll() is not None or (self.made() != before and self.is_served()),
            "it serves its socket",
        )
        return process

    def made(self):
        """Distinguishes its socket from one that was there before; None: there is none."""
        try:
            found = os.lstat(self.socket)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def is_served(self):
        """True if a server answers at the socket (and in the mount, if there is one)."""
        try:
            Client(self).close()
        except OSError:
            return False
        return not self.mount or os.path.ismount(self.mount)

    def end(self):
        """Ends it by SIGTERM. Returns its status."""
        self.process.terminate()
        return self.process.wait(HANG_S)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        if self.process.poll() is None:
            self.end()


def wait(condition, what):
    """Waits for a condition. Raises AssertionError on a timeout."""
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end, f"it never came true: {what}"
        time.sleep(0.005)


class Refused(Exception):
    """An error reply of the daemon: errno (.L), or text (9P2000)."""

    def __init__(self, number, text):
        super().__init__(errno.errorcode.get(number, "") if number else text)


def text(s):
    """A string field."""
    data = s.encode() if isinstance(s, str) else s
    return struct.pack("<H", len(data)) + data


class Client:
    """A connection. Unless dialect is None, a version is agreed on and fid 0 is the root."""

    def __init__(self, daemon, dialect="9P2000.L", msize=1 << 20):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(HANG_S)
        self.sock.connect(daemon.socket)
        self.buffer = b""
        self.replies = {}
        self.tag = 0
        self.large = dialect == "9P2000.L"
        if dialect:
            body = self.rpc(100, struct.pack("<I", msize) + text(dialect), tag=0xFFFF)
            self.msize = struct.unpack_from("<I", body)[0]
            self.version = body[6:].decode()
            tail = struct.pack("<I", 0) if self.large else b""
            self.rpc(104, struct.pack("<II", 0, NO_FID) + text("me") + text("") + tail)

    def close(self):
        """Closes the connection, as the death of a process does."""
        self.sock.close()

    def send(self, kind, body=b"", tag=None):
        """Sends a message. Returns its tag."""
        if tag is None:
            self.tag = tag = self.tag % 60000 + 1
        self.sock.sendall(struct.pack("<IBH", 7 + len(body), kind, tag) + body)
        return tag

    def take(self):
        """(type, tag, body) of the next reply; None at the end of the connection."""
        while len(self.buffer) < 4 or len(self.buffer) < struct.unpack_from("<I", self.buffer)[0]:
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self.buffer += data
        size, kind, tag = struct.unpack_from("<IBH", self.buffer)
        body, self.buffer = self.buffer[7:size], self.buffer[size:]
        return kind, tag, body

    def reply(self, tag, kind):
        """The body of the reply to a message of this type. Raises Refused."""
        while tag not in self.replies:
            came = self.take()
            if not came:
                raise ConnectionResetError("the daemon closed the connection")
            self.replies[came[1]] = came[0], came[2]
        got, body = self.replies.pop(tag)
        if got == RLERROR:
            raise Refused(struct.unpack("<I", body)[0], "")
        if got == RERROR:
            raise Refused(0, body[2:].decode())
        assert got == kind + 1, (got, kind)
        return body

    def rpc(self, kind, body=b"", tag=None):
        """Sends a message. Returns the body of its reply."""
        return self.reply(self.send(kind, body, tag), kind)

    # ---- the messages that most tests need

    def walk(self, path, new, fid=0):
        """Sends Twalk. Returns the number of names that were found."""
        names = [name for name in path.split("/") if name]
        body = struct.pack("<IIH", fid, new, len(names)) + b"".join(map(text, names))
        return struct.unpack_from("<H", self.rpc(110, body))[0]

    def open(self, path, fid, flags=os.O_RDONLY):
        """Walks fid to path and opens it."""
        depth = len([name for name in path.split("/") if name])
        assert self.walk(path, fid) == depth, path
        if self.large:
            return self.rpc(12, struct.pack("<II", fid, flags))
        mode = flags & 3 | (0x10 if flags & os.O_TRUNC else 0)
        return self.rpc(112, struct.pack("<IB", fid, mode))

    def read(self, fid, offset=0, count=1 << 16):
        """Tread."""
        return self.rpc(116, struct.pack("<IQI", fid, offset, count))[4:]

    def write(self, fid, data, offset=0):
        """Sends Twrite. Returns the count."""
        body = struct.pack("<IQI", fid, offset, len(data)) + data
        return struct.unpack("<I", self.rpc(118, body))[0]

    def clunk(self, fid):
        """Tclunk."""
        self.rpc(120, struct.pack("<I", fid))

    def content(self, path, fid=900):
        """The whole content of a file."""
        self.open(path, fid)
        data = b""
        while piece := self.read(fid, len(data)):
            data += piece
        self.clunk(fid)
        return data

    def put(self, path, data, fid=901, flags=os.O_WRONLY):
        """Writes a file and closes it."""
        self.open(path, fid, flags)
        self.write(fid, data)
        self.clunk(fid)

    def value(self, path, key):
        """The value of a key in a file of `key value` lines."""
        lines = self.content(path).decode().splitlines()
        return dict(line.partition(" ")[::2] for line in lines).get(key)


def refuses(what, act, *args):
    """The text of the error that a request gets. Raises AssertionError if it gets none."""
    try:
        act(*args)
    except Refused as e:
        return str(e)
    raise AssertionError(f"{what}: it is not refused")


def run(space):
    """Calls the tests of a module in order, or those whose names contain one of the arguments."""
    words, failed, count = sys.argv[1:], 0, 0
    for name, test in list(space.items()):
        if not name.startswith("test_") or (words and not any(word in name for word in words)):
            continue
        count += 1
        try:
            test()
        except Exception:
            import traceback

            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
        else:
            print(f"ok {name}")
        sys.stdout.flush()
    sys.exit(failed > 0 or count == 0)
