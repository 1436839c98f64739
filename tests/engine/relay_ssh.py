#!/usr/bin/env python3
"""An agent works behind a real sshd in a network namespace, also after its cable was pulled.

The host there has its own network, cache and state directory, and initially nothing of ddipfs.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

import wire
from agent import refused
from relay import Relayed
from relay_bring import brought
from wire import HANG_LIMIT_S, PYTHON, same, until

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
PORT = "2222"
BLOCK = os.getpid() % (1 << 14) * 4  # of four addresses in 10.213.0.0/16: other tests use others
OURS, THEIRS = (f"10.213.{(BLOCK + k) >> 8}.{(BLOCK + k) & 255}" for k in (1, 2))


def run(*command):
    subprocess.run(command, check=True, timeout=HANG_LIMIT_S, capture_output=True)


class Host:
    """A network namespace with an sshd, and an ssh configuration that leads there."""

    def __init__(self):
        self.name, self.wire = f"dd{os.getpid()}", f"v{os.getpid()}"
        self.dir = tempfile.mkdtemp(prefix="ddip-ssh-test.")
        self.config = self.dir + "/config"
        self.sshd = None
        self.network()
        for key in ("host", "user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.dir}/{key}")
        self.write(
            "sshd",
            f"""HostKey {self.dir}/host
Port {PORT}
ListenAddress {THEIRS}
AuthorizedKeysFile {self.dir}/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
SetEnv XDG_CACHE_HOME={self.dir}/cache DDIP_STATE={self.dir}
""",
        )
        with open(self.dir + "/host.pub", encoding="utf-8") as f:
            self.write("known", f"[{THEIRS}]:{PORT} {f.read()}")
        self.write(
            "config",
            f"""Host there
HostName {THEIRS}
Port {PORT}
User root
IdentityFile {self.dir}/user
IdentitiesOnly yes
UserKnownHostsFile {self.dir}/known
""",
        )
        os.makedirs("/run/sshd", exist_ok=True)
        self.start()

    def write(self, name, text):
        with open(f"{self.dir}/{name}", "w", encoding="utf-8") as f:
            f.write(text)

    def network(self):
        run("ip", "netns", "add", self.name)
        run(
            "ip", "link", "add", self.wire, "type", "veth", "peer", "name", "e0", "netns", self.name
        )
        run("ip", "addr", "add", f"{OURS}/30", "dev", self.wire)
        run("ip", "link", "set", self.wire, "up")
        for command in (f"addr add {THEIRS}/30 dev e0", "link set e0 up", "link set lo up"):
            run("ip", "-n", self.name, *command.split())

    def start(self):
        inside = ["ip", "netns", "exec", self.name]
        self.sshd = subprocess.Popen(
            [*inside, SSHD, "-D", "-e", "-f", self.dir + "/sshd"], stderr=subprocess.DEVNULL
        )
        until(lambda: self.answers(), what="sshd")

    def answers(self):
        return (
            subprocess.run([*self.ssh(), "true"], capture_output=True, check=False).returncode == 0
        )

    def ssh(self, *options):
        return ["ssh", "-F", self.config, "-T", "-o", "BatchMode=yes", *options, "there"]

    def cable(self, word):
        run("ip", "link", "set", self.wire, word)

    def close(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            run("ip", "link", "del", self.wire)
        self.sshd.kill()
        self.sshd.wait()
        run("ip", "netns", "del", self.name)
        shutil.rmtree(self.dir)


class There(Relayed):
    """An agent on such a host."""

    def __init__(self, host, *options, **settings):
        self.host = host
        super().__init__(engine="auto", launcher=host.ssh(*options), **settings)

    def stays(self):
        return [d for d in os.listdir(self.host.dir) if d.startswith("ddipfs-far.")]


def check_work(host):
    with There(host) as a:
        same(a.warm_phases.name, "Rzygote")
        same(os.readlink(f"/proc/{a.hello.pid}/exe"), brought(host.dir + "/cache")[0])
        a.spawn(0)
        r, out, err = a.run(0, "import sys; print('out'); print('err', file=sys.stderr); 6 * 7")
        same((r.value, out, err), (b"42", b"out\n", b"err\n"))
        network = os.readlink("/proc/self/ns/net")
        r, _, _ = a.run(0, "import os; os.readlink('/proc/self/ns/net')")
        assert network.encode() not in r.value, "it runs here, not there"


def check_cable(host):
    """The cable is pulled while a cell prints: the cell runs on, and all its output arrives."""
    with There(host) as a:
        a.spawn(0)
        done, down = host.dir + "/done", host.dir + "/down"
        source = f"""
import os, time
for i in range(200000): print(i)
while not os.path.exists({down!r}): time.sleep(0.005)
for i in range(200000, 400000): print(i)
open({done!r}, 'w').close()"""
        tag = a.ask("Trun", 0, 1, 1, source, mark=True)
        a.wait("Nmark")
        a.seen.clear()
        host.cable("down")
        open(down, "w", encoding="utf-8").close()
        until(lambda: os.path.exists(done), what="the end of the loop")
        until(lambda: "no word for 10 s" in a.text(), what="a dead connection")
        host.cable("up")
        r = a.wait(lambda m: m.tag == tag and m.name == "Rrun", what="Rrun")
        assert a.spool(0, "stdout")[: r.out] == b"".join(b"%d\n" % i for i in range(400000))


def check_refusals(host):
    """ssh does not prompt for anything: its own message is the error."""
    for option, text in (
        ("UserKnownHostsFile=/dev/null", "Host key verification failed"),
        ("PubkeyAuthentication=no", "Permission denied"),
        ("Port=2223", "Connection refused"),
    ):
        with There(host, "-o", option, "-o", "LogLevel=ERROR", warm=False) as a:
            refused(a.hello, "EHOSTDOWN", "host there: ssh ended with exit status 255: ")
            assert text in a.hello.text, a.hello.text


def test_ssh():
    host = Host()
    try:
        check_work(host)
        check_cable(host)
        check_refusals(host)
    finally:
        host.close()


def why_not():
    if not os.path.exists(PYTHON):
        return f"no Python at {PYTHON}"
    if not SSHD or not shutil.which("ssh"):
        return "there is no sshd, or no ssh"
    if not shutil.which("ip") or os.getuid() != 0:
        return "network namespaces are root's, by ip(8)"
    probe = f"ddprobe{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode:
        return "network namespaces can't be made here"
    run("ip", "netns", "del", probe)
    return None


if __name__ == "__main__":
    if why := why_not():
        print(why)
        sys.exit(77)
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
