"""The group that a shell works with: finding, creating, restarting and ending it (`%makedip`)."""

import errno
import os
import re
import sys

from ddip import files, groups, mount
from ddip.errors import DipError

_GONE = (errno.ENOENT, errno.ENOTCONN, errno.ENODEV, errno.ENOTDIR)  # the mount no longer exists
_GPU = re.compile(r"all|[0-9]+|(GPU|MIG)-[0-9A-Za-z/-]+")  # all, or as nvidia-smi -L lists them
_STOPPED = ("new", "stopped", "stopping")
_START = re.compile(r"\(echo start > [^)]*/ctl\)")  # the daemon's hint for shells
_NAMED = 5  # variables that a refusal lists at most


class Attachment:
    """Holds the group of one shell, None until attached. args: the options of `%makedip`."""

    def __init__(self):
        self.group = None
        self._others = {}  # name -> Group: other groups of the mount that cells chose
        self._started = {}  # path of a group -> pids of the ranks that this shell started

    # ---- finding

    def look(self):
        """The group; looks for one if this shell has none, or it is gone. None if none is found."""
        if self.group is None or not self.group.status():
            path = mount.find()
            found = path and os.path.join(path, groups.default_group())
            self._choose(groups.Group(found) if found and files.isdir(found) else None)
        return self.group

    def _choose(self, group):
        self.group, self._others = group, {}

    def need(self, name=None):
        """The current group, without checking that it still exists; looks for one if there is none.

        name: another group of the same mount. Raises DipError if there is none.
        """
        if self.group is None and self.look() is None:
            raise DipError("there is no DDP group: %makedip makes one")
        if name is None or name == os.path.basename(self.group.path):
            return self.group
        if name not in self._others:
            self._others[name] = groups.group(name, os.path.dirname(self.group.path))
        return self._others[name]

    def use(self, name):
        """Makes cells run on this group of the mount from now on."""
        group = self.need(name)
        self._choose(group)

    def with_group(self, name, act):
        """Calls act(group); if the group no longer exists, calls it again with the current one.

        Returns the result of act().
        """
        group = self.need(name)
        try:
            return act(group)
        except DipError as e:
            if e.errno == errno.ESRCH and _START.search(str(e)):
                e.args = (_START.sub("(%makedip starts it)", str(e)),)
            if e.errno not in _GONE or group.status():
                raise
            self._choose(None)
            return act(self.need(name))

    # ---- attaching

    def attach(self, args):
        """Finds the mount or starts a daemon; describes a group that already existed."""
        if args.mount:
            path = os.path.abspath(os.path.expanduser(args.mount))
            found = mount.locate(path)
        elif self.group is not None and self.group.status():
            return
        else:
            path = found = mount.find()
            path = path or mount.private_path()
        path = found or path
        if found is None:
            path = mount.start(path, args.with_kernel)
        elif args.with_kernel:
            print(f"{path} was there before: it will outlive this kernel", file=sys.stderr)
        group = groups.Group(os.path.join(path, groups.default_group()))
        if not group.status():  # $DDIP_GROUP names one that does not exist yet
            self._make(group.path)
        self._choose(group)
        if found is not None:
            self._tell()

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
            text = f"Attached to {self.group.path}: {self.group.describe()}"
            if int(status.get("cell", 0)):
                text += "; %dip --replay shows the last cell's output"
            print(text)
        settings = self.group.settings()
        python, cwd = settings.get("python", ""), settings.get("cwd", "")
        other = [python] if python and not _is_this_python(python) else []
        if cwd and not _is_same(cwd, os.getcwd()):
            other.append(f"in {cwd}")
        if other:
            print(f"Its ranks run {' '.join(other)}, this kernel {sys.executable} in {os.getcwd()}")

    # ---- ending

    def kill(self, path, verbose):
        """Ends the ranks, and a daemon that a notebook started. path: the mount; None: this one."""
        if path:
            path = mount.locate(os.path.abspath(os.path.expanduser(path)))
        else:
            path = os.path.dirname(self.group.path) if self.group else mount.find()
        self._choose(None)
        if path is None or not mount.is_mounted(path):
            print("There is no DDP group")
            return
        group = groups.Group(os.path.join(path, groups.default_group()))
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

    def make(self, args, only_asks):
        """Brings the group into the state that the options ask for."""
        group = self.group
        verbs = self._settings(args)
        changed = [verb for verb in verbs if not self._is_set(verb)]
        state = group.status().get("state")
        if not changed and not args.restart and state not in _STOPPED:
            if verbs:
                print(f"DDP group unchanged: {group.describe()}")
            return
        if only_asks:
            return
        group.try_settings(changed)
        if state not in _STOPPED:
            if not args.restart:
                self._refuse_to_lose(changed)
            group.stop()
            group.app = None
        if changed:
            group.ctl(*changed)
        group.start(args.timeout)
        self._started[group.path] = self._pids()
        print(f"DDP group: {group.describe()}")

    def _pids(self):
        return [row.get("pid") for row in self.group.ranks()]

    def _refuse_to_lose(self, changed):
        """Raises DipError if this would end ranks started elsewhere and lose their variables."""
        names = self.group.variables()
        if not names or self._started.get(self.group.path) == self._pids():
            return
        lost = ", ".join(names[:_NAMED])
        if len(names) > _NAMED:
            lost += f" and {len(names) - _NAMED} more"
        raise DipError(
            f"{', '.join(changed)}: the ranks were not started here, and would lose {lost}; with -r"
            " they do"
        )

    def _settings(self, args):
        """The `ctl` verbs for the options."""
        verbs = []
        size = args.size
        if args.gpus:
            names = [name for word in args.gpus for name in word.split(",") if name]
            names = ["all"] if "all" in names else names
            for name in names:
                if not _GPU.fullmatch(name):
                    raise DipError(f"-g: '{name}' is no GPU: want all, or a list like 0,1 or 3 1")
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


def _is_this_python(python):
    """True for this kernel's interpreter, or another name for it in the same environment."""
    folder = os.path.dirname(os.path.abspath(python))
    return _is_same(folder, os.path.dirname(os.path.abspath(sys.executable)))


def _is_same(path, other):
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False
