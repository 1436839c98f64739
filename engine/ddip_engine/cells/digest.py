"""What the report of a cell says of a rank: where the user's code failed, what notes say of that,
what it came from, what its names held there, which names the cell has set, the peak of GPU memory,
and what its last steps took.

Runs no code of the user's but what a traceback runs, too, and never raises.
"""

from __future__ import annotations

import linecache
import re
import sys

import _ddip
from ddip_engine import patches, state
from ddip_engine.cells import streams
from ddip_engine.data import frames, glance, gpu, gpu_report, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    OneLine = Callable[[BaseException], str]
    Snapshot = tuple[bytes, tuple[str, ...], dict[str, int]]  # see _snapshot()
    Line = Sequence[str]  # a key, a value

_FRAMES = 8  # innermost lines of the user's code
_CAUSES = 4
_NOTES = 2  # of an exception
_NAMES = 20  # that are listed
_MANY_NAMES = 2000  # of a namespace: it is not compared
_TEXT = 300  # characters of a value
_FILE, _CODE = 80, 100  # of these, for the end of a path; for a function, and for a line of code
_BYTES = 4096  # of it all
_TRACEBACK = "Traceback (most recent call last):\n"
_PLACE = re.compile(r'  File "(.+)", line (\d+), in ')
# see _snapshot()
_known: tuple[bytes | None, type | None, tuple[str, ...], Sequence[str]] = None, None, (), ()


def before() -> Snapshot | None:
    """What the cell's end is compared with; None if there are too many names."""
    streams.figures = 0
    try:
        return _snapshot()
    except Exception:  # an object that misbehaves
        return None


def _snapshot() -> Snapshot | None:
    """The identities of the names and their objects, the names, and a dictionary name -> version,
    for tensors, which count their changes in place. Of other objects, only a new one is noticed.
    None if there are too many names."""
    global _known
    space = state.main.__dict__.copy()
    if len(space) > _MANY_NAMES:
        return None
    kind, which = getattr(sys.modules.get("torch"), "Tensor", _Never), _ddip.identities(space)
    if _known[0] != which or _known[1] is not kind:
        kinds = {each for each in set(map(type, space.values())) if issubclass(each, kind)}
        tensors = [name for name, value in space.items() if type(value) in kinds]
        _known = which, kind, tuple(space), tensors
    versions = {
        name: patches.TENSOR_VERSION.of(value, 0)
        for name in _known[3]
        if issubclass(type(value := space[name]), kind) and not value.is_inference()
    }
    return which, _known[2], versions


class _Never:
    """The class of no object."""


def text(earlier: Snapshot | None, error: BaseException | None, one_line: OneLine) -> bytes:
    """Lines `key value` as bytes. earlier: from before(). error: of raised.plain(), or None.
    one_line: a function that gives the text of an exception."""
    try:
        lines: list[Line] = [*_failure(error, one_line)] if error is not None else []
        lines += _names(earlier)
        if streams.figures:
            lines.append(("figures", str(streams.figures)))
        if not gpu.uses_cuda():  # else the host waits also for its own GPU
            if steps := _ddip.profile():
                lines += [each.split(" ", 1) for each in steps.decode().splitlines()]
        elif (peak := gpu_report.peak_bytes()) is not None:
            lines.append(("peak_bytes", str(peak)))
        if error is not None:
            lines += glance.lines(_users(error))
    except Exception as e:  # an object of the user's that misbehaves
        lines = [("left_out", f"{type(e).__name__} while this was made")]
    if not lines:
        return b""
    found = "".join(f"{key} {_cut(value)}\n" for key, value in lines)
    data = found.encode("utf-8", "backslashreplace")
    return data if len(data) <= _BYTES else data[: data.rindex(b"\n", 0, _BYTES) + 1]


def _cut(value: str) -> str:
    return value if len(value) <= _TEXT else value[: _TEXT - 1] + "…"


def _names(earlier: Snapshot | None) -> Iterator[tuple[str, str]]:
    """The variables that refer to another object than before, or to a changed tensor, and the names
    that are gone."""
    now = _snapshot()
    if earlier is None or now is None or earlier == now:
        return
    main = state.main.__dict__
    (ids, versions), (ids_now, versions_now) = (
        (dict(zip(names, memoryview(which).cast("P")[1::3], strict=True)), versions)
        for which, names, versions in (earlier, now)
    )
    changed = {name for name, which in ids_now.items() if ids.get(name) != which}
    changed.update(name for name, n in versions_now.items() if versions.get(name) != n)
    for key, found in (
        ("set", table.listed({name: main[name] for name in changed & main.keys()})),
        ("gone", table.named(dict.fromkeys(ids.keys() - ids_now.keys()))),
    ):
        names = [name for name, _ in found]
        shown = names[:_NAMES] + [f"(and {len(names) - _NAMES} more)"] * (len(names) > _NAMES)
        if names:
            yield key, " ".join(shown)


def _failure(error: BaseException, one_line: OneLine) -> Iterator[tuple[str, str]]:
    if isinstance(error, SyntaxError) and error.lineno:
        name, code = error.filename, error.text or ""
        if isinstance(name, str) and isinstance(code, str):
            yield "frame", _line(name, error.lineno, "", code)
    # a recursion passes the same lines again and again
    lines = {(frame.f_code, line): frame for frame, line in reversed(_users(error))}
    for (_, line), frame in list(lines.items())[: -_FRAMES - 1 : -1]:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        source = linecache.getline(file, line, frame.f_globals)
        yield "frame", _line(file, line, function, source)
    for note in _notes(error):
        yield "note", note
    if inner := _of_worker(error):
        yield "cause", inner
    for cause in _causes(error):
        where = "".join(
            f" ({frame.f_code.co_filename.rpartition('/')[2]}:{line})"
            for frame, line in _users(cause)[:1]
        )
        text = _of_worker(cause) or " ".join(one_line(cause)[:_TEXT].split()) + where
        yield "cause", "; ".join([text, *_notes(cause)])


def _notes(error: BaseException) -> list[str]:
    """What add_note() has added to an exception, each as one line, and how many more there are."""
    texts = error.__notes__ or []  # type: ignore[attr-defined]  # of raised.plain()
    more = [f"(and {len(texts) - _NOTES} more)"] * (len(texts) > _NOTES)
    return [" ".join(note[:_TEXT].split()) for note in texts[:_NOTES]] + more


def _of_worker(error: BaseException) -> str:
    """The last line of the traceback that an exception's text contains, as those of DataLoader and
    multiprocessing do for what a worker raised, and where that was; "" if it contains none."""
    _, mark, trace = str(error).rpartition(_TRACEBACK)
    if not mark:
        return ""
    lines = trace.splitlines()
    places = [found.groups() for line in lines if (found := _PLACE.match(line))]
    users = [place for place in places if frames.file_is_users(place[0])] or places
    ends = [line for line in lines if line and not line.startswith((" ", '"""'))]
    if not ends or not users:
        return ""
    file, line = users[-1]
    return f"{ends[0][:_TEXT]} ({file.rpartition('/')[2]}:{line})"


def _line(file: str, line: int, function: str, source: str) -> str:
    file, function, source = (" ".join(part.split()) for part in (file, function, source))
    return f"{file[-_FILE:]}:{line}\t{function[:_CODE]}\t{source[:_CODE]}"


def _users(error: BaseException) -> list[tuple[FrameType, int]]:
    """(frame, line) of the user's code in its traceback, the innermost first; of any code if there
    is none."""
    found = frames.of_traceback(error.__traceback__)
    return [each for each in found if frames.is_users(each[0])] or found


def _causes(error: BaseException) -> list[BaseException]:
    """The exceptions that a traceback shows besides this one: those in its group, and what it came
    from."""
    found: list[BaseException]
    waiting, seen, found = [error], {id(error)}, []
    while waiting and len(found) < _CAUSES:
        each = waiting.pop(0)
        if each is not error:
            found.append(each)
        inner = getattr(each, "exceptions", None)
        after = list(inner) if isinstance(inner, tuple) else []
        if each.__cause__ is not None:
            after.append(each.__cause__)
        elif not each.__suppress_context__:
            after.append(each.__context__)
        for one in after:
            if isinstance(one, BaseException) and id(one) not in seen:
                seen.add(id(one))
                waiting.append(one)
    return found
