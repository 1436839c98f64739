"""ddip start, stop, restart, status, interrupt, cancel, selftest, umount."""

import errno
import os
import re
import select

from cells import VALUED
from ddip import files, mount
from ddip.errors import DipError
from tool import HINT, NOTHING, OK, REFUSED, Failure, Options, failure_of, put_out, say

_END_MS = 10000  # for a rank to exit after its daemon


_NO_RANKS = (errno.EHOSTDOWN, errno.EOPNOTSUPP)  # they do not start, or cannot join
_EVENTS = 1 << 16  # bytes; those of one start are less


def start(tool, words):
    """start, stop and restart are verbs of ctl."""
    if words:
        raise tool.misuse()
    start_ranks(tool, tool.verb)
    return OK


def start_ranks(tool, verb):
    """Starts or restarts the ranks, and says which versions of theirs are known to fail."""
    with files.open_(tool.path("events")) as events:
        try:
            tool.ctl(verb)
        except DipError as e:
            if e.errno not in _NO_RANKS:
                raise
            raise Failure(failure_of(e).status, f"{e}\n{HINT}") from None
        if events.poll(0):
            told = events.read(_EVENTS).decode("utf-8", "replace")
            for why in re.findall(r"^\S+ \S+ known-bad rank=\d+ (.*)", told, re.M):
                say(f"known to fail: {why}")


def status(tool, words):
    """The state of the group and of each rank."""
    if words:
        raise tool.misuse()
    tool.show(f"cat {tool.path('status')} {tool.path('ranks')}")
    for name in ("status", "ranks"):
        put_out(files.read(tool.path(name)))
    return OK


def interrupt(tool, words):
    """Interrupts a cell, or what runs on some ranks, or on all."""
    options = Options(tool, words, {}, VALUED)
    words, ranks = options.rest, options.last("ranks")
    if ranks is not None and not words:
        tool.ctl(f"interrupt {ranks.replace(',', ' ')}")
    elif ranks is None and not words:
        tool.ctl("interrupt")
    elif ranks is None and len(words) == 1 and words[0].isdecimal():
        name = f"cells/{words[0]}"
        if not files.isdir(tool.path(name)):
            raise Failure(NOTHING, f"no cell {words[0]} in {tool.group.path}")
        with tool.telling(name):
            tool.tell(f"{name}/ctl", "interrupt")
    else:
        raise tool.misuse()
    return OK


def cancel(tool, words):
    """Takes from the queue what has not begun: some of it, or all."""
    options = Options(tool, words, {"a": "all"}, {})
    if bool(options.rest) == options.has("all") or not all(w.isalnum() for w in options.rest):
        raise tool.misuse()
    tool.ctl(" ".join(["cancel", *options.rest]))
    return OK


def selftest(tool, words):
    """Tests the process group and prints the findings, even if the test fails."""
    try:
        tool.ctl(" ".join(["selftest", *words]))
    except DipError as e:
        if e.errno != errno.EREMOTEIO:
            raise
        put_out(files.read(tool.path("selftest")))
        raise
    tool.show(f"cat {tool.path('selftest')}")
    put_out(files.read(tool.path("selftest")))
    return OK


def umount(tool, words):
    """Ends the daemon, and returns when its ranks have exited."""
    options = Options(tool, words, {"l": "lazy"}, {})
    words, lazy = options.rest, options.has("lazy")
    if len(words) > 1:
        raise tool.misuse()
    path = words[0] if words else tool.named or tool.mount
    found = mount.locate(path)
    if found is None and not _is_dead(path):
        raise Failure(NOTHING, f"{path}: no ddipfs is mounted there")
    path = found or path
    ranks = [pidfd for pid in _rank_pids(path) if (pidfd := _pidfd(pid)) is not None]
    is_socket = files.learn(path)
    tool.show(f"kill DAEMON # of {path}" if is_socket else f"fusermount3 -u {path}")
    try:
        mount.stop(path, lazy)
    except DipError as e:
        who = "" if is_socket else f" (who: fuser -vm {path})"
        raise Failure(REFUSED, f"{e}{who}") from None
    for pidfd in ranks:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        if not poller.poll(_END_MS):
            raise Failure(REFUSED, "a rank is still there")
        os.close(pidfd)
    return OK


def _is_dead(path):
    """True for a mount whose daemon has exited."""
    try:
        os.stat(path)
    except OSError as e:
        return e.errno == errno.ENOTCONN
    return False


def _rank_pids(path):
    """The pids of the ranks on this host: that of a rank elsewhere is another process's here."""
    pids = []
    try:
        for name in files.listdir(path):
            if files.isdir(f"{path}/{name}"):
                hosts = files.read_text(f"{path}/{name}/hosts")
                here = set(re.findall(r"^(\S+) state=up .* connection=- ", hosts, re.M))
                ranks = files.read_text(f"{path}/{name}/ranks")
                found = re.findall(r" pid=([1-9]\d*) host=(\S+)", ranks)
                pids += [int(pid) for pid, host in found if host in here]
    except OSError:
        pass  # the mount is dead
    return pids


def _pidfd(pid):
    try:
        return os.pidfd_open(pid)
    except OSError:  # it has exited
        return None
