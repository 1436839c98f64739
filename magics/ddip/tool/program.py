"""ddip run: runs a program as torchrun does, in new processes; -k: in the existing ones."""

from __future__ import annotations

import contextlib
import json
import os
import shlex

from ddip.errors import DipError
from ddip.mounts import files
from ddip.tool import beside, hosts, torchrun
from ddip.tool.call import DIED, NOTHING, RAISED, REFUSED, USAGE, Failure, Options, say
from ddip.tool.cells import FLAGS, VALUED, Choice, run_cell
from ddip.tool.control import start_ranks
from ddip.tool.stdin import Stdin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ddip.cells.cell import Cell
    from ddip.mounts.files import OpenFile
    from ddip.tool.call import Tool

_PIECE = 1 << 20
_END_OF_ARCHIVE = b"PK\5\6"  # in each zip file, as zipapp makes them, and in no text
# A program that is no Python (--no-python). In a rank, it is a child.
_EXECUTE = b"import os, sys\nos.execvp(sys.argv[0], sys.argv)\n"


def run(tool: Tool, words: Sequence[str]) -> int:
    """ddip run: the whole verb. Returns the exit status."""
    options = _options(tool, words)
    argv, is_module = options.rest, options.has("module")
    source = b"" if is_module else _EXECUTE if options.has("no-python") else _source(argv[0])
    with hosts.own_daemon(tool, options):
        return _run(tool, options, words, source)


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError as e:
        raise Failure(NOTHING, f"the current directory is gone: {e.strerror}") from None


def _run(tool: Tool, options: Options, words: Sequence[str], source: bytes) -> int:
    """Runs what the options say: a module, or a program whose source was read."""
    argv, is_module = list(options.rest), options.has("module")
    is_stdin = argv[0] == "-" and not is_module
    file = None if is_module or is_stdin or options.has("no-python") else argv[0]
    choice = _choice(tool, options)
    module = argv.pop(0) if is_module else None
    about: dict[str, object] = {
        "module": module,
        "argv": argv,
        "cwd": _directory(),
        "env": _environment() | _settings(tool, options.given.get("env", ())),
        "keep": options.has("keep"),
        "terminal": _terminals(choice.first) if choice.is_plain() else {},
    }
    size, restarts = _size(tool, options), torchrun.number(tool, options, "max-restarts")
    logs = options.last("log-dir")
    if not choice.quiet:
        torchrun.tell_needless(options)
        if choice.ranks:
            say(f"only these ranks run the program: {choice.ranks}")
    for attempt in range(restarts + 1):
        about["launch"] = torchrun.variables(options, attempt, restarts)
        with contextlib.ExitStack() as renewed:
            if not about["keep"]:
                force = options.has("force") or attempt > 0
                renewed.enter_context(_new_processes(tool, force, words, size))
            about["beside"] = beside.send(tool, choice, file, module)
            stdin = Stdin(tool, choice.first, ended=is_stdin, by_line=False)
            about["stdin"] = None if choice.detach else stdin.ranks()
            cell = b"# ddip run: %s\n%s" % (json.dumps(about).encode(), source)
            begun = _Begun(renewed.close)
            try:
                status = run_cell(tool, cell, choice, False, stdin, begun)
            finally:
                if logs and begun.cell:
                    _copy_logs(logs, begun.cell, attempt)
        if status not in (RAISED, DIED) or attempt == restarts:
            break
        say(f"attempt {attempt + 1} of {restarts + 1} failed: the program starts again")
    return status


class _Begun:
    """Called with a cell once it has been queued: then others may have the group."""

    def __init__(self, release: Callable[[], object]) -> None:
        self._release = release
        self.cell: Cell | None = None

    def __call__(self, cell: Cell) -> None:
        self.cell = cell
        self._release()


def _options(tool: Tool, words: Sequence[str]) -> Options:
    """The options, of which some exclude each other. Raises Failure."""
    flags = FLAGS | {"f": "force", "k": "keep", "m": "module"}
    valued = VALUED | {"e": "env", "t": "tee", "o": "option", "hosts": "hosts"}
    flags |= {name: name for name in torchrun.PLAIN}
    valued |= {name: name for name in torchrun.VALUED}
    options = Options(tool, words, flags, valued, torchrun.spell, torchrun.refuse, mixed=False)
    if not options.rest:
        raise tool.misuse("a program, or -m and a module, is missing")
    if options.has("run-path"):
        options.given.pop("no-python", None)  # as torchrun has it
    for one, other in _EXCLUDED:
        if options.has(one) and options.has(other):
            raise tool.misuse(f"{_spelt(one)} and {_spelt(other)} exclude each other")
    return options


_EXCLUDED = (
    ("force", "keep"),
    ("module", "no-python"),
    ("max-restarts", "keep"),
    ("max-restarts", "detach"),
    ("log-dir", "detach"),
    ("nproc-per-node", "ranks"),
    ("hosts", "keep"),
    ("hosts", "detach"),
)


def _spelt(name: str) -> str:
    """An option as people know it: ours by its letter."""
    letters = {"force": "-f", "keep": "-k", "module": "-m", "detach": "-d", "ranks": "-r"}
    return letters.get(name, f"--{name}")


def _choice(tool: Tool, options: Options) -> Choice:
    """What is shown: --tee, --redirects and --local-ranks-filter besides ddip's own options."""
    if ":" in (options.last("ranks") or ""):
        raise tool.misuse("-r: want ranks, as in 0,2-3; torchrun's -r is --redirects here")
    choice = Choice(tool, options, red=False)
    tee, redirects = (torchrun.streams(tool, options, name) for name in ("tee", "redirects"))
    choice.label = choice.label or tee
    choice.quiet = choice.quiet or (redirects and not tee)
    choice.only = torchrun.filtered(tool, options)
    choice.label = choice.label or len(choice.only or ()) > 1
    return choice


def _size(tool: Tool, options: Options) -> int | None:
    """The size that the group shall have for --nproc-per-node; None: the one that it has."""
    nodes, wanted = options.last("nnodes"), options.last("nproc-per-node")
    if nodes is not None:
        torchrun.check_nodes(tool, "--nnodes", nodes)
    elif options.has("standalone"):
        torchrun.check_nodes(tool, "--standalone", "1")
    if wanted is None:
        return None
    size, now = torchrun.size_of(tool, wanted), tool.group.size
    hosts = tool.group.read("hosts").splitlines()
    is_local = "\nhosts local\n" in "\n" + tool.group.read("ctl")
    if now == (size if is_local else size * len(hosts)):
        return None
    if not is_local:
        text = f"the group has {now} ranks on {len(hosts)} hosts"
        raise tool.misuse(f"--nproc-per-node {size}: {text}; {torchrun.HOSTS}")
    if options.has("keep"):
        text = f"the group has {now} ranks, and -k keeps them"
        raise tool.misuse(f"--nproc-per-node {size}: {text}")
    return size


def _copy_logs(folder: str, cell: Cell, attempt: int) -> None:
    """Copies what a cell has printed to FOLDER/GROUP-CELL/attempt_N/RANK/{stdout,stderr}.log."""
    name = f"{os.path.basename(cell.group.path)}-{cell.number}"
    try:
        for rank in files.listdir(cell.path):
            if not rank.startswith("rank"):
                continue
            place = os.path.join(folder, name, f"attempt_{attempt}", rank.removeprefix("rank"))
            os.makedirs(place, exist_ok=True)
            for stream in ("stdout", "stderr"):
                _copy(f"{cell.path}/{rank}/{stream}", f"{place}/{stream}.log")
    except OSError as e:
        raise Failure(REFUSED, f"--log-dir: {e.filename or folder}: {e.strerror}") from None


def _copy(source: str, target: str) -> None:
    with files.open_(source) as file, open(target, "wb") as log:
        while piece := file.read(_PIECE):
            log.write(piece)


def _source(file: str) -> bytes:
    """Reads the whole program before anything is done, because half of one must not run."""
    if file != "-" and not os.path.exists(file):
        raise Failure(NOTHING, f"{file or repr(file)}: no such file")
    if os.path.isdir(file):
        raise _is_no_file(file, "a directory")
    try:
        with open(0 if file == "-" else file, "rb") as program:
            source = program.read()
    except OSError as e:
        raise Failure(NOTHING, f"{file}: {e.strerror}") from e
    if _END_OF_ARCHIVE in source:
        raise _is_no_file(file, "an archive")
    return source


def _is_no_file(file: str, what: str) -> Failure:
    """What Python runs, too, but a rank cannot."""
    way = f"ddip run --no-python python {shlex.quote(file)}"
    return Failure(NOTHING, f"{file}: is {what}, not a file of Python's; to run it: {way}")


def _environment() -> dict[str, str]:
    """The caller's environment, and the terminal's size, which the program cannot query itself."""
    env = dict(os.environ)
    if os.isatty(1):
        size = os.get_terminal_size(1)
        if size.columns and size.lines:
            env.setdefault("COLUMNS", str(size.columns))
            env.setdefault("LINES", str(size.lines))
    return env


def _terminals(rank: int) -> dict[str, int]:
    """The streams of this rank that are shown on a terminal."""
    return {name: rank for fd, name in ((1, "stdout"), (2, "stderr")) if os.isatty(fd)}


def _settings(tool: Tool, pairs: Sequence[str]) -> dict[str, str]:
    """The variables of -e K=V."""
    for pair in pairs:
        if "=" not in pair[1:]:
            raise tool.misuse(f"-e: want NAME=VALUE, not '{pair}'")
    return dict(pair.split("=", 1) for pair in pairs)


@contextlib.contextmanager
def _new_processes(
    tool: Tool, force: bool, words: Sequence[str], size: int | None
) -> Iterator[None]:
    """Gives the group new processes once nothing runs, and this size. Keeps out others that want
    the same until the context ends, when the program has been queued."""
    with files.open_(tool.path("status")) as lock, files.open_(tool.path("events")) as events:
        if not lock.lock():
            say("another ddip run waits for this group: this one comes after it")
            lock.lock(wait=True)
        status = _when_at_rest(tool, events, force, words)
        is_stopped = status["state"] in ("new", "stopped")
        if size is None:
            start_ranks(tool, "start" if is_stopped else "restart")
        else:
            _start_with(tool, size, status["size"])
        yield


def _start_with(tool: Tool, size: int, before: str) -> None:
    """Starts the group with another size; if that fails, it is left stopped with the old one."""
    tool.ctl("stop")
    try:
        tool.ctl(f"size {size}")
        start_ranks(tool, "start")
    except (DipError, Failure):
        tool.ctl("stop")
        tool.ctl(f"size {before}")
        raise
    if before != str(size):
        say(f"the group has {size} ranks now; it had {before}")


def _when_at_rest(
    tool: Tool, events: OpenFile, force: bool, words: Sequence[str]
) -> dict[str, str]:
    """Waits until nothing runs. Returns the status. Raises Failure if variables would be lost."""
    told = False
    while True:
        status = tool.group.status()
        if not force and status.get("namespace") == "cells" and tool.group.read("names"):
            raise Failure(USAGE, _question(tool, words))
        if status["state"] in ("new", "stopped", "idle") and status["queued"] == "0":
            return status
        if not told:
            say(f"the group is {status['state']} (cell {status['cell']}): the program comes then")
            told = True
        files.read_live(events, 1 << 16, tool.group.path)


def _question(tool: Tool, words: Sequence[str]) -> str:
    """What to type if cells have left variables."""
    line = shlex.join(words)
    return (
        f"cells have left variables in {tool.group.path}, and a program gets new processes:\n"
        f"  ddip run -f {line}    loses them\n"
        f"  ddip run -k {line}    runs it in the processes and the namespace that are there"
    )
