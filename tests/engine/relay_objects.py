#!/usr/bin/env python3
"""Behind relays each object travels once, and only as long as somebody wants it."""

import array
import os
import signal
import struct
import sys

import wire
from agent import refused
from relay import Relayed, npy, pull, put, put_file
from wire import PYTHON, memfd, same, until


def test_objects_travel_once():
    """A push travels once per host, whatever its ranks; a range of an object costs the range."""
    size = 8 << 20
    with Relayed() as a:
        for slot in range(3):
            a.spawn(slot)
        before, data = first_bytes(a, "to"), npy(size)
        fd = memfd(data)
        tags = [put_file(a, slot, fd) for slot in range(3)]
        os.close(fd)
        a.hold("to", None)  # the first is still in flight when the last is requested
        for slot, tag in enumerate(tags):
            a.wait(lambda m, t=tag: m.tag == t and m.name == "Rput", what="Rput")
            same(a.call("Tcommit", slot, 1, mark=True).name, "Rcommit")
        cost = a.carried("to") - before
        assert len(data) < cost < 1.1 * len(data), cost
        before = a.carried("from")
        r = a.call("Tget", 1, "w", "npy", "")
        same(a.call("Tread", 1, r.handle, size // 2, 4096).data, data[-size // 2 :][:4096])
        a.send("Nfree", 1, r.handle)
        cost = a.carried("from") - before
        assert cost < 3 * 4096, cost
        for op in ("", "same"):
            assert pull(a, 2, "w", op) == data, f"the array is another one, op '{op}'"
        # an error in a frame that would have brought bytes fails only this frame
        refused(a.call("Tget", 2, "nothing", "npy", "same"), "ENOENT", "nothing")


FIRST = 1 << 20  # bytes
LATE_S = 0.2  # before each piece: small things arrive long before the rest of large ones
CUT_S = 0.02  # the same, for what is cut short


def first_bytes(a, direction):
    """Lets little more than the first bytes of the next transfer through, until hold() changes it.
    Returns the number of bytes carried before."""
    before = a.carried(direction)
    a.hold(direction, before + FIRST)
    return before


def came(a, direction, before):
    until(lambda: a.carried(direction) >= before + FIRST, what="the first bytes")


def kept(a, name="x"):
    """Does anything keep the object alive after its name is deleted?"""
    a.run(0, f"import gc, weakref; gone = weakref.ref({name}); del {name}; gc.collect()")
    wait = "import time\nfor _ in range(12000): gone() is None or time.sleep(0.005)\n"
    return a.run(0, wait + "print(gone() is not None)")[1] == b"True\n"


UNMAPPED = """
import ctypes, mmap, numpy
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p] + [ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
size = 8 << 20
prot, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANON
place = libc.mmap(None, size, prot, flags, -1, 0)
x = numpy.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(place))
libc.munmap(ctypes.c_void_p(place + size // 2), ctypes.c_size_t(size // 2))
"""


def test_what_fails_half_way_is_kept_no_longer():
    """An object that cannot be fetched whole is released over there."""
    with Relayed() as a:
        a.spawn(0)
        a.run(0, UNMAPPED)
        same(a.call("Tget", 0, "x", "npy", "same").name, "Rerror")
        assert not kept(a), "half of its memory was gone"


def test_cancel():
    """A transfer that is no longer wanted is cut short, in both directions, and kept nowhere."""
    size = 16 << 20
    with Relayed() as a:
        a.spawn(0)
        a.run(0, f"import numpy; x = numpy.zeros({size}, 'u1'); y = [bytes({size})]")
        for name, view, op in (("x", "npy", "same"), ("y", "pkl", "")):
            a.slow(CUT_S)
            before = first_bytes(a, "from")
            tag = a.ask("Tget", 0, name, view, op)
            came(a, "from", before)
            a.send("Ncancel", 0, tag)
            a.hold("from", None)
            m = a.wait(lambda m, t=tag: m.tag == t, what="an answer")
            refused(m, "EINTR", "no longer wanted")
            a.slow(None)
            same(a.run(0, "print(1)")[1], b"1\n")
            cost = a.carried("from") - before
            assert cost < size // 2, f"{cost} bytes of {name} came"
        assert not kept(a)
        a.slow(CUT_S)
        before = first_bytes(a, "to")
        fd = memfd(npy(size))
        tag = a.ask("Tget", 0, "z", "npy", f"sum array 1 {size} uint8", fd=fd)
        came(a, "to", before)
        a.send("Ncancel", 0, tag)
        a.hold("to", None)
        refused(a.wait(lambda m: m.tag == tag, what="an answer"), "EINTR", "no longer wanted")
        a.slow(None)
        same(a.run(0, "print(2)")[1], b"2\n")
        same(pull_pushed(a, fd, size), size)
        cost = a.carried("to") - before
        assert cost < size * 3 // 2, f"{cost} bytes went there for {size}"
        os.close(fd)


def pull_pushed(a, fd, size):
    """Pushes the same bytes again. Returns their number over there."""
    r = a.call("Tput", 0, "z", "npy", "", os.fstat(fd).st_size, fd=fd, mark=True)
    same(r.name, "Rput")
    a.call("Tcommit", 0, 1, mark=True)
    return int(a.run(0, "print(z.size)")[1])


def test_a_push_is_cancelled_on_its_way():
    """The cancel is for one rank, whose bytes are still in flight: the other rank gets them."""
    size = 16 << 20
    with Relayed() as a:
        for slot in range(2):
            a.spawn(slot)
        before = first_bytes(a, "to")
        fd = memfd(npy(size))
        tags = [put_file(a, slot, fd) for slot in range(2)]
        came(a, "to", before)
        a.send("Ncancel", 0, tags[0])
        a.hold("to", before + size // 2)  # the reply comes before all bytes are there
        refused(a.wait(lambda m: m.tag == tags[0], what="an answer"), "EINTR", "no longer wanted")
        a.hold("to", None)
        a.wait(lambda m: m.tag == tags[1] and m.name == "Rput", what="Rput")
        same(a.call("Tcommit", 1, 1, mark=True).name, "Rcommit")
        a.slow(CUT_S)
        before = first_bytes(a, "to")
        tag = put_file(a, 0, fd)
        came(a, "to", before)
        a.send("Ncancel", 0, tag)
        a.hold("to", None)
        refused(a.wait(lambda m: m.tag == tag, what="an answer"), "EINTR", "no longer wanted")
        a.slow(None)
        same(a.run(0, "print('w' in globals())")[1], b"False\n")
        cost = a.carried("to") - before
        assert cost < size * 3 // 4, f"{cost} bytes went there for nobody"
        os.close(fd)


def test_a_push_to_the_dead_is_not_its_successors():
    """Another rank waits for the same bytes, which arrive when the place has a new rank."""
    size, successor = 4 << 20, 1 << 16
    with Relayed() as a:
        for slot in range(2):
            a.spawn(slot)
        before = first_bytes(a, "to")
        fd = memfd(npy(size))
        tags = [put_file(a, slot, fd) for slot in range(2)]
        os.close(fd)
        came(a, "to", before)
        a.slow(LATE_S)
        a.send("Nsignal", 0, signal.SIGKILL, 1)
        a.hold("to", None)
        a.wait("Nexit")
        a.spawn(successor)
        assert a.carried("to") - before < size, "all bytes were there"
        a.slow(None)
        a.wait(lambda m: m.tag == tags[1] and m.name == "Rput", what="Rput")
        same(a.run(successor, "print('w' in globals())")[1], b"False\n")
        late = [m for m in a.seen if m.tag == tags[0]]
        assert all((m.name, m.slot) == ("Rerror", 0) for m in late), late


def test_a_push_to_the_dead_stays_here():
    """The rest of a push is not sent once all ranks that wanted it have died."""
    size = 16 << 20
    with Relayed() as a:
        for slot in range(3):
            a.spawn(slot)
        before = first_bytes(a, "to")
        fd = memfd(npy(size))
        for slot in (0, 1):
            put_file(a, slot, fd)
        os.close(fd)
        came(a, "to", before)
        a.slow(LATE_S)
        for slot in (0, 1):
            a.send("Nsignal", slot, signal.SIGKILL, 1)
        a.hold("to", None)
        for slot in (0, 1):
            a.wait(lambda m, s=slot: m.name == "Nexit" and m.slot == s, what="Nexit")
        a.slow(None)
        # shares the link with the first one, if that goes on
        tag = put(a, 2, npy(size))
        a.wait(lambda m: m.tag == tag and m.name == "Rput", what="Rput")
        cost = a.carried("to") - before
        assert cost < size * 3 // 2, f"{cost} bytes went there for {size}"


def test_a_pull_from_the_dead_ends():
    """The rest of an object that a rank sent as bytes is not sent once the rank has died."""
    size = 16 << 20
    with Relayed() as a:
        for slot in range(2):
            a.spawn(slot)
        a.run(0, f"y = [bytes({size})]")
        before = first_bytes(a, "from")
        a.ask("Tget", 0, "y", "pkl", "")
        came(a, "from", before)
        a.slow(LATE_S)
        a.send("Nsignal", 0, signal.SIGKILL, 1)
        a.hold("from", None)
        a.wait("Nexit")
        a.slow(None)
        # shares the link with the first one, if that goes on
        a.run(1, f"y = [bytes({size})]")
        a.call("Tget", 1, "y", "pkl", "")
        cost = a.carried("from") - before
        assert cost < size * 3 // 2, f"{cost} bytes came for {size}"


RATE = 1 << 20  # bytes per second
COUNT = 256 << 10  # bytes of one Tread


def ask_reads(a, slot, handle, count):
    """Requests this many ranges at once, as a sequential reader does. Returns the tags."""
    return {a.ask("Tread", slot, handle, i * COUNT, COUNT) for i in range(count)}


def answers(a, tags, last):
    """Replies to these requests that came before the last message."""
    return [m for m in a.seen if m.tag in tags and m.number < last.number]


def test_a_pull_leaves_room():
    """A cell does not wait long behind ranges that are read ahead, nor does another object. Ranges
    of an object that is released, or whose rank dies, are no longer sent."""
    with Relayed() as a:
        a.tell("rate", RATE)
        a.cut()
        for slot in range(2):
            a.spawn(slot)
        a.run(
            0, f"import numpy; x = numpy.zeros({32 * COUNT}, 'u1'); y = numpy.ones({COUNT}, 'u1')"
        )
        x, y = (a.call("Tget", 0, name, "npy", "").handle for name in "xy")
        begin = a.carried("from")
        a.hold("from", begin + COUNT * 3 // 2)
        tags = ask_reads(a, 0, x, 32)
        a.wait(lambda m: m.tag == min(tags), what="the first range")
        ran = [f"{a.dir}/ran{slot}" for slot in range(2)]
        small = [
            a.ask("Trun", slot, 1, 1, f"open({path!r}, 'w').close()", mark=True)
            for slot, path in enumerate(ran)
        ]
        small.append(a.ask("Tread", 0, y, 5, 1000))
        other = a.ask("Tread", 0, y, 0, COUNT)
        until(lambda: all(map(os.path.exists, ran)), what="the cells over there")
        a.hold("from", begin + COUNT * 10)  # and no further, until the object is released
        *cells, short = [
            a.wait(lambda m, t=t: m.tag == t and m.name[0] == "R", what="a small answer")
            for t in small
        ]
        same([*(m.name for m in cells), short.data], ["Rrun", "Rrun", b"\1" * 1000])
        last = max((*cells, short), key=lambda m: m.number)
        early = answers(a, tags, last)
        assert len(early) <= 3, f"{len(early)} ranges came before two cells and a short range"
        last = a.wait(lambda m: m.tag == other, what="another object's range")
        same(last.data, b"\1" * COUNT)
        early = answers(a, tags, last)
        assert len(early) <= 8, f"{len(early)} ranges came before one of another object"
        a.send("Nfree", 0, x)
        a.hold("from", None)
        last = a.wait(lambda m: m.tag == max(tags), what="an answer")
        refused(last, "EINTR", "no longer wanted")
        early = [m for m in answers(a, tags, last) if m.name == "Rread"]
        assert len(early) <= 10, f"{len(early)} ranges came of an object that was let go of"
        x = a.call("Tget", 0, "x", "npy", "").handle
        tags = ask_reads(a, 0, x, 32)
        a.wait(lambda m: m.tag == min(tags), what="the first range")
        a.send("Nsignal", 0, signal.SIGKILL, 1)
        refused(a.wait(lambda m: m.tag == max(tags), what="an answer"), "EHOSTDOWN", "is gone")
        same(a.run(1, "print(1)")[1], b"1\n")


def test_a_stopped_rank():
    """The agent reads the bytes of objects from the rank's memory: the rank need not help."""
    size = 4 << 20
    with Relayed() as a:
        a.spawn(0)
        a.run(0, f"import numpy; x = numpy.arange({size}, dtype='u1')")
        whole = a.call("Tget", 0, "x", "npy", "")
        a.send("Nsignal", 0, signal.SIGSTOP, 1)
        r = a.call("Tread", 0, whole.handle, 256, COUNT)
        same(r.data, bytes(range(256)) * (COUNT // 256))
        before = first_bytes(a, "from")
        a.send("Nsignal", 0, signal.SIGCONT, 1)
        tag = a.ask("Tget", 0, "x", "npy", "same")
        came(a, "from", before)
        a.send("Nsignal", 0, signal.SIGSTOP, 1)
        a.hold("from", None)
        r = a.wait(lambda m: m.tag == tag, what="an answer")
        with open(r.fd, "rb") as f:
            f.seek(0)
            assert f.read() == bytes(range(256)) * (size // 256), "the array is another one"
        a.send("Nsignal", 0, signal.SIGCONT, 1)


def test_ranks_start_while_objects_are_read():
    """The agent's threads, and what they hold, do not harm the processes that it starts."""
    count = 200
    with Relayed() as a:
        a.spawn(0)
        a.run(0, f"import numpy; x = numpy.zeros({16 * COUNT}, 'u1')")
        handle = a.call("Tget", 0, "x", "npy", "").handle
        for slot in range(1, 4):
            tags = [ask_reads(a, 0, handle, 16) for _ in range(count // 16)]
            a.spawn(slot, cold=1)
            same(a.run(slot, "print(1)")[1], b"1\n")
            for tag in set().union(*tags):
                same(a.wait(lambda m, t=tag: m.tag == t, what="a range").name, "Rread")
        same(a.call("Tgpus", wire.AGENT, 1).name, "Rgpus")


def test_objects_on_gpus():
    """A rank copies the ranges into memory that it shares with its relay. What it copies for an
    object that is released, or when it dies, is sent to nobody, and others are read after it."""
    cudart = os.path.join(wire.BUILD, "fake", "libcudart.so.13")
    if not os.path.exists(cudart):
        print(f"not tested: {cudart} is not built")
        return
    env = {"DDIP_CUDART": cudart, "FAKE_CUDA": "gpus=1", "DDIP_NCCL": "/nonexistent/libnccl.so"}
    env["PYTHONPATH"] = os.path.join(wire.ROOT, "tests", "fake")
    count, successor = 40, 1 << 16
    array_of = f"import cupy, numpy; x = cupy.array(numpy.arange({count * COUNT // 4}, dtype='u4'))"
    want = array.array("I", range(count * COUNT // 4)).tobytes()
    with Relayed(env=env) as a:
        for slot in (0, successor):
            a.spawn(slot)
            a.run(slot, array_of)
            for _ in range(2):
                r = a.call("Tget", slot, "x", "npy", "")
                same((r.kind, r.size - len(r.head)), (Relayed.live_kind, len(want)))
                for i, tag in enumerate(sorted(ask_reads(a, slot, r.handle, count))):
                    m = a.wait(lambda m, t=tag: m.tag == t and m.name[0] == "R", what="a range")
                    assert m.data == want[i * COUNT :][:COUNT], f"range {i}"
                # the GPU is busy: copies wait
                a.run(slot, "stream = cupy.cuda.Stream().use(); stream.hold()")
                tags = ask_reads(a, slot, r.handle, count)
                a.send("Nfree", slot, r.handle)
                m = a.wait(lambda m, t=max(tags): m.tag == t, what="an answer")
                refused(m, "EINTR", "no longer wanted")
                same([m for m in a.seen if m.tag in tags and m.name != "Rerror"], [])
                a.run(slot, "cupy.release()")
            handle = a.call("Tget", slot, "x", "npy", "").handle
            a.run(slot, "stream.hold()")
            tags = ask_reads(a, slot, handle, count)
            a.send("Nsignal", slot, signal.SIGKILL, 1)
            refused(
                a.wait(lambda m, t=max(tags): m.tag == t, what="an answer"), "EHOSTDOWN", "gone"
            )
            a.wait("Nexit")


class Three(Relayed):
    """Three ranks, which are asked as one."""

    def __enter__(self):
        for slot in range(3):
            self.spawn(slot)
        self.ranks = b"".join(struct.pack("<II", slot, slot) for slot in range(3))
        return self

    def everywhere(self, source):
        for slot in range(3):
            same(self.run(slot, f"rank = {slot}\n{source}")[0].outcome, 0)

    def reduced(self, name, op, view="npy"):
        return self.call("Treduce", 0, name, view, op, self.ranks)


def part_of(r):
    """The lines and the bytes of a part."""
    assert r.name == "Rget", r.text
    with open(r.fd, "rb") as f:
        f.seek(0)
        return r.head.decode().splitlines(), f.read()


def test_one_part_travels():
    """A host combines its ranks' parts itself: as many bytes travel as one of them has."""
    count = 1 << 18
    with Three() as a:
        a.everywhere(
            f"import numpy; x = numpy.arange({count}, dtype='f4') * (rank + 1)\n"
            "n = numpy.array([1 << rank, -1], 'i2'); z = numpy.zeros(3); o = rank"
        )
        before = a.carried("from")
        for op, factor in (("sum", 6), ("mean", 6), ("min", 1), ("max", 3)):
            lines, data = part_of(a.reduced("x", op))
            kind, code = ("float64", "d") if op in ("sum", "mean") else ("float32", "f")
            width = array.array(code).itemsize
            same(lines, ["part 3 float32", f"array {width} {count} {kind}"])
            numbers = array.array(code, data)
            assert all(numbers[i] == i * factor for i in range(0, count, 1111)), op
        cost = a.carried("from") - before
        assert cost < 1.1 * count * (8 + 8 + 4 + 4), cost
        lines, data = part_of(a.reduced("n", "sum"))
        same((lines[1], list(array.array("h", data))), ("array 2 2 int16", [7, -3]))
        lines, data = part_of(a.reduced("o", "sum"))
        same(lines, ["part 3 int", f"object 1 {len(data)} int"])
        same(part_of(a.reduced("z", "same"))[1], pull(a, 1, "z", ""))
        refused(a.reduced("o", "same", "json"), "ENOTUNIQ", "rank 1 has another value than rank 0")
        assert not kept(a), "a part was kept"
        refused(a.reduced("x", "sum"), "ENOENT", "x")
        a.run(1, "n = n[:1]")
        refused(a.reduced("n", "max"), "ENOTSUP", "rank 0 has array int16 of shape 2, rank 1")
        refused(a.reduced("z", "cat"), "EBADMSG", "Treduce")


def test_memory_that_can_not_be_read():
    """If an agent may not read a rank's memory, it asks the rank for the bytes."""
    engine = os.path.join(wire.BUILD, "fault", "ddip-engine")
    if not os.path.exists(engine):
        print(f"not tested: {engine} is not built")
        return
    count, env = 1 << 18, {"DDIP_FAULT": "ddip-agent/copy.process:1"}
    with Three(engine=engine, env=env) as a:
        a.everywhere(f"import numpy; x = numpy.arange({count}, dtype='f4') + rank")
        lines, data = part_of(a.reduced("x", "sum"))
        same(lines[0], "part 3 float32")
        numbers = array.array("d", data)
        assert all(numbers[i] == 3 * i + 3 for i in range(0, count, 1111))
        assert "injected: copy.process" in a.text(), a.text()
        assert not kept(a), "a part was kept"
    env = {"DDIP_FAULT": "ddip-agent/copy.process:1"}
    for op in ("", "same"):
        with Relayed(engine=engine, env=env) as a:
            data = npy(8 << 20)
            a.spawn(0)
            tag = put(a, 0, data, "x")
            a.wait(lambda m, t=tag: m.tag == t and m.name == "Rput", what="Rput")
            a.call("Tcommit", 0, 1, mark=True)
            assert pull(a, 0, "x", op) == data, f"the array is another one, op '{op}'"
            assert "injected: copy.process" in a.text(), a.text()
            assert not kept(a), "the object was kept"


def test_no_thread_to_combine_parts():
    """Only the request that needs threads fails, not the relay."""
    engine = os.path.join(wire.BUILD, "fault", "ddip-engine")
    if not os.path.exists(engine):
        print(f"not tested: {engine} is not built")
        return
    with Three(engine=engine, env={"DDIP_FAULT": "ddip-agent/copy.thread:1"}) as a:
        a.everywhere("import numpy; x = numpy.arange(9000)")
        refused(a.reduced("x", "sum"), "EAGAIN", "thread")
        same(part_of(a.reduced("x", "max"))[0][0], "part 3 int64")
        assert not kept(a), "a part was kept"


def test_a_rank_that_gives_no_part():
    """A rank that dies fails the request; a cancelled request ends when all ranks have replied."""
    with Three() as a:
        a.everywhere("import numpy; x = numpy.zeros(9)")
        a.send("Nsignal", 2, signal.SIGSTOP, 1)
        tag = a.ask("Treduce", 0, "x", "npy", "sum", a.ranks)
        a.send("Ncancel", 0, tag)
        a.send("Nsignal", 2, signal.SIGCONT, 1)
        refused(a.wait(lambda m: m.tag == tag, what="an answer"), "EINTR", "no longer wanted")
        assert not kept(a), "a part was kept"
        a.send("Nsignal", 2, signal.SIGSTOP, 1)
        tag = a.ask("Treduce", 1, "rank", "json", "max", a.ranks)
        a.send("Nsignal", 2, signal.SIGKILL, 1)
        refused(a.wait(lambda m: m.tag == tag, what="an answer"), "EHOSTDOWN", "rank 2 died")


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"no Python at {PYTHON}")
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
