#!/usr/bin/env python3
"""An agent behind relays does all its work, survives broken connections, and ends cleanly."""

import contextlib
import errno
import glob
import hashlib
import os
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import agent
import wire
from agent import refused
from wire import AGENT, ENGINE, HANG_LIMIT_S, PYTHON, VERSION, Agent, alive, memfd, same, until

_HERE = os.path.dirname(os.path.abspath(__file__))
CARRIER = os.path.join(_HERE, "carrier.py")
_SESSION = socket.AF_UNIX, socket.SOCK_SEQPACKET
POLL_S = 0.005  # between two checks of what no event reports
SEED = int(os.environ.get("SEED", "1"))


class Spool:
    """Writes what a rank prints, as the daemon does: STREAMS, and the number of records."""

    STREAMS = "stdout", "stderr", "display"

    def __init__(self, path):
        self.files = [open(f"{path}.{stream}", "ab", buffering=0) for stream in self.STREAMS]
        self.records, self.last = 0, None

    def add(self, stream, data):
        self.files[stream].write(data)
        self.records += stream != self.last
        self.last = stream

    def mark(self, m):
        """Sets the mark in the message to where the files end, which begins a new record."""
        m.out, m.err, m.disp = (f.tell() for f in self.files)
        m.records, self.last = self.records, None


class Outbox(threading.Thread):
    """Sends files as blobs, as the daemon does: each once, and the messages that come with it when
    all of it is sent."""

    PIECE = 120 << 10

    class File:
        def __init__(self, blob, fd, size):
            self.blob, self.fd, self.size, self.sent, self.begun = blob, os.dup(fd), size, 0, False
            self.users = {}  # the frame by the tag; None: it is sent

        def is_sent(self):
            return self.begun and self.sent == self.size

    def __init__(self, sock):
        super().__init__(daemon=True)
        self.sock, self.changed = sock, threading.Condition()
        self.files, self.ready, self.blobs, self.over = {}, [], 0, False
        self.start()

    def send(self, frame, tag, fd):
        st = os.fstat(fd)
        key = st.st_dev, st.st_ino, st.st_size
        with self.changed:
            if key not in self.files:
                self.blobs += 1
                self.files[key] = self.File(self.blobs, fd, st.st_size)
            f = self.files[key]
            f.users[tag] = frame
            if f.is_sent():
                self._send_users(f)
            self.changed.notify()

    def cancel(self, frame, tag):
        """Returns true if the message with this tag is not sent, and never will be."""
        with self.changed:
            for f in self.files.values():
                if tag not in f.users:
                    continue
                unsent = f.users[tag] is not None
                if not unsent:
                    self.ready.append(frame)
                    self.changed.notify()
                return unsent
        return None

    def release(self, is_over):
        with self.changed:
            for key, f in list(self.files.items()):
                some = [tag for tag in f.users if is_over(tag)]
                for tag in some:
                    del f.users[tag]
                if not some or f.users:
                    continue
                if f.begun:
                    self.ready.append(wire.pack("Nforget", AGENT, 0, f.blob))
                os.close(f.fd)
                del self.files[key]
            self.changed.notify()

    def end(self):
        with self.changed:
            self.over = True
            self.changed.notify()

    def _send_users(self, f):
        for tag, frame in f.users.items():
            if frame:
                self.ready.append(wire.pack("Nwith", AGENT, 0, f.blob, frame))
                f.users[tag] = None

    def _next(self):
        with self.changed:
            while not self.over:
                if self.ready:
                    return self.ready.pop(0)
                for key, f in list(self.files.items()):
                    if f.is_sent():
                        continue
                    self.files[key] = self.files.pop(key)
                    data = os.pread(f.fd, self.PIECE, f.sent)
                    frame = wire.pack("Nblob", AGENT, 0, f.blob, f.size, f.sent, data)
                    f.sent += len(data)
                    f.begun = True
                    if f.is_sent():
                        self._send_users(f)
                    return frame
                self.changed.wait()
        return None

    def run(self):
        with contextlib.suppress(OSError):
            while frame := self._next():
                self.sock.sendall(frame)


class Relayed(Agent):
    """An agent that is reached through carrier.py; `place` is the directory of that."""

    live_kind = 4  # GET_READ

    def __init__(
        self, python=PYTHON, linger=30, engine=ENGINE, launcher=None, env=None, more=(), via=(),
        **settings,
    ):  # fmt: skip
        self.place = tempfile.mkdtemp(prefix="ddip-relay-test.")
        self.spools, self.slots = {}, {}  # by path; by slot
        options = ["--host", "there", "--linger", str(linger), "--engine", engine, *more]
        launcher = launcher or [*via, sys.executable, CARRIER, self.place]
        command = [ENGINE, "relay", *options, "--", *launcher]
        env = {
            "DDIP_STATE": self.place,
            "XDG_CACHE_HOME": self.place + "/cache",
            "PYTHONPATH": wire.NO_TORCH,
            **(env or {}),
        }
        super().__init__(python, env, command=command, **settings)

    def start(self, command, env):
        """Starts the near end, with a socket for each lane and one for its words."""
        pairs = [socket.socketpair() for _ in range(3)]
        self.words, word = socket.socketpair(*_SESSION)
        self.lanes, theirs = zip(*pairs, strict=True)
        self.sock = self.lanes[0]
        self.rest = dict.fromkeys(self.lanes, b"")
        self.blobs = {}
        self.outbox = Outbox(self.lanes[1])
        a, b = (s.fileno() for s in theirs[1:])
        process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$@" 3<&{a} 4<&{b}', "bash", *command],
            stdin=theirs[0], stdout=word, stderr=self.log, env=env, start_new_session=True,
            pass_fds=(a, b),
        )  # fmt: skip
        for s in (*theirs, word):
            s.close()
        return process

    def send(self, name, slot, *fields, tag=0, fd=-1, mark=False):
        if name == "Tspawn" and fields[0] == 0:
            path = os.path.join(self.dir, fields[3])
            self.slots[slot] = self.spools[path] = self.spools.get(path) or Spool(path)
        frame = wire.pack(name, slot, tag, *fields, flags=wire.FLAG_MARK if mark else 0)
        if fd >= 0:
            self.outbox.send(frame, (slot, tag), fd)
            return
        if name == "Ncancel":
            unsent = self.outbox.cancel(frame, (slot, *fields))
            if unsent:
                e = pack_error(slot, fields[0], errno.EINTR, "cancelled: no longer wanted")
                self.take(e)
            if unsent is not None:
                return
        with contextlib.suppress(OSError):  # its end is seen by pull()
            self.sock.sendall(frame)

    def pull(self, seconds=HANG_LIMIT_S):
        """What came by the first lane is taken before what came later by the others."""
        count, there = self.count, [*self.lanes, self.words]
        ready = select.select(there, [], [], max(seconds, 0))[0]
        if self.words in ready:
            self._take_words()
        data = {s: received(s) for s in self.lanes[1:] if s in ready}
        while select.select([self.sock], [], [], 0)[0]:
            some = received(self.sock)
            if not some:
                self._take_words()
                if self.count == count:
                    raise EOFError("the agent hung up")
                break
            self._take_frames(self.sock, some)
        for s, some in data.items():
            if some:
                self._take_frames(s, some)
        return bool(ready)

    def _take_frames(self, s, data):
        whole, self.rest[s] = wire.frames(self.rest[s] + data)
        for frame in whole:
            self._take_frame(wire.unpack(frame, -1))

    def _take_frame(self, m):
        if m.name == "Nblob":
            if m.blob not in self.blobs:
                self.blobs[m.blob] = os.memfd_create("test"), m.size
            os.pwrite(self.blobs[m.blob][0], m.data, m.offset)
        elif m.name == "Nwith":
            fd, size = self.blobs[m.blob]
            same(os.fstat(fd).st_size, size)
            self.take(wire.unpack(m.frame, os.dup(fd)))
        elif m.name == "Nforget":
            if m.blob in self.blobs:
                os.close(self.blobs.pop(m.blob)[0])
        else:
            self.take(m)

    def _take_words(self):
        while select.select([self.words], [], [], 0)[0]:
            word, _, text = self.words.recv(4096).decode("utf-8", "replace").partition(" ")
            if not word:
                break
            if word == "error":
                number, _, text = text.partition(" ")
                # in place of the answer to the Thello
                self.take(pack_error(AGENT, 1, int(number), text))
            else:
                fields = {"direct": int(word == "direct"), "why": text}
                self.take(wire.Message("Ndirect", 0, AGENT, 0, fields, -1))

    def takes(self, m):
        if m.name[0] == "R" or m.name == "Nexit":
            over = m.slot if m.name == "Nexit" else (m.slot, m.tag)
            self.outbox.release(lambda tag: over in (tag, tag[0]))
        spool = self.slots.get(m.slot)
        if m.name == "Noutput":
            spool.add(m.stream, m.data)
        elif spool and hasattr(m, "records"):
            spool.mark(m)
        return m.name != "Noutput"

    def spool(self, slot, stream):
        while self.pull(0):
            pass
        return super().spool(slot, stream)

    def close(self):
        self.outbox.end()
        for s in (*self.lanes, self.words):
            s.close()
        super().close()
        until(lambda: not self.stays(), what="the end of the stay's directory")
        shutil.rmtree(self.place, ignore_errors=True)

    def stays(self):
        return glob.glob(self.place + "/ddipfs-far.*")

    def carrier(self):
        with open(self.place + "/pid", encoding="utf-8") as f:
            return int(f.read())

    def carried(self, direction):
        with open(os.path.join(self.place, direction), encoding="utf-8") as f:
            return int(f.read() or 0)

    def tell(self, name, number):
        """Sets what the carrier reads from the file of this name (carrier.py); None: removes it."""
        path = os.path.join(self.place, name)
        if number is None:
            os.remove(path)
            return
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write(str(number))
        os.rename(f.name, path)

    def slow(self, seconds):
        """The connection waits this many seconds before each piece; None: no longer."""
        self.tell("delay", seconds)

    def hold(self, direction, most):
        """At most this many bytes are carried there (`to`) or back (`from`); None: no limit."""
        self.tell(f"most.{direction}", most)

    def cut(self):
        """Breaks the connection; when there is a new one, the old one has ended."""
        pid = self.carrier()
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.carrier() != pid, what="another connection")

    def text(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8") as f:
            return f.read()


def received(s):
    """What has come; nothing at the end."""
    with contextlib.suppress(ConnectionResetError):
        return s.recv(1 << 20)
    return b""


def pack_error(slot, tag, number, text):
    return wire.unpack(wire.pack("Rerror", slot, tag, number, text, b""), -1)


def far_processes(a):
    """The live processes of the stay: its directory is in their environment."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                if f"DDIP_STATE={a.place}\0".encode() in f.read():
                    found.append(int(path.split("/")[2]))
        except OSError:
            continue
    return [p for p in found if alive(p)]


def test_all_that_an_agent_does():
    with Relayed(env={"DDIP_DAEMON_PID": "1"}) as a:
        same(a.warm_phases.name, "Rzygote")
        a.spawn(0)
        same(agent.environment(a, 0, "DDIP_RUN_DIR"), a.stays()[0] + "/group")
        same(program(agent.environment(a, 0, "DDIP_DAEMON_PID")), "ddip-relay")
        same(a.call("Tinit", 0, 0, 1, 0, 1, "none", "").name, "Rinit")
        agent.check_output(a)
        agent.check_flood(a)
        agent.check_interrupt(a)
        agent.check_services(a)
        agent.check_stacks(a)
        agent.check_death(a, 0)
        a.spawn(1, name="rank1")
        agent.check_flood_death(a, 1)
        a.spawn(2)
        a.send("Nquit", 2)
        same(a.wait("Nexit").status, 0)


def test_spools_go_on_where_they_are():
    """Marks are offsets in the daemon's files, also if these were not empty."""
    with Relayed() as a:
        for slot in (0, 1):
            a.spawn(slot, name="rank0")
            for text in ("one", "two"):
                tag = a.ask("Trun", slot, 1, 1, f"print('{text} {slot}')", mark=True)
                mark = a.wait(lambda m, t=tag: m.name == "Nmark" and m.tag == t)
                r = a.wait(lambda m, t=tag: m.tag == t and m.name == "Rrun")
                out = a.spool(0, "stdout")[mark.out : r.out]
                same((out, r.records - mark.records), (f"{text} {slot}\n".encode(), 1))
            a.send("Nsignal", slot, signal.SIGKILL, 1)
            m = a.wait("Nexit")
            same((m.out, m.records), (len(a.spool(0, "stdout")), 2 + 2 * slot))


def test_what_a_rank_that_is_told_to_end_has_printed():
    """Output that cannot be sent in time is dropped and reported; offsets are as in the files."""
    size = 40 << 20
    with Relayed() as a:
        a.tell("rate", 1 << 20)
        a.cut()
        a.spawn(0)
        source = f"for _ in range({size >> 10}): print('x' * 1023)"
        tag = a.ask("Trun", 0, 1, 1, source, mark=True)
        a.send("Nquit", 0)
        ends = [a.wait(lambda m: m.tag == tag and m.name == "Rrun"), a.wait("Nexit")]
        arrived = len(a.spool(0, "stdout"))
        same([m.out for m in ends], [arrived, arrived])
        lost = a.wait("Ndropped")
        same((arrived + lost.bytes, lost.why), (size, 1))
        assert 0 < arrived < size // 4, f"{arrived} bytes came to nobody"
        a.spawn(0)
        same(a.run(0, "print('next')")[1], b"next\n")


def put_file(a, slot, fd, name="w"):
    """Asks for a push of the file's contents. Returns the tag."""
    return a.ask("Tput", slot, name, "npy", "", os.fstat(fd).st_size, fd=fd, mark=True)


def put(a, slot, data, name="pushed"):
    """Asks for a push. Returns the tag."""
    fd = memfd(data)
    try:
        return put_file(a, slot, fd, name)
    finally:
        os.close(fd)


def npy(count):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({count},), }}".encode()
    header = header.ljust(117) + b"\n"
    body = random.Random(count).randbytes(count)
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


def pull(a, slot, name, op):
    """All bytes of a view: from the reply, and by Tread."""
    r = a.call("Tget", slot, name, "npy", op)
    assert r.name == "Rget", r.text
    whole = r.head
    if r.fd >= 0:
        with open(r.fd, "rb") as f:
            f.seek(0)
            whole += f.read()
    while len(whole) < r.size:
        n = min(256 << 10, r.size - len(whole))
        whole += a.call("Tread", slot, r.handle, len(whole) - len(r.head), n).data
    a.send("Nfree", slot, r.handle)
    return whole


def test_cut_at_random():
    """Whatever is in flight when a connection breaks: no byte is lost, none is duplicated."""
    rng = random.Random(SEED)
    lines, size, rounds = 200000, 4 << 20, 3
    with Relayed() as a:
        a.spawn(0)
        a.spawn(1)
        over = threading.Event()

        def cut():
            """Cuts after some more bytes each time, so that each connection makes progress."""
            while not over.is_set():
                carried = a.carried("to") + a.carried("from") + rng.randrange(1, 4 << 20)
                while a.carried("to") + a.carried("from") < carried:
                    if over.wait(POLL_S):
                        return
                a.cut()

        cutter = threading.Thread(target=cut)
        cutter.start()
        try:
            source = f"for i in range({lines}): print(i)"
            for i in range(rounds):
                tag = a.ask("Trun", 0, i, 1, source, mark=True)
                data = npy(size + i)
                pushed = put(a, 1, data)
                a.wait(lambda m, t=pushed: m.tag == t and m.name == "Rput", what="Rput")
                a.call("Tcommit", 1, 1, mark=True)
                for op in ("", "same"):
                    assert pull(a, 1, "pushed", op) == data, f"round {i}: other bytes, op '{op}'"
                r, out, _ = a.finish(0, tag)
                same(r.outcome, 0)
                assert out == b"".join(b"%d\n" % k for k in range(lines)), f"round {i}: output"
        finally:
            over.set()
            cutter.join()
        assert "connecting again" in a.text(), a.text()


def test_a_question_keeps_the_connection():
    """Later Thellos, which measure the round trip, use the existing connection."""
    with Relayed(warm=False) as a:
        for _ in range(2):
            same(a.call("Thello", AGENT, VERSION, "").name, "Rhello")
            with open(
                f"/proc/{a.process.pid}/task/{a.process.pid}/children", encoding="utf-8"
            ) as f:
                same(f.read().split(), [str(a.carrier())])


def test_a_directory_that_could_not_be_made():
    """The rank that needs it fails; for the next rank it is made again."""
    with Relayed() as a:
        (there,) = a.stays()
        os.rename(there, a.place + "/away")
        refused(a.spawn(0), "ENOENT", there)
        os.rename(a.place + "/away", there)
        same(a.spawn(1).name, "Rspawn")
        same(a.run(1, "print(6 * 7)")[1], b"42\n")


def stop(a, pid):
    os.kill(pid, signal.SIGSTOP)


def mute(a, pid):
    """Data from there is lost; the other side still hears us and notices nothing."""
    open(f"{a.place}/mute.{pid}", "w", encoding="utf-8").close()


def test_half_open():
    """A silent connection is detected and replaced; ranks do not wait for it."""
    check_half_open(stop)


def test_deaf_side():
    """The end of a connection does not end the stay, also if only one side noticed it."""
    check_half_open(mute)


def check_half_open(break_it):
    with Relayed() as a:
        a.spawn(0)
        done, broken = os.path.join(a.dir, "done"), os.path.join(a.dir, "broken")
        pid = a.carrier()
        source = f"""
import os, time
for i in range(100000): print('x' * 60)
while not os.path.exists({broken!r}): time.sleep(0.005)
for i in range(200000): print('x' * 60)
open({done!r}, 'w').close()"""
        tag = a.ask("Trun", 0, 1, 1, source, mark=True)
        a.wait("Nmark", what="the cell")
        a.seen.clear()
        break_it(a, pid)
        open(broken, "w", encoding="utf-8").close()
        until(lambda: os.path.exists(done), what="the end of the loop, with nobody who reads")
        r = a.wait(lambda m: m.tag == tag and m.name == "Rrun", what="Rrun")
        assert a.carrier() != pid, "the connection that was stopped is used still"
        same(len(a.spool(0, "stdout")[: r.out]), 300000 * 61)
        assert "no word for 10 s" in a.text(), a.text()


def test_slow_way():
    """A connection that takes seconds to set up is replaced, too."""
    with Relayed() as a:
        a.spawn(0)
        a.slow(1.2)
        a.cut()
        same(a.run(0, "print(6 * 7)")[1], b"42\n")
        same(a.text().count("connecting again"), 1)
        a.slow(None)


def test_control_overtakes_bulk():
    """Requests do not wait behind megabytes of output, nor do replies that are errors. What the
    main thread says does: it comes after the cell that printed that."""
    with Relayed() as a:
        a.spawn(0)
        a.slow(0.02)
        done = a.place + "/done"
        source = f"for i in range(200000): print('x' * 60)\nopen({done!r}, 'w').close()"
        # the output stays there until everything is requested, however late that is
        a.hold("from", a.carried("from") + (1 << 20))
        tag = a.ask("Trun", 0, 1, 1, source, mark=True)
        until(lambda: os.path.exists(done), what="the end of the cell there")
        has, *gets = [a.ask("Thas", 0, "i")] + [
            a.ask("Tget", 0, "nothing", "npy", "") for _ in range(10)
        ]
        deleted = a.ask("Tdel", 0, "i")
        a.hold("from", None)
        answers = [a.wait(lambda m, t=t: m.tag == t, what="an answer") for t in (has, *gets)]
        a.slow(None)
        same(answers[0].name, "Rhas")
        for m in answers[1:]:
            refused(m, "ENOENT", "nothing")
        r = a.wait(lambda m: m.tag == tag and m.name == "Rrun", what="Rrun")
        same(r.out, 200000 * 61)
        assert max(m.number for m in answers) < r.number, "the output was there first"
        m = a.wait(lambda m: m.tag == deleted, what="Rdel")
        assert (m.name, m.number > r.number) == ("Rdel", True), m


def test_a_slow_daemon():
    """Little waits here for a daemon that is slower than the link: the rest waits on the disk
    there."""
    size, most = 150 << 20, 0
    with Relayed() as a:
        a.spawn(0)
        source = f"for _ in range({size >> 16}): print('x' * 65535)"
        tag = a.ask("Trun", 0, 1, 1, source, mark=True)
        while not any(m.tag == tag and m.name == "Rrun" for m in a.seen):
            a.pull()
            hashlib.sha256(bytes(4 << 20))  # slower than the link, but never at rest
            with open(f"/proc/{a.process.pid}/statm", encoding="utf-8") as f:
                most = max(most, int(f.read().split()[1]) * resource.getpagesize())
        assert most < 64 << 20, f"the relay grew to {most} bytes"


def test_linger():
    """Without a connection everything ends after the given time, on both sides."""
    # the first attempt must fail within that time: a shell starts faster than Python
    down = "ssh: connect to host there port 22: No route to host"
    script = f'[ ! -e "$2/down" ] || {{ echo "{down}" >&2; exit 255; }}; exec "$0" "$@"'
    with Relayed(linger=3, via=["sh", "-c", script]) as a:
        a.spawn(0)
        a.send("Tspawn", 1, 1, 1, "group", "store", "DDIP_STORE=store\0", 0, tag=900)
        a.wait(lambda m: m.name == "Nstarted" and m.slot == 1, what="the store")
        same(os.listdir(a.stays()[0] + "/group").count("store"), 1)
        there = far_processes(a)
        assert len(there) >= 5, there  # two relays, agent, zygote, rank, store
        with open(a.place + "/down", "w", encoding="utf-8"):
            pass
        os.kill(a.carrier(), signal.SIGKILL)
        same(a.process.wait(timeout=HANG_LIMIT_S), 1)
        until(lambda: not far_processes(a), what="the end of all that ran there")
        text = a.text()
        assert "host there: no connection for 3 s" in text and "No route to host" in text, text


def test_short_lingers():
    """Fractions of a second count; with 0, a host is lost with its first connection."""
    for linger, text in (("0", "no connection for 0 s"), ("0.5", "no connection for 0.5 s")):
        with Relayed(linger=linger, warm=False) as a:
            same(a.hello.name, "Rhello")
            with open(a.place + "/down", "w", encoding="utf-8"):
                pass
            os.kill(a.carrier(), signal.SIGKILL)
            same(a.process.wait(timeout=HANG_LIMIT_S), 1)
            assert text in a.text(), a.text()
            until(lambda: not far_processes(a), what="the end of all that ran there")


def test_end_of_the_daemon():
    """The far side learns that the daemon ends: nothing lingers, even after a broken connection."""
    for cut in (False, True):
        with Relayed(linger=1000) as a:
            a.spawn(0)
            if cut:
                os.kill(a.carrier(), signal.SIGKILL)
            a.close()
            until(lambda: not far_processes(a), what="the end of all that ran there")


def test_agent_that_ends():
    """The report of a killed agent names its host."""
    with Relayed() as a:
        os.kill(a.hello.pid, signal.SIGKILL)
        same(a.process.wait(timeout=HANG_LIMIT_S), 1)
        assert "host there: its agent ended with signal 9" in a.text(), a.text()
        until(lambda: not far_processes(a), what="the end of all that ran there")


def test_dead_stays_are_removed():
    """A relay that is killed there leaves its directory; the next relay removes it."""
    with Relayed() as a:
        (old,) = a.stays()
        relays = [p for p in far_processes(a) if program(p) == "ddip-relay"]
        (far,) = [p for p in relays if p != a.process.pid]
        os.kill(far, signal.SIGKILL)
        same(a.process.wait(timeout=HANG_LIMIT_S), 1)
        assert "what ran there has ended" in a.text(), a.text()
        until(lambda: not far_processes(a), what="the end of all that ran there")
        with Relayed(env={"DDIP_STATE": a.place}, warm=False) as b:
            same(b.hello.name, "Rhello")
            assert not os.path.exists(old), old


def test_a_directory_of_another_user():
    """The secret is not sent to who listens where a stay was whose directory is gone."""
    if os.geteuid():
        return  # only root can act as another user
    with tempfile.TemporaryDirectory() as folder, socket.socket(*_SESSION) as server:
        server.bind(f"{folder}/socket")
        server.listen()
        for owner, word in ((os.getuid(), b"attach"), (65534, b"gone")):
            os.chown(folder, owner, -1)
            command = [ENGINE, "far", "--attach", folder]
            done = subprocess.run(command, input=b"", capture_output=True, timeout=HANG_LIMIT_S)
            same(done.stdout, b"@ddipfs " + word + b"\n")


def program(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
        return f.read().strip()


def failing(script):
    return ["sh", "-c", script, "launcher"]


def test_failures_to_start():
    """Each is reported with the command's last words and the host's name."""
    for script, text in (
        ("echo 'Host key verification failed.' >&2; exit 255", "exit status 255: Host key verif"),
        ("kill -9 $$", "sh ended with signal 9"),
        ("echo welcome; exec true", "sh ended with exit status 0: welcome"),
        ("echo hello; printf 'Password: '; exit 1", "exit status 1: hello\nPassword:"),
    ):
        with Relayed(launcher=failing(script), warm=False) as a:
            refused(a.hello, "EHOSTDOWN", "host there: ")
            assert text in a.hello.text, a.hello.text
            same(a.process.wait(timeout=HANG_LIMIT_S), 1)
    with Relayed(launcher=["/no/such/program"], warm=False) as a:
        refused(a.hello, "EHOSTDOWN", "/no/such/program: No such file or directory")
    with Relayed(engine="/no/such/engine", warm=False) as a:
        refused(a.hello, "EHOSTDOWN", "host there: /no/such/engine does not run there: ")
    with Relayed(engine="/bin/'x'", warm=False) as a:
        refused(a.hello, "EINVAL", "must have no quotes")
    other = "echo '@ddipfs far 99 /d 0123456789abcdef0123456789abcdef'; read x"
    with Relayed(launcher=failing(other), warm=False) as a:
        refused(a.hello, "EPROTO", "protocol mismatch (99, expected")
    noise = "echo hello; printf 'no newline'; echo; exec sh -c \"$1\""
    with Relayed(launcher=failing(noise), warm=False) as a:
        same(a.hello.name, "Rhello")
    for engine in ENGINE, "auto":  # as ssh -n, and docker exec without -i
        for deaf in "</dev/null", "<&-":
            deaf = failing(f'exec sh -c "$1" {deaf}')
            with Relayed(launcher=deaf, engine=engine, warm=False) as a:
                refused(a.hello, "EHOSTDOWN", "host there: the launcher passes no standard input")
    with Relayed(launcher=failing('exec sh -c "$1" >/dev/null'), warm=False) as a:
        refused(a.hello, "EHOSTDOWN", "the launcher passes no standard output on")


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
