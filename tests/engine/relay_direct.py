#!/usr/bin/env python3
"""Two relays connect directly next to the command that links them: only the far relay gets that
connection, and without it, or when it ends, the command carries everything."""

import contextlib
import ctypes
import os
import signal
import socket
import sys

import wire
from relay import Relayed, npy, pull, put
from wire import PYTHON, same, until

FAKE_FAR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_far.py")
VARIABLE = "DDIP_TEST_NEAR_ADDRESS"
LISTENS, CONNECTED = "0A", "01"  # in /proc/net/tcp
SYS_PIDFD_GETFD = 438


class Direct(Relayed):
    """An agent whose relays connect directly, to the address that the far one finds in VARIABLE."""

    def __init__(self, address="127.0.0.1", **settings):
        env = {VARIABLE: address} if address else {}
        super().__init__(env=env, more=["--direct", VARIABLE], **settings)

    def told(self):
        """The near relay's next report: (1, "") or (0, why not)."""
        m = self.wait("Ndirect")
        return m.direct, m.why

    def sockets(self, state):
        """Descriptors of the near relay's TCP sockets in this state."""
        inodes = set()
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(FileNotFoundError):
                with open(f"/proc/{self.process.pid}/net/{table}", encoding="utf-8") as f:
                    rows = [line.split() for line in list(f)[1:]]
                inodes |= {f"socket:[{row[9]}]" for row in rows if row[3] == state}
        folder = f"/proc/{self.process.pid}/fd"
        found = {}
        for fd in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # just closed
                found[os.readlink(f"{folder}/{fd}")] = int(fd)
        return [fd for name, fd in found.items() if name in inodes]

    def break_direct(self):
        """Ends the direct connection, for both sides."""
        libc = ctypes.CDLL(None, use_errno=True)
        (fd,) = self.sockets(CONNECTED)
        pidfd = os.pidfd_open(self.process.pid)
        ours = libc.syscall(SYS_PIDFD_GETFD, pidfd, fd, 0)
        os.close(pidfd)
        assert ours >= 0, os.strerror(ctypes.get_errno())
        with socket.socket(fileno=ours) as s:
            s.shutdown(socket.SHUT_RDWR)


def has_ipv6():
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


def check_flood(a, lines):
    r, out, _ = a.run(0, f"for i in range({lines}): print(i)")
    same(r.outcome, 0)
    assert out == b"".join(b"%d\n" % i for i in range(lines)), "other bytes"


def test_bulk_goes_directly():
    """Megabytes go over the direct connection and none of them over the command."""
    with Direct() as a:
        same(a.told(), (1, ""))
        same(a.sockets(LISTENS), [])
        a.spawn(0)
        before = a.carried("from"), a.carried("to")
        check_flood(a, 200000)
        data = npy(4 << 20)
        tag = put(a, 0, data)
        a.wait(lambda m: m.tag == tag and m.name == "Rput", what="Rput")
        a.call("Tcommit", 0, 1, mark=True)
        assert pull(a, 0, "pushed", "") == data, "other bytes"
        same((a.carried("from"), a.carried("to")), before)


def test_both_kinds_of_addresses():
    """The relay listens on IPv6, too, if the machine has it."""
    loopback = "::1" if has_ipv6() else "127.0.0.1"
    with Direct(address=loopback, warm=False) as a:
        same(a.told(), (1, ""))


def test_command_takes_over():
    """The connection ends with all kinds of bulk in flight: no byte is lost, none is duplicated."""
    lines, data = 300000, npy(8 << 20)
    with Direct() as a:
        same(a.told(), (1, ""))
        a.spawn(0)
        a.spawn(1)
        tag = a.ask("Trun", 0, 1, 1, f"for i in range({lines}): print(i)", mark=True)
        pushed = put(a, 1, data)
        until(lambda: len(a.spool(0, "stdout")) > 10000, what="some output")
        a.break_direct()
        a.wait(lambda m: m.tag == pushed and m.name == "Rput", what="Rput")
        a.call("Tcommit", 1, 1, mark=True)
        assert pull(a, 1, "pushed", "") == data, "other bytes"
        r, out, _ = a.finish(0, tag)
        same(r.outcome, 0)
        assert out == b"".join(b"%d\n" % i for i in range(lines)), "other output"
        used, why = a.told()
        same((used, why[:12]), (0, "it has ended"))
        same("connecting again" in a.text(), False)
        same(a.sockets(CONNECTED), [])


def test_end_of_the_command():
    """The direct connection ends with the command; the next command gets another one, while bulk is
    in flight on that command, which is slow."""
    with Direct() as a:
        same(a.told(), (1, ""))
        a.spawn(0)
        a.tell("rate", 100 << 10)
        tag = a.ask("Trun", 0, 1, 1, "for i in range(300000): print('x' * 60)", mark=True)
        until(lambda: len(a.spool(0, "stdout")) > 10000, what="some output")
        os.kill(a.carrier(), signal.SIGKILL)
        a.wait(lambda m: m.name == "Ndirect" and m.direct, what="another connection")
        r, out, _ = a.finish(0, tag)
        same((r.outcome, len(out), set(out.split())), (0, 300000 * 61, {b"x" * 60}))
        same(len(a.sockets(CONNECTED)), 1)
        same(a.text().count("connecting again"), 1)


def test_none():
    """If it cannot be made, everything goes over the command, and the reason is reported."""
    for address, why in (
        (None, f"{VARIABLE}, which has the address to connect to, is not set there"),
        ("login.example", "'login.example' is no address"),
    ):
        with Direct(address=address, warm=False) as a:
            same(a.told(), (0, why))
            same(a.sockets(LISTENS), [])
            same(a.warm(1).name, "Rzygote")


def fake(*words):
    """An agent behind a far relay that does what these words say."""
    return Direct(launcher=[sys.executable, FAKE_FAR, *words], warm=False)


def end_fake(a):
    """Kills the near relay: the fake sends nothing more, and its stay cannot be attached to."""
    a.process.kill()


def test_strangers():
    """Any number of others who connect first and know no token do not get the connection."""
    with fake("lies", *["silence"] * 20, "token") as a:
        same(a.hello.name, "Rhello")
        same(a.told(), (1, ""))
        same((len(a.sockets(LISTENS)), len(a.sockets(CONNECTED))), (0, 1))
        assert "the other side does not know the token" in a.text(), a.text()
        end_fake(a)


def test_refused():
    """The far side's reason is reported, and the port is closed."""
    with fake("lies", "refusal") as a:
        same(a.hello.name, "Rhello")
        same(a.told(), (0, "no way from here"))
        same((a.sockets(LISTENS), a.sockets(CONNECTED)), ([], []))
        end_fake(a)


def test_nobody_comes():
    with fake("hello") as a:
        same(a.hello.name, "Rhello")
        same(a.told(), (0, "no connection came from there for 10 s"))
        same((a.sockets(LISTENS), a.sockets(CONNECTED)), ([], []))
        end_fake(a)


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
