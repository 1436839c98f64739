"""ddip doctor: says what this machine has of what ddipfs needs, and which command helps where
something is missing.

Each probe runs in a child of its own, all at once, for a limited time: a library, a driver or a
file system that does not answer holds up nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import time
from typing import NamedTuple

from ddip.tool import probes
from ddip.tool.call import Options, put_out
from ddip.tool.probes import BAD, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ddip.tool.call import Tool

_SUMMARY = "all that is needed is there"
_PIECE = 1 << 16
_PDEATHSIG = 1  # prctl(2)
_LONG_S = 1e6


class _Probe(NamedTuple):
    """A probe that runs: its row of the table, its process, the end of its pipe."""

    name: str
    limit_s: float
    help: str
    pid: int
    fd: int

    def findings(self, started: float) -> Iterator[Finding]:
        """Yields what it finds, as it comes."""
        data, deadline, count = b"", started + self.limit_s, 0
        while select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            piece = os.read(self.fd, _PIECE)
            if not piece:
                if not count:
                    yield Finding(self.name, BAD, "the probe ended without an answer", self.help)
                return
            *lines, data = (data + piece).split(b"\n")
            count += len(lines)
            yield from (Finding(*json.loads(line)) for line in lines)
        yield Finding(self.name, BAD, f"no answer within {self.limit_s:g} s", self.help)

    def end(self) -> None:
        """Kills the child and what it has started; one that nothing can kill is left alone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, os.WNOHANG)
        os.close(self.fd)


def _begin(
    name: str, function: probes.Probe, limit_s: float, help_: str, named: str, chosen: str
) -> _Probe:
    """Starts a probe. It ends with this process, too."""
    fd, out = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid:
        os.close(out)
        with contextlib.suppress(OSError):  # the child does it, too: who comes first
            os.setpgid(pid, pid)
        return _Probe(name, limit_s, help_, pid, fd)
    status = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            status = _report(out, name, function(named, chosen))
    finally:
        os._exit(status)


def _report(out: int, name: str, findings: Iterable[Finding]) -> int:
    """Writes what a probe finds to a pipe, in a line for each."""
    try:
        for finding in findings:
            os.write(out, json.dumps(finding).encode() + b"\n")
    except Exception as e:  # what a machine may lack has no end: the other probes go on
        broken = Finding(name, BAD, f"could not be found out: {type(e).__name__}: {e}")
        os.write(out, json.dumps(broken).encode() + b"\n")
    return 0


def doctor(tool: Tool, words: Sequence[str]) -> int:
    """ddip doctor: the whole verb. Returns 0 if all that is needed is there, else 1."""
    options = Options(tool, words, {"j": "json"}, {"t": "time"})
    if len(options.rest) > 1:
        raise tool.misuse()
    limit_s, python = _limit(tool, options), next(iter(options.rest), "")
    started = time.monotonic()
    running = [
        _begin(name, function, limit_s or usual_s, help_, tool.named, python)
        for name, function, usual_s, help_ in probes.TABLE
    ]
    found: list[Finding] = []
    try:
        for probe in running:
            for finding in probe.findings(started):
                found.append(finding)
                if not options.has("json"):
                    put_out(_line(finding))
    finally:
        for probe in running:
            probe.end()
    bad = [finding.name for finding in found if finding.state == BAD]
    if options.has("json"):
        put_out(_json(found, not bad))
    elif bad:
        put_out(f"missing or bad: {', '.join(bad)}\n".encode())
    else:
        put_out(f"{_SUMMARY}\n".encode())
    return 1 if bad else 0


def _limit(tool: Tool, options: Options) -> float | None:
    """The time limit of each probe in seconds, given by -t; None: each has its own."""
    text = options.last("time")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < _LONG_S:
        raise tool.misuse(f"-t: want a number of seconds, not '{text}'")
    return seconds


def _line(finding: Finding) -> bytes:
    help_ = f" -> {finding.help}" if finding.help else ""
    text = f"{finding.state:<5}{finding.name:<14}{finding.text}{help_}\n"
    return text.encode("utf-8", "surrogateescape")


def _json(found: list[Finding], good: bool) -> bytes:
    whole = {"ok": good, "findings": [finding._asdict() for finding in found]}
    return json.dumps(whole, indent=1).encode() + b"\n"
