#!/usr/bin/env python3
"""Stands in for a launcher and the far relay behind it. usage: fake_far.py WORD… COMMAND

Each word says how to react to the offer of a direct connection, in this order:
  lies     connects and says a wrong token: the near relay must hang up
  silence  connects and sends nothing; stays connected
  token    connects and says the token; says hello there
  refusal  reports that it cannot connect; says hello over the command
  hello    says hello over the command, and does not connect
Then it does only what keeps it alive for the near relay, until that ends.
"""

import contextlib
import os
import socket
import struct
import sys

from wire import AGENT, VERSION, pack

RESUME, PING, PONG = 1, 3, 4  # engine/line/line.c
LANE, OFFER, REFUSAL = 16, 22, 23  # engine/line/line.h
TOKEN = 16  # engine/line/direct.h


def read_exactly(read, n):
    data = b""
    while len(data) < n:
        more = read(n - len(data))
        if not more:
            raise EOFError("the near relay has ended")
        data += more
    return data


class Packets:
    """Packets on a pair of streams."""

    def __init__(self, read, write, taken=0):
        self.read, self.write = read, write
        self.send(RESUME, struct.pack("<Q", taken))

    def send(self, kind, body):
        self.write(struct.pack("<IB", 5 + len(body), kind) + body)

    def receive(self, wanted):
        """The body of the next packet of this kind; packets before it are skipped."""
        while True:
            size, kind = struct.unpack("<IB", read_exactly(self.read, 5))
            body = read_exactly(self.read, size - 5)
            if kind == wanted:
                return body


class FakeFar:
    def __init__(self):
        os.write(1, f"@ddipfs far {VERSION} /none {'0' * 32}\n".encode())
        self.command = Packets(lambda n: os.read(0, n), lambda data: os.write(1, data))
        # the near relay first sends Thello, with tag 1, and the offer
        offer = self.command.receive(OFFER)
        (self.port,) = struct.unpack_from("<H", offer)
        self.says, self.hears = offer[2 : 2 + TOKEN], offer[2 + TOKEN : 2 + 2 * TOKEN]
        self.address = os.environ[offer[2 + 2 * TOKEN :].decode()]
        self.kept = []

    def connect(self):
        s = socket.create_connection((self.address, self.port))
        self.kept.append(s)
        return s

    def lies(self):
        s = self.connect()
        s.sendall(os.urandom(TOKEN))
        assert s.recv(1) == b"", "it was believed"

    def silence(self):
        self.connect()

    def token(self):
        s = self.connect()
        s.sendall(self.says)
        assert read_exactly(s.recv, TOKEN) == self.hears, "the near relay does not know the token"
        self.say_hello(Packets(s.recv, s.sendall, taken=2))

    def refusal(self):
        self.command.send(REFUSAL, b"no way from here")
        self.hello()

    def hello(self):
        self.say_hello(self.command)

    def say_hello(self, packets):
        packets.send(LANE, pack("Rhello", AGENT, 1, VERSION, os.getpid(), "fake", 1))


def main():
    far = FakeFar()
    for word in sys.argv[1:-1]:
        getattr(far, word)()
    while True:
        far.command.send(PONG, far.command.receive(PING))


with contextlib.suppress(EOFError, BrokenPipeError):
    main()
