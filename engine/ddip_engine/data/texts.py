"""Views for people and for tools that read text: text, json, csv, dir, doc; and png."""

from __future__ import annotations

import ast
import csv
import io
import json
import pydoc
import re
import struct
import sys
import tokenize
import zlib
from errno import EBADMSG

from ddip_engine import hooks, state
from ddip_engine.data import arrays, gpu, gpu_text, table
from ddip_engine.data.view import (
    ABSENT,
    TEXT_BYTES,
    Export,
    Limited,
    article,
    check_size,
    export_text,
    export_written,
    reason,
    strict_json,
    too_big,
    unsupported,
)
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    import numpy
    from ddip_engine.data.view import Incoming

_OPENS = re.compile(r"\s*[\[({'\"]")  # begins like a list, a tuple, a dict, a quote
# Text that stands for more than it shows: `[0. ... 0.]`, omitted rows, a value that was cut,
# `<socket object at 0x7f…>`, the last line of a long data frame or series.
_ELIDED = re.compile(
    r"\[[^\]]*(?<![^\s,\[])\.\.\.(?![^\s,\]])|\],?\s*\.\.\.,?\s*\[|… cut, \d+ bytes"
    r"|\A\s*<.* at 0x[0-9a-fA-F]+>\s*\Z"
    r"|\[\d+ rows x \d+ columns\]\s*\Z|\nLength: \d+, dtype: \S+\s*\Z"
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_OBJECT_VIEWS = ".json, .npy, .safetensors, .pt or .pkl"
_ROWS = 4096  # of an array, converted to text at once


def export_plain(name: str, value: Any) -> Export:
    """str(x) and a newline; long arrays are elided as print does."""
    return _export_bounded(name, f"{plain(name, value)}\n")


def plain(name: str, value: Any) -> str:
    """str(x), unless that would be too long."""
    check_size(name, value)
    text = gpu_text.text(value)
    return f"{value}" if text is None else text


def _export_bounded(what: str, text: str) -> Export:
    if len(text) > TEXT_BYTES:
        raise too_big(what)
    return export_text(text)


def import_plain(name: str, data: Incoming, old: Any) -> Any:
    """A Python literal, or else the text itself; one trailing newline is removed.

    Text that is not a literal replaces only text: an object's printed form is not the object.
    """
    text = data.text().removesuffix("\n")
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as e:
        if _OPENS.match(text):
            why = getattr(e, "msg", None) or reason(e)
            raise EngineError(EBADMSG, f"it begins like a Python literal and is none: {why}") from e
        return _checked_text(name, text, old)
    if _holds_ellipsis(value):
        raise EngineError(
            EBADMSG, f"'...' stands for what is not there: write {name}{_OBJECT_VIEWS}"
        )
    if _joins_texts(text, value):
        use = f"put a comma between them, or write {name}{_OBJECT_VIEWS}"
        raise EngineError(EBADMSG, f"Python would make one text of these: {use}")
    return value


def _joins_texts(text: str, value: object) -> bool:
    """True for `['a' 'b']`: an array of two texts as it is printed, but a list of one in Python."""
    if not (isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, bytes))):
        return False
    tokens = tokenize.generate_tokens(io.StringIO(text.strip()).readline)
    return sum(token.type == tokenize.STRING for token in tokens) > 1


def _checked_text(name: str, text: str, old: object) -> str:
    """The text, if it may become the object."""
    if old is not ABSENT and not isinstance(old, str):
        what = f"{name} holds {article(old)} and this is no Python literal"
        raise EngineError(EBADMSG, f"{what}: quote a string, or write {name}{_OBJECT_VIEWS}")
    if _ELIDED.search(text):
        what = "the text of an object is not the object"
        raise EngineError(EBADMSG, f"{what}: copy {name}{_OBJECT_VIEWS}; a string in quotes is one")
    return text


def _holds_ellipsis(value: object) -> bool:
    """True for a literal that has `...` in it; literals cannot contain themselves."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if item is ...:
            return True
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set)):
            waiting += item
    return False


def _jsonable(value: Any) -> Any:
    """Arrays and tensors as nested lists, their scalars as numbers."""
    value = gpu.host(value)
    if arrays.is_tensor(value):
        return value.detach().tolist()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"JSON has no {type(value).__name__}")


def export_json(name: str, value: Any) -> Export:
    """JSON, with null for NaN and the infinities, which it does not have."""
    check_size(f"{name}.json", value, arrays.types())
    try:
        text = strict_json(value, lambda word: None, default=_jsonable, ensure_ascii=False) + "\n"
    except (TypeError, ValueError, RecursionError) as e:
        raise unsupported(name, value, "json", f"{reason(e)}: read {name}.pkl") from e
    return _export_bounded(f"{name}.json", text)


def import_json(name: str, data: Incoming, old: object) -> Any:
    """JSON into Python objects."""
    try:
        return json.loads(data.text())
    except (ValueError, RecursionError) as e:
        raise EngineError(EBADMSG, f"not JSON: {reason(e)}") from e


def export_csv(name: str, value: Any) -> Export:
    """A data frame, or the rows of a 2-D array."""
    array = value.detach() if arrays.is_tensor(value) else value
    if hasattr(value, "to_csv"):
        default = type(getattr(value, "index", None)).__name__ == "RangeIndex"
        return _export_lines(name, lambda file: value.to_csv(file, index=not default))
    if getattr(array, "ndim", None) != 2 or not hasattr(array, "tolist"):
        use = f"{name}.{'pt' if arrays.holds_state(value) else 'json'}"
        raise unsupported(name, value, "csv", f"want a data frame or a 2-D array; read {use}")

    def write(file: Limited) -> None:
        rows = csv.writer(file, lineterminator="\n")
        for begin in range(0, len(array), _ROWS):
            rows.writerows(array[begin : begin + _ROWS].tolist())

    return _export_lines(name, write)


def _export_lines(name: str, write: Callable[[Limited], object]) -> Export:
    """What write(file) writes to a text file."""
    return export_written(lambda file: write(Limited(file, name, "csv")))


def export_dir(name: str, value: Any) -> Export:
    """Attribute names, one a line."""
    return export_text("".join(f"{key}\n" for key in dir(value)))


def export_doc(name: str, value: Any) -> Export:
    """What `obj?` prints; without IPython what help(obj) does."""
    name = name.removeprefix(f"{table.MAIN}.")
    is_local = "/" in name or ("." not in name and state.main.__dict__.get(name) is not value)
    if is_local or hooks.inspect_name is None:
        text = pydoc.render_doc(value, "%s")
    else:
        text = hooks.inspect_name(name)
    return export_text(re.sub(".\b", "", _ANSI.sub("", text)).rstrip("\n") + "\n")


def export_png(name: str, value: Any) -> Export:
    """A figure, a PIL image, or an array shaped like an image: HxW, HxWxC or CxHxW."""
    figure: Any = value if hasattr(value, "savefig") else getattr(value, "figure", None)
    if hasattr(figure, "savefig"):
        return export_written(lambda file: figure.savefig(file, format="png"))
    if type(value).__module__.startswith("PIL."):
        return export_written(lambda file: value.save(file, format="PNG"))
    return Export(_encode_png(*_pixels(name, value)))


def _pixels(name: str, value: Any) -> tuple[numpy.ndarray, int, int, int]:
    """(bytes of the rows, width, height, channels) of an image-shaped array."""
    numpy = sys.modules.get("numpy")
    array = value.detach().cpu() if arrays.is_tensor(value) else value
    want = "want a figure, a PIL image, or an array of 1, 3 or 4 channels"
    shaped = hasattr(array, "__array__") and getattr(array, "ndim", 0) in (2, 3)
    if numpy is None or not shaped or "complex" in str(getattr(value, "dtype", "")):
        raise unsupported(name, value, "png", want)
    array = numpy.asarray(array.float() if hasattr(array, "float") else array)
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    array = array[:, :, None] if array.ndim == 2 else array
    if array.shape[2] not in (1, 3, 4) or array.dtype.kind not in "fuib":
        raise unsupported(name, value, "png", want)
    if _is_unit(numpy, value, array):
        array = array * 255.0
    array = numpy.nan_to_num(array).clip(0, 255).round().astype(numpy.uint8)
    height, width, channels = array.shape
    return numpy.ascontiguousarray(array).reshape(height, -1), width, height, channels


def _is_unit(numpy: Any, value: Any, array: numpy.ndarray) -> bool:
    """True for brightness in 0..1: booleans, or floating point that stays in that range."""
    dtype = str(value.dtype)
    return "bool" in dtype or ("float" in dtype and array.size > 0 and not (array > 1).any())


def _encode_png(rows: Iterable[Any], width: int, height: int, channels: int) -> bytes:
    colour = {1: 0, 3: 2, 4: 6}[channels]
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)),
        (b"IDAT", zlib.compress(raw, 6)),
        (b"IEND", b""),
    )
    out = b"\x89PNG\r\n\x1a\n"
    for kind, body in parts:
        crc = zlib.crc32(kind + body)
        out += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)
    return out
