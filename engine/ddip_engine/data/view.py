"""What all views share: how bytes leave a rank, how they arrive, and how a view refuses."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import math
import mmap
import os
import re
import weakref
from _thread import get_ident  # by name, before a program's gevent replaces it
from errno import EBADMSG, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM, ENOSPC, EOPNOTSUPP

from ddip_engine import raised
from ddip_engine.state import Cancelled, EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, BinaryIO

    from _typeshed import SupportsWrite

ABSENT = type("Absent", (), {})()  # in place of the old object if the name is new
TEXT_BYTES = 256 << 20  # limit of an object's text
ELEMENTS = 16 << 20  # limit of an object that is converted to text
_REASON_CHARS = 300  # limit of an exception's text
_CONTROL = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_name_of_type = type.__dict__["__name__"].__get__
_MACHINE = (EDQUOT, EMFILE, ENFILE, ENOMEM, ENOSPC)  # this machine lacks it: no fault of the object
INLINE = 1 << 20  # limit of bytes that travel inside a message
_COPIED = 64 << 10  # smaller ones are copied: a mapping or a pin costs more


class Export:
    """Bytes on their way out: a head, then a memfd's bytes or live memory, or nothing."""

    def __init__(
        self,
        head: bytes = b"",
        fd: int = -1,
        size: int | None = None,
        keep: object = None,
        address: int = 0,
        device: int = -1,
        blank: bool = False,
    ) -> None:
        self.head = head
        self.fd = fd  # a memfd; the receiver of this object takes ownership
        self.keep = keep  # what must stay alive while address is read
        self.address = address
        self.device = device  # the GPU whose memory that is; -1: the host's
        self.blank = blank  # the receiver has the bytes after the head
        self.size = len(head) if size is None else size  # of head and the rest together


def export_memory(
    head: bytes, address: int, size: int, keep: object, copy: Callable[[], bytes], device: int = -1
) -> Export:
    """A head followed by live memory, of a GPU if there is a device; copy() returns its bytes if
    there are few. size: in bytes; keep: what keeps that memory alive."""
    if size < _COPIED:
        return Export(head + copy())
    return Export(head, size=len(head) + size, keep=keep, address=address, device=device)


def export_written(write: Callable[[BinaryIO], object]) -> Export:
    """What write(file) writes to a binary file; through a memfd, so that it is in memory once."""
    fd = os.memfd_create(memfd_name(), os.MFD_CLOEXEC)
    try:
        with open(fd, "r+b", closefd=False, buffering=1 << 20) as file:
            write(file)
        size = os.fstat(fd).st_size
        if size <= INLINE:
            head = os.pread(fd, size, 0)
            os.close(fd)
            return Export(head)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return Export(fd=fd, size=size)


def memfd_name() -> str:
    """The name of the memfd that this thread writes a view to."""
    return f"ddip-view-{get_ident()}"


def close_left_over() -> None:
    """Closes the memfds that this thread had open for a view when it was cancelled."""
    ours = f"/memfd:{memfd_name()} (deleted)"
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the directory's own, or closed in the meantime
            if os.readlink(f"/proc/self/fd/{name}") == ours:
                os.close(int(name))


def export_text(text: str) -> Export:
    """Text as UTF-8."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= INLINE:
        return Export(data)
    return export_written(lambda file: file.write(data))


class Limited(io.TextIOBase):
    """A text file for an object's own code: it accepts no more than fits into a view."""

    def __init__(self, file: SupportsWrite[bytes], name: str, view: str) -> None:
        super().__init__()
        self._file = file
        self._left = TEXT_BYTES
        self._what = f"{name}.{view}"

    def write(self, text: str) -> int:
        """Writes all of the text, or refuses it."""
        data = text.encode("utf-8", "backslashreplace")
        self._left -= len(data)
        if self._left < 0:
            raise too_big(self._what)
        self._file.write(data)
        return len(text)


def too_big(what: str) -> EngineError:
    """The refusal of a text that nobody could use."""
    return EngineError(
        EFBIG,
        f"{what} would be a text of more than {TEXT_BYTES >> 20} MiB, or of more than {ELEMENTS}"
        " elements: read .npy, .safetensors, .pkl or .p5",
    )


def check_size(what: str, value: object, leaves: Iterable[type] = ()) -> None:
    """Refuses an object with too many elements, or too many characters, to become text: raises
    EngineError(EFBIG).

    What is in lists, tuples, sets and dicts counts as often as it would be written, except for a
    container inside itself. leaves: types whose extent counts (arrays, if they are written out).
    """
    kinds, path, left = {*_CONTAINERS, *_TEXTS, *leaves}, [], ELEMENTS
    around, inner = set(), iter([value] if type(value) in kinds else [])
    while True:
        for item in inner:
            if id(item) in around:
                continue
            left -= _extent(item)
            if left < 0:
                raise too_big(what)
            if type(item) in _CONTAINERS:
                path.append((id(item), inner))
                around.add(id(item))
                inner = iter([child for child in _elements(item) if type(child) in kinds])
                break
        else:
            if not path:
                return
            done, inner = path.pop()
            around.discard(done)


def _elements(value: Any) -> list[Any]:
    """A copy of a container's contents, which a running cell may change."""
    return list(value.values()) if type(value) is dict else list(value)


def _extent(value: Any) -> int:
    """The number of elements; for a text, its share of TEXT_BYTES in terms of ELEMENTS."""
    if type(value) in _TEXTS:
        return len(value) * ELEMENTS // TEXT_BYTES
    return len(value) if type(value) in _CONTAINERS else math.prod(getattr(value, "shape", ()))


_CONTAINERS = frozenset((list, tuple, dict, set, frozenset))
_TEXTS = frozenset((str, bytes, bytearray))


def _map(fd: int, size: int, prot: int, flags: int) -> memoryview:
    """A mapping as a memoryview, unmapped when nothing refers to it any more.

    Does not use the mmap module: before Python 3.13, it keeps a descriptor open for each mapping.
    """
    address = _libc.mmap(None, size, prot, flags, fd, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), f"cannot map {size} bytes")
    block = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(block, _libc.munmap, address, size).atexit = False
    return memoryview(block).cast("B")


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def blank(size: int) -> memoryview | None:
    """Memory that nothing has been written to, nor can be, and that takes none. None: this process
    has no addresses for so much."""
    try:
        return _map(-1, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return None


class Incoming:
    """Bytes that were pushed: a memfd that other ranks read too, so it is only mapped privately.
    The descriptor stays the caller's; mappings outlive it. Raises EngineError(EBADMSG) if it has
    fewer bytes than size."""

    def __init__(self, fd: int, size: int) -> None:
        have = os.fstat(fd).st_size
        if have < size:
            raise EngineError(EBADMSG, f"{size} bytes were announced, {have} came")
        self._fd = fd
        self.size = size

    def data(self) -> memoryview:
        """All bytes as a writable memoryview: a copy if they are few, else a private mapping."""
        if self.size < _COPIED:
            return memoryview(bytearray(os.pread(self._fd, self.size, 0)))
        return _map(self._fd, self.size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE)

    def text(self) -> str:
        """All bytes as text. Raises EngineError(EBADMSG)."""
        try:
            return str(self.data(), "utf-8")
        except UnicodeDecodeError as e:
            raise EngineError(
                EBADMSG, f"not UTF-8 text: byte {e.start} is 0x{e.object[e.start]:02x}"
            ) from e

    def file(self) -> io.BytesIO:
        """A copy of all bytes, as a binary file."""
        return io.BytesIO(self.data())


def reason(error: BaseException) -> str:
    """`ValueError: bad`: an exception on one line, whatever its class does."""
    name = type_name(type(error))
    try:
        text = str(error)
    except BaseException as e:
        text = f"its text raises {type_name(type(e))}"
    return one_line(f"{name}: {text}" if text else name)


def type_name(kind: type) -> str:
    """The type's own name, on one line; runs no code of a metaclass."""
    return one_line(_name_of_type(kind))


def one_line(text: str) -> str:
    """The beginning of a text without line ends and colours."""
    words = _CONTROL.sub(" ", _ANSI.sub("", text[: 4 * _REASON_CHARS])).strip()
    return words if len(words) <= _REASON_CHARS else words[:_REASON_CHARS] + "…"


def refusal_of(error: BaseException, what: str, errno: int) -> BaseException:
    """Translates an exception of an object's own code into an EngineError for the requester. Raise
    it `from None`, since it may be the exception itself: as its own cause, it would keep alive what
    its frames hold.

    errno is for code that simply failed. A cancellation is returned as it is.
    """
    if raised.is_a(error, (EngineError, Cancelled)):
        return error
    if raised.is_a(error, MemoryError) or type_name(type(error)) == "OutOfMemoryError":  # torch's
        return EngineError(ENOMEM, f"{what}: no memory for it on this rank ({reason(error)})")
    if raised.is_a(error, OSError) and type(no := raised.errno(error)) is int and no in _MACHINE:
        return EngineError(no, f"{what}: {reason(error)}")
    return EngineError(errno, f"{what}: {reason(error)}")


def unsupported(name: str, value: object, view: str, use: str) -> EngineError:
    """The refusal of a view: what the object is, and what to read instead."""
    what = f"{name} is {article(value)}"
    return EngineError(
        EOPNOTSUPP, f"{what}: no view .{view} of it; {use}" if view else f"{what}: {use}"
    )


def article(value: object) -> str:
    """`a list`, `an int`: the type's name for a sentence."""
    name = type_name(type(value))
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def strict_json(value: object, constant: Callable[[str], Any], **options: Any) -> str:
    """JSON that every parser reads: it has no NaN and no Infinity. constant(word) returns what
    stands for each: its argument is NaN, Infinity or -Infinity. options: of json.dumps()."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # or a circle, which is refused again
        found = json.loads(json.dumps(value, **options), parse_constant=constant)
        options.pop("default", None)
        return json.dumps(found, **options)
