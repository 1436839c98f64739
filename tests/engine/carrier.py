#!/usr/bin/env python3
"""Stands in for ssh: runs a command with sh and carries its streams. usage: carrier.py DIR COMMAND

Killing it breaks the streams; stopping it makes a half-open connection. In DIR it writes its pid,
and the number of bytes that it has ever carried there (`to`) and back (`from`). With DIR/down it
fails as ssh does; with DIR/delay it waits that many seconds before each piece. With DIR/latency
each byte arrives that many seconds later, with DIR/rate at most that many bytes arrive per second;
both are read when a connection begins. With DIR/most.to or DIR/most.from, a number of bytes, it
reads no more in that direction once it has carried that many. With DIR/mute.PID everything on the
way back is lost, the other side sees no end, and only SIGKILL ends it.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time

PIECE = 64 << 10
UNDER_WAY = 1 << 10  # pieces: what a link holds
POLL_S = 0.005  # between two checks whether it may go on


def number(directory, name):
    """The number in that file; 0 if it is empty or does not exist."""
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as f:
            return float(f.read() or 0)
    except FileNotFoundError:
        return 0


class Link:
    """A link between two streams: bytes arrive later, and not too many at a time."""

    def __init__(self, directory, target):
        self.latency, self.rate = number(directory, "latency"), number(directory, "rate")
        self.target, self.free = target, 0.0
        self.pieces = queue.Queue(UNDER_WAY)
        self.thread = threading.Thread(target=self._deliver, daemon=True)
        self.thread.start()

    def send(self, data):
        self.pieces.put((time.monotonic(), data))

    def end(self):
        self.pieces.put(None)
        self.thread.join()

    def _deliver(self):
        while piece := self.pieces.get():
            came, data = piece
            if self.rate:
                self.free = max(self.free, came) + len(data) / self.rate
            wait = max(self.free, came) + self.latency - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            while data:
                data = data[os.write(self.target, data) :]


def is_mute(directory):
    return os.path.exists(f"{directory}/mute.{os.getpid()}")


def take(directory, name, source, count):
    """The next piece, once it may be read after this many bytes."""
    while 0 < number(directory, f"most.{name}") <= count:
        time.sleep(POLL_S)
    return os.read(source, PIECE)


def carry(directory, name, source, target):
    """Copies until the end and counts the bytes."""
    path = os.path.join(directory, name)
    count = int(number(directory, name))
    link = None
    if number(directory, "latency") or number(directory, "rate"):
        link = Link(directory, target)
    with open(path, "w", encoding="utf-8") as f:
        while data := take(directory, name, source, count):
            if delay := number(directory, "delay"):
                time.sleep(delay)
            if name == "from" and is_mute(directory):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
                continue
            count += len(data)
            os.pwrite(f.fileno(), b"%d" % count, 0)
            if link:
                link.send(data)
                continue
            while data:
                data = data[os.write(target, data) :]
    if link:
        link.end()
    if is_mute(directory):
        threading.Event().wait()
    os.close(target)


def main(directory, command):
    if os.path.exists(os.path.join(directory, "down")):
        sys.exit("ssh: connect to host there port 22: No route to host")
    with open(os.path.join(directory, "pid.new"), "w", encoding="utf-8") as f:
        f.write(str(os.getpid()))
    os.rename(f.name, os.path.join(directory, "pid"))
    child = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    there, back = os.dup(child.stdin.fileno()), child.stdout.fileno()
    child.stdin.close()
    threading.Thread(target=carry, args=(directory, "to", 0, there), daemon=True).start()
    carry(directory, "from", back, 1)
    sys.exit(child.wait())


main(*sys.argv[1:])
