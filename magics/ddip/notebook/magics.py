"""The magics and their options. The work is done in attachment.py, groups.py and run.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from traitlets import Unicode

from ddip import apps, patches
from ddip import ranks as rank_lists
from ddip.cells import run
from ddip.cells.catch_up import catch_up
from ddip.cells.failures import failure
from ddip.errors import DipError, RemoteError
from ddip.notebook import asked, breakpoints, options
from ddip.notebook.attachment import Attachment, gpu_names
from ddip.notebook.complete import Helper
from ddip.notebook.used import is_used
from ddip.shown import live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


LOCALLY = "#dip_locally"  # as the first line of a cell: %autodip leaves it alone
_LOCAL = re.compile(r"%%(local|dip\s+local)\s*")  # first lines that mean nothing else
_VOILA = "VOILA_PREHEAT"  # is in the environment of each of Voila's kernels, whatever its value
_NAMES = ("makedip", "dip", "steer", "watch", "autodip", "dipush", "dipull", "dipper")
_DIRECTIVE = re.compile(r"#\s*ddip( run| frame)?:")  # ddipfs(4): for the ranks
# the magic that a cell begins with, as in r = %dip x
_MAGIC = re.compile(r"(?:(?:[\w ,.:*()]|\[[^]=]*\])+=\s*)?%%?(\w*)")
# lines at a cell's beginning that load the extension
_LOADS = re.compile(r"\A\s*(?:%(?:re)?load_ext +[dD]dipp?[ \t]*\n\s*)+(?=\S)")
# Where all cells run on the ranks, those that begin with one of these magics do not.
_HERE = (*_NAMES, "local", "pip", "conda", "mamba", "micromamba", "uv", "connect_info", "qtconsole")


@magics_class
class DdipMagics(Magics):
    """The magics of one shell."""

    see = Unicode("", help="the ranks whose output is shown: as -S, which comes first").tag(
        config=True
    )

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell=shell, parent=shell)
        self.attachment = Attachment()
        self.verbose = False
        self._see = options.words(self.see) or None  # words for the ranks to show, without -S
        self._parsed = None, None  # the last line of %%dip, its options
        self._auto: str | None = None  # what %autodip puts in front of cells; None: nothing
        self._takes_all = False  # also of cells that begin with a magic; and makes the group
        self._helper = Helper(
            shell, self.is_remote, self.attachment.known, lambda: breakpoints.rank(shell)
        )

    # ---- %makedip

    @magic_arguments()
    @argument(
        "-g",
        "--gpus",
        nargs="+",
        metavar="GPU",
        help="the GPUs to use, one rank on each: all, or a list such as 0,1 or 3 1. Without GPUs,"
        " ranks run on the CPU.",
    )
    @argument("-n", dest="size", type=int, metavar="N", help="number of ranks")
    @argument("-a", "--app", help="prepare the ranks for an application: fastai, fastai_v1")
    @argument("-r", "--restart", action="store_true", help="end the ranks and start new ones")
    @argument(
        "-k",
        "--kill",
        action="store_true",
        help="end the ranks, and the daemon if it was started from a notebook",
    )
    @argument("-i", "--info", action="store_true", help="show the state of the group")
    @argument(
        "-v",
        "--verbose",
        nargs="?",
        const="True",
        choices=["True", "False"],
        help="print where each cell runs",
    )
    @argument("-t", "--timeout", type=float, metavar="S", help="wait S seconds for the ranks")
    @argument(
        "-m",
        "--mount",
        metavar="PATH",
        help="use the mount at this path; if there is none, start a daemon there",
    )
    @argument(
        "--with-kernel",
        action="store_true",
        help="end the group with this kernel",
    )
    @line_magic
    def makedip(self, line: str = "") -> None:
        """Make, change, restart, end or show a DDP group.

        Uses the mount at $DDIP_MOUNT, else the one that the notebook's directory is in, else the
        only one below it, else this user's only one; if there is none, starts a daemon. The group
        outlives the kernel: %makedip in the next kernel finds it again. One that this has made ends
        after 2 h without a cell; the verb `idle` of its ctl changes that.
        """
        args = self.makedip.parser.parse_args(options.words(line))
        if args.verbose:
            self.verbose = args.verbose == "True"
        makes = args.gpus or args.size is not None or args.restart or args.app
        if args.kill:
            if makes or args.info or args.with_kernel:
                raise DipError("-k ends the group, and goes with -m and -v only; -r restarts it")
            self.attachment.kill(args.mount, self.verbose)
            return
        # what can be wrong is found before anything is made
        source = apps.source(args.app) if args.app else ""
        gpu_names(args.gpus)
        only_asks = args.info and not (makes or args.mount)
        if only_asks and self.attachment.look() is None:
            print("There is no DDP group")
            return
        self.attachment.attach(args)
        self.attachment.make(args, only_asks)
        if args.app:
            self._prepare(args.app, source)
        if args.info:
            info = self.attachment.group.info()
            print(f"{info}\nAutomatic DDP execution: {self._auto or 'Off'}")
            self._check_names()
            print(*patches.lines(), sep="\n", end="\n" if patches.lines() else "")

    def _check_names(self):
        """Notes which private names the magics do without, used or not."""
        patches.OPTIONS.of(self.dip.parser)
        patches.SHOW_LOCALLY.of(self.shell)
        if (kernel := getattr(self.shell, "kernel", None)) is not None:
            patches.INSPECT.of(kernel)
            patches.SHUTDOWN.of(kernel)

    def _prepare_new(self, group):
        """Prepares ranks for the application of the group that are new since it was."""
        with group.existing():
            before, now = group.prepared, group.pids()
        new = [rank for rank, pid in enumerate(now) if pid is None or pid not in before]
        if not new or not any(now):  # the group is stopped
            return
        they = "is new, and is" if len(new) == 1 else "are new, and are"
        print(f"{group.app}: {rank_lists.name(new)} {they} prepared")
        words, chosen = rank_lists.spell(new), group.chosen
        try:
            self._prepare(group.app, apps.source(group.app), words)
            for command in chosen.values():
                run.run(self.shell, group, apps.command(group.app, command), new, ranks=new)
        finally:
            group.prepared, group.chosen = now, chosen

    def _prepare(self, name, source, ranks=None):
        """Runs an application's source on the ranks; reports a missing package without an error."""
        from ddip.cells.cell import Interrupts, follow, submitted

        texts = {}

        def take(messages):
            for message in messages:
                if message["type"] == "stream":
                    texts.setdefault(message["rank"], []).append(message["text"])

        group = self.attachment.group
        with Interrupts() as interrupts, submitted(group, source, ranks) as cell:
            end = follow(cell, take, interrupts=interrupts)
        if end["state"] != "ok":
            raise failure(cell, {}, end)
        lines = {rank: "".join(pieces).strip() for rank, pieces in sorted(texts.items())}
        if all(line.startswith(f"{name}: ") for line in lines.values()):
            print(next(iter(lines.values()), ""), file=sys.stderr)
            return
        group.app, group.prepared, group.chosen = name, group.pids(), {}
        if self.verbose:
            print(f"{name}:", *lines.values(), sep="\n")

    # ---- %%dip

    @magic_arguments()
    @argument(
        "-q",
        "--quiet",
        action="store_true",
        help="show the output only when the cell is done, without text that was redrawn",
    )
    @argument(
        "-S",
        "--see",
        nargs="+",
        metavar="RANK",
        help="the ranks whose output to show: a list such as 0,2-3 or 0 1, all, or tabs: all, each"
        " in a tab of its own. Default: 0. Without code, the default for later cells.",
    )
    @argument("-a", "--appcmd", metavar="CMD", help="first run this command of the application")
    @argument(
        "--ranks",
        "--targets",
        nargs="+",
        metavar="RANK",
        help="run it on these ranks only: 0,2-3 or 0 2-3, or a slice such as ::2",
    )
    @argument("-t", "--to", choices=options.TO, help="where to run it: remote, local, or both")
    @argument(
        "-g",
        "--group",
        metavar="NAME",
        help="run it on this group of the mount. Without code, later cells run there.",
    )
    @argument(
        "--noblock",
        action="store_true",
        help="do not wait: return an object with wait(), result(), show() and interrupt()",
    )
    @argument(
        "-p", "--push", nargs="+", metavar="NAME", help="set these variables on all ranks first"
    )
    @argument(
        "--scatter",
        nargs="+",
        metavar="NAME",
        help="split these arrays and lists of the notebook over the ranks first",
    )
    @argument(
        "--gather",
        nargs="+",
        metavar="NAME",
        help="afterwards join the ranks' arrays and lists of these names in the notebook",
    )
    @argument(
        "--replay",
        nargs="?",
        const="last",
        metavar="N",
        help="show the output of the last cell, or of cell N, again; follow it if it still runs",
    )
    @argument(
        "--plot",
        nargs="+",
        metavar="NAME",
        help="draw these variables of all ranks while the cell runs: numbers, or lists of numbers",
    )
    @argument(
        "--linked",
        action="store_true",
        help="the widgets that the ranks make are one: a change of one reaches all ranks at once,"
        " whose callbacks may hold a collective",
    )
    @argument("--top", action="store_true", help="show what all ranks do, from now on")
    @argument(
        "--catch-up",
        type=int,
        metavar="RANK",
        help="first copy to a rank that is new the variables, models and optimizers of another one",
    )
    @argument(
        "--debug",
        metavar="RANK",
        help="in the kernel DDP (ddipfs): the rank on which breakpoints stop, and whose variables"
        " the editor shows; all stops all ranks. Default: 0.",
    )
    @argument("--auto", action="store_true", help="set by %%autodip in the lines that it adds")
    @argument(
        "where",
        nargs="?",
        choices=options.WHERE,
        default="remote",
        help="where to run it: on the ranks, in the notebook, or in the notebook and then there",
    )
    @no_var_expand  # {x} and $x in the code are the ranks'
    @line_cell_magic
    def dip(self, line: str, cell: str | None = None) -> Any:
        """Run a cell on the ranks of the DDP group, in the notebook, or in both.

        %dip CODE runs a single line: %dip -S all print(rank). x = %dip CODE sets x to the value on
        rank 0, or with --ranks to a list of values.
        """
        if cell is None:
            line, cell = options.split(self.dip.parser, line)
        if line:
            line = self.shell.var_expand(line, depth=2)  # of the caller of IPython's run_…_magic()
        args = self._dip_args(line)
        if args.push:
            self._push(args.push, args.group)
        for name in args.scatter or ():
            self.attachment.need(args.group).scatter(name, self._local(name))
        if args.replay:
            self._replay(args)
        if args.catch_up is not None:
            print(*catch_up(self.attachment.need(args.group), args.catch_up), sep="\n")
        if args.debug is not None:
            breakpoints.choose(self.shell, args.debug)
        if args.plot and not cell.strip():
            raise DipError("--plot draws while a cell runs: its code goes below, or behind")
        if args.top:
            live.top(self.shell, self.attachment.need(args.group))
        made = self._run(line, cell, args) if cell.strip() or args.appcmd else None
        for name in args.gather or ():
            self.shell.push({name: self.attachment.need(args.group).gather(name)})
        acts = args.push or args.scatter or args.gather or args.replay or args.appcmd or args.top
        acts = acts or args.catch_up is not None or args.debug is not None
        if not cell.strip() and not acts:
            self._set_defaults(args)
        return made

    def _run(self, line, cell, args):
        """Runs the cell where the options say. Returns the object of --noblock, a value that is
        used, or None."""
        if args.where != "remote":
            self._say(f"%%dip {line}: Running cell in local namespace.")
            self._run_locally(cell, args.quiet)
        return self._run_remotely(line, cell, args) if args.where != "local" else None

    def _set_defaults(self, args):
        """Makes the options of a %dip without code the defaults from now on."""
        if args.group:
            self.attachment.use(args.group)
            print(f"Cells run on {self.attachment.group.path}")
        if args.see:
            self._see = args.see
            if args.see == [rank_lists.TABS]:
                print("Shown is the output of all ranks, each in a tab")
                return
            ranks = rank_lists.spell(rank_lists.parse(args.see, self.attachment.need().size))
            print(f"Shown is the output of rank{'s' * (not ranks.isdigit())} {ranks}")

    def _dip_args(self, line):
        """The options of a line, which is parsed only if it differs from the last one."""
        if self._parsed[0] != line:
            self._parsed = line, options.parse(self.dip.parser, line)
        return self._parsed[1]

    def _say(self, text):
        if self.verbose:
            print(text, flush=True)

    def _run_locally(self, cell, quiet):
        """Runs it in the notebook as a separate cell; raises its exception, which is shown once."""
        shell, shown = self.shell, []
        if _needs_loop(shell, cell):
            text = "its await needs the event loop that runs this magic: a cell that begins with"
            raise DipError(f"{text} {LOCALLY} instead runs in the notebook, too")
        show = patches.SHOW_LOCALLY.of(shell)
        patches.SHOW_LOCALLY.put(shell, lambda *what: shown.append(what))
        try:
            result = shell.run_cell(_with_first_line(LOCALLY, cell), silent=quiet)
        finally:
            patches.SHOW_LOCALLY.put(shell, show)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            if shown:
                # even if its class refuses assignments
                object.__setattr__(error, "_render_traceback_", lambda: shown[-1][2])
            raise error

    def _run_remotely(self, line, cell, args):
        own_line = bool(cell) and not args.auto
        source = _with_first_line(f"#%%dip {line}".rstrip(), cell) if own_line else cell
        return self.attachment.with_group(
            args.group, lambda group: self._run_on(group, line, source, args)
        )

    def _run_on(self, group, line, source, args):
        see = args.see or self._see
        if args.appcmd or self.verbose:
            group.check()  # these ask it what it is
        if group.app is not None:
            self._prepare_new(group)
        if args.appcmd:
            words = options.words(args.appcmd)
            run.run(self.shell, group, apps.command(group.app, words), see=["all"])
            group.chosen = group.chosen | {words[0]: words}
            if not source.strip():
                return None
        if self.verbose:
            places = group.ddp_group
            print(
                f"%%dip {line}: Running cell in remote DDP namespace (GPUs: {places}).", flush=True
            )
        if args.noblock:
            return run.detach(self.shell, group, source, see, args.ranks)
        debugged, used = breakpoints.around(self.shell, group, source), is_used()
        try:
            with debugged, live.plotting(self.shell, group, args.plot):
                value, _ = run.run_cell(
                    self.shell, group, source, see, args.quiet, args.ranks, args.linked, used
                )
        except RemoteError:
            with contextlib.suppress(OSError):  # the group is gone, too
                self.attachment.tell_restart(group)
            raise
        return value() if used else None

    def _replay(self, args):
        group = self.attachment.need(args.group)
        number = args.replay
        if number == "last":
            number = str(asked.last_cell(group))
        if not number.isdigit() or number == "0":
            raise DipError("--replay: there is no cell yet")
        run.replay(self.shell, group, int(number), args.see)

    @magic_arguments()
    @argument("-g", "--group", metavar="NAME", help="a group of the mount; else the current one")
    @argument("-S", "--see", nargs="+", metavar="RANK", help="the ranks to show. Default: 0.")
    @no_var_expand
    @line_cell_magic
    def steer(self, line: str, cell: str | None = None) -> None:
        """Run code within the running cell or program, between the same two steps on all its ranks.

        It sees and sets the variables of the function that makes the step: %steer lr = 0.01. What
        it raises is raised here, not there. If nothing runs it is a cell.
        """
        if cell is None:
            line, cell = options.split(self.steer.parser, line, ())
        args = self.steer.parser.parse_args(options.words(line))
        self.attachment.with_group(
            args.group, lambda group: run.steer(self.shell, group, cell, args.see or self._see)
        )

    @magic_arguments()
    @argument("-g", "--group", metavar="NAME", help="a group of the mount; else the current one")
    @argument("-o", "--off", action="store_true", help="let the ranks go on, or watch no longer")
    @no_var_expand
    @line_magic
    def watch(self, line: str) -> None:
        """Stop all ranks of the running cell or program at the first step at which an expression is
        true on any of them: %watch loss != loss.

        Waits for that, prints which rank, step and line it was, and leaves the ranks there. %steer
        runs code there; %watch --off lets them go on.
        """
        line, expression = options.split(self.watch.parser, line, ())
        args = self.watch.parser.parse_args(options.words(line))
        if args.off == bool(expression):
            raise DipError("%watch takes an expression, or --off")
        self.attachment.with_group(args.group, lambda group: run.stop_at(group, expression))

    # ---- %autodip

    @magic_arguments()
    @argument("-a", "--args", metavar="ARGS", help='options for %%dip, in quotes: -a "--see all"')
    @argument("state", nargs="?", choices=["on", "off"], help="without it: show the setting")
    @line_magic
    def autodip(self, line: str) -> None:
        """Run the cells after this one on the ranks, as if each began with %%dip.

        A cell whose first line begins with %, or is x = %dip …, is left alone; one that begins with
        #dip_locally runs in the notebook.
        """
        words = options.bind(options.words(line), "-a", "--args")
        args = self.autodip.parser.parse_args(words)
        if args.state == "off":
            self._auto = None
        elif args.state == "on":
            self._dip_args(args.args or "")  # raises for wrong ones, before they apply
            self._auto = f"%%dip {args.args}" if args.args else "%%dip"
        where = f"on, will run cell as {self._auto}" if self._auto else "Off"
        print(f"Auto Execution on DDP group: {where}")

    def transform(self, lines: list[str]) -> list[str]:
        """The input transformer for IPython: puts %%dip before a user's cell if %autodip is on, and
        before %debug if what has failed last is a cell on ranks."""
        failed = getattr(sys, "last_value", None)
        if isinstance(failed, RemoteError) and "".join(lines).strip() == "%debug":
            return [f"%%dip --ranks {failed.first}\n", "%debug\n"]
        code = "".join(lines)
        if self._takes_all and asked.ASKS.search(code) and self._tells():
            return [f"get_ipython().kernel.tell_variables({code!r})\n"]
        if self._takes_all:  # the extension is loaded
            lines = _LOADS.sub("", "".join(lines)).splitlines(keepends=True)
        if lines and self._awaits_here(lines[0], "".join(lines[1:])):
            return [f"{LOCALLY}\n", *lines[1:]]
        own = lines and lines[0].startswith("%%dip" if self._takes_all else "%")
        begins = lines and not own
        takes = self._auto and begins and self.is_remote("".join(lines))
        if self._auto and takes and _is_users_cell(self.shell):
            options = self._auto.removeprefix("%%dip").strip()
            return [f"%%dip --auto {options}".rstrip() + "\n", *lines]
        return lines

    def _tells(self):
        """True if this is an editor's request that is answered for the ranks' variables."""
        if not _is_hidden(self.shell):
            return False
        with contextlib.suppress(DipError, OSError):
            group = self.attachment.known()
            return group is not None and group.is_started()
        return False

    def _awaits_here(self, first, code):
        """True if this is a user's cell for the notebook whose code the kernel must run itself."""
        found = _LOCAL.fullmatch(first)
        if found is None or (found[1] == "local" and not self._takes_all):
            return False
        return _needs_loop(self.shell, code) and _is_users_cell(self.shell)

    # IPython skips it when a prompt checks whether the lines typed so far are a complete cell
    transform.has_side_effects = True  # type: ignore[attr-defined]

    def is_remote(self, code: str) -> bool:
        """True if this cell would run on the ranks."""
        if self._takes_all:
            code = _LOADS.sub("", code)
        first = code.lstrip("\n").partition("\n")[0]
        if first.startswith("%%dip"):
            words = re.split(r"\s+", first)[1:]
            return first.split()[0] == "%%dip" and "local" not in words
        if not self._auto or not code.strip() or first.startswith(LOCALLY):
            return False
        if not self._takes_all and first.startswith("%"):
            return False
        magic = _MAGIC.match(first)
        return magic is None or magic[1] not in (_HERE if self._takes_all else _NAMES)

    def take_all(self, restarted: str | None = None) -> None:
        """Runs all cells on the ranks from now on, but those that begin with %%local or one of the
        magics here; the first one finds or makes the group. restarted: see Attachment."""
        self._auto, self._takes_all = "%%dip", True
        self.attachment.starts = self.makedip.parser.parse_args([])
        self.attachment.restarted = restarted
        self.shell.register_magic_function(
            lambda line, cell: self._run_locally(cell, False), "cell", "local"
        )

    # ---- %dipush, %dipull, %dipper

    @magic_arguments()
    @argument("names", nargs="+", metavar="NAME", help="variables or functions of the notebook")
    @line_magic
    def dipush(self, line: str) -> None:
        """Set variables on all ranks to their values in the notebook."""
        self._push(self.dipush.parser.parse_args(options.words(line)).names)

    def _local(self, name):
        """A variable of the notebook."""
        if name not in self.shell.user_ns:
            raise DipError(f"there is no variable {name} in the notebook")
        return self.shell.user_ns[name]

    def _push(self, names, group=None):
        group = self.attachment.need(group)
        values = {name: self._local(name) for name in names}
        self._say(f"Pushing parameters to DDP namespace: {names}")
        group.push(values)

    @magic_arguments()
    @argument("-r", "--rank", default="0", metavar="RANK", help="the rank, or all. Default: 0.")
    @argument("names", nargs="+", metavar="NAME", help="variables; locals/NAME: of running code")
    @line_magic
    def dipull(self, line: str) -> None:
        """Set variables in the notebook to their values on a rank; with -r all, to lists."""
        args = self.dipull.parser.parse_args(options.words(line))
        group = self.attachment.need()
        plain = {name: name.rpartition("/")[2] for name in args.names}  # locals/NAME, NAME.d/KEY
        for name in args.names:
            if not plain[name].isidentifier():
                use = f"%dipper group, then group['{name}']"
                raise DipError(f"'{plain[name]}' can be no variable here: {use}")
        self._say(f"Pulling from DDP namespace: {args.names}")
        ranks = rank_lists.parse([args.rank], group.size)
        pulled = [group.pull(args.names, rank) for rank in ranks]
        if args.rank == "all":
            self.shell.push({plain[name]: [each[name] for each in pulled] for name in args.names})
        elif len(pulled) == 1:
            self.shell.push({plain[name]: value for name, value in pulled[0].items()})
        else:
            raise DipError(f"-r: want one rank or all, not '{args.rank}'")

    @line_magic
    def dipper(self, line: str = "") -> None:
        """Put the handle of the group into a variable: %dipper NAME."""
        name = line.strip()
        if not name.isidentifier():
            raise DipError("usage: %dipper NAME")
        self.shell.push({name: self.attachment.need()})

    # ---- the extension

    def install(self) -> None:
        """Installs the hooks that are not magics."""
        self.shell.input_transformers_cleanup.append(self.transform)
        self._helper.install()

    def remove(self) -> None:
        """Removes the hooks."""
        self.shell.input_transformers_cleanup.remove(self.transform)
        self._helper.remove()


def _with_first_line(comment, cell):
    """A cell with a comment in place of its %%dip: line numbers are those that the user sees.

    One that begins with another cell magic, or with a line such as `# ddip frame: 0`, stays as it
    is: that must be in the first line.
    """
    is_first = cell.lstrip().startswith("%%") or _DIRECTIVE.match(cell)
    return cell if is_first else f"{comment}\n{cell}"


def _needs_loop(shell, code):
    """True if run_cell() would begin an event loop for this code where one runs, and fail."""
    if "await" not in code and "async" not in code:
        return False
    try:
        asyncio.get_running_loop()
        made = shell.transform_cell(f"{LOCALLY}\n{code}")
        return shell.should_run_async(code, transformed_cell=made)
    except Exception:  # there is no loop; or what is wrong with the code is told when it runs
        return False


def _is_users_cell(shell):
    """True if the code that is transformed is a cell that a user submitted.

    False for code that a cell runs in turn, as %time and %run do, and for an editor's own requests,
    which leave no history. In a kernel that Voila has started all requests are cells.
    """
    content = _request(shell)
    if content is None:
        return False
    kept = content.get("store_history", True) or _VOILA in os.environ
    return kept and not content.get("silent")


def _is_hidden(shell):
    """True if the code that is transformed is an editor's own request."""
    return _request(shell) is not None and not _is_users_cell(shell)


def _request(shell):
    """The content of the request whose code is transformed, {} in a terminal. None for code that a
    cell runs in turn, and for other requests."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is InteractiveShell.run_cell_async.__code__:
            return None
        frame = frame.f_back
    request = getattr(shell, "get_parent", dict)()  # that of a kernel; a terminal has none
    if request.get("msg_type", "execute_request") != "execute_request":
        return None
    return request.get("content", {})


def load(shell: InteractiveShell) -> DdipMagics:
    """Adds the magics and hooks to a shell, once. Returns the magics."""
    magics = shell.magics_manager.registry.get(DdipMagics.__name__)
    if magics is None:
        magics = DdipMagics(shell)
        shell.register_magics(magics)
        magics.install()
    return magics


def attachment(shell: InteractiveShell) -> Attachment | None:
    """The Attachment of a shell; None if it does not have the magics."""
    magics = shell.magics_manager.registry.get(DdipMagics.__name__)
    return magics and magics.attachment


def unload(shell: InteractiveShell) -> None:
    """Removes the magics and hooks from a shell."""
    magics = shell.magics_manager.registry.pop(DdipMagics.__name__, None)
    if magics is None:
        return
    magics.remove()
    for table in shell.magics_manager.magics.values():
        for name in _NAMES:
            table.pop(name, None)
