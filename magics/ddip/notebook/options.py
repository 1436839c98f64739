"""Parses the line of `%dip` and `%%dip`: options first, then the code of `%dip CODE`."""

from __future__ import annotations

import keyword
import re
import shlex

from ddip import patches
from ddip import ranks as rank_lists
from ddip.errors import DipError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Container, Iterable


WHERE = ("remote", "local", "everywhere")
_TO = {"remote": "remote", "gpu": "remote", "local": "local", "both": "everywhere"}
TO = sorted(_TO)
_LONG = re.compile(
    r"--[A-Za-z][\w-]*(?![\w.\[(*+/%-])"
)  # a long option's name, and no code like --x.y
_NAME = re.compile(r"""[^\W\d]\w*(\.\w+)*|[$`{"'].*""")  # a variable, or what stands for one
_WORD = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[^\s"'])+)""")


def words(line: str) -> list[str]:
    """The words of a magic's line, as a shell splits them; # begins a comment."""
    try:
        return shlex.split(line, comments=True)
    except ValueError as e:
        raise DipError(f"{line!r}: {e}") from None


def bind(words: Iterable[str], *names: str) -> list[str]:
    """The words, with an option and its value joined into one, so that the value may begin with a
    dash. names: those of the option, the long one last."""
    bound, rest = [], iter(words)
    for word in rest:
        value = next(rest, None) if word in names else None
        bound.append(word if value is None else f"{names[-1]}={value}")
    return bound


def parse(parser: ArgumentParser, line: str) -> Namespace:
    """The options of a line. Sets `where` by a word like `remote`, which may stand anywhere."""
    args = parser.parse_args(words(line))
    for values in (args.see, args.push, args.ranks, args.scatter, args.gather):
        if values and values[-1] in WHERE:
            args.where = values.pop()
    if args.to:
        args.where = _TO[args.to]
    return args


def split(parser: ArgumentParser, line: str, where: Container[str] = WHERE) -> tuple[str, str]:
    """(options, code) of a line such as that of `%dip`: the code begins with the first word that is
    neither an option, nor an option's value, nor one of `where`; `--` may precede it."""
    at = 0
    while found := _WORD.match(line, at):
        word = found[1]
        if word == "--":
            return line[:at], line[found.end() :].strip()
        option = _option(parser, word)
        if option is None and word not in where:
            if (unknown := _LONG.match(word)) is not None:
                name = f"%{parser.prog}"
                raise DipError(
                    f"{name} has no option {unknown[0]}: {name}? lists them, and code that begins"
                    " with a dash goes after --"
                )
            break
        at = found.end()
        if option is not None and "=" not in word:
            at = _behind_values(option, line, at)
    return line[:at], line[at:].strip()


def _is_code(word, rest):
    """True for a word that begins code, and names no variable. rest: what follows it."""
    return not _NAME.fullmatch(word) or keyword.iskeyword(word) or rest.lstrip()[:1] == "="


def _option(parser, word):
    """The option that a word names; None if it names none."""
    if word[:1] != "-":
        return None
    return patches.OPTIONS.of(parser, {}).get(word.partition("=")[0])


def _behind_values(option, line, at):
    """The position after the values of an option."""
    if option.nargs == 0:
        return at
    count, before = 0, None
    while found := _WORD.match(line, at):
        if option.nargs is None and count == 1:
            break
        if option.nargs == "?" and (count == 1 or not found[1].isdigit()):
            break
        alone = rank_lists.TABS if before is None and option.dest == "see" else None
        if option.metavar == "RANK" and (
            before in ("all", rank_lists.TABS)
            or (found[1] != alone and not rank_lists.WORD.fullmatch(found[1]))
        ):
            break
        if found[1][:1] == "-" or (count and found[1] in WHERE):
            break
        if option.dest == "plot" and _is_code(found[1], line[found.end() :]):
            break
        at, count, before = found.end(), count + 1, found[1]
    return at
