"""ddip run: runs a program as torchrun does, in new processes; -k: in the existing ones."""

import contextlib
import json
import os
import shlex

from cells import FLAGS, VALUED, Choice, run_cell
from control import start_ranks
from ddip import files
from stdin import Stdin
from tool import NOTHING, USAGE, Failure, Options, say

# Options of torchrun, and what to use here instead. G stands for the directory of the group.
_TORCHRUN = {
    "nproc-per-node nproc": "printf 'stop\\nsize N\\nstart\\n' > G/ctl sets the number of ranks",
    "nnodes node-rank local-addr": "echo 'hosts a:2 b:2' > G/ctl, while the group is stopped",
    "master-addr master-port rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone": "leave it"
    " out, the ranks of the group know each other",
    "log-dir redirects tee": "leave it out, all that rank K prints is in G/rankK/stdout and stderr",
    "max-restarts monitor-interval start-method role run-path no-python": "leave it out, there is"
    " no such thing here",
}


def _refuse(word):
    """What to use instead of an option of torchrun; None if it is not one."""
    name = word.lstrip("-").replace("_", "-")
    for names, text in _TORCHRUN.items():
        if name in names.split():
            return f"{word} is an option of torchrun: {text}"
    return None


def run(tool, words):
    """ddip run: the whole verb. Returns the exit status."""
    flags = FLAGS | {"f": "force", "k": "keep"}
    valued = VALUED | {"e": "env", "m": "module"}
    options = Options(tool, words, flags, valued, final="module", refuse=_refuse)
    module, rest = options.last("module"), list(options.rest)
    if not module and not rest:
        raise tool.misuse("a program, or -m and a module, is missing")
    if options.has("force") and options.has("keep"):
        raise tool.misuse("-f and -k exclude each other")
    file = rest.pop(0) if not module else None
    source = b"" if module else _source(file)
    keep, choice = options.has("keep"), Choice(tool, options, red=False)
    about = {
        "argv": rest if module else [file, *rest],
        "module": module,
        "cwd": os.getcwd(),
        "env": _environment() | _settings(tool, options.given.get("env", ())),
        "keep": keep,
        "terminal": {} if choice.label or choice.quiet else _terminals(choice.first),
    }
    cell = b"# ddip run: %s\n%s" % (json.dumps(about).encode(), source)
    if choice.ranks and not choice.quiet:
        say(f"only these ranks run the program: {choice.ranks}")
    with contextlib.ExitStack() as renewed:
        if not keep:
            renewed.enter_context(_new_processes(tool, options.has("force"), words))
        stdin = Stdin(tool, choice.first, ended=file == "-", by_line=False)
        return run_cell(tool, cell, choice, False, stdin, renewed.close)


def _source(file):
    """Reads the whole program before anything is done, because half of one must not run."""
    if file != "-" and not os.path.exists(file):
        raise Failure(NOTHING, f"{file or repr(file)}: no such file")
    try:
        with open(0 if file == "-" else file, "rb") as program:
            return program.read()
    except OSError as e:
        raise Failure(NOTHING, f"{file}: {e.strerror}") from e


def _environment():
    """The caller's environment, and the terminal's size, which the program cannot query itself."""
    env = dict(os.environ)
    if os.isatty(1):
        size = os.get_terminal_size(1)
        if size.columns and size.lines:
            env.setdefault("COLUMNS", str(size.columns))
            env.setdefault("LINES", str(size.lines))
    return env


def _terminals(rank):
    """The streams of this rank that are shown on a terminal."""
    return {name: rank for fd, name in ((1, "stdout"), (2, "stderr")) if os.isatty(fd)}


def _settings(tool, pairs):
    """The variables of -e K=V."""
    for pair in pairs:
        if "=" not in pair[1:]:
            raise tool.misuse(f"-e: want NAME=VALUE, not '{pair}'")
    return dict(pair.split("=", 1) for pair in pairs)


@contextlib.contextmanager
def _new_processes(tool, force, words):
    """Gives the group new processes once nothing runs. Keeps out others that want the same until
    the context ends, when the program has been queued."""
    with files.open_(tool.path("status")) as lock, files.open_(tool.path("events")) as events:
        if not lock.lock():
            say("another ddip run waits for this group: this one comes after it")
            lock.lock(wait=True)
        status = _when_at_rest(tool, events, force, words)
        start_ranks(tool, "start" if status["state"] in ("new", "stopped") else "restart")
        yield


def _when_at_rest(tool, events, force, words):
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


def _question(tool, words):
    """What to type if cells have left variables."""
    line = shlex.join(words)
    return (
        f"cells have left variables in {tool.group.path}, and a program gets new processes:\n"
        f"  ddip run -f {line}    loses them\n"
        f"  ddip run -k {line}    runs it in the processes and the namespace that are there"
    )
