"""Ranks on another host: cells, objects and lines over ssh, compared with ssh itself.

ssh talks through a pipe to an sshd that the benchmark starts on this machine: it measures the
protocol and the cipher, which use the same cores. A real link adds its round trip.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time

import lib
import start

SIZE = 256 << 20
PIECE = 1 << 20
LINES = 1_000_000
PRINTS = f"""
import time
begun = time.perf_counter()
for i in range({LINES}): print("line", i)
taken = time.perf_counter() - begun
"""


@contextlib.contextmanager
def server():
    """The words of an ssh command that leads to an sshd of our own; None: there is no sshd."""
    sshd = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
    if sshd is None or os.getuid() != 0:
        yield None
        return
    os.makedirs("/run/sshd", exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ddip-bench.") as folder:
        for name in ("host", "user"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"]
            subprocess.run(key, check=True)
        with open(f"{folder}/sshd", "w", encoding="utf-8") as f:
            f.write(
                f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\n"
                "PermitRootLogin yes\nPasswordAuthentication no\nPidFile none\n"
                f"SetEnv XDG_CACHE_HOME={folder} DDIP_STATE={folder}\n"
            )
        with open(f"{folder}/config", "w", encoding="utf-8") as f:
            f.write(
                f"Host server\nUser root\nProxyCommand {sshd} -i -f {folder}/sshd\n"
                f"IdentityFile {folder}/user\nUserKnownHostsFile /dev/null\n"
                "StrictHostKeyChecking no\nLogLevel ERROR\n"
            )
        yield ["ssh", "-F", f"{folder}/config"]


def round_trip(ssh):
    """Seconds for one byte there and back."""
    with subprocess.Popen(
        [*ssh, "server", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as there:

        def go():
            there.stdin.write(b"x")
            there.stdout.read(1)

        taken = lib.timed(go, 300)
        there.stdin.close()
    return lib.median(taken)


def write_file(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:PIECE]) :]
    os.close(fd)


def read_file(path):
    fd = os.open(path, os.O_RDONLY)
    while os.read(fd, PIECE):
        pass
    os.close(fd)


def objects(report, m, ssh):
    import io

    import numpy as np

    encoded = io.BytesIO()
    np.save(encoded, np.arange(SIZE // 8, dtype="f8"))
    data = encoded.getvalue()
    plain = os.path.join(m.dir, "plain")
    write_file(plain, data)

    def send():
        with open(plain, "rb") as f:
            subprocess.run([*ssh, "server", "cat > /dev/null"], stdin=f, check=True)

    def receive():
        subprocess.run([*ssh, "server", f"cat {plain}"], stdout=subprocess.DEVNULL, check=True)

    ways = {
        "push": (lambda: write_file(m.file("vars/x.npy"), data), send),
        "pull": (lambda: read_file(m.file("rank0/vars/x.npy")), receive),
    }
    for what, (ours, peer) in ways.items():
        pairs = [(lib.timed(ours, 1, 0)[0], lib.timed(peer, 1, 0)[0]) for _ in range(5)]
        mine, beside = (lib.median([pair[i] for pair in pairs]) for i in (0, 1))
        report.add(
            f"{what} {SIZE >> 20} MiB, two ranks behind ssh",
            lib.ms(mine, 0),
            f"ssh cat {lib.ms(beside, 0)}",
            f"{beside / mine:.2f}",
            "0.8",
        )


def lines(m):
    """Seconds that a rank takes to print: the median of three runs."""

    def once():
        m.write("cell", PRINTS)
        return float(m.read("rank0/vars/taken"))

    return lib.median([once() for _ in range(3)])


def there(ssh):
    """The settings for a group of two ranks on the server."""
    return {"hosts": "server:2", "launcher": " ".join(ssh), "master_addr": "127.0.0.1"}


def took(*command):
    """Seconds that a program takes."""
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - begin


def first(report):
    """On a host that has nothing: each time a server of its own with an empty cache."""
    ours, connections, imports = [], [], []
    for _ in range(3):
        with server() as ssh:
            imports.append(took(lib.PYTHON, "-c", start.IMPORTS))
            connections.append(took(*ssh, "server", "true"))
            begin = time.perf_counter()
            with lib.Mount(**there(ssh)) as m:
                m.write("cell", start.REDUCE)
                ours.append(time.perf_counter() - begin)
    connection, importing = lib.median(connections), lib.median(imports)
    report.add(
        "first start of two ranks on a host that has nothing, to all_reduce done",
        lib.ms(lib.median(ours), 0),
        f"ssh {lib.ms(connection, 0)}, imports {lib.ms(importing, 0)}",
        f"{lib.ms(lib.median(ours) - connection - importing, 0)} more",
        "1 s",
    )


def restart(report, m, near):
    for mount in (m, near):
        mount.write("cell", start.REDUCE)
        mount.settle()
    report.add(
        "restart of two ranks behind ssh, to all_reduce done",
        lib.ms(start.again(m, start.REDUCE), 0),
        f"here {lib.ms(start.again(near, start.REDUCE), 0)}",
        "",
        "150 ms and 2 round trips",
    )


def main(report):
    with server() as ssh:
        if ssh is None:
            report.add("ranks behind ssh: needs root, and sshd", "-")
            return
        first(report)
        with lib.Mount(size=2) as near, lib.Mount(**there(ssh)) as m:
            both = {}
            for name, mount in (("near", near), ("far", m)):
                with mount.cells() as run:
                    both[name] = lib.median(lib.timed(lambda: run("pass"), 300))
            trip = round_trip(ssh)
            report.add(
                "an empty cell, two ranks behind ssh",
                lib.ms(both["far"]),
                f"here {lib.ms(both['near'])}, round trip of ssh {lib.ms(trip)}",
                f"{lib.ms(both['far'] - trip)} more",
                "0.5 ms",
            )
            restart(report, m, near)
            objects(report, m, ssh)
            mine, beside = lines(m), lines(near)
            report.add(
                f"a rank behind ssh prints {LINES:,} lines",
                f"{mine:.2f} s",
                f"here {beside:.2f} s",
                f"{mine / beside:.2f}",
                "1.2",
            )
