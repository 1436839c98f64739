"""The probes of ddip doctor: what this machine has. Each yields findings.

They may block, and run in a child with a time limit (doctor.py). A probe is called with the mount
that -m or $DDIP_MOUNT names, and the Python that was named; both may be "".
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import select
import shlex
import shutil
import signal
import socket
import stat
import subprocess
from typing import NamedTuple

import ddip
from ddip import interface, known_bad
from ddip.errors import DipError
from ddip.mounts import files, mount, where

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias, TypedDict

    # Called with the mount and the Python that are named, each of which may be "".
    Probe: TypeAlias = Callable[[str, str], Iterator["Finding"]]

    class _AboutPython(TypedDict):
        """The first line of _ASK."""

        version: str
        executable: str
        cpython: bool
        ipython: str | None
        numpy: str | None
        torch: bool

    class _AboutTorch(TypedDict):
        """Its second line."""

        version: str
        cuda: str | None
        hip: str | None
        distributed: bool
        nccl: str | None
        gpus: int
        warning: str

    class _Gpu(TypedDict, total=False):
        """What NVML says of a GPU; an old driver does not know its memory."""

        index: int
        name: str
        bytes: int
        free: int


OK, WARN, BAD, NONE = "ok", "warn", "bad", "-"  # as they are printed; NONE: not there, not needed
_OLDEST_KERNEL, _OLDEST_PYTHON = (5, 3), (3, 10)
_GB, _MB = 1e9, 1e6
_SPOOLS_LOW, _SPOOLS_LEAST = 1e9, 1e7  # bytes
_SHM_LOW = 256e6
_FILES_LOW, _PROCESSES_LOW, _STACK_LOW = 4096, 512, 1 << 20
_MOUNT_S = 3  # for a mount to answer


class Finding(NamedTuple):
    """A line of the report: all probes have at most 19. state: OK … NONE; help: the command that
    helps; data: for programs."""

    name: str
    state: str
    text: str
    help: str = ""
    data: Mapping[str, object] = {}


def _gigabytes(count: float) -> str:
    return f"{count / _GB:.1f} GB" if count >= _GB else f"{count / _MB:.0f} MB"


def _read(path: str) -> str:
    """The text of a small file; "" if it cannot be read."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip()
    return ""


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]


# ---- the programs, the kernel, the way in


def programs(named: str, chosen: str) -> Iterator[Finding]:
    """ddipfs, its engine, and this package, which belong together."""
    try:
        program = mount.program()
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except (DipError, OSError) as e:
        yield Finding("ddipfs", BAD, str(e), "make install, or pip install its wheel")
        return
    version = done.stdout.removeprefix("ddipfs ").strip()
    data = {"path": program, "version": version}
    if done.returncode:
        text = f"{program} does not run: {_first_line(done.stderr)}"
        yield Finding(
            "ddipfs", BAD, text, "install libfuse3, or the wheel, which has its own", data
        )
    elif version.partition(" ")[0] != ddip.__version__:
        text = f"{program} is version '{version}', and this tool {ddip.__version__}"
        yield Finding("ddipfs", BAD, text, "install both from the same source", data)
    elif not (engine := _engine(os.path.dirname(os.path.realpath(program)))):
        text = f"{program} has no ddip-engine beside it"
        yield Finding("ddipfs", BAD, text, "make, make install, or pip install its wheel", data)
    else:
        yield Finding("ddipfs", OK, f"{version}, {program}", "", data | {"engine": engine})


def _engine(folder: str) -> str | None:
    places = (f"{folder}/ddip-engine", f"{folder}/../libexec/ddipfs/ddip-engine")
    return os.environ.get("DDIP_ENGINE") or next((p for p in places if os.access(p, os.X_OK)), None)


def kernel(named: str, chosen: str) -> Iterator[Finding]:
    """The kernel and the C library."""
    release = platform.release()
    text = f"Linux {release}, {platform.machine()}, {' '.join(platform.libc_ver())}"
    data = {"release": release, "machine": platform.machine()}
    if known_bad.numbers(release)[:2] < _OLDEST_KERNEL:
        oldest = ".".join(map(str, _OLDEST_KERNEL))
        yield Finding("kernel", BAD, text, f"use a kernel from {oldest} on", data)
    else:
        yield Finding("kernel", OK, text, "", data)


def mounting(named: str, chosen: str) -> Iterator[Finding]:
    """/dev/fuse, and who may mount; without both there is the socket."""
    why, help_ = _cannot_mount()
    if why:
        text = f"{why}: ddip mount serves a socket (9P) instead"
        yield Finding("mounting", WARN, text, help_, {"mount": False})
    else:
        how = "as root" if not _needs_helper() else shutil.which("fusermount3")
        yield Finding("mounting", OK, f"/dev/fuse, {how}", "", {"mount": True})


def _cannot_mount() -> tuple[str, str]:
    """Why this user can mount nothing, and what helps; ("", "") if nothing is in the way."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return (
            "there is no /dev/fuse",
            "modprobe fuse; in a container: docker run --device /dev/fuse",
        )
    except OSError as e:
        help_ = "chmod 666 /dev/fuse; in a container: docker run --device /dev/fuse"
        return f"/dev/fuse: {e.strerror}", help_
    if not _needs_helper():
        return "", ""
    helper = shutil.which("fusermount3")
    if not helper:
        if os.getuid() == 0:
            return "root may not mount here", "docker run --cap-add SYS_ADMIN"
        return "there is no fusermount3", "apt-get install fuse3 (Fedora: dnf install fuse3)"
    about = os.stat(helper)
    if not (about.st_mode & stat.S_ISUID and about.st_uid == 0) and os.getuid():
        return f"{helper} is not setuid root", f"as root: chown root {helper}; chmod u+s {helper}"
    if os.getuid() and _status("NoNewPrivs") == "1":
        return "this process may not gain privileges", "docker run without no-new-privileges"
    if os.getuid() == 0:
        return "root may not mount here", "docker run --cap-add SYS_ADMIN"
    return "", ""


def _needs_helper() -> bool:
    """False for a process that may mount by itself (CAP_SYS_ADMIN)."""
    return not int(_status("CapEff") or "0", 16) >> 21 & 1


def _status(key: str) -> str:
    """A value of /proc/self/status; "" if it is not there."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith(f"{key}:"):
            return line.partition(":")[2].strip()
    return ""


# ---- Python


def default_python() -> str:
    """The Python that ddipfs chooses by itself (options_python in fs/options.c)."""
    venv = os.environ.get("VIRTUAL_ENV")
    places = [f"{venv}/bin/python"] if venv else []
    with contextlib.suppress(DipError):  # there is no ddipfs
        own = os.path.dirname(os.path.realpath(mount.program()))
        if os.path.exists(f"{own}/../pyvenv.cfg"):
            places.append(f"{own}/python")
    found = next((place for place in places if os.access(place, os.X_OK)), None)
    return found or shutil.which("python3") or "python3"


# Runs in the Python of the ranks, whatever that is. Writes a line for what needs no import of
# torch, and another one for torch.
_ASK = r"""
import json, os, sys
sys.path[:] = [d for d in sys.path if d]
about = {"version": ".".join(map(str, sys.version_info[:3])), "executable": sys.executable,
         "cpython": sys.implementation.name == "cpython" and "t" not in sys.abiflags}
from importlib import metadata, util
for name in ("ipython", "numpy"):
    try:
        about[name] = metadata.version(name)
    except Exception:
        about[name] = None
about["torch"] = util.find_spec("torch") is not None
out = os.fdopen(int(sys.argv[1]), "w")  # what is imported may print anything to stdout
out.write(json.dumps(about) + "\n")
out.flush()
if not about["torch"]:
    sys.exit()
import warnings
warnings.simplefilter("ignore")
import torch
about = {"version": str(torch.__version__), "cuda": torch.version.cuda,
         "hip": getattr(torch.version, "hip", None),
         "distributed": torch.distributed.is_available(), "nccl": None, "gpus": 0, "warning": ""}
if about["cuda"]:
    try:
        about["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:
        pass
if about["cuda"] or about["hip"]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            about["gpus"] = torch.cuda.device_count()
        about["warning"] = str(caught[0].message) if caught else ""
out.write(json.dumps(about) + "\n")
out.flush()
"""
_OTHER_PYTHON = "another Python: ddip doctor PYTHON, ddip mount -o python=PYTHON"


def python(named: str, chosen: str) -> Iterator[Finding]:
    """The Python of the ranks, with IPython, NumPy, torch and NCCL."""
    chosen = chosen or _group_python(named) or default_python()
    read, write = os.pipe()
    complaints = os.memfd_create("stderr")
    try:
        subprocess.Popen(
            [chosen, "-c", _ASK, str(write)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            pass_fds=[write],
        )
    except OSError as e:
        yield Finding("Python", BAD, f"{chosen}: {e.strerror}", _OTHER_PYTHON)
        return
    os.close(write)
    with open(read, encoding="utf-8") as lines:
        line = lines.readline()
        if not line:
            text = f"{chosen} does not run: {_last_line(complaints)}"
            yield Finding("Python", BAD, text, _OTHER_PYTHON)
            return
        about: _AboutPython = json.loads(line)
        yield from _about_python(about)
        install = f"{about['executable']} -m pip install"
        if not about["torch"]:
            help_ = f"{install} torch; or {_OTHER_PYTHON}"
            yield Finding("torch", BAD, "none: without it there are no collectives", help_)
        elif line := lines.readline():
            yield from _about_torch(json.loads(line), install)
        else:
            text = f"cannot be imported: {_last_line(complaints)}"
            yield Finding("torch", BAD, text, f"{install} --force-reinstall torch")


def _last_line(fd: int) -> str:
    """The last line that a program has written to its stderr."""
    text = os.pread(fd, 1 << 20, 0).decode("utf-8", "replace").strip()
    return text.splitlines()[-1] if text else "it says nothing"


def _group_python(named: str) -> str | None:
    """The Python that the group of the mount in use is set to; None if there is no such mount."""
    places = [named] if named else list(where.mounts())
    if len(places) != 1 or _trouble_of(places[0]):
        return None
    with contextlib.suppress(OSError, DipError):  # it may end at any moment
        text = files.read_text(f"{where.locate(places[0])}/group/ctl")
        for line in map(shlex.split, text.splitlines()):
            if line[:1] == ["python"]:
                return line[1]
    return None


def _about_python(about: _AboutPython) -> Iterator[Finding]:
    text = f"{about['version']}, {about['executable']}"
    if not about["cpython"]:
        text += ": CPython with its GIL is needed"
        yield Finding("Python", BAD, text, _OTHER_PYTHON, about)
    elif known_bad.numbers(about["version"]) < _OLDEST_PYTHON:
        text += ": 3.10 or newer is needed"
        yield Finding("Python", BAD, text, _OTHER_PYTHON, about)
    else:
        yield Finding("Python", OK, text, "", about)
    for name, version, without in (
        ("IPython", about["ipython"], "cells have no magics"),
        ("NumPy", about["numpy"], "tensors have no npy view"),
    ):
        text = version or f"none: {without}"
        help_ = "" if version else f"{about['executable']} -m pip install {name.lower()}"
        yield Finding(name, OK if version else NONE, text, help_, {"version": version})


def _about_torch(about: _AboutTorch, install: str) -> Iterator[Finding]:
    build = f"CUDA {about['cuda']}" if about["cuda"] else "no CUDA"
    build = f"ROCm {about['hip']}" if about["hip"] else build
    text = f"{about['version']} ({build})"
    why = known_bad.about("torch", about["version"])
    state, help_ = OK, ""
    if known_bad.too_old(about["version"]):
        oldest = ".".join(map(str, known_bad.OLDEST_TORCH))
        state, text, help_ = BAD, f"{text}: {oldest} or newer is needed", f"{install} -U torch"
    elif not about["distributed"]:
        state, text, help_ = BAD, f"{text}: built without torch.distributed", f"{install} torch"
    elif why:
        state, text, help_ = WARN, f"{text}; known to fail: {why}", f"{install} -U torch"
    elif not about["gpus"] and _has_gpu():
        why = _first_line(about["warning"]) if about["cuda"] else "it is built without CUDA"
        state, text = WARN, f"{text} does not use the GPUs here: {why or 'it finds none'}"
        help_ = f"{install} --force-reinstall torch, a build for the driver of this machine"
    yield Finding("torch", state, text, help_, about)
    version = about["nccl"]
    if not version:
        yield Finding("NCCL", NONE, "none: collectives are gloo's", "", {"version": None})
    elif why := known_bad.about("NCCL", version):
        help_ = f"{install} -U torch, which brings its NCCL"
        yield Finding("NCCL", WARN, f"known to fail: {why}", help_, {"version": version})
    else:
        yield Finding("NCCL", OK, version, "", {"version": version})


# ---- GPUs


def _has_gpu() -> bool:
    """True if there is an NVIDIA GPU, with or without a driver."""
    if os.path.exists("/dev/nvidia0"):
        return True
    with contextlib.suppress(OSError):  # there is no PCI bus
        for device in os.scandir("/sys/bus/pci/devices"):
            vendor, kind = _read(f"{device.path}/vendor"), _read(f"{device.path}/class")
            if vendor == "0x10de" and kind.startswith("0x03"):  # NVIDIA, a display controller
                return True
    return False


class _Nvml:
    """NVIDIA's library that reports on GPUs. Of an old driver, functions may be missing."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def call(self, name: str, *args: object) -> bool:
        """True if there is such a function, and it succeeds. The newest version of it is taken."""
        for version in ("_v2", ""):
            with contextlib.suppress(AttributeError):
                return getattr(self._library, name + version)(*args) == 0
        return False

    def text(self, name: str, *args: object) -> str:
        """The text that a function writes; "" if it fails."""
        text = ctypes.create_string_buffer(96)
        done = self.call(name, *args, text, ctypes.c_uint(len(text)))
        return text.value.decode(errors="replace") if done else ""

    def number(self, name: str) -> int:
        """The number that a function writes; 0 if it fails."""
        number = ctypes.c_uint(0)
        return number.value if self.call(name, ctypes.byref(number)) else 0


def gpus(named: str, chosen: str) -> Iterator[Finding]:
    """NVIDIA's driver and its GPUs, by NVML."""
    try:
        nvml = _Nvml(ctypes.CDLL(os.environ.get("DDIP_NVML") or "libnvidia-ml.so.1"))
    except OSError:
        if _has_gpu():
            text = "an NVIDIA GPU, but no driver (libnvidia-ml.so.1)"
            help_ = "install NVIDIA's driver; in a container: docker run --gpus all"
            yield Finding("driver", WARN, text, help_)
        else:
            yield Finding("driver", NONE, "none of NVIDIA's")
        yield _gpus([])
        return
    if not nvml.call("nvmlInit"):
        help_ = "nvidia-smi says more; after an upgrade of the driver: reboot"
        yield Finding("driver", WARN, "NVIDIA's does not answer (nvmlInit fails)", help_)
        return
    version = nvml.text("nvmlSystemGetDriverVersion")
    cuda = nvml.number("nvmlSystemGetCudaDriverVersion")
    newest = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None
    text = f"NVIDIA {version or 'of unknown version'}"
    text += f", for CUDA up to {newest}" if newest else ""
    yield Finding("driver", OK, text, "", {"version": version, "cuda": newest})
    found: list[_Gpu] = []
    for index in range(nvml.number("nvmlDeviceGetCount")):
        handle, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()  # total, free, used
        if nvml.call("nvmlDeviceGetHandleByIndex", index, ctypes.byref(handle)):
            gpu: _Gpu = {"index": index, "name": nvml.text("nvmlDeviceGetName", handle)}
            if nvml.call("nvmlDeviceGetMemoryInfo", handle, memory):
                gpu |= {"bytes": memory[0], "free": memory[1]}
            found.append(gpu)
    yield _gpus(found)


def _gpus(found: list[_Gpu]) -> Finding:
    if not found:
        return Finding("GPUs", NONE, "none: ranks compute on the CPU", "", {"gpus": []})
    names = [gpu["name"] or "of unknown name" for gpu in found]
    text = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    free = sum(gpu.get("free", 0) for gpu in found)
    whole = sum(gpu.get("bytes", 0) for gpu in found)
    text += f"; {_gigabytes(free)} of {_gigabytes(whole)} free" if whole else ""
    return Finding("GPUs", OK, text, "", {"gpus": found})


# ---- network, limits, room


def network(named: str, chosen: str) -> Iterator[Finding]:
    """The interfaces that gloo uses: on one host the loopback."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), _MOUNT_S).close()
    except OSError as e:
        yield Finding("gloo", BAD, f"127.0.0.1 does not work: {e.strerror}", "ip link set lo up")
        return
    other = interface.towards(())
    text = f"lo; to other hosts {other}" if other else "lo; there is no way to other hosts"
    yield Finding("gloo", OK, text, "", {"interface": other})


def _limit(kind: int) -> list[int | None]:
    soft, hard = resource.getrlimit(kind)
    return [None if each == resource.RLIM_INFINITY else each for each in (soft, hard)]


def _limit_text(value: int | None, unit: Callable[[int], str] = str) -> str:
    return "unlimited" if value is None else unit(value)


def limits(named: str, chosen: str) -> Iterator[Finding]:
    """What a process may use."""
    soft, hard = _limit(resource.RLIMIT_NOFILE)
    text, data = f"{_limit_text(soft)}, at most {_limit_text(hard)}", {"soft": soft, "hard": hard}
    low = hard is not None and hard < _FILES_LOW
    help_ = "nofile in /etc/security/limits.conf; docker run --ulimit nofile=65536" if low else ""
    yield Finding("open files", WARN if low else OK, text, help_, data)
    yield _processes()
    soft, _ = _limit(resource.RLIMIT_MEMLOCK)
    low = soft is not None and bool(os.path.isdir("/sys/class/infiniband"))
    low = low and bool(os.listdir("/sys/class/infiniband"))
    help_ = "memlock in /etc/security/limits.conf; docker run --ulimit memlock=-1" if low else ""
    text = _limit_text(soft, _gigabytes) + (", too little for InfiniBand" if low else "")
    yield Finding("locked memory", WARN if low else OK, text, help_, {"soft": soft})
    soft, _ = _limit(resource.RLIMIT_STACK)
    low = soft is not None and soft < _STACK_LOW
    text, help_ = _limit_text(soft, _gigabytes), "ulimit -s 8192" if low else ""
    yield Finding("stack", WARN if low else OK, text, help_, {"soft": soft})


def _processes() -> Finding:
    """How many more processes and threads this user may have."""
    soft, _ = _limit(resource.RLIMIT_NPROC)
    left = []
    if soft is not None and os.getuid():  # it does not hold for root
        left.append(soft - _threads_of(os.getuid()))
    for line in _read("/proc/self/cgroup").splitlines():
        folder = "/sys/fs/cgroup" + line.rpartition(":")[2]
        most, now = _read(f"{folder}/pids.max"), _read(f"{folder}/pids.current")
        if most.isdigit() and now.isdigit():
            left.append(int(most) - int(now))
    least = min(left, default=None)
    low = least is not None and least < _PROCESSES_LOW
    text = "unlimited" if least is None else f"{least} more"
    help_ = "ulimit -u 65536; docker run --pids-limit 65536" if low else ""
    return Finding("processes", WARN if low else OK, text, help_, {"left": least})


def _threads_of(uid: int) -> int:
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == uid:
                count += len(os.listdir(f"/proc/{pid}/task"))
    return count


def shared_memory(named: str, chosen: str) -> Iterator[Finding]:
    """/dev/shm, which NCCL and DataLoader use."""
    help_ = "mount -o remount,size=8G /dev/shm; docker run --shm-size=8g"
    try:
        room = os.statvfs("/dev/shm")
    except OSError as e:
        yield Finding("/dev/shm", WARN, str(e.strerror), "mount -t tmpfs tmpfs /dev/shm")
        return
    size, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    data = {"bytes": size, "free": free}
    text = f"{_gigabytes(free)} of {_gigabytes(size)} free"
    if not os.access("/dev/shm", os.W_OK):
        yield Finding("/dev/shm", WARN, f"{text}, not writable", "chmod 1777 /dev/shm", data)
    elif free < _SHM_LOW:
        text += ": little for NCCL, and for workers of DataLoader"
        yield Finding("/dev/shm", WARN, text, help_, data)
    else:
        yield Finding("/dev/shm", OK, text, "", data)


def spools(named: str, chosen: str) -> Iterator[Finding]:
    """Where ddipfs keeps the output of ranks."""
    root = os.environ.get("DDIP_STATE") or os.environ.get("TMPDIR") or "/var/tmp"
    folder = os.path.join(root, f"ddipfs-{os.getuid()}")
    elsewhere = "export DDIP_STATE=DIR, a directory of yours with room"
    try:
        about = os.lstat(folder) if os.path.lexists(folder) else None
        room = os.statvfs(folder if about else root)
    except OSError as e:
        yield Finding("spools", BAD, f"{root}: {e.strerror}", elsewhere)
        return
    free = room.f_bavail * room.f_frsize
    data, text = {"path": folder, "free": free}, f"{folder}: {_gigabytes(free)} free"
    foreign = about and (about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode))
    if foreign or (about and about.st_mode & 0o077):
        text = f"{folder} is not a directory of yours with mode 0700"
        yield Finding("spools", BAD, text, f"rm -r {folder}, or {elsewhere}", data)
    elif not os.access(folder if about else root, os.W_OK):
        yield Finding("spools", BAD, f"{folder} is not writable", elsewhere, data)
    elif free < _SPOOLS_LOW:
        yield Finding("spools", BAD if free < _SPOOLS_LEAST else WARN, text, elsewhere, data)
    else:
        yield Finding("spools", OK, text, "", data)


# ---- other processes, other mounts


class _Vector(ctypes.Structure):
    """struct iovec"""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def memory_reads(named: str, chosen: str) -> Iterator[Finding]:
    """Whether the daemon may read variables from the memory of ranks, and wait for them."""
    scope = _read("/proc/sys/kernel/yama/ptrace_scope") or "0"
    data = {"ptrace_scope": int(scope)}
    name, text = "memory reads", f"pidfd, process_vm_readv, ptrace_scope {scope}"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as e:
        help_ = "a container's seccomp profile forbids it: use one of this kernel's time"
        yield Finding(name, BAD, f"pidfd_open: {e.strerror}", help_, data)
        return
    why = _why_unreadable()
    if not why:
        yield Finding(name, OK, text, "", data)
        return
    help_ = "docker run --cap-add SYS_PTRACE"
    if int(scope) > 1:
        help_ = "sysctl -w kernel.yama.ptrace_scope=1"
    yield Finding(name, BAD, f"variables cannot be read: process_vm_readv: {why}", help_, data)


def _why_unreadable() -> str:
    """Why the memory of a child of this process cannot be read; "" if it can."""
    here, there = ctypes.create_string_buffer(8), ctypes.create_string_buffer(b"readable", 8)
    waits, ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ends)
        os.read(waits, 1)
        os._exit(0)
    libc = ctypes.CDLL(None, use_errno=True)
    local, remote = (_Vector(ctypes.addressof(each), 8) for each in (here, there))
    count = libc.process_vm_readv(
        pid, ctypes.byref(local), ctypes.c_ulong(1), ctypes.byref(remote), ctypes.c_ulong(1),
        ctypes.c_ulong(0),
    )  # fmt: skip
    why = "" if count == 8 and here.raw == there.raw else os.strerror(ctypes.get_errno())
    os.close(ends)
    os.waitpid(pid, 0)
    return why


def _trouble_of(place: str) -> str:
    """What is wrong with a mount or a socket; "" if it answers. It may hang for ever."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, b"" if where.locate(place) else b"nothing is served there")
        except (OSError, DipError) as e:
            os.write(write, str(e).encode())
        finally:
            os._exit(0)
    os.close(write)
    answered = select.select([read], [], [], _MOUNT_S)[0]
    text = os.read(read, 4096).decode("utf-8", "replace") if answered else "it does not answer"
    os.close(read)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0 if answered else os.WNOHANG)
    return text


def mounts(named: str, chosen: str) -> Iterator[Finding]:
    """The mounts of this user, and the socket: each may be dead, or hang."""
    mounted = where.mounts()
    found = list(dict.fromkeys([*filter(None, [named]), *mounted]))
    if os.path.exists(socket_ := where.default_socket()):
        found.append(socket_)
    trouble = {place: text for place in found if (text := _trouble_of(place))}
    data = {"mounts": found, "trouble": trouble}
    if not trouble:
        yield Finding("mounts", OK if found else NONE, ", ".join(found) or "none", "", data)
        return
    helps = {place: f"ddip mount {place}" for place in trouble}
    helps |= {place: f"fusermount3 -u -z {place}" for place in mounted if place in trouble}
    helps |= {place: f"rm {place}" for place in [socket_] if place in trouble}
    text = "; ".join(f"{place}: {why}" for place, why in trouble.items())
    yield Finding("mounts", WARN, text, "; ".join(helps.values()), data)


# name, probe, how long it may take, what helps if it takes longer
TABLE: tuple[tuple[str, Probe, int, str], ...] = (
    ("ddipfs", programs, 10, "ddipfs --version"),
    ("kernel", kernel, 10, "uname -a"),
    ("mounting", mounting, 10, "ls -l /dev/fuse"),
    ("Python", python, 60, "python3 -X importtime -c 'import torch' shows what it waits for"),
    ("GPUs", gpus, 10, "nvidia-smi, which hangs, too: reset the GPUs, or reboot"),
    ("gloo", network, 10, "ip address"),
    ("limits", limits, 10, "ulimit -a"),
    ("/dev/shm", shared_memory, 10, "df /dev/shm"),
    ("spools", spools, 10, "export DDIP_STATE=DIR, a directory on a disk of this machine"),
    ("memory reads", memory_reads, 10, "sysctl kernel.yama.ptrace_scope"),
    ("mounts", mounts, 10, "findmnt -t fuse.ddipfs; fusermount3 -u -z the one that hangs"),
)
