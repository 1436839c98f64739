"""ddip cat, write, ls, cp, rm, mkdir: files below the mount, or behind the socket, by path."""

from __future__ import annotations

import errno
import functools
import os
import stat

from ddip.mounts import files
from ddip.tool.call import OK, USAGE, Failure, Options, put_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddip.mounts.files import OpenFile
    from ddip.tool.call import Tool

_PIECE = 1 << 20
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def _inside(tool: Tool, path: str) -> str:
    return os.path.join(tool.mount, path.strip("/")) if path.strip("/") else tool.mount


def cat(tool: Tool, words: Sequence[str]) -> int:
    """Prints files."""
    if not words:
        raise tool.misuse()
    for word in words:
        path = _inside(tool, word)
        tool.show(f"cat {path}")
        if files.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        with files.open_(path) as file:
            while piece := file.read(_PIECE):
                put_out(piece)
    return OK


def write(tool: Tool, words: Sequence[str]) -> int:
    """Copies standard input into a file and waits for the outcome."""
    if len(words) != 1:
        raise tool.misuse()
    path = _inside(tool, words[0])
    tool.show(f"cat > {path}")
    _copy(tool, 0, path, os.O_NOFOLLOW)
    return OK


def ls(tool: Tool, words: Sequence[str]) -> int:
    """Lists directories; -l: with mode and size."""
    options = Options(tool, words, {"l": "long"}, {})
    long = options.has("long")
    for word in options.rest or [""]:
        path = _inside(tool, word)
        tool.show(f"ls {'-l ' if long else ''}{path}")
        is_dir = files.isdir(path)
        if not is_dir:
            files.attributes(path, follow=False)  # raises if it does not exist
        names = sorted(files.listdir(path)) if is_dir else [path]
        for name in names:
            whole = os.path.join(path, name)
            put_out(os.fsencode(f"{_about(whole)} {name}\n" if long else f"{name}\n"))
    return OK


def _about(path: str) -> str:
    mode, size, _ = files.attributes(path, follow=False)
    return f"{stat.filemode(mode)} {size:12d}"


def cp(tool: Tool, words: Sequence[str]) -> int:
    """Copies a file; a path that begins with `:` is inside the mount."""
    if len(words) != 2:
        raise tool.misuse()
    source, target = words
    if not (source.startswith(":") or target.startswith(":")):
        raise Failure(USAGE, "a path inside the mount begins with `:`, and neither does")
    if source.startswith(":"):
        source = _inside(tool, source[1:])
    flags = 0
    if target.startswith(":"):
        target, flags = _inside(tool, target[1:]), os.O_NOFOLLOW
    tool.show(f"cp {source} {target}")
    with files.open_(source) as file:
        _copy(tool, file, target, flags)
    return OK


def _copy(tool: Tool, source: int | OpenFile, path: str, flags: int) -> None:
    """Copies from a descriptor or an open file, submits what was written and waits for that.

    flags: O_NOFOLLOW for a file of the mount, see files.WRITE_VERBS.
    """
    read: Callable[[int], bytes]
    read = functools.partial(os.read, source) if isinstance(source, int) else source.read
    with tool.telling(path), files.open_(path, _CREATE | flags, 0o666) as file:
        while piece := read(_PIECE):
            files.write_all(file, piece)
        file.fsync()


def rm(tool: Tool, words: Sequence[str]) -> int:
    """Removes variables; -d: groups."""
    options = Options(tool, words, {"d": "dir"}, {})
    folders = options.has("dir")
    if not options.rest:
        raise tool.misuse()
    for word in options.rest:
        path = _inside(tool, word)
        tool.show(f"{'rmdir' if folders else 'rm'} {path}")
        if folders:
            files.rmdir(path)
        else:
            files.remove(path)
    return OK


def mkdir(tool: Tool, words: Sequence[str]) -> int:
    """Creates groups."""
    if not words:
        raise tool.misuse()
    for word in words:
        path = _inside(tool, word)
        tool.show(f"mkdir {path}")
        files.mkdir(path)
    return OK
