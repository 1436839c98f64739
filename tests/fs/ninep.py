#!/usr/bin/env python3
"""The same tree works over 9P: every message in both dialects, errors, interrupts, clients that die
or do not read, the socket itself."""

import contextlib
import os
import pickle
import signal
import stat
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ninep_raw as raw
from ninep_raw import PYTHON, Client, refuses, text, wait

SLEEP = b"import time; print('begun', flush=True); time.sleep(1000)"
CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def begun(client, rank=0):
    """Waits until a cell has printed that it is running."""
    path = f"group/rank{rank}/stdout"
    wait(lambda: client.content(path, 950).endswith(b"begun\n"), "the cell runs")


# ---- the Linux dialect


def test_files_are_read_and_listed():
    client = Client(daemon)
    assert client.version == "9P2000.L"
    assert client.content("version").startswith(b"ddipfs ")
    client.open("group", 1, os.O_RDONLY | os.O_DIRECTORY)
    names, offset = [], 0
    while data := client.rpc(40, struct.pack("<IQI", 1, offset, 200))[4:]:
        at = 0
        while at < len(data):
            offset, kind, n = struct.unpack_from("<QBH", data, at + 13)
            names.append((data[at + 24 : at + 24 + n].decode(), kind))
            at += 24 + n
    assert names[:2] == [(".", 4), ("..", 4)], names[:2]
    assert ("cell", 8) in names and ("vars", 4) in names and ("result", 10) in names, names
    assert len(names) == len(set(names)), "an entry was told twice"
    client.clunk(1)
    client.walk("group/result", 2)
    assert client.rpc(22, struct.pack("<I", 2)) == text("cells/last/result")
    assert client.walk("group/vars/../cell", 3) == 4, "a walk goes up"
    assert client.walk("group/nothing/more", 4) == 1, "a walk tells how far it got"
    assert refuses("fid 4 is not there", client.clunk, 4) == "EBADF"


def test_attributes():
    client = Client(daemon)
    client.walk("group/cell", 1)
    got = struct.unpack_from("<QBIQIII", client.rpc(24, struct.pack("<IQ", 1, 0x7FF)))
    assert got[4] == stat.S_IFREG | 0o600, oct(got[4])
    assert got[5:7] == (os.getuid(), os.getgid())
    zeros = struct.pack("<IIIQQQQQ", 0o777, 5, 5, 0, 0, 1, 0, 1)
    client.rpc(26, struct.pack("<II", 1, 0x1 | 0x2 | 0x4 | 0x10) + zeros)
    again = struct.unpack_from("<QBIQIII", client.rpc(24, struct.pack("<IQ", 1, 0x7FF)))
    assert again == got, "modes and owners are taken, and stay what they are"
    kind, size = struct.unpack_from("<II", client.rpc(8, struct.pack("<I", 0)))
    assert kind == 0x01021997 and size > 0
    refusals = {
        30: struct.pack("<II", 1, 9) + text(""),
        32: struct.pack("<I", 1) + text("user.x") + struct.pack("<QI", 1, 0),
    }
    for message, body in refusals.items():
        assert refuses("attributes", client.rpc, message, body) == "ENOTSUP"
    makers = {
        14: text("new") + struct.pack("<III", os.O_WRONLY, 0o600, 0),
        16: text("new") + text("target") + struct.pack("<I", 0),
        18: text("new") + struct.pack("<IIII", 0o600, 0, 0, 0),
        70: struct.pack("<I", 1) + text("new"),
    }
    for message, body in makers.items():
        client.walk("group", 100 + message)
        made = refuses("files", client.rpc, message, struct.pack("<I", 100 + message) + body)
        assert made == "EACCES", (message, made)


def test_cells_answer_with_their_outcome():
    client = Client(daemon)
    client.open("group/cell", 1, os.O_RDWR)
    client.write(1, b"x = rank + 1; print('printed')")
    client.rpc(50, struct.pack("<II", 1, 0))
    number = client.read(1)
    assert client.content("group/rank1/vars/x") == b"2\n"
    assert client.content(f"group/cells/{int(number)}/rank0/stdout") == b"printed\n"
    client.write(1, b"1 / 0")
    assert refuses("fsync", client.rpc, 50, struct.pack("<II", 1, 0)) == "EREMOTEIO"
    client.write(1, b"def")
    assert refuses("clunk", client.clunk, 1) == "ENOEXEC"
    assert refuses("the fid is gone all the same", client.clunk, 1) == "EBADF"
    client.put("group/rank1/cell", b"x = 50")
    assert client.content("group/vars/x.sum") == b"51\n"
    assert b"ZeroDivisionError" in client.content("group/error")


def test_variables_are_made_renamed_and_removed():
    client = Client(daemon)
    client.walk("group/vars", 1)
    flags = struct.pack("<III", CREATE, 0o600, 0)
    client.rpc(14, struct.pack("<I", 1) + text("made.json") + flags)
    client.write(1, b'{"a": ')
    client.write(1, b"[1]}", 6)
    client.clunk(1)
    assert client.content("group/rank1/vars/made.json").strip() == b'{"a": [1]}'
    client.walk("group/vars", 2)
    client.rpc(74, struct.pack("<I", 2) + text("made") + struct.pack("<I", 2) + text("named"))
    assert client.content("group/vars/named.json").strip() == b'{"a": [1]}'
    client.walk("group/vars/named", 3)
    client.rpc(20, struct.pack("<II", 3, 2) + text("last"))
    assert client.content("group/vars/last.json").strip() == b'{"a": [1]}'
    client.rpc(76, struct.pack("<I", 2) + text("last") + struct.pack("<I", 0))
    assert client.walk("group/vars/last", 4) == 2, "what was removed is found no more"
    again = struct.pack("<I", 2) + text("last") + struct.pack("<I", 0)
    assert refuses("what is not there is not removed", client.rpc, 76, again) == "ENOENT"
    move = struct.pack("<I", 2) + text("last") + struct.pack("<I", 2) + text("named")
    assert refuses("nor renamed", client.rpc, 74, move) == "ENOENT"
    client.walk("group/vars", 5)
    exclusive = struct.pack("<III", CREATE | os.O_EXCL, 0o600, 0)
    client.put("group/cell", b"x = 1")
    new = struct.pack("<I", 5) + text("x") + exclusive
    assert refuses("O_EXCL", client.rpc, 14, new) == "EEXIST"
    assert client.walk("group/vars/x.nope", 6) == 2
    client.rpc(14, struct.pack("<I", 5) + text("x.json") + flags)
    client.write(5, b"[1, ")
    assert refuses("bytes that do not decode", client.clunk, 5) == "EBADMSG"
    assert client.content("group/vars/x") == b"1\n", "the old object stays"


def test_groups_are_made_and_removed():
    client = Client(daemon)
    client.rpc(72, struct.pack("<I", 0) + text("other") + struct.pack("<II", 0o700, 0))
    assert client.value("other/status", "state") == "new"
    client.open("other/status", 1)
    client.rpc(76, struct.pack("<I", 0) + text("other") + struct.pack("<I", 0x200))
    assert refuses("a group that is gone", client.read, 1) == "ENODEV"
    wrong = struct.pack("<I", 0) + text("a b") + struct.pack("<II", 0o700, 0)
    assert refuses("a bad name", client.rpc, 72, wrong) == "EINVAL"


def test_output_is_dropped_by_truncation():
    client = Client(daemon)
    client.put("group/cell", b"print('text')")
    client.walk("group/rank0/stdout", 1)
    assert client.content("group/rank0/stdout").endswith(b"text\n")
    size = struct.pack("<IIIQQQQQ", 0, 0, 0, 0, 0, 0, 0, 0)
    client.rpc(26, struct.pack("<II", 1, 0x8) + size)
    assert client.content("group/rank0/stdout") == b""


def test_locks_exclude_other_clients():
    one, other = Client(daemon), Client(daemon)
    lock = struct.pack("<BIQQI", 1, 0, 0, 0, 7) + text("me")
    unlock = struct.pack("<BIQQI", 2, 0, 0, 0, 7) + text("me")
    get = struct.pack("<BQQI", 1, 0, 0, 9) + text("me")
    for client in (one, other):
        client.open("group/status", 1)
    fid = struct.pack("<I", 1)
    assert one.rpc(52, fid + lock) == b"\0", "the first has it"
    assert other.rpc(52, fid + lock) == b"\1", "the second is told that it is taken"
    assert struct.unpack_from("<BQQI", other.rpc(54, fid + get)) == (1, 0, 0, 7)
    one.rpc(52, fid + unlock)
    assert other.rpc(52, fid + lock) == b"\0"
    other.close()
    wait(lambda: one.rpc(52, fid + lock) == b"\0", "a lock ends with its connection")


# ---- the Plan 9 dialect


def entries(client, path, fid):
    """The names in a directory, in the plain dialect."""
    client.open(path, fid)
    names, at, listed = [], 0, client.read(fid)
    while at < len(listed):
        n = struct.unpack_from("<H", listed, at)[0]
        length = struct.unpack_from("<H", listed, at + 41)[0]
        names.append(listed[at + 43 : at + 43 + length].decode())
        at += n + 2
    client.clunk(fid)
    return sorted(names)


def test_what_is_in_an_object():
    Client(daemon).put("group/cell", b"held = {'a': [1, {'b': 'deep'}], 'c': 2}")
    for dialect in ("9P2000.L", "9P2000"):
        client = Client(daemon, dialect)
        assert client.content("group/vars/held.d/a.d/1.d/b") == b"deep\n"
        assert client.walk("group/rank1/vars/held.d/a.d/1.d/../../c", 3) == 9
        assert client.walk("group/vars/held.d/../held", 4) == 5
        assert client.walk("group/vars/held.d/x", 5) == 3
        assert client.walk("group/vars/held.d/c.d", 5) == 3
    assert entries(client, "group/vars/held.d", 6) == ["a", "a.d", "c"]
    assert entries(client, "group/vars/held.d/a.d", 7) == ["0", "1", "1.d"]


def test_plain_9p2000():
    client = Client(daemon, "9P2000")
    assert client.version == "9P2000"
    assert client.content("version").startswith(b"ddipfs ")
    client.open("group", 1)
    listed = client.read(1)
    names, at = [], 0
    while at < len(listed):
        n = struct.unpack_from("<H", listed, at)[0]
        length = struct.unpack_from("<H", listed, at + 41)[0]
        names.append(listed[at + 43 : at + 43 + length].decode())
        at += n + 2
    assert "cell" in names and "status" in names and "." not in names, names
    assert client.read(1, len(listed)) == b""
    assert "last read ended" in refuses("any offset", client.read, 1, 7)
    got = client.rpc(124, struct.pack("<I", 1))
    assert struct.unpack_from("<HH", got) == (len(got) - 2, len(got) - 4)
    assert struct.unpack_from("<I", got, 23)[0] & 0x80000000, "group is a directory"
    client.put("group/cell", b"y = 5")
    client.open("group/cell", 2, os.O_WRONLY)
    client.write(2, b"1 / 0")
    assert "Remote" in refuses("a clunk that fails", client.clunk, 2)
    client.walk("group/vars", 3)
    client.rpc(114, struct.pack("<I", 3) + text("z") + struct.pack("<IB", 0o600, 1))
    client.write(3, b"7")
    client.clunk(3)
    client.walk("group/vars/z", 4)
    keep = struct.pack("<HI", 0xFFFF, 0xFFFFFFFF) + b"\xff" * 13 + b"\xff" * 12 + b"\xff" * 8
    wanted = keep + text("renamed") + text("") + text("") + text("")
    stat_ = struct.pack("<H", len(wanted)) + wanted
    client.rpc(126, struct.pack("<I", 4) + struct.pack("<H", len(stat_)) + stat_)
    assert client.content("group/vars/renamed.json").strip() == b"7"
    client.walk("group/vars/renamed", 5)
    client.rpc(122, struct.pack("<I", 5))
    assert client.walk("group/vars/renamed", 6) == 2
    client.walk("", 7)
    client.rpc(
        114, struct.pack("<I", 7) + text("plain") + struct.pack("<IB", 0x80000000 | 0o700, 0)
    )
    client.clunk(7)
    client.walk("plain", 8)
    client.rpc(122, struct.pack("<I", 8))
    assert "No such file" in refuses("a group that was removed", client.walk, "plain", 9)
    auth = struct.pack("<I", 9) + text("") + text("")
    assert "no authentication is needed" in refuses("authentication", client.rpc, 102, auth)
    assert "no such message" in refuses("a message of .L", client.rpc, 12, struct.pack("<II", 0, 0))


# ---- malformed messages


def test_what_is_refused():
    client = Client(daemon, None)
    assert "no such message" in refuses("attach first", client.rpc, 104, struct.pack("<II", 0, 0))
    small = struct.pack("<I", 100) + text("9P2000")
    assert "at least" in refuses("a tiny msize", client.rpc, 100, small)
    body = client.rpc(100, struct.pack("<I", 1 << 30) + text("9P2000.u"))
    assert struct.unpack_from("<I", body)[0] == 1 << 20 and body[6:] == b"9P2000"
    body = client.rpc(100, struct.pack("<I", 8192) + text("8P"))
    assert body[6:] == b"unknown"
    client = Client(daemon)
    auth = struct.pack("<I", 1) + text("") + text("") + bytes(4)
    assert refuses("authentication: none is needed", client.rpc, 102, auth) == ""
    attach = struct.pack("<II", 5, 5) + text("") + text("/x") + bytes(4)
    assert refuses("another tree", client.rpc, 104, attach) == "ENOENT"
    assert refuses("an unknown fid", client.read, 77) == "EBADF"
    client.walk("", 8)
    assert refuses("a fid in use", client.walk, "group", 8) == "EBADF"
    assert refuses("a short body", client.rpc, 12, b"\0") == "EBADMSG"
    assert refuses("a long body", client.rpc, 120, bytes(5)) == "EBADMSG"
    assert refuses("no such message", client.rpc, 200) == "ENOTSUP"
    for name in ("a/b", "..", "a\0b", "x" * 300):
        remove = struct.pack("<I", 0) + text(name) + struct.pack("<I", 0)
        assert refuses(name, client.rpc, 76, remove) in ("EINVAL", "EACCES")
    client.open("group/status", 1)
    assert refuses("a write to what is read", client.write, 1, b"x") == "EBADF"
    assert refuses("open twice", client.rpc, 12, struct.pack("<II", 1, 0)) == "EBADF"
    client.walk("group/status", 2)
    assert refuses("a mode", client.rpc, 12, struct.pack("<II", 2, os.O_WRONLY)) == "EACCES"
    for frame in (struct.pack("<IBH", 6, 100, 0), struct.pack("<IBH", 1 << 31, 100, 0)):
        client = Client(daemon)
        client.sock.sendall(frame)
        assert client.take() is None, "who speaks no 9P is hung up on"


# ---- waiting


def test_a_flush_interrupts_the_cell():
    client, other = Client(daemon), Client(daemon)
    client.open("group/cell", 1, os.O_WRONLY)
    client.write(1, SLEEP)
    waits = client.send(50, struct.pack("<II", 1, 0))
    begun(other)
    flush = client.send(108, struct.pack("<H", waits))
    assert refuses("the fsync", client.reply, waits, 50) == "EINTR"
    client.reply(flush, 108)
    number = int(other.content("group/cell"))
    assert other.value(f"group/cells/{number}/status", "state") == "interrupted"
    client.rpc(108, struct.pack("<H", 999))  # of a request that is done: answered at once


def test_a_flush_ends_a_read_that_waits():
    client = Client(daemon)
    wait(lambda: client.value("group/status", "state") == "idle", "no event is to come")
    client.open("group/events", 1)
    waits = client.send(116, struct.pack("<IQI", 1, 0, 100))
    flush = client.send(108, struct.pack("<H", waits))
    client.reply(flush, 108)
    assert refuses("the read", client.reply, waits, 116) == "EINTR"
    client.open("group/events", 2, os.O_RDONLY | os.O_NONBLOCK)
    assert refuses("a read that cannot wait", client.read, 2) == "EAGAIN"


def test_live_files_bring_what_comes():
    client, writer = Client(daemon), Client(daemon)
    client.open("group/rank0/follow", 1)
    waits = client.send(116, struct.pack("<IQI", 1, 0, 100))
    assert client.content("version"), "others are answered meanwhile"
    writer.put("group/cell", b"print('news')")
    assert client.reply(waits, 116)[4:] == b"news\n"


def test_half_a_cell_of_a_client_that_dies_is_not_run():
    client, other = Client(daemon), Client(daemon)
    last = os.fsdecode(other.content("group/cell"))
    client.open("group/cell", 1, os.O_WRONLY)
    client.write(1, b"half = 1\n")
    events = Client(daemon)
    events.open("group/events", 1)
    waits = events.send(116, struct.pack("<IQI", 1, 0, 1000))
    client.close()
    assert b"discarded bytes=9" in events.reply(waits, 116)
    assert os.fsdecode(other.content("group/cell")) == last, "no cell came of it"


def test_a_client_that_dies_interrupts_its_cell():
    client, other = Client(daemon), Client(daemon)
    client.open("group/cell", 1, os.O_WRONLY)
    client.write(1, SLEEP)
    client.send(120, struct.pack("<I", 1))
    begun(other)
    client.close()
    path = f"group/cells/{int(other.content('group/cell'))}/wait"
    assert b"state interrupted" in other.content(path)


# ---- bulk, and clients that do not read


def big_object(client, name, size):
    """Creates an object of that many bytes on the ranks. Returns its pickle."""
    client.put("group/cell", f"{name} = bytes(range(256)) * {size // 256}".encode())
    return bytes(range(256)) * (size // 256)


def test_large_objects_come_whole():
    client = Client(daemon)
    value = big_object(client, "large", 5 << 20)
    client.open("group/vars/large.pkl", 1)
    attributes = client.rpc(24, struct.pack("<IQ", 1, 0x7FF))
    size = struct.unpack_from("<QBIQIIIQQQ", attributes)[-1]
    places = range(0, size, 1 << 20)
    tags = [client.send(116, struct.pack("<IQI", 1, at, 1 << 20)) for at in places]
    got = bytearray(size)
    for at, tag in reversed(list(zip(places, tags, strict=True))):
        data = client.reply(tag, 116)[4:]
        while len(data) < min(1 << 20, size - at):
            data += client.read(1, at + len(data), (1 << 20) - len(data))
        got[at : at + len(data)] = data
    assert pickle.loads(bytes(got)) == value
    tag = client.send(116, struct.pack("<IQI", 1, 0, 1 << 20))
    client.clunk(1)
    assert len(client.reply(tag, 116)) > 1 << 19, "a read that was under way when its fid went"


def test_a_client_that_does_not_read_holds_nobody_up():
    slow, other = Client(daemon), Client(daemon)
    big_object(slow, "large", 5 << 20)
    slow.open("group/vars/large.pkl", 1)
    before = memory(daemon.process.pid)
    ask = b"".join(struct.pack("<IBHIQI", 23, 116, tag, 1, 0, 1 << 20) for tag in range(1, 401))
    slow.sock.sendall(ask)
    for _ in range(20):
        assert other.content("version").startswith(b"ddipfs")
    assert memory(daemon.process.pid) - before < 64 << 20, "its replies pile up"
    left = set(range(1, 401))
    while left:
        kind, tag, body = slow.take()
        assert kind == 117 and len(body) > 1 << 19
        left.remove(tag)
    assert slow.content("version").startswith(b"ddipfs"), "it goes on when it reads"


def memory(pid):
    """Resident memory of a process in bytes."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_many_requests_that_wait_are_refused_not_collected():
    client = Client(daemon)
    client.open("group/events", 1)
    tags = [client.send(116, struct.pack("<IQI", 1, 0, 100)) for _ in range(1100)]
    assert refuses("too many", client.reply, tags[-1], 116) == "ENOBUFS"
    flush = client.send(108, struct.pack("<H", tags[0]))
    client.reply(flush, 108)
    client.close()


# ---- the socket


def test_the_socket_is_the_users_alone():
    mode = os.stat(daemon.socket).st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600, oct(mode)
    if os.getuid() != 0:
        print("not tried: another user (needs root)")
        return
    os.chmod(daemon.socket, 0o666)
    os.chmod(daemon.folder, 0o755)
    code = """import os, socket, sys
os.setuid(65534)
client = socket.socket(socket.AF_UNIX)
client.connect("socket")
try:
    sys.stdout.write("answered" if client.recv(1) else "hung up")
except ConnectionResetError:
    sys.stdout.write("hung up")
"""
    # a name in its own directory: its parents may be closed to others
    told = subprocess.run([PYTHON, "-c", code], cwd=daemon.folder, capture_output=True, text=True)
    os.chmod(daemon.socket, 0o600)
    assert told.stdout == "hung up", (told, "another user is hung up on")


def start_in_vain(like):
    """Starts a daemon like another one, in vain. Returns the completed process."""
    return subprocess.run(like.command(), env=like.environment, capture_output=True, text=True)


@contextlib.contextmanager
def listener_that_ended(path):
    """In this context a child of a process that listened here and has exited holds its socket."""
    code = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
if os.fork() == 0:
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, path], **pipe) as process:
        assert int(process.stdout.readline()) > 0
        assert process.wait(raw.HANG_S) == 0
        yield
        process.stdin.close()
        assert process.stdout.read() == "", "the child has ended"


def test_one_daemon_at_a_socket():
    second = start_in_vain(daemon)
    assert second.returncode == 1 and "served by a ddipfs already" in second.stderr, second.stderr
    with raw.Daemon() as killed:
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait()
        assert os.path.exists(killed.socket), "a killed one leaves its socket"
        killed.process = killed.start()
        assert killed.process.poll() is None, "the next one takes it over"
        assert killed.end() == 0
        with listener_that_ended(killed.socket):
            killed.process = killed.start()
            assert killed.process.poll() is None, "also while a child of the killed one holds it"
            assert killed.end() == 0
        assert not os.path.exists(killed.socket), "at its end it is removed"
        with open(killed.socket, "w", encoding="ascii") as file:
            file.write("mine")
        refused = start_in_vain(killed)
        assert refused.returncode == 1 and "not a socket" in refused.stderr, refused.stderr
        with open(killed.socket, encoding="ascii") as file:
            assert file.read() == "mine", "what is no socket is left alone"


def test_a_long_path():
    folder = os.path.join(daemon.folder, "d" * 120)
    os.mkdir(folder)
    long = raw.Daemon.__new__(raw.Daemon)
    long.__dict__.update(daemon.__dict__, socket=os.path.join(folder, "socket"))
    process = subprocess.Popen(long.command(), env=daemon.environment)
    wait(lambda: os.path.exists(long.socket) or process.poll() is not None, "it listens")
    process.terminate()
    assert process.wait(raw.HANG_S) == 0, "a path may be longer than an address"


def test_mount_and_socket_show_the_same():
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        print("not tried: a mount beside the socket (there is no /dev/fuse)")
        return
    with raw.Daemon(mount=True) as both:
        client = Client(both)
        with open(f"{both.mount}/group/vars/x", "w", encoding="ascii") as file:
            file.write("41\n")
        assert client.content("group/vars/x") == b"41\n"
        client.put("group/cell", b"x += 1")
        with open(f"{both.mount}/group/vars/x", encoding="ascii") as file:
            assert file.read() == "42\n"
        os.mkdir(f"{both.mount}/other")
        client.rpc(76, struct.pack("<I", 0) + text("other") + struct.pack("<I", 0x200))
        assert not os.path.exists(f"{both.mount}/other"), "it was removed over the socket"
        # the watchdog briefly uses the mount when there is news
        unmount = ["fusermount3", "-q", "-u", both.mount]
        wait(lambda: subprocess.call(unmount) == 0, "it is unmounted")
        assert both.process.wait(raw.HANG_S) == 0, "the end of the mount is that of the socket"
        assert not os.path.exists(both.socket)


if __name__ == "__main__":
    with raw.Daemon() as daemon:
        assert daemon.process.poll() is None, "it did not start"
        raw.run(globals())
