"""What the verbs share: exit statuses, messages, -x, options, the group."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import time

from ddip.errors import DipError
from ddip.groups import Group
from ddip.mounts import files, where

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Buffer

OK, RAISED, USAGE, NOTHING, REFUSED, DROPPED, DIED = range(7)
TIMEOUT = 124
INTERRUPTED = 130
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # end what ddip runs, and ddip
HINT = "ddip: ddip doctor shows what is there and what is missing"
FIRST_GROUP = "group"  # exists in every mount

# the state in a cell's `status` -> the exit status
_STATES = {
    "ok": OK,
    "error": RAISED,
    "interrupted": INTERRUPTED,
    "timeout": TIMEOUT,
    "cancelled": DROPPED,
    "lost": DIED,
}
_ERRNOS: dict[int | None, int] = {
    errno.ENOENT: NOTHING,
    errno.EINTR: INTERRUPTED,
    errno.EREMOTEIO: RAISED,
    errno.ENOEXEC: RAISED,
    errno.ECANCELED: DROPPED,
    errno.EHOSTDOWN: DIED,
    errno.ETIMEDOUT: TIMEOUT,
}


def status_of(state: str) -> int:
    """The exit status for the final state of a cell."""
    return _STATES.get(state, REFUSED)


class Failure(Exception):
    """Ends the tool with this exit status and this text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def failure_of(error: DipError | OSError) -> Failure:
    """The Failure for a DipError or an OSError."""
    text = str(error)
    if not isinstance(error, DipError):
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return Failure(_ERRNOS.get(error.errno, REFUSED), text)


def complain(text: str) -> None:
    """Writes to standard error; a failure to do so cannot be reported anywhere.

    Not through sys.stderr: it keeps what it could not write, and fails again when Python ends.
    """
    with contextlib.suppress(OSError):
        write_all(2, bytes_of(text))


def say(text: str) -> None:
    """Prints a message of the tool itself."""
    complain(f"{text}\n" if text.startswith("usage: ") else f"ddip: {text}\n")


def bytes_of(text: str) -> bytes:
    """Text as UTF-8, with the bytes that surrogateescape stands for."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # displayed text with half of a character
        return text.encode("utf-8", "surrogatepass")


def write_all(fd: int, data: Buffer) -> None:
    """Writes bytes to a descriptor. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@contextlib.contextmanager
def output_told() -> Iterator[None]:
    """Turns an OSError of standard output into a Failure, except for a pipe that nobody reads."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as e:
        raise Failure(REFUSED, f"standard output: {e.strerror}") from e


def put_out(data: Buffer) -> None:
    """Writes bytes to standard output. Raises Failure, or BrokenPipeError."""
    with output_told():
        write_all(1, data)


def end_output() -> None:
    """Closes standard output: some file systems report only then that there was no room."""
    with output_told():
        os.close(1)


def number_of(tool: Tool, word: str) -> int:
    """The number of an existing rank. Raises Failure."""
    if not word.isdecimal():
        raise Failure(USAGE, f"a rank is a number, not '{word}'")
    if not files.isdir(tool.path(f"rank{word}")):
        raise Failure(NOTHING, f"no rank {word} in {tool.group.path}")
    return int(word)


class Tool:
    """One call of the tool: its mount and group, how the verb is used, and what -x prints."""

    def __init__(self, named: str, group: str, trace: str, usage: str) -> None:
        """named: the mount given by -m, or ""."""
        self.named = (named or os.environ.get("DDIP_MOUNT", "")).rstrip("/")
        self.verb = usage.split()[0]
        self._name = group
        self._trace = bool(trace)
        self._usage = usage
        self.is_own = False

    def use(self, place: str) -> None:
        """Means the first group at this place, whose daemon is the call's own, from now on."""
        self.mount, self._name, self.is_own = place, FIRST_GROUP, True

    @functools.cached_property
    def mount(self) -> str:
        """Where the files are: a mount point, or a socket. Raises Failure."""
        try:
            found = where.locate(self.named) if self.named else where.find()
        except DipError as e:
            raise Failure(NOTHING, str(e)) from None
        if found:
            return found
        if self.named:
            raise Failure(NOTHING, f"{self.named}: no ddipfs is mounted there")
        text = "nothing is mounted: run 'ddip mount', or name the mount by DDIP_MOUNT or -m"
        raise Failure(NOTHING, text)

    @functools.cached_property
    def group(self) -> Group:
        """The group that is meant. Raises Failure."""
        path = os.path.join(self.mount, self._name)
        if not self._name or not files.isdir(path):
            text = f"no group '{self._name}' in {self.mount} (make one: mkdir {path})"
            raise Failure(NOTHING, text)
        return Group(path)

    def show(self, text: str) -> None:
        """-x: prints a file operation as one would type it."""
        if self._trace:
            complain(f"+ {text}\n")

    def misuse(self, text: str = "") -> Failure:
        """The Failure for wrong arguments: what is wrong, and how the verb is used."""
        usage = f"usage: ddip {self._usage}"
        return Failure(USAGE, f"{text}\n{usage}" if text else usage)

    def path(self, name: str) -> str:
        """The path of a file of the group."""
        return os.path.join(self.group.path, name)

    def read(self, name: str) -> str:
        """The text of a file of the group, shown by -x."""
        self.show(f"cat {self.path(name)}")
        return self.group.read(name)

    @contextlib.contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Turns an OSError into a DipError, with the group's own text if there is one."""
        since = time.time()
        try:
            yield
        except OSError as e:
            raise self.group.error_from(e, what, since) from e

    def put(self, name: str, pieces: Iterable[Buffer]) -> None:
        """Writes bytes into a file of the group and waits for the outcome. Raises DipError."""
        with self.telling(name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with files.open_(self.path(name), flags) as file:
                for piece in pieces:
                    files.write_all(file, piece)
                file.fsync()

    def tell(self, name: str, verb: str) -> None:
        """Writes a verb to a file that acts on it at once. Raises OSError."""
        self.show(f"echo {verb} > {self.path(name)}")
        files.write(self.path(name), verb.encode() + b"\n")

    def ctl(self, verb: str) -> None:
        """Writes a verb to the group's ctl and waits until that has taken effect."""
        self.show(f"echo {verb} > {self.path('ctl')}")
        self.group.ctl(verb)


class Options:
    """The options among a verb's words: the values `given`, by the options' long names, and the
    `rest`. An option without a value has an empty list.

    mixed: they may also stand behind words of the rest. Letters may be joined, and the value of the
    last one with it: -aqr0. `--` ends the options. flags, valued: letters and long names of the
    options without and with a value, as in {"r": "ranks"}. A long option that is neither may be
    another spelling, spell(name). An unknown option is misuse; refuse(option) returns all that is
    said of it, or None.
    """

    def __init__(
        self,
        tool: Tool,
        words: Sequence[str],
        flags: Mapping[str, str],
        valued: Mapping[str, str],
        spell: Callable[[str], str] = str,
        refuse: Callable[[str], str | None] = lambda word: None,
        mixed: bool = True,
    ) -> None:
        self.given: dict[str, list[str]] = {}
        self._words = list(words)
        self._tool = tool
        self._flags, self._valued, self._spell, self._refuse = flags, valued, spell, refuse
        self.rest: list[str] = []
        while self._words:
            word = self._words.pop(0)
            if word == "--":
                break
            if not word.startswith("-") or word == "-":
                self.rest.append(word)
                if not mixed:
                    break
            elif word.startswith("--"):
                self._take_long(word)
            else:
                self._take_letters(word)
        self.rest += self._words

    def _take_long(self, word: str) -> None:
        """Takes a word like --ranks=0."""
        name, equals, value = word[2:].partition("=")
        if name not in (*self._flags.values(), *self._valued.values()):
            name = self._spell(name)
        if name in self._flags.values() and not equals:
            self.given[name] = []
        elif name in self._valued.values():
            self._add(name, value if equals else self._next(word))
        else:
            raise self._unknown(word)

    def _take_letters(self, word: str) -> None:
        """Takes a word like -aqr0."""
        for at, letter in enumerate(word[1:], 2):
            if letter in self._valued:
                name, value = self._valued[letter], word[at:]
                self._add(name, value.removeprefix("=") if value else self._next(word))
                return
            if letter not in self._flags:
                raise self._unknown(word)
            self.given[self._flags[letter]] = []

    def _add(self, name: str, value: str) -> None:
        self.given.setdefault(name, []).append(value)

    def _unknown(self, word: str) -> Failure:
        text = self._refuse(word.partition("=")[0])
        return Failure(USAGE, text) if text else self._tool.misuse(f"no option {word}")

    def _next(self, word: str) -> str:
        if not self._words:
            raise self._tool.misuse(f"{word} requires an argument")
        return self._words.pop(0)

    def has(self, name: str) -> bool:
        """True if the option was given."""
        return name in self.given

    def last(self, name: str) -> str | None:
        """The option's value, the last if there are several; None if none was given."""
        values = self.given.get(name)
        return values[-1] if values else None
