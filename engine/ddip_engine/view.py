"""What the views of objects share: how bytes leave a rank, how they come in, how a view refuses."""

import ctypes
import io
import mmap
import os
import weakref
from errno import EBADMSG, EOPNOTSUPP

from ddip_engine.state import Refusal

INLINE = 1 << 20  # bytes that still travel in a message
_COPIED = 64 << 10  # smaller ones are copied: a mapping or a pin costs more


class Export:
    """Bytes on their way out: a head, then a memfd's bytes or live memory, or nothing."""

    def __init__(self, head=b"", fd=-1, size=None, keep=None, address=0):
        self.head = head
        self.fd = fd  # a memfd that the receiver of this object closes
        self.keep = keep  # what must stay alive while address is read
        self.address = address
        self.size = len(head) if size is None else size  # of head and the rest together


def export_memory(head, address, size, keep, copy):
    """Live memory behind a head; copy() gives its bytes where there are few."""
    if size < _COPIED:
        return Export(head + copy())
    return Export(head, size=len(head) + size, keep=keep, address=address)


def export_written(write):
    """What write(file) writes to a binary file; through a memfd, so that it lies in memory once."""
    fd = os.memfd_create("ddip-view", os.MFD_CLOEXEC)
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


def export_text(text):
    """Text as UTF-8."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= INLINE:
        return Export(data)
    return export_written(lambda file: file.write(data))


def _map_private(fd, size):
    """A writable private mapping as a memoryview, unmapped with its last user.

    Not by the mmap module: before Python 3.13 that keeps a descriptor open for each mapping.
    """
    prot = mmap.PROT_READ | mmap.PROT_WRITE
    address = _libc.mmap(None, size, prot, mmap.MAP_PRIVATE, fd, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), f"cannot map {size} bytes")
    block = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(block, _libc.munmap, address, size).atexit = False
    return memoryview(block).cast("B")


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Incoming:
    """Bytes that were pushed: a memfd that other ranks read too, so it is only mapped privately."""

    def __init__(self, fd, size):
        have = os.fstat(fd).st_size
        if have < size:
            raise Refusal(EBADMSG, f"{size} bytes were announced, {have} came")
        self._fd = fd
        self.size = size

    def data(self):
        """All bytes as a writable memoryview: a copy if they are few, else a private mapping."""
        if self.size < _COPIED:
            return memoryview(bytearray(os.pread(self._fd, self.size, 0)))
        return _map_private(self._fd, self.size)

    def text(self):
        """All bytes as text."""
        try:
            return str(self.data(), "utf-8")
        except UnicodeDecodeError as e:
            raise Refusal(
                EBADMSG, f"not UTF-8 text: byte {e.start} is 0x{e.object[e.start]:02x}"
            ) from e

    def file(self):
        """All bytes as a binary file."""
        return io.BytesIO(self.data())


def unsupported(name, value, view, use):
    """The refusal of a view: what the object is, and what to read instead."""
    what = f"{name} is {article(value)}"
    return Refusal(
        EOPNOTSUPP, f"{what}: no view .{view} of it; {use}" if view else f"{what}: {use}"
    )


def article(value):
    """`a list`, `an int`: the type's name for a sentence."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
