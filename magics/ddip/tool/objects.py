"""ddip push and pull: copy files into variables, and variables into files."""

from __future__ import annotations

import contextlib
import os
import stat

from ddip.mounts import files
from ddip.tool.call import NOTHING, OK, REFUSED, USAGE, Failure, Options, number_of, put_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddip.mounts.files import OpenFile
    from ddip.tool.call import Tool

_PIECE = 1 << 20
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_VIEWS = ("json", "npy", "pkl", "pt", "p5", "safetensors", "csv", "png")
_ASIDE = ("dir", "doc")  # views whose text is complete
# Types whose text is the complete object.
_EXACT = ("bool", "int", "float", "complex", "str", "bytes", "NoneType")


def _view_of(name: str) -> str:
    """The view that matches a file's extension, with its dot; "" if none does."""
    extension = name.rpartition(".")[2] if "." in name else ""
    return f".{extension}" if extension in _VIEWS else ""


def _place(tool: Tool, words: Sequence[str]) -> tuple[str, list[str]]:
    """Returns (the folder of variables, the words after -r RANK)."""
    options = Options(tool, words, {}, {"r": "rank"})
    rank = options.last("rank")
    return "vars" if rank is None else f"rank{number_of(tool, rank)}/vars", options.rest


def _split_frames(folder: str, name: str) -> tuple[str, str]:
    """(folder, name), where `locals/NAME` is a name of the running code, as in rank0/locals."""
    place, slash, rest = name.partition("/")
    if slash and place.split(".")[0] == "locals":
        return folder.removesuffix("vars") + place, rest
    return folder, name


def _check_name(name: str) -> None:
    """Raises Failure for a path that leads out of the folder of variables."""
    if name.startswith("/") or ".." in name.split("/"):
        raise Failure(USAGE, f"{name} is not the name of a variable")


def push(tool: Tool, words: Sequence[str]) -> int:
    """Sets a variable from a file or standard input."""
    folder, rest = _place(tool, words)
    if len(rest) != 2:
        raise tool.misuse()
    name, file = rest
    _check_name(name)
    view = _view_of(file)
    if "." not in name or ("/" in name and not name.endswith(view)):  # a key may have dots
        name += view
    tool.show(f"cp {'/dev/stdin' if file == '-' else file} {tool.path(folder)}/{name}")
    try:
        source = open(0 if file == "-" else file, "rb", buffering=0, closefd=file != "-")
    except OSError as e:
        raise Failure(NOTHING, f"{file or repr(file)}: {e.strerror}") from None
    with source:
        tool.put(f"{folder}/{name}", iter(lambda: source.read(_PIECE), b""))
    return OK


def _need_exact_text(tool: Tool, name: str, file: str) -> None:
    """Raises Failure if the text may be incomplete, as with long arrays, which print shortens."""
    is_inside = "/" in name  # of which nothing is known here
    variable = name if is_inside else name.partition(".")[0]
    rows = (line.split() for line in tool.group.read("names").splitlines())
    types = [row[1].removeprefix("type=") for row in rows if row[:1] == [variable]]
    if types and types[0] in _EXACT:
        return
    kind = types[0] if types else f"not in {tool.path('names')}"
    kind = "in an object" if is_inside else kind
    raise Failure(
        USAGE,
        f"the text of {variable} ({kind}) is for people, and need not be all of it: name a view, as"
        f" in ddip pull {variable}.pkl {file}, or in the file's name (ddip help views)",
    )


def pull(tool: Tool, words: Sequence[str]) -> int:
    """Writes a variable to a file or standard output."""
    folder, rest = _place(tool, words)
    if len(rest) not in (1, 2):
        raise tool.misuse()
    name, file = rest[0], rest[1] if len(rest) == 2 else "-"
    _check_name(name)
    folder, name = _split_frames(folder, name)
    if not file:
        raise Failure(USAGE, "the file's name is empty")
    file = "" if file == "-" else file
    if "/" in name:  # a key may have dots of its own
        name += "" if _view_of(name) else _view_of(file)
    elif "." not in name:
        name += _view_of(file)
    path = tool.path(f"{folder}/{name}")
    if not name or not files.exists(path):
        variable = name.partition(".")[0]
        text = f"no variable {variable} in {tool.path(folder)}, or nothing by the name of {name}"
        raise Failure(NOTHING, text)
    is_text = not _view_of(name) and name.rpartition(".")[2] not in _ASIDE
    if is_text and (file or stat.S_ISREG(os.fstat(1).st_mode)):
        _need_exact_text(tool, name, file or "FILE")
    tool.show(f"cat {path}{f' > {file}' if file else ''}")
    # opened first, so that the file is not touched if the variable cannot be read
    with tool.telling(f"{folder}/{name}"):
        source = files.open_(path)
    with source, files.open_(file, _CREATE, 0o666) if file else contextlib.nullcontext() as target:
        while piece := source.read(_PIECE):
            if target:
                _write(target, piece, file)
            else:
                put_out(piece)
    return OK


def _write(target: OpenFile, piece: bytes, file: str) -> None:
    """Writes a piece to an open file. Raises Failure."""
    try:
        files.write_all(target, piece)
    except OSError as e:
        raise Failure(REFUSED, f"{file}: {e.strerror}") from e
