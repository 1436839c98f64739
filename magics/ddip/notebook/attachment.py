"""The group that a shell works with: finding, creating, restarting and ending it (`%makedip`)."""

from __future__ import annotations

import errno
import os
import re
import sys
import time

from ddip import groups
from ddip.errors import DipError, GroupGone
from ddip.mounts import files, mount, where
from ddip.notebook.asked import last_cell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from ddip.groups import Group

    T = TypeVar("T")


_GPU = re.compile(r"all|[0-9]+|(GPU|MIG)-[0-9A-Za-z/-]+")  # all, or as nvidia-smi -L lists them
_STOPPED = ("new", "stopped", "stopping")
_START = re.compile(r"\(echo start > [^)]*/ctl\)")  # the daemon's hint for shells
_IDLE_S = 2 * 3600  # a group that a notebook has made and left gives its GPUs back
_TOLD_S = 60  # a group that has been unused for longer is said to be
_NAMED = 5  # variables that a refusal lists at most


class Attachment:
    """Holds the group of one shell, None until attached. args: the options of `%makedip`."""

    def __init__(self) -> None:
        self.group: Any = None  # a Group; None: not attached
        # what -m and -g chose: nothing else will do
        self._mount: str | None = None
        self._name: str | None = None
        self._path: str | None = None  # of the last group
        # path of a group -> pids of the ranks that this shell started
        self._started: dict[str, list[str | None]] = {}
        # path of a group -> pids of its ranks when this shell looked last
        self._known: dict[str, list[str | None]] = {}
        # the options with which a cell makes its group; None: it does not
        self.starts: Namespace | None = None
        # with starts: the path of a group that a restart has restarted
        self.restarted: str | None = None
        self._ends_idle = False  # this has set that the group ends when it is idle, and says so

    # ---- finding

    def look(self) -> Group | None:
        """The group; looks for one if this shell has none, or it is gone. None if none is found.

        Says so if cells ran on another one before. Raises DipError if that was chosen.
        """
        if self.group is None or not self.group.status():
            gone, found = self._path, self._find()
            if found is None and self._mount:
                there = where.is_mounted(self._mount)
                way = "%dip -g NAME chooses" if there else f"%makedip -m {self._mount} makes"
                raise DipError(f"the group {gone} is gone: {way} another, %makedip alone finds one")
            self._choose(found, self._mount, self._name)
            if found is not None and gone not in (None, found.path):
                print(f"The group {gone} is gone. Cells run on {found.path}")
                self._tell()
        return self.group

    def known(self) -> Group | None:
        """The group that a cell would run on; None if it is gone. Attaches to nothing."""
        group = self.group or self._find()
        return group if group is not None and group.status() else None

    def _find(self):
        """The group that was chosen, or else the default one. None if there is none."""
        path = where.locate(self._mount) if self._mount else where.find()
        if path is None:
            return None
        found = groups.Group(os.path.join(path, self._name or groups.default_group()))
        return found if found.status() else None

    def _choose(self, group, mount_path=None, name=None):
        self.group, self._mount, self._name = group, mount_path, name
        if group is not None:
            self._path = group.path

    def need(self, name: str | None = None) -> Group:
        """The current group, or another one of its mount. Raises DipError if there is none."""
        own = self.group is None or name in (None, os.path.basename(self.group.path))
        # another one is there even if the current one is gone
        if own or not where.is_mounted(os.path.dirname(self.group.path)):
            if self.look() is None:
                raise DipError("there is no DDP group: %makedip makes one")
        if name in (None, os.path.basename(self.group.path)):
            return self.group
        return groups.group(name, os.path.dirname(self.group.path))

    def _last(self, name):
        """The group that cells last ran on, which may be gone, if that is what name means."""
        if self.group is None:
            return self.need(name)
        same = name is None or name == os.path.basename(self.group.path)
        return self.group if same else self.need(name)

    def use(self, name: str) -> None:
        """Makes cells run on this group of the mount from now on."""
        group = self.need(name)
        self._choose(group, os.path.dirname(group.path), name)

    def with_group(self, name: str | None, act: Callable[[Group], T]) -> T:
        """Returns act(group) for the group that need() would return, which it does not ask first:
        act raises GroupGone if the last one is gone.

        If the group is stopped, starts it if cells do so; else the error says which magic does.
        """
        if self.starts is not None and self.group is None:
            self._begin()
        try:
            return self._act(name, act)
        except DipError as e:
            if e.errno != errno.ESRCH or not _START.search(str(e)):
                raise
            if self.starts is None or name is not None:
                e.args = (_START.sub("(%makedip starts it)", str(e)),)
                raise
        print("The ranks had ended: new ones have no variables")
        self.make(self.starts, False)
        return self._act(name, act)

    def _act(self, name, act):
        try:
            return act(self._last(name))
        except GroupGone:
            return act(self.need(name))

    # ---- attaching

    def attach(self, args: Namespace) -> None:
        """Finds the mount or starts a daemon; describes a group that already existed."""
        chosen = args.mount and os.path.abspath(os.path.expanduser(args.mount))
        if chosen:
            path, found = chosen, where.locate(chosen)
        elif self.group is not None and self.group.status():
            return
        else:
            path = found = where.find()
            path = path or mount.private_path()
        path, is_new = (found, False) if found else mount.start(path, args.with_kernel)
        if args.with_kernel and not is_new:
            print(f"{path} was there before: it will outlive this kernel", file=sys.stderr)
        group = groups.Group(os.path.join(path, groups.default_group()))
        is_made = is_new
        if not group.status():  # $DDIP_GROUP names one that does not exist yet
            self._make(group.path)
            is_made = True
        if is_made and group.settings().get("idle") == "off":
            group.ctl(f"idle {_IDLE_S}")
            self._ends_idle = True
        self._choose(group, chosen)
        self._known[group.path] = group.pids()
        if not is_new:
            self._tell()

    def _begin(self):
        """Before the first cell that makes its group: attaches to one, and starts it if need be."""
        self.attach(self.starts)
        if self.restarted == self.group.path:
            print("The ranks were restarted with the kernel: they have no variables")
        self.restarted = None
        self.make(self.starts, False)

    @staticmethod
    def _make(path):
        try:
            files.mkdir(path)
        except OSError as e:
            raise DipError(f"the group {path} cannot be made: {e.strerror}", e.errno) from e

    def _tell(self):
        """Describes the group that already existed."""
        status = self.group.status()
        if status.get("state") not in _STOPPED:
            text = f"Attached to {self.group.path}: {self.group.describe()}{_unused(self.group)}"
            if status.get("state") != "restarting":
                text += self._kept()
            if number := last_cell(self.group):
                text += f"; %dip --replay {number} shows its last cell's output"
            print(text)
        settings = self.group.settings()
        python, cwd = (_unquoted(settings.get(name, "")) for name in ("python", "cwd"))
        other = [python] if python and not _is_this_python(python) else []
        if cwd and not _is_same(cwd, os.getcwd()):
            other.append(f"in {cwd}")
        if other:
            print(f"Its ranks run {' '.join(other)}, this kernel {sys.executable} in {os.getcwd()}")

    # ---- ending

    def kill(self, path: str | None, verbose: bool) -> None:
        """Ends the ranks, and a daemon that a notebook started. path: the mount; None: this one."""
        if path:
            path = where.locate(os.path.abspath(os.path.expanduser(path)))
        else:
            path = os.path.dirname(self.group.path) if self.group else where.find()
        group = self.group
        if group is not None and path == os.path.dirname(group.path):
            self._choose(None)
        else:
            group = path and groups.Group(os.path.join(path, groups.default_group()))
        if path is None or not where.is_mounted(path):
            print("There is no DDP group")
            return
        if group.is_started():
            group.stop()  # its resources are free when this returns; the daemon may end later
        if mount.is_private(path):
            mount.end(path)
            text = f"The DDP group and its daemon at {path} have ended"
        else:
            text = f"The DDP group has ended; the mount {path} was not made here and stays"
        if verbose:
            print(text)

    # ---- making

    def make(self, args: Namespace, only_asks: bool) -> None:
        """Brings the group into the state that the options ask for."""
        group = self.group
        verbs = self._settings(args)
        changed = [verb for verb in verbs if not self._is_set(verb)]
        state = group.status().get("state")
        if not changed and not args.restart and state not in _STOPPED:
            if verbs:
                kept = self._kept()
                print(f"DDP group unchanged: {group.describe()}{kept}")
            return
        if only_asks:
            return
        group.try_settings(changed)
        if state not in _STOPPED:
            if not args.restart:
                self._refuse_to_lose(changed)
            group.stop()
        if changed:
            group.ctl(*changed)
        group.start(args.timeout)
        self._started[group.path] = self._known[group.path] = group.pids()
        print(f"DDP group: {group.describe()}")
        if self._ends_idle:
            hours = f"{_IDLE_S // 3600} h"
            print(f"It ends after {hours} without a cell (echo idle off > {group.path}/ctl)")
            self._ends_idle = False

    def _kept(self):
        """What the ranks keep, for a notebook that is run from its beginning again."""
        count = len(self.group.variables())
        text = f"; keeps {count} variable{'s' * (count > 1)} (%makedip -r starts anew)"
        return text if count else ""

    def tell_restart(self, group: Group) -> None:
        """Says so if all ranks are others than this shell has seen: a name that is missing is no
        mistake of the cell's."""
        before, now = self._known.get(group.path, []), group.pids()
        if not any(now):
            return
        self._known[group.path] = now
        if any(before) and not {*before} & {*now} - {None}:
            text = "All ranks are new: they have none of this notebook's variables"
            print(text, file=sys.stderr)

    def _refuse_to_lose(self, changed):
        """Raises DipError if this would end a cell that runs, or ranks started elsewhere, and lose
        their variables."""
        status = self.group.status()
        if status.get("state") == "busy":
            verbs, number = ", ".join(changed), status.get("cell")
            raise DipError(f"{verbs}: cell {number} runs; -r ends it")
        names = self.group.variables()
        if not names or self._started.get(self.group.path) == self.group.pids():
            return
        lost = ", ".join(names[:_NAMED])
        if len(names) > _NAMED:
            lost += f" and {len(names) - _NAMED} more"
        raise DipError(
            f"{', '.join(changed)}: that restarts the ranks, which would lose {lost}. They were not"
            " started here: add -r to do it"
        )

    def _settings(self, args):
        """The `ctl` verbs for the options."""
        verbs = []
        size = args.size
        if names := gpu_names(args.gpus):
            there = self.group.gpu_count()
            wanted = (there or 2) if names == ["all"] else len(names)
            size = size or wanted
            if there:
                verbs.append("gpus " + ",".join(names))
            else:
                print(f"There is no GPU here: rank{'s' * (size > 1)} on the CPU: {size}")
        if size is not None:
            verbs.append(f"size {size}")
        return verbs

    def _is_set(self, verb):
        name, _, value = verb.partition(" ")
        if name == "size":
            return self.group.size == int(value)
        return self.group.settings().get(name) == value


def gpu_names(words: Sequence[str] | None) -> list[str]:
    """The GPUs that `-g` names, or ["all"]."""
    names = [name for word in words or () for name in word.split(",") if name]
    for name in names:
        if name != "all" and not _GPU.fullmatch(name):
            raise DipError(f"-g: '{name}' is no GPU: want all, or a list like 0,1 or 3 1")
    return ["all"] if "all" in names else names


def _unused(group):
    """How much memory the ranks of a group have that nobody has used for a while; else ""."""
    status = group.status()
    idle_s = time.time() - float(status.get("since", "inf"))
    if status.get("state") != "idle" or idle_s < _TOLD_S:
        return ""
    unit, seconds = ("h", 3600) if idle_s >= 3600 else ("min", 60)
    count = int(idle_s // seconds)
    used = [size for size in group.meminfo().values() if size]
    return f", {sum(used) / 2**30:.1f} GiB of memory, idle for {count} {unit}"


def _unquoted(word):
    """A word of `ctl`, which is in quotes if it contains blanks."""
    return word[1:-1].replace("''", "'") if word.startswith("'") else word


def _is_this_python(python):
    """True for this kernel's interpreter, or another name for it in the same environment."""
    folder = os.path.dirname(os.path.abspath(python))
    return _is_same(folder, os.path.dirname(os.path.abspath(sys.executable)))


def _is_same(path, other):
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False
