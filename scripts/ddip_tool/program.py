"""ddip run: a program in the processes and the namespace that are there."""

import os
import shlex

from cells import FLAGS, VALUED, Choice, run_cell
from tool import NOTHING, USAGE, Failure, Options


def run(tool, words):
    """ddip run: the whole verb. Returns the exit status."""
    options = Options(tool, words, FLAGS, VALUED)
    if not options.rest:
        raise tool.misuse()
    file, *arguments = options.rest
    source, line = _source(file), b""
    if file != "-" or arguments:
        if any("\n" in word for word in arguments):
            raise Failure(USAGE, "an argument must not contain a newline")
        line = b"# ddip: %s\n" % os.fsencode(shlex.join([_absolute(file), *arguments]))
    return run_cell(tool, line + source, Choice(options), results=False)


def _absolute(file):
    return file if file == "-" else os.path.realpath(file)


def _source(file):
    """All of it before anything is done: half a program is none."""
    if file != "-" and not os.path.exists(file):
        raise Failure(NOTHING, f"{file}: no such file")
    try:
        with open(0 if file == "-" else file, "rb") as program:
            return program.read()
    except OSError as e:
        raise Failure(NOTHING, f"{file}: {e.strerror}") from e
