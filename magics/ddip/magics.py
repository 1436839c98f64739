"""The magics and their options. What they do is in mount.py, group.py, run.py and objects.py."""

import errno
import os
import re
import shlex
import sys

from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from ddip import apps, mount, run
from ddip import group as groups
from ddip import ranks as rank_lists
from ddip.complete import Helper
from ddip.errors import DipError
from ddip.failures import failure

LOCALLY = "#dip_locally"  # a first line that keeps %autodip away from a cell
_WHERE = ("remote", "local", "everywhere")
_TO = {"remote": "remote", "gpu": "remote", "local": "local", "both": "everywhere"}
_GONE = (errno.ENOENT, errno.ENOTCONN, errno.ENODEV, errno.ENOTDIR)  # its mount is not there
_GPU = re.compile(r"all|[0-9]+|(GPU|MIG)-[0-9A-Za-z/-]+")  # what nvidia-smi -L names
_STOPPED = ("new", "stopped", "stopping")


def _words(line):
    """The words of a magic's line, as a shell splits them; # begins a comment."""
    try:
        return shlex.split(line, comments=True)
    except ValueError as e:
        raise DipError(f"{line!r}: {e}") from None


@magics_class
class DdipMagics(Magics):
    """The magics of one shell."""

    def __init__(self, shell):
        super().__init__(shell=shell)
        self.group = None  # the Group that cells run on; None: not attached yet
        self.verbose = False
        self._parsed = None, None  # the last line of %%dip, its options
        self._auto = None  # what %autodip puts in front of cells; None: nothing
        self._helper = Helper(shell, self.is_remote, self.attached)

    # ---- %makedip

    @magic_arguments()
    @argument(
        "-g",
        "--gpus",
        nargs="+",
        metavar="GPU",
        help="the GPUs of the group, a rank for each: all, or a list like 0,1 or 3 1. Without"
        " GPUs the ranks run on the CPU.",
    )
    @argument("-n", dest="size", type=int, metavar="N", help="how many ranks")
    @argument("-a", "--app", help="prepare the ranks for an application: fastai, fastai_v1")
    @argument("-r", "--restart", action="store_true", help="end the ranks and start new ones")
    @argument(
        "-k",
        "--kill",
        action="store_true",
        help="end the ranks, and the daemon if it was started from a notebook",
    )
    @argument("-i", "--info", action="store_true", help="show the group")
    @argument(
        "-v",
        "--verbose",
        nargs="?",
        const="True",
        choices=["True", "False"],
        help="say what is done with each cell",
    )
    @argument("-t", "--timeout", type=float, metavar="S", help="wait so long for the ranks")
    @argument(
        "-m",
        "--mount",
        metavar="PATH",
        help="use the mount at this path; if there is none, start a daemon there",
    )
    @argument(
        "--with-kernel",
        action="store_true",
        help="the group that is started now ends with this kernel",
    )
    @line_magic
    def makedip(self, line=""):
        """Make, change, restart, end or show a DDP group.

        Uses the mount of $DDIP_MOUNT, else the only one of this user; without one a daemon is
        started. The group outlives the kernel: %makedip in the next one finds it again.
        """
        args = self.makedip.parser.parse_args(_words(line))
        if args.verbose:
            self.verbose = args.verbose == "True"
        if args.kill:
            self._kill(args)
            return
        if self._only_asks(args) and self.attached() is None:
            print("There is no DDP group")
            return
        self._attach(args)
        self._make(args)
        if args.app:
            self._prepare(args.app)
        if args.info:
            print(self.info())

    def _only_asks(self, args):
        """True for `%makedip -i`, which starts nothing."""
        asks_more = args.gpus or args.size or args.restart or args.app or args.mount
        return args.info and not asks_more

    def info(self):
        """What `%makedip -i` shows."""
        return f"{self.group.info()}\nAutomatic DDP execution: {self._auto or 'Off'}"

    def attached(self):
        """The group, found if this shell has none yet; None if nothing is mounted."""
        if self.group is None or not self.group.status():
            path = mount.find()
            found = path and os.path.join(path, groups.default_group())
            self.group = groups.Group(found) if found and os.path.isdir(found) else None
        return self.group

    def _need(self):
        """The group of the last cell, which is not asked whether it is still there; else a look."""
        if self.group is None and self.attached() is None:
            raise DipError("there is no DDP group: %makedip makes one")
        return self.group

    def _with_group(self, act):
        """act(group); once more, with the group that is there now, if that one has gone."""
        group = self._need()
        try:
            act(group)
        except DipError as e:
            if e.errno not in _GONE or group.status():
                raise
            self.group = None
            act(self._need())

    def _attach(self, args):
        """Finds the mount or starts a daemon; tells what is there."""
        if args.mount:
            path = os.path.abspath(os.path.expanduser(args.mount))
            found = path if mount.is_mounted(path) else None
        elif self.group is not None and self.group.status():
            return
        else:
            path = found = mount.find()
            path = path or mount.private_path()
        if found is None:
            mount.start(path, args.with_kernel)
        elif args.with_kernel:
            print(f"{path} was there before: it will outlive this kernel", file=sys.stderr)
        self.group = groups.Group(os.path.join(path, groups.default_group()))
        status = self.group.status()
        if found is not None and status.get("state") not in _STOPPED:
            text = f"Attached to {self.group.path}: {self.group.describe()}"
            if int(status.get("cell", 0)):
                text += "; %dip --replay shows the last cell's output"
            print(text)

    def _kill(self, args):
        """Ends the ranks; ends a daemon that was started from a notebook."""
        if args.mount:
            path = os.path.abspath(os.path.expanduser(args.mount))
        else:
            path = os.path.dirname(self.group.path) if self.group else mount.find()
        self.group = None
        if path is None or not mount.is_mounted(path):
            print("There is no DDP group")
            return
        group = groups.Group(os.path.join(path, groups.default_group()))
        if group.is_started():
            group.stop()  # what it holds is free when this returns, the daemon's end may come later
        if mount.is_private(path):
            mount.stop(path)
            text = f"The DDP group and its daemon at {path} have ended"
        else:
            text = f"The DDP group has ended; the mount {path} was not made here and stays"
        if self.verbose:
            print(text)

    def _make(self, args):
        """Brings the group into the state that the options ask for."""
        group = self.group
        verbs = self._settings(args)
        changed = {verb for verb in verbs if not self._is_set(verb)}
        state = group.status().get("state")
        if not changed and not args.restart and state not in _STOPPED:
            if verbs:
                print(f"DDP group unchanged: {group.describe()}")
            return
        if self._only_asks(args):
            return
        group.try_settings([verb for verb in verbs if verb in changed])
        if state not in _STOPPED:
            group.stop()
            group.app = None
        if changed:
            group.ctl(*[verb for verb in verbs if verb in changed])
        group.start(args.timeout)
        print(f"DDP group: {group.describe()}")

    def _settings(self, args):
        """The verbs that the options stand for."""
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

    def _prepare(self, name):
        """Runs an application's source on the ranks; what is missing is told, and no error."""
        from ddip.cell import Interrupts, follow, submit

        texts = {}

        def take(messages):
            for message in messages:
                if message["type"] == "stream":
                    texts.setdefault(message["rank"], []).append(message["text"])

        with Interrupts() as interrupts:
            cell = submit(self.group, apps.source(name))
            end = follow(cell, take, interrupts=interrupts)
        if end["state"] != "ok":
            raise failure(cell, {}, end)
        lines = {rank: "".join(pieces).strip() for rank, pieces in sorted(texts.items())}
        if all(line.startswith(f"{name}: ") for line in lines.values()):
            print(lines[0], file=sys.stderr)
            return
        self.group.app = name
        if self.verbose:
            print(f"{name}:", *lines.values(), sep="\n")

    # ---- %%dip

    @magic_arguments()
    @argument(
        "-q",
        "--quiet",
        action="store_true",
        help="show the output when the cell is done, without what was redrawn on the way",
    )
    @argument(
        "-S",
        "--see",
        nargs="+",
        metavar="RANK",
        help="the ranks whose output is shown: a list like 0,2-3 or 0 1, or all. Default: 0.",
    )
    @argument("-a", "--appcmd", metavar="CMD", help="a command for the application, run before")
    @argument(
        "--ranks", nargs="+", metavar="RANK", help="run it on these ranks only: 0,2-3 or 0 2-3"
    )
    @argument("-t", "--to", choices=sorted(_TO), help="where to run it: remote, local, or both")
    @argument(
        "-p", "--push", nargs="+", metavar="NAME", help="set these variables on all ranks first"
    )
    @argument(
        "--replay",
        nargs="?",
        const="last",
        metavar="N",
        help="show the output of the last cell, or of cell N, again; follow it while it runs",
    )
    @argument("--auto", action="store_true", help="the line was put there by %%autodip")
    @argument(
        "where",
        nargs="?",
        choices=_WHERE,
        default="remote",
        help="where to run the cell: on the ranks, in the notebook, or first here, then there",
    )
    @line_cell_magic
    def dip(self, line, cell=None):
        """Run a cell on the ranks of the DDP group, in the notebook, or in both."""
        args = self._dip_args(line)
        if args.push:
            self._push(args.push)
        if args.replay:
            self._replay(args)
        if cell is None or not cell.strip():
            return
        if args.where != "remote":
            self._say(f"%%dip {line}: Running cell in local namespace.")
            self._run_locally(cell, args.quiet)
        if args.where != "local":
            self._run_remotely(line, cell, args)

    def _dip_args(self, line):
        """The options of a line, parsed when it is another one than the last."""
        if self._parsed[0] != line:
            self._parsed = line, self._parse_dip(line)
        return self._parsed[1]

    def _parse_dip(self, line):
        """A word like `remote` behind -S or -p means the place."""
        args = self.dip.parser.parse_args(_words(line))
        for words in (args.see, args.push, args.ranks):
            for word in _WHERE:
                if words and words[-1] == word:
                    args.where = words.pop()
        if args.to:
            args.where = _TO[args.to]
        return args

    def _say(self, text):
        if self.verbose:
            print(text, flush=True)

    def _run_locally(self, cell, quiet):
        """Runs it here as a cell of its own; what it raises is raised, and shown once."""
        shell, shown = self.shell, []
        show = shell._showtraceback
        shell._showtraceback = lambda *what: shown.append(what)
        try:
            result = shell.run_cell(f"{LOCALLY}\n{cell}", silent=quiet)
        finally:
            shell._showtraceback = show
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            if shown:
                error._render_traceback_ = lambda: shown[-1][2]
            raise error

    def _run_remotely(self, line, cell, args):
        # the magic's own line stands for itself: line numbers are those that the user sees
        own_line = not args.auto and not cell.lstrip().startswith("%%")
        source = f"#%%dip {line}".rstrip() + f"\n{cell}" if own_line else cell
        self._with_group(lambda group: self._run_on(group, line, source, args))

    def _run_on(self, group, line, source, args):
        if args.appcmd:
            run.run(self.shell, group, apps.command(group.app, _words(args.appcmd)), see=["all"])
        if self.verbose:
            places = group.ddp_group
            print(
                f"%%dip {line}: Running cell in remote DDP namespace (GPUs: {places}).", flush=True
            )
        run.run(self.shell, group, source, args.see, args.quiet, args.ranks)

    def _replay(self, args):
        group = self._need()
        number = args.replay
        if number == "last":
            number = group.status().get("cell", "0")
        if not number.isdigit() or number == "0":
            raise DipError("--replay: there is no cell yet")
        run.replay(self.shell, group, int(number), args.see)

    # ---- %autodip

    @magic_arguments()
    @argument("-a", "--args", metavar="ARGS", help='options for %%dip, in quotes: -a "--see all"')
    @argument("state", nargs="?", choices=["on", "off"], help="alone: show what is set")
    @line_magic
    def autodip(self, line):
        """Run the cells after this one on the ranks, as if each began with %%dip.

        A cell whose first line begins with % is left alone, one that begins with #dip_locally
        runs in the notebook.
        """
        args = self.autodip.parser.parse_args(_words(line))
        if args.state == "off":
            self._auto = None
        elif args.state == "on":
            self._auto = f"%%dip {args.args}" if args.args else "%%dip"
            self._dip_args(args.args or "")
        where = f"on, will run cell as {self._auto}" if self._auto else "Off"
        print(f"Auto Execution on DDP group: {where}")

    def transform(self, lines):
        """IPython's hook: puts %%dip in front of a cell, if %autodip is on."""
        if self._auto and lines and self.is_remote("".join(lines)) and lines[0][:1] != "%":
            options = self._auto.removeprefix("%%dip").strip()
            return [f"%%dip --auto {options}".rstrip() + "\n", *lines]
        return lines

    def is_remote(self, code):
        """True if this cell would run on ranks."""
        first = code.lstrip("\n").partition("\n")[0]
        if first.startswith("%%dip"):
            words = re.split(r"\s+", first)[1:]
            return first.split()[0] == "%%dip" and "local" not in words
        return bool(self._auto) and bool(code.strip()) and not first.startswith(("%", LOCALLY))

    # ---- %dipush, %dipull, %dipper

    @magic_arguments()
    @argument("names", nargs="+", metavar="NAME", help="variables or functions of the notebook")
    @line_magic
    def dipush(self, line):
        """Set variables on all ranks to what they are in the notebook."""
        self._push(self.dipush.parser.parse_args(_words(line)).names)

    def _push(self, names):
        group = self._need()
        missing = [name for name in names if name not in self.shell.user_ns]
        if missing:
            raise DipError(f"there is no variable {missing[0]} in the notebook")
        self._say(f"Pushing parameters to DDP namespace: {names}")
        group.push({name: self.shell.user_ns[name] for name in names})

    @magic_arguments()
    @argument("-r", "--rank", default="0", metavar="RANK", help="the rank, or all. Default: 0.")
    @argument("names", nargs="+", metavar="NAME", help="variables of the ranks")
    @line_magic
    def dipull(self, line):
        """Set variables in the notebook to what they are on a rank; with -r all to lists."""
        args = self.dipull.parser.parse_args(_words(line))
        group = self._need()
        self._say(f"Pulling from DDP namespace: {args.names}")
        ranks = rank_lists.parse([args.rank], group.size)
        pulled = [group.pull(args.names, rank) for rank in ranks]
        if args.rank == "all":
            self.shell.push({name: [values[name] for values in pulled] for name in args.names})
        elif len(pulled) == 1:
            self.shell.push(pulled[0])
        else:
            raise DipError(f"-r: want one rank or all, not '{args.rank}'")

    @line_magic
    def dipper(self, line=""):
        """Put the handle of the group into a variable: %dipper NAME."""
        name = line.strip()
        if not name.isidentifier():
            raise DipError("usage: %dipper NAME")
        self.shell.push({name: self._need()})

    # ---- the extension

    def install(self):
        """Hooks that are no magics."""
        self.shell.input_transformers_cleanup.append(self.transform)
        self._helper.install()

    def remove(self):
        """Takes the hooks away."""
        self.shell.input_transformers_cleanup.remove(self.transform)
        self._helper.remove()


_NAMES = ("makedip", "dip", "autodip", "dipush", "dipull", "dipper")


def load(shell):
    """Adds everything to a shell, once."""
    if DdipMagics.__name__ in shell.magics_manager.registry:
        return
    magics = DdipMagics(shell)
    shell.register_magics(magics)
    magics.install()


def unload(shell):
    """Takes everything away."""
    magics = shell.magics_manager.registry.pop(DdipMagics.__name__, None)
    if magics is None:
        return
    magics.remove()
    for table in shell.magics_manager.magics.values():
        for name in _NAMES:
            table.pop(name, None)
