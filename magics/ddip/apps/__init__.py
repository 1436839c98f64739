"""Applications that `%makedip -a` prepares the ranks for: each is a file here that runs on them.

Each file defines prepare(), which returns a line to show or raises ImportError with a text that
says what is missing, and COMMANDS: the functions that `%%dip --appcmd` may call, with the words
that they take. It is loaded in the notebook, too, and imports nothing there that only ranks have.
"""

from __future__ import annotations

import os

from ddip.errors import DipError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


_FOLDER = os.path.dirname(os.path.abspath(__file__))
_RUN = """
def _ddip_app():
    space = {{"__name__": "ddip_app", "rank": rank, "world_size": world_size}}
    exec(compile({source!r}, {file!r}, "exec"), space)
    return space[{function!r}](*{args!r})

try:
    print(_ddip_app())
except ImportError as e:
    print("{name}:", e)
finally:
    del _ddip_app
"""


def names() -> list[str]:
    """The names of the available applications."""
    return sorted(
        file.removesuffix(".py")
        for file in os.listdir(_FOLDER)
        if file.endswith(".py") and not file.startswith("_")
    )


def source(name: str, function: str = "prepare", args: Iterable[str] = ()) -> str:
    """The source of a cell that calls a function of an application and prints its result."""
    if name not in names():
        raise DipError(f"no application '{name}'; there are: {' '.join(names())}")
    return _RUN.format(
        name=name, source=_text(name), file=_file(name), function=function, args=tuple(args)
    )


def command(name: str | None, words: Sequence[str]) -> str:
    """The source of the cell for `%%dip --appcmd`; words: a command and its arguments."""
    if name is None:
        known = ", ".join(names())
        raise DipError(f"--appcmd: no application is prepared: %makedip -a prepares one of {known}")
    space: dict[str, Any] = {"__name__": "ddip_app"}
    exec(compile(_text(name), _file(name), "exec"), space)
    commands = space["COMMANDS"]
    forms = [f"'{verb} {'|'.join(takes)}'" for verb, (_, takes) in commands.items()]
    if len(words) == 2 and words[0] in commands:
        function, takes = commands[words[0]]
        if words[1] in takes:
            return source(name, function.__name__, words[1:])
    raise DipError(f"--appcmd: {name} has no '{' '.join(words)}'; it has {' and '.join(forms)}")


def _file(name):
    return os.path.join(_FOLDER, f"{name}.py")


def _text(name):
    with open(_file(name), encoding="utf-8") as file:
        return file.read()
