#!/usr/bin/env python3
"""The daemon ends while clients wait: over 9P and through the mount each of them is answered."""

import contextlib
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ninep_raw as raw
from ninep_raw import Client, refuses, wait

LIVE = ("group/events", "group/log", "group/rank0/follow", "trace")
READ, OPEN = ("0", "63"), ("257", "56")  # system calls on x86-64, on arm64


@contextlib.contextmanager
def stuck_nvml():
    """In this context daemons have an NVML that does not answer: an open of `gpus` waits for it."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/fifo")
        os.environ["DDIP_NVML"] = os.path.join(raw.BUILD, "fake/libnvidia-ml.so.1")
        assert os.path.exists(os.environ["DDIP_NVML"]), "it is not built (make check)"
        os.environ["FAKE_NVML"] = f"gpus=2 stuck={folder}/fifo"
        yield


def quiet(client):
    """Makes a daemon in which nothing happens any more that live files would tell."""
    client.put("group/ctl", b"start\n")
    client.put("group/ctl", b"stop\n")
    wait(lambda: client.value("group/status", "state") == "stopped", "the group is stopped")


def test_clients_of_the_socket():
    with raw.Daemon() as daemon:
        client = Client(daemon)
        quiet(client)
        client.walk("group/gpus", 50)
        opens = client.send(12, struct.pack("<II", 50, os.O_RDONLY))
        tags = []
        for fid, path in enumerate(LIVE, 1):
            client.open(path, fid)
            tags.append(client.send(116, struct.pack("<IQI", fid, 0, 100)))
        client.rpc(24, struct.pack("<IQ", fid, 0x7FF))  # of `trace`, which does not tell of itself
        assert daemon.end() == 0
        for path, tag in zip(LIVE, tags, strict=True):
            assert refuses(path, client.reply, tag, 116) == "ENODEV", path
        assert refuses("gpus", client.reply, opens, 12) == "ENODEV"


def call(process):
    """The number of the system call in which a process waits; "running" if it does not wait."""
    with open(f"/proc/{process.pid}/syscall", encoding="ascii") as file:
        return file.read().split()[0]


def test_programs_in_the_mount():
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        print("not tried: a mount (there is no /dev/fuse)")
        return
    with raw.Daemon(mount=True) as daemon:
        quiet(Client(daemon))
        cats = []
        for path in (*LIVE, "group/gpus"):  # that one is given up after a while
            words = ["cat", f"{daemon.mount}/{path}"]
            cat = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            cats.append(cat)
            waits = READ if path in LIVE else OPEN
            wait(lambda cat=cat, waits=waits: call(cat) in waits, f"cat {path} waits")
        assert daemon.end() == 0
        assert [cat.wait(raw.HANG_S) for cat in cats] == [1] * len(cats)


if __name__ == "__main__":
    with stuck_nvml():
        raw.run(globals())
