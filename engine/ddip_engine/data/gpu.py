"""GPU memory: found in an object, and copied from and to it by a C thread that needs no GIL.

A copy waits for the work that ended cells have queued on the GPU, but not for that of a running
cell. An object is a torch tensor on a CUDA device, has `__cuda_array_interface__` (cupy, numba), or
supports dlpack (jax).
"""

from __future__ import annotations

import contextlib
import functools
import glob
import itertools
import math
import mmap
import os
import sys
import threading
from errno import EOPNOTSUPP

from ddip_engine import patches, state
from ddip_engine.data import dlpack
from ddip_engine.data.view import Export, memfd_name
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType
    from typing import Any, TypeAlias, TypeGuard, TypeVar

    import numpy
    import torch

    T = TypeVar("T")
    Array: TypeAlias = torch.Tensor | numpy.ndarray
    Dtype: TypeAlias = torch.dtype | numpy.dtype
    Fields: TypeAlias = Sequence[tuple[Any, ...]]  # of a NumPy dtype

_PIECE = 64 << 20  # in bytes, copied at once: a cancelled request ends after at most one
_RUN_BYTES = 64 << 10  # copying one more piece takes as long as copying this many more bytes
_SPAN_BYTES = 256 << 20  # of an object with gaps, copied to the host at once, gaps included
_NAMED_STREAMS = 2  # up to this, not an address but a default stream: the legacy or the thread's
_WITH_STREAM = 3  # the first version of __cuda_array_interface__ that has a stream
_LIBRARIES = ("nvidia/cu*/lib", "nvidia/cuda_runtime/lib", "nvidia/nccl/lib")

_devices: set[int] = set()  # on which objects of libraries other than torch were read
# the main thread's torch device at the last mark(); None: not yet known
_current: int | None = None


class Memory:
    """Where the elements of an object lie: strides and itemsize in bytes, dtype torch's or NumPy's.
    owner: what keeps them alive. near: the number of a GPU.

    finish: a function that turns the host copy into the object's elements; None if the copy
    already has them. known: near is the object's GPU, not just the first one to ask. stream: the
    address of the stream in which its library makes the object, or which waits for that; or None.
    wait: a function that makes the stream wait for the object; None if it already does.
    """

    def __init__(
        self,
        owner: object,
        address: int,
        shape: Iterable[int],
        strides: Iterable[int] | None,
        dtype: Dtype,
        itemsize: int,
        near: int,
        known: bool = False,
        finish: Callable[[Any], Any] | None = None,
        stream: int | None = None,
        wait: Callable[[], object] | None = None,
    ) -> None:
        self.owner = owner
        self.finish = finish
        self.address = address
        self.shape = tuple(shape)
        self.itemsize = itemsize
        self.strides = tuple(strides) if strides is not None else packed(self.shape, itemsize)
        self.dtype = dtype
        self.nbytes = math.prod(self.shape) * itemsize
        self._near, self._stream, self._wait = near, stream, wait
        self._known = known or not self.nbytes

    @functools.cached_property
    def device(self) -> int:
        """The number of the GPU that holds the memory."""
        if self._known:
            return self._near
        device = _owner(self.address, self._near)
        if self._wait is not None:
            self._wait()
        _order(device, self._stream)
        return device

    def order(self) -> str | None:
        """Returns "C" or "F" if the elements lie without gaps in that order, otherwise None."""
        for order in "CF":
            steps = packed(self.shape, self.itemsize, order)
            pairs = zip(self.shape, self.strides, steps, strict=True)
            if not self.nbytes or all(n == 1 or have == want for n, have, want in pairs):
                return order
        return None

    def dtype_is_native(self) -> bool:
        """False if the bytes of an element are not in the machine's byte order."""
        return is_torch(self) or self.dtype.isnative

    def half(self, axis: int, second: bool) -> tuple[Memory, tuple[slice, ...]]:
        """One of the halves along an axis, and its index in the whole."""
        middle = self.shape[axis] // 2
        part = slice(middle, None) if second else slice(middle)
        shape, offset = list(self.shape), middle * self.strides[axis] if second else 0
        shape[axis] = self.shape[axis] - middle if second else middle
        address = self.address + offset
        place = address, shape, self.strides, self.dtype, self.itemsize, self.device
        return Memory(self, *place, known=True), (slice(None),) * axis + (part,)


def packed(shape: Sequence[int], itemsize: int, order: str = "C") -> tuple[int, ...]:
    """The strides in bytes of elements without gaps."""
    strides, step = [], itemsize
    for n in reversed(shape) if order == "C" else shape:
        strides.append(step)
        step *= n
    return tuple(reversed(strides)) if order == "C" else tuple(strides)


def torch_module() -> Any:
    """torch if it is loaded, otherwise None."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "optim") else None  # else a cell is importing it


def has_cuda() -> bool:
    """True if torch, which must have been imported, has a GPU. Makes no context."""
    ask = patches.HAS_CUDA.get()
    return ask() if ask is not None else device_count() > 0


def uses_cuda() -> bool:
    """True if torch has used a GPU in this process."""
    return torch_module() is not None and patches.USES_CUDA.get(has_cuda)()


def device_count() -> int:
    """How many GPUs torch has; 0 also if it does not say."""
    ask = patches.DEVICE_COUNT.get()
    return ask() if ask is not None else 0


def current_device() -> int:
    """The number of torch's current GPU, if torch's CUDA is initialized. Each thread has its own,
    the first one until it is set; the one that cells set is the main thread's."""
    ask = patches.CURRENT_DEVICE.get()
    if ask is not None and threading.current_thread() is threading.main_thread():
        return ask()
    return _last_device()


def _last_device() -> int:
    """What current_device() was in the main thread when the last cell ended."""
    return own_device() if _current is None else _current


def own_device() -> int:
    """The number of the GPU that this rank begins with."""
    count = device_count()
    return state.local_rank % count if count else state.local_rank


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """True for a torch tensor, parameters included."""
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


def _on_cuda(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cuda"


def memory_of(value: Any) -> Memory | None:
    """The Memory of an object on a GPU; None if it is not on one, or not a dense array. Raises
    EngineError if the array cannot be read."""
    if is_tensor(value):
        return _memory_of_tensor(value) if _on_cuda(value) and _is_dense(value) else None
    facts = None
    if hasattr(type(value), "__cuda_array_interface__"):
        with contextlib.suppress(Exception):  # the object's own code says that it has none
            facts = value.__cuda_array_interface__
    if facts is not None:
        return _memory_of_interface(value, facts)
    return _memory_of_dlpack(value) if dlpack.is_on_gpu(value) else None


def _is_dense(tensor: torch.Tensor) -> bool:
    """False if it has no memory of its own, or if shape and strides do not describe it fully."""
    torch = torch_module()
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_nested:
        return False
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    return tensor.data_ptr() != 0 or tensor.numel() == 0


def _memory_of_tensor(tensor: torch.Tensor) -> Memory:
    """A conjugate or negation that torch has not computed yet is computed on the host: a kernel for
    it would be queued behind all the work of the program."""
    torch = torch_module()
    raw = tensor.detach()
    steps: list[Callable[[Any], Any]] = []
    if raw.is_neg():
        view = patches.NEG_VIEW.get()
        raw, steps = (view(raw), [torch.Tensor.neg_]) if view else (raw.resolve_neg(), [])
    if raw.is_conj():
        raw, steps = raw.conj(), [*steps, torch.Tensor.conj_physical_]
    finish = functools.partial(functools.reduce, lambda made, step: step(made), steps)
    size = raw.element_size()
    strides = [step * size for step in raw.stride()]
    place = raw.data_ptr(), raw.shape, strides, raw.dtype, size, raw.device.index
    return Memory(raw, *place, known=True, finish=finish if steps else None)


def _memory_of_interface(value: Any, facts: Mapping[str, Any]) -> Memory:
    try:
        import numpy
    except ImportError as e:
        text = "arrays of a GPU need NumPy, which this environment does not have"
        raise EngineError(EOPNOTSUPP, text) from e
    if facts.get("mask") is not None:
        raise EngineError(EOPNOTSUPP, "an array of a GPU with a mask: take its parts in a cell")
    descr = facts.get("descr")
    dtype = numpy.dtype([tuple(d) for d in descr] if _has_fields(descr) else facts["typestr"])
    shape, strides = facts["shape"], facts.get("strides")
    place = facts["data"][0], shape, strides, dtype, dtype.itemsize, state.local_rank
    if facts.get("version", 0) < _WITH_STREAM and dlpack.is_on_gpu(value):
        wait = functools.partial(_wait_by_dlpack, value)
        return Memory(value, *place, stream=dlpack.STREAM, wait=wait)
    return Memory(value, *place, stream=facts.get("stream"))


def _wait_by_dlpack(value: Any) -> None:
    """Makes the legacy default stream wait for the work that makes a jax array: jax uses streams of
    its own, and its interface names none. The dlpack capsule is not kept: jax would refuse to
    donate the array to a running step."""
    with contextlib.suppress(EngineError):
        dlpack.take(value)


def _memory_of_dlpack(value: Any) -> Memory:
    owner, address, shape, strides, dtype = dlpack.take(value)
    place = address, shape, strides, dtype, dtype.itemsize, state.local_rank
    return Memory(owner, *place, stream=dlpack.STREAM)


def _has_fields(descr: Fields | None) -> TypeGuard[Fields]:
    return descr is not None and (len(descr) > 1 or descr[0][0] != "")


# ---- the copies


def _ddip() -> ModuleType:
    """The C module, in a rank, with CUDA loaded."""
    import _ddip as module

    if not module.device_is_open():
        _guarded("", module.device_open, _folders())
    return module


@functools.cache
def _folders() -> str:
    """The folders of NVIDIA's libraries in the environment, each followed by ":"."""
    found = [glob.glob(os.path.join(place, name)) for place in sys.path for name in _LIBRARIES]
    return "".join(f"{folder}:" for folder in itertools.chain(*found))


def load(name: str) -> str:
    """Loads "cuda" or "nccl". Returns its version; raises EngineError if there is none."""
    module = _ddip()
    function = module.nccl_open if name == "nccl" else module.device_open
    return _guarded("", function, _folders())


def has_nccl() -> bool:
    """False if NCCL is built into torch and others can't call it."""
    try:
        return bool(load("nccl"))
    except EngineError:
        return False


def _guarded(what: str, function: Callable[..., T], *args: Any) -> T:
    try:
        return function(*args)
    except OSError as e:
        raise EngineError(e.errno, f"{what}{e.strerror}") from e  # type: ignore[arg-type]  # C sets it


def _owner(address: int, near: int) -> int:
    """The device that owns this memory. The query runs on near, where the rank has a context."""
    owner = _ddip().device_owner
    while (device := _guarded("", owner, address, near)) is None:
        pass  # a cancellation is raised here
    return device


def copy(memory: Memory, offset: int, host: int, size: int, into: bool = False) -> None:
    """Copies a range of a Memory to the host; with into, the other way. Its object lives until the
    device is done with it, also if the copy is given up before. offset: in bytes, from the Memory's
    address; host: an address; size: in bytes. Raises EngineError."""
    module, device, address = _ddip(), memory.device, memory.address + offset
    handle = module.device_pin(memory.owner, address, size, device)
    try:
        while size > 0:
            args = device, address, host, min(size, _PIECE), handle, into
            done = _guarded(f"GPU {device}: ", module.device_copy, *args)
            address, host, size = address + done, host + done, size - done
    finally:
        module.device_unpin(handle)


def read(memory: Memory) -> bytes:
    """A copy of all bytes of memory without gaps. Raises EngineError."""
    data = bytearray(memory.nbytes)
    copy(memory, 0, address_of(data), memory.nbytes)
    return bytes(data)


def address_of(data: bytearray | memoryview | mmap.mmap) -> int:
    """The address of a writable Python buffer."""
    import ctypes

    return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data)) if len(data) else 0


def live(value: Any) -> Memory | None:
    """The Memory of an object on a GPU whose bytes are its elements without gaps, to be read in
    place; otherwise None: see host()."""
    memory = memory_of(value)
    if memory is None or memory.finish or memory.order() is None:
        return None
    return memory if not is_tensor(value) or opens() else None


def opens() -> bool:
    """Is there a CUDA library that the process can use? torch may have one built in."""
    try:
        _ddip()
    except EngineError:
        return False
    return True


def host(value: Any) -> Any:
    """The same on the host: a CPU tensor or NumPy array of its own. Returns what is not on a GPU
    unchanged. Raises EngineError."""
    memory = memory_of(value)
    if is_tensor(value) and (memory is None or not opens()):
        away = value.device.type not in ("cpu", "meta")
        return value.detach().cpu() if away or memory is not None else value
    if memory is None:
        return value
    made = _on_host(memory)
    return memory.finish(made) if memory.finish else made


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without a gradient, with any conjugate or negation that is pending computed."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        return host(tensor).resolve_conj().resolve_neg()
    return tensor


def _on_host(memory: Memory) -> Array:
    made, address = _empty(memory, memory.shape)
    size, axis = _run(memory)
    low, high = _span(memory)
    if not memory.nbytes:
        return made
    if size == memory.nbytes:
        copy(memory, 0, address, size)
    elif math.prod(memory.shape[:axis]) * _RUN_BYTES + memory.nbytes < high - low:
        _gather(memory, address)
    else:
        _copy_spans(memory, made)
    return made


def _empty(memory: Memory, shape: Sequence[int]) -> tuple[Array, int]:
    """(a tensor or array on the host, its address)."""
    if is_torch(memory):
        made = sys.modules["torch"].empty(shape, dtype=memory.dtype, device="cpu")
        return made, made.data_ptr()
    import numpy

    made = numpy.empty(shape, memory.dtype)
    return made, made.ctypes.data


def is_torch(memory: Memory) -> bool:
    """Is the dtype one of torch's?"""
    return type(memory.dtype).__module__.partition(".")[0] == "torch"


def _span(memory: Memory) -> tuple[int, int]:
    """The offsets of the first byte and of the one after the last, from the address."""
    reach = [(n - 1) * step for n, step in zip(memory.shape, memory.strides, strict=True)]
    low = sum(each for each in reach if each < 0)
    return low, sum(each for each in reach if each > 0) + memory.itemsize


def _run(memory: Memory) -> tuple[int, int]:
    """(bytes of a piece without gaps, number of leading axes that index the pieces)."""
    size, axis = memory.itemsize, len(memory.shape)
    while axis > 0 and (memory.strides[axis - 1] == size or memory.shape[axis - 1] == 1):
        axis -= 1
        size *= memory.shape[axis]
    return size, axis


def _gather(memory: Memory, address: int) -> None:
    """Copies each piece to its place in C order."""
    size, axis = _run(memory)
    for index in itertools.product(*map(range, memory.shape[:axis])):
        offset = sum(i * step for i, step in zip(index, memory.strides, strict=False))
        copy(memory, offset, address, size)
        address += size


def _copy_spans(memory: Memory, made: Array) -> None:
    """Copies everything between the first and the last byte, up to _SPAN_BYTES at once."""
    low, high = _span(memory)
    if high - low <= _SPAN_BYTES:
        made[...] = _from_span(memory, low, high - low)
        return
    reaches = [(n - 1) * abs(step) for n, step in zip(memory.shape, memory.strides, strict=True)]
    axis = reaches.index(max(reaches))
    for second in (False, True):
        part, where = memory.half(axis, second)
        _copy_spans(part, made[where])


def _from_span(memory: Memory, low: int, size: int) -> Array:
    """The elements with their strides, in a copy that includes the gaps between them."""
    import numpy

    data = numpy.empty(size, numpy.uint8)
    copy(memory, low, data.ctypes.data, size)
    if not is_torch(memory):
        return numpy.ndarray(memory.shape, memory.dtype, data, -low, memory.strides)
    torch = sys.modules["torch"]
    steps = [step // memory.itemsize for step in memory.strides]
    return torch.from_numpy(data).view(memory.dtype).as_strided(memory.shape, steps)


def hosted(export: Export) -> Export:
    """The same export with its bytes in a memfd, if they are on a GPU. Raises EngineError."""
    if export.device < 0:
        return export
    fd = os.memfd_create(memfd_name(), os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, export.size)
        with mmap.mmap(fd, export.size) as memory:
            memory[: len(export.head)] = export.head
            start = len(export.head)
            view = memoryview(memory)[start:]
            try:
                bytes_ = export.address, (len(view),), None, None, 1, export.device
                copy(Memory(export.keep, *bytes_, known=True), 0, address_of(view), len(view))
            finally:
                view.release()
    except BaseException:
        os.close(fd)
        raise
    return Export(fd=fd, size=export.size)


# ---- ordering


def mark() -> None:
    """Called when a cell has ended or a push is complete: later reads wait for what that queued, on
    each GPU in use, in the default stream and in the current ones of torch and cupy."""
    if not (_devices or sys.modules.get("torch") or sys.modules.get("cupy")):
        return
    module = sys.modules.get("_ddip")
    try:
        streams = {(device, 0) for device in _devices} | set(_streams())
        if module is not None and streams:
            module = _ddip()
            # the current device (-1) last: errors of the others name their device
            for device, stream in sorted(streams, key=lambda each: (each[0] < 0, each)):
                with contextlib.suppress(OSError):  # the other GPUs must still be marked
                    module.device_mark(device, stream)
    except Exception:
        # A library's failure here must not change how the cell ended; a read will report it.
        pass


def _streams() -> Iterator[tuple[int, int]]:
    """(device, stream) of the libraries that have used a GPU; device -1 is the current one. cupy
    does not report whether it has: a rank that only imports it must not get a context. torch raises
    RuntimeError where the context is lost: marking the default stream finds that out."""
    global _current
    cupy: Any = sys.modules.get("cupy")
    if uses_cuda():
        stream_of = patches.CURRENT_STREAM.get()
        try:
            _current = current_device()
        except RuntimeError:
            yield _last_device(), 0
        for device in filter(_has_context, range(device_count()) or [_last_device()]):
            yield device, 0
            with contextlib.suppress(RuntimeError):
                if stream_of is not None:
                    yield device, stream_of(device).cuda_stream
    if hasattr(cupy, "cuda") and (stream := cupy.cuda.get_current_stream().ptr):
        yield -1, stream


def _has_context(device: int) -> bool:
    """Does this process have a context on this GPU? True also if the driver reports that it is
    lost: the mark finds that out."""
    try:
        has = patches.HAS_CONTEXT.get()
        return has is None or has(device)
    except RuntimeError:
        return True


def _order(device: int, stream: int | None) -> None:
    """Called before an object of a library other than torch is read on this GPU. The first read
    waits for the whole default stream: nothing else shows what earlier cells have queued."""
    wanted = {0} if device not in _devices or stream == dlpack.STREAM else set()
    _devices.add(device)
    if stream is not None and stream > _NAMED_STREAMS and not state.running:
        wanted.add(stream)
    for each in sorted(wanted):
        _guarded(f"GPU {device}: ", _ddip().device_mark, device, each)
