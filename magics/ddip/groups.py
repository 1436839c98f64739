"""A group of ranks as an object: each method is a few file operations below mount/group.

The class is the handle that `%dipper` provides; the magics use it too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time

from ddip.errors import DipError, GroupGone
from ddip.mounts import files, where

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, TypeAlias

    Ranks: TypeAlias = int | str | list[int] | list[str] | tuple[int | str, ...]


_STARTED = ("idle", "busy", "recovering")


class _Existing:
    """See Group.existing()."""

    def __init__(self, group):
        self._group = group

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        if isinstance(error, OSError):
            self._group.check()


def default_group() -> str:
    """The name of the group to use: $DDIP_GROUP, else `group`."""
    return os.environ.get("DDIP_GROUP", "group")


def _pairs(text):
    """`key value` lines as a dictionary."""
    return dict(line.partition(" ")[::2] for line in text.splitlines())


def _words(ranks):
    """Ranks (a list, or one number or text) as a list of words; None stays None."""
    if ranks is None or isinstance(ranks, (list, tuple)):
        return ranks
    return [ranks]


def _count_gpus(path):
    lines = files.read_text(os.path.join(path, "gpus")).splitlines()
    return sum(1 for line in lines if not line.startswith("#"))


def group(name: str | None = None, mount: str | os.PathLike[str] | None = None) -> Group:
    """The handle of a mounted group: ddip.group().run("print(rank)").

    name: that of the group; None: in a notebook the one that its magics use, else $DDIP_GROUP, else
    `group`. mount: its path; None: the one that the magics use, or that `%makedip` would attach to.
    Raises DipError if there is none.
    """
    attachment = None if mount else _attachment()
    if attachment is not None:
        return attachment.need(name)
    path = where.locate(os.path.expanduser(mount)) if mount else where.find()
    if path is None:
        raise DipError("nothing is mounted: `ddipfs DIRECTORY`, or %makedip in a notebook")
    found = Group(os.path.join(path, name or default_group()))
    if not found.status():
        raise DipError(f"there is no group {found.path}")
    return found


def _attachment():
    """The Attachment of the running shell; None if it does not have the magics."""
    loaded = sys.modules.get("ddip.notebook.magics")  # not on a rank, nor in a program
    shell = sys.modules["IPython"].get_ipython() if loaded else None
    return None if shell is None else loaded.attachment(shell)


class Group:
    """The ranks below one directory of a mount.

    g["x"] is the object x of rank 0, g["x", 1] that of rank 1; g["x"] = v sets x on all ranks,
    g["x", 1] = v only on rank 1.
    """

    app: str | None = None  # name of the application that `%makedip -a` prepared
    prepared: Sequence[str | None] = ()  # the pids of the ranks that it prepared
    chosen: Mapping[str, Sequence[str]] = {}  # a command of the application -> its last words

    def __init__(self, path: str) -> None:
        """path: the group's directory, below a mount point or a socket."""
        self.path = path
        files.learn(os.path.dirname(path))

    def __repr__(self) -> str:
        return f"<ddip.Group {self.path}: {self.describe()}>"

    # ---- looking

    def read(self, name: str) -> str:
        """The text of a file of the group."""
        return files.read_text(os.path.join(self.path, name))

    def status(self) -> dict[str, str]:
        """`status` as a dictionary; empty if the mount is gone."""
        try:
            return _pairs(self.read("status"))
        except OSError:
            return {}

    def check(self) -> None:
        """Raises GroupGone if it no longer exists."""
        if not self.status():
            raise GroupGone(f"the group {self.path} is gone")

    def existing(self) -> AbstractContextManager[None]:
        """An OSError within becomes GroupGone if the group no longer exists."""
        return _Existing(self)

    def settings(self) -> dict[str, str]:
        """`ctl` as a dictionary."""
        return _pairs(self.read("ctl"))

    def ranks(self) -> list[dict[str, str]]:
        """A dictionary for each rank: state, pid, gpu …"""
        lines = self.read("ranks").splitlines()
        return [dict(word.partition("=")[::2] for word in line.split()[1:]) for line in lines]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.ranks())

    @property
    def ddp_group(self) -> list[int]:
        """The GPU of each rank, or the rank's number if it has none; as in the original Ddip."""
        places = [row.get("gpu", "-") for row in self.ranks()]
        return [int(gpu) if gpu.isdigit() else rank for rank, gpu in enumerate(places)]

    def is_started(self) -> bool:
        """True if the ranks have started."""
        return self.status().get("state") in _STARTED

    def gpu_count(self) -> int:
        """The number of GPUs that the daemon may use."""
        if self.settings().get("gpus") == "all":
            return _count_gpus(self.path)
        with (
            self._another() as other
        ):  # this group's list has only its own GPUs; a new group's has all
            return _count_gpus(other.path)

    @contextlib.contextmanager
    def _another(self):
        """A second group, which never starts and is removed when the context ends."""
        other = Group(f"{self.path}-try-{os.getpid()}")
        files.mkdir(other.path)
        try:
            yield other
        finally:
            files.rmdir(other.path)

    def try_settings(self, verbs: Sequence[str]) -> None:
        """Raises DipError if a setting is refused, so that nothing is stopped for it in vain."""
        if verbs:
            with self._another() as other:
                other.ctl(*verbs)

    def describe(self) -> str:
        """One line: the state, and the devices that the ranks run on."""
        status = self.status()
        if not status:
            return "not mounted any more"
        text = f"{status['state']}, {self._places()}"
        if status.get("state") == "busy":
            text += f", cell {status.get('cell')} runs"
        return text

    def _places(self):
        rows = self.ranks()
        gpus = [row.get("gpu", "-") for row in rows]
        if not any(gpu.isdigit() for gpu in gpus):
            return f"{len(rows)} CPU rank{'' if len(rows) == 1 else 's'}"
        return ", ".join(f"rank {rank} on GPU {gpu}" for rank, gpu in enumerate(gpus))

    def pids(self) -> list[str | None]:
        """The pids of the ranks; None for one that has no process."""
        pids = [row.get("pid", "") for row in self.ranks()]
        return [pid if pid.isdigit() else None for pid in pids]

    def info(self) -> str:
        """What `%makedip -i` shows."""
        rows = self.ranks()
        pids = [int(pid) for pid in self.pids() if pid]
        gpus = [row.get("gpu", "-") for row in rows]
        places = [f"Rank {k}: {'GPU' + g if g.isdigit() else 'CPU'}" for k, g in enumerate(gpus)]
        return "\n".join(
            (
                f"Cluster processes: mount {self.path}, engine pids: {pids}",
                f"DDP group: {places} ({self.status().get('state')})",
                f"DDP application: {self.app}",
            )
        )

    # ---- errors

    def failures(self) -> list[dict[str, Any]]:
        """The failures that the group remembers, oldest first, as in error.json."""
        import json  # late: every call of `ddip` imports this module

        return json.loads(self.read("error.json"))

    def error_from(self, error: OSError, what: str, since: float) -> DipError:
        """The DipError for a failed file operation. since: the wall time at which it began.

        Its text is that of the group's latest failure since then, if there is one.
        """
        try:
            new = [each["text"] for each in self.failures() if each["time"] >= since - 0.001]
        except OSError:
            text: str | None = f"{error.strerror} (is the mount {self.path} gone?)"
        else:
            text = new[-1] if new else error.strerror
        return DipError(f"{what}: {text}", error.errno)

    # ---- verbs

    def ctl(self, *lines: str, wait: bool = True) -> None:
        """Writes verbs to `ctl`, one after another. wait: waits until they have completed.

        Raises DipError with the daemon's message.
        """
        since, line = time.time(), ""
        try:
            flags = files.WRITE_VERBS | (0 if wait else os.O_NONBLOCK)
            with files.open_(os.path.join(self.path, "ctl"), flags) as file:
                try:
                    for line in lines:
                        files.write_all(file, line.encode() + b"\n")
                    if wait:
                        file.fsync()
                except KeyboardInterrupt:
                    file.abandon()
                    raise
        except OSError as e:
            raise self.error_from(e, line or self.path, since) from e

    def start(self, timeout: float | None = None) -> None:
        """Starts the ranks and waits until they are ready, at most timeout seconds (None: forever).

        Raises DipError if they fail to start or are not ready in time.
        """
        if timeout is None:
            self.ctl("start")
            return
        since, end = time.time(), time.monotonic() + timeout
        with files.open_(os.path.join(self.path, "events")) as events:
            self.ctl("start", wait=False)
            while (state := self.status().get("state")) not in _STARTED:
                left = end - time.monotonic()
                if state in ("stopped", "new", None):
                    raise self.error_from(OSError(errno.EHOSTDOWN, "no ranks"), "start", since)
                if left <= 0:
                    raise DipError(f"not started within {timeout:g} s: {self.describe()}")
                if events.poll(left * 1000) and not events.read(1 << 16):
                    time.sleep(files.LOOK_S)

    def stop(self) -> None:
        """Ends the ranks; their variables are lost."""
        self.ctl("stop")

    def restart(self) -> None:
        """Ends the ranks and starts new ones."""
        self.ctl("restart")

    def interrupt(self) -> None:
        """Interrupts whatever is running, no matter who submitted it."""
        self.ctl("interrupt", wait=False)

    interrupt_engines = interrupt_all = interrupt
    shutdown_cluster = exit_group = stop

    # ---- cells and objects, for programs

    def run(
        self,
        source: str | bytes,
        see: Ranks | None = None,
        ranks: Ranks | None = None,
        quiet: bool = False,
    ) -> Any:
        """Runs a cell and shows it as `%%dip` does; see, ranks: lists like [0, 2] or "0,2-3".

        Returns its results as they were shown: the value if one rank has one, {rank: value} if
        several do. A result that is not a Python literal becomes an object that displays as it
        did in the cell. Raises RemoteError.
        """
        from ddip.cells.run import run

        get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
        return run(get_ipython(), self, source, _words(see), quiet, _words(ranks))

    def run_cell(self, source: str | bytes, quiet: bool = False, see: Ranks | None = None) -> None:
        """Like run(), with the arguments of the original Ddip."""
        self.run(source, see, quiet=quiet)

    def push(self, names: Mapping[str, Any]) -> None:
        """Sets variables on all ranks: {name: object}."""
        for name, value in names.items():
            self[name] = value

    def pull(self, names: Iterable[str], rank: int = 0) -> dict[str, Any]:
        """The objects of these names on one rank: {name: object}. `locals/NAME`: that name in the
        code that runs there."""
        return {name: self[name, rank] for name in names}

    def __getitem__(self, key: str | tuple[str, int]) -> Any:
        from ddip.cells.objects import pull

        name, rank = key if isinstance(key, tuple) else (key, 0)
        return pull(self, name, rank)

    def __setitem__(self, key: str | tuple[str, int], value: Any) -> None:
        from ddip.cells.objects import push

        name, rank = key if isinstance(key, tuple) else (key, None)
        push(self, name, value, rank)

    def scatter(self, name: str, value: Any) -> None:
        """Splits an array, a tensor or a list along its first axis; each rank gets its part."""
        from ddip.cells.objects import push

        push(self, name, value, op="cat")

    def gather(self, name: str) -> Any:
        """Joins the parts of all ranks, as the inverse of scatter()."""
        from ddip.cells.objects import pull

        return pull(self, name, None, op="cat")

    def variables(self) -> list[str]:
        """The names of the variables that the ranks have reported."""
        return sorted(self.table())

    def table(self) -> dict[str, dict[str, str]]:
        """The same with what is known of each: name -> {"type": …, "dtype": …, "shape": …, …}."""
        rows = [line.split() for line in self.read("names").splitlines()]
        return {
            name: dict(word.partition("=")[::2] for word in facts)
            for name, *facts in (row for row in rows if row and not row[0].startswith("#"))
        }

    def meminfo(self) -> dict[int, int | None]:
        """The memory of each rank in bytes; None for a rank on another host."""
        used = [row.get("rss_bytes", "0") for row in self.ranks()]
        return {k: int(n) if n.isdigit() else None for k, n in enumerate(used)}
