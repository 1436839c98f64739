"""ddip run --hosts: a program has a daemon of its own, on a socket, which ends with it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time

from ddip.cells import cell
from ddip.errors import DipError
from ddip.mounts import mount, where
from ddip.tool.call import ENDING, USAGE, Failure, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from ddip.tool.call import Options, Tool

_SLURM = "slurm"
_SETTING = re.compile(r"([a-z_]+)=(.*)", re.S)


@contextlib.contextmanager
def own_daemon(tool: Tool, options: Options) -> Iterator[None]:
    """With --hosts LIST: what `tool` does within is done to a group on these hosts, of which
    nothing is left afterwards. Without it, does nothing. Raises Failure or DipError."""
    hosts = options.last("hosts")
    if hosts is None:
        if options.has("option"):
            raise tool.misuse("-o goes with --hosts; the settings of a group are in its ctl")
        yield
        return
    settings = _settings(tool, hosts, options)
    folder = tempfile.mkdtemp(prefix="ddip-run.")
    try:
        socket = _place(tool) or os.path.join(folder, "ddip.sock")
        words = [f"{name}={value}" for name, value in settings.items()]
        tool.show(f"ddipfs -f -s {socket} {' '.join(f'-o {word!r}' for word in words)} &")
        mount.serve(socket, words)
        tool.use(socket)
        _check_names(tool, settings)
        with _told_to_end(tool, settings.get("on_preempt", "").partition(" ")[0]):
            yield
    finally:
        _end(tool)
        shutil.rmtree(folder, ignore_errors=True)


def _settings(tool: Tool, hosts: str, options: Options) -> dict[str, str]:
    """The settings of the group, in the order in which they were given."""
    settings = {"hosts": hosts}
    if hosts == _SLURM:
        _check_allocation()
        settings["launcher"] = "srun"
    for given in options.given.get("option", ()):
        found = _SETTING.fullmatch(given)
        if not found:
            raise tool.misuse(f"-o: want SETTING=VALUE, not '{given}'")
        settings[found[1]] = found[2]
    return settings


def _check_names(tool: Tool, settings: dict[str, str]) -> None:
    """The daemon takes options of FUSE as well, and ignores them here."""
    known = {line.split()[0] for line in tool.group.read("ctl").splitlines()}
    for name in settings:
        if name not in known:
            raise tool.misuse(f"-o: there is no setting '{name}'")


def _check_allocation() -> None:
    if "SLURM_JOB_NODELIST" not in os.environ:
        text = "--hosts slurm: this is no Slurm allocation: run it by salloc or sbatch"
        raise Failure(USAGE, text)
    if int(os.environ.get("SLURM_STEP_NUM_TASKS") or 1) > 1:
        text = "--hosts slurm: run it once, by salloc or sbatch, and not by srun in each task"
        raise Failure(USAGE, text)


def _place(tool: Tool) -> str | None:
    """The socket that -m or DDIP_MOUNT names, if nothing serves there; None: it names none."""
    if not tool.named.endswith(".sock"):
        return None
    path = os.path.abspath(tool.named)
    if where.locate(path):
        raise Failure(
            USAGE, f"{path}: a ddipfs serves there; --hosts starts one: name another socket"
        )
    return path


@contextlib.contextmanager
def _told_to_end(tool: Tool, on_preempt: str) -> Iterator[None]:
    """These signals interrupt the program as Ctrl-C does; SIGTERM may be its on_preempt. Those that
    come together are one: timeout(1) signals the process and its group."""
    acted = -cell.ONE_S

    def act(signum: int, frame: FrameType | None) -> None:
        nonlocal acted
        if time.monotonic() < acted + cell.ONE_S:
            return
        acted = time.monotonic()
        if signum == signal.SIGTERM and on_preempt.upper().removeprefix("SIG") == "TERM":
            tool.tell("ctl", "preempt")
        elif signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background job
            raise KeyboardInterrupt
        else:
            signal.raise_signal(signal.SIGINT)

    told = [each for each in ENDING if signal.getsignal(each) != signal.SIG_IGN]
    before = {each: signal.signal(each, act) for each in told}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _end(tool: Tool) -> None:
    """Ends the ranks and the daemon, if there is one."""
    if not tool.is_own:
        return
    try:
        with contextlib.suppress(DipError, OSError):
            tool.ctl("stop")
        mount.stop(tool.mount)
    except (DipError, OSError) as e:
        say(f"the daemon at {tool.mount}: {e}")
