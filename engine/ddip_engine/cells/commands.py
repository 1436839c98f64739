"""`!cmd` in a cell: a command of the shell. Its output goes where print() writes, or is a value."""

from __future__ import annotations

import codecs
import os
import selectors
import subprocess
import sys

from ddip_engine.cells import streams

_PIECE = 64 << 10


def run(command: str) -> int:
    """Returns the exit status; as in IPython, it is negative if a signal ended the command."""
    streams.flush()
    # the rank's own streams are descriptors 1 and 2, which the command inherits
    out = subprocess.PIPE if sys.stdout is not sys.__stdout__ else None
    err = subprocess.PIPE if sys.stderr is not sys.__stderr__ else None
    shell = os.environ.get("SHELL") or None
    with subprocess.Popen(command, shell=True, executable=shell, stdout=out, stderr=err) as process:
        try:
            if out or err:
                _copy(process)
            status = process.wait()
        except BaseException:
            process.kill()
            raise
    return 128 - status if status > 128 else status


def output(command: str) -> str:
    """Returns what a command writes to both streams. IPython's own prints ^C for an interrupt, and
    the cell goes on with its next line."""
    streams.flush()
    process = subprocess.Popen(
        command,
        shell=True,
        executable=os.environ.get("SHELL") or None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        try:
            return process.communicate()[0].decode("utf-8", "replace")
        except BaseException:
            process.kill()
            raise


def _copy(process: subprocess.Popen[bytes]) -> None:
    """Writes what the process prints to sys.stdout and sys.stderr, which user code has replaced (as
    %%capture does), until it ends: what it leaves in the background may hold the pipes open."""
    decoder = codecs.getincrementaldecoder("utf-8")
    end = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(end, selectors.EVENT_READ)
            for pipe, stream in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                if pipe is not None:
                    selector.register(pipe, selectors.EVENT_READ, (stream, decoder("replace")))
            while readable := [key for key, _ in selector.select() if key.data is not None]:
                for key in readable:
                    data = os.read(key.fd, _PIECE)
                    stream, text = key.data
                    stream.write(text.decode(data, final=not data))
                    if not data:
                        selector.unregister(key.fileobj)
    finally:
        os.close(end)
