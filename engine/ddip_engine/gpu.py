"""Memory of GPUs: found in an object, copied from and to it by a thread of C's that needs no GIL.

What a running cell has queued on a GPU is not waited for, what ended cells have queued is. An
object is a torch tensor on a CUDA device, has `__cuda_array_interface__` (cupy, numba), or speaks
dlpack (jax).
"""

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

from ddip_engine import dlpack, state
from ddip_engine.state import EngineError
from ddip_engine.view import Export, memfd_name

_PIECE = 64 << 20  # bytes that are copied at once: a cancelled request ends that soon
_RUN_BYTES = 64 << 10  # to copy one piece more takes the time of so many bytes more
_SPAN_BYTES = 256 << 20  # of an object with gaps that are on the host at once, gaps included
_NAMED_STREAMS = 2  # up to this not an address of a stream: the legacy and the thread's default one
_WITH_STREAM = 3  # versions of __cuda_array_interface__ from here on
_LIBRARIES = ("nvidia/cu*/lib", "nvidia/cuda_runtime/lib", "nvidia/nccl/lib")

_devices = set()  # where objects of other libraries than torch were read
_current = None  # torch's device of the main thread when it was marked last; None: never


class Memory:
    """Where the elements of an object lie: strides in bytes, dtype torch's or NumPy's.

    finish: a function of the copy on the host that makes the object's elements of it; None: it
    has them. known: near is the GPU that it lies on, not just the first to be asked. stream: the
    address of the one that its library says it is made in, or has that one wait for it; or None.
    wait: a function that makes the stream wait for it; None: it does.
    """

    def __init__(
        self,
        owner,
        address,
        shape,
        strides,
        dtype,
        itemsize,
        near,
        known=False,
        finish=None,
        stream=None,
        wait=None,
    ):
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
    def device(self):
        """The number of the GPU that it lies on."""
        if self._known:
            return self._near
        device = _owner(self.address, self._near)
        if self._wait is not None:
            self._wait()
        _order(device, self._stream)
        return device

    def order(self):
        """ "C" or "F": the elements lie so without gaps; None: they do not."""
        for order in "CF":
            steps = packed(self.shape, self.itemsize, order)
            pairs = zip(self.shape, self.strides, steps, strict=True)
            if not self.nbytes or all(n == 1 or have == want for n, have, want in pairs):
                return order
        return None

    def dtype_is_native(self):
        """False where the bytes of an element are in another order than the machine's."""
        return is_torch(self) or self.dtype.isnative

    def half(self, axis, second):
        """One of the halves along an axis, and where it lies in the whole."""
        middle = self.shape[axis] // 2
        part = slice(middle, None) if second else slice(middle)
        shape, offset = list(self.shape), middle * self.strides[axis] if second else 0
        shape[axis] = self.shape[axis] - middle if second else middle
        address = self.address + offset
        place = address, shape, self.strides, self.dtype, self.itemsize, self.device
        return Memory(self, *place, known=True), (slice(None),) * axis + (part,)


def packed(shape, itemsize, order="C"):
    """The strides of elements without gaps."""
    strides, step = [], itemsize
    for n in reversed(shape) if order == "C" else shape:
        strides.append(step)
        step *= n
    return tuple(reversed(strides)) if order == "C" else tuple(strides)


def torch_module():
    """torch, where it is loaded; None."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "optim") else None  # else a cell is importing it


def current_device():
    """The number of the GPU that torch works on; of one that is initialized. A thread has a current
    one of its own, the first, until it is set: what cells have set is the main thread's."""
    cuda = sys.modules["torch"].cuda
    if threading.current_thread() is threading.main_thread():
        return cuda.current_device()
    return _current if _current is not None else state.local_rank % cuda.device_count()


def is_tensor(value):
    """True for a torch tensor, parameters included."""
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


def _on_cuda(tensor):
    return tensor.device.type == "cuda"


def memory_of(value):
    """The Memory of an object on a GPU; None: it is not on one, or not a dense array."""
    if is_tensor(value):
        return _memory_of_tensor(value) if _on_cuda(value) and _is_dense(value) else None
    facts = None
    if hasattr(type(value), "__cuda_array_interface__"):
        with contextlib.suppress(Exception):  # the object's own code says that it has none
            facts = value.__cuda_array_interface__
    if facts is not None:
        return _memory_of_interface(value, facts)
    return _memory_of_dlpack(value) if dlpack.is_on_gpu(value) else None


def _is_dense(tensor):
    """False for what has no memory of its own, or more than a shape and strides say of it."""
    torch = torch_module()
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_nested:
        return False
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    return tensor.data_ptr() != 0 or tensor.numel() == 0


def _memory_of_tensor(tensor):
    """A conjugate or a negative that torch has not computed yet is computed on the host: a kernel
    for it would run behind whatever the program has queued."""
    torch = torch_module()
    raw, steps = tensor.detach(), []
    if raw.is_neg():
        raw, steps = torch._neg_view(raw), [torch.Tensor.neg_]
    if raw.is_conj():
        raw, steps = raw.conj(), [*steps, torch.Tensor.conj_physical_]
    finish = functools.partial(functools.reduce, lambda made, step: step(made), steps)
    size = raw.element_size()
    strides = [step * size for step in raw.stride()]
    place = raw.data_ptr(), raw.shape, strides, raw.dtype, size, raw.device.index
    return Memory(raw, *place, known=True, finish=finish if steps else None)


def _memory_of_interface(value, facts):
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


def _wait_by_dlpack(value):
    """The legacy default stream waits for what makes it: an array of jax, which does that in
    streams of its own, and tells none in its interface. What dlpack gives is not kept: jax would
    refuse to donate the array to a step that runs."""
    with contextlib.suppress(EngineError):
        dlpack.take(value)


def _memory_of_dlpack(value):
    owner, address, shape, strides, dtype = dlpack.take(value)
    place = address, shape, strides, dtype, dtype.itemsize, state.local_rank
    return Memory(owner, *place, stream=dlpack.STREAM)


def _has_fields(descr):
    return descr is not None and (len(descr) > 1 or descr[0][0] != "")


# ---- the copies


def _ddip():
    """The module of C's, in a rank; CUDA is loaded then."""
    import _ddip as module

    if not module.device_is_open():
        _guarded("", module.device_open, _folders())
    return module


@functools.cache
def _folders():
    """Where the environment has NVIDIA's libraries, ended by ":" each."""
    found = [glob.glob(os.path.join(place, name)) for place in sys.path for name in _LIBRARIES]
    return "".join(f"{folder}:" for folder in itertools.chain(*found))


def load(name):
    """Loads "cuda" or "nccl": which one it is. EngineError: there is none."""
    module = _ddip()
    function = module.nccl_open if name == "nccl" else module.device_open
    return _guarded("", function, _folders())


def has_nccl():
    """False where NCCL is a part of torch and can't be called by others."""
    try:
        return bool(load("nccl"))
    except EngineError:
        return False


def _guarded(what, function, *args):
    try:
        return function(*args)
    except OSError as e:
        raise EngineError(e.errno, f"{what}{e.strerror}") from e


def _owner(address, near):
    """The device of this memory; near is asked first, where the rank has a context."""
    owner = _ddip().device_owner
    while (device := _guarded("", owner, address, near)) is None:
        pass  # what is cancelled ends here
    return device


def copy(device, address, host, size, into=None):
    """Copies from a device to the host's memory, or to that of the object into, on the device,
    which lives until nothing more is written there."""
    module = _ddip()
    handle = module.device_pin(into, address, size, device) if into is not None else 0
    try:
        while size > 0:
            args = device, address, host, min(size, _PIECE), handle
            done = _guarded(f"GPU {device}: ", module.device_copy, *args)
            address, host, size = address + done, host + done, size - done
    finally:
        if handle:
            module.device_unpin(handle)


def read(memory):
    """All bytes, of what has no gaps."""
    data = bytearray(memory.nbytes)
    copy(memory.device, memory.address, address_of(data), memory.nbytes)
    return bytes(data)


def address_of(data):
    """Where writable memory of Python's lies."""
    import ctypes

    return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data)) if len(data) else 0


def live(value):
    """The Memory of an object on a GPU whose bytes are its elements without gaps, for whoever
    reads them there; None: see host()."""
    memory = memory_of(value)
    if memory is None or memory.finish or memory.order() is None:
        return None
    return memory if not is_tensor(value) or opens() else None


def opens():
    """Is there a CUDA library that the process can use? torch may have one built in."""
    try:
        _ddip()
    except EngineError:
        return False
    return True


def host(value):
    """The same on the host: a CPU tensor, a NumPy array; what is not on a GPU as it is."""
    memory = memory_of(value)
    if is_tensor(value) and (memory is None or not opens()):
        away = value.device.type not in ("cpu", "meta")
        return value.detach().cpu() if away or memory is not None else value
    if memory is None:
        return value
    made = _on_host(memory)
    return memory.finish(made) if memory.finish else made


def plain(tensor):
    """A tensor without a gradient, and without a conjugate or a negative that is not computed."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        return host(tensor).resolve_conj().resolve_neg()
    return tensor


def _on_host(memory):
    made, address = _empty(memory, memory.shape)
    size, axis = _run(memory)
    low, high = _span(memory)
    if not memory.nbytes:
        return made
    if size == memory.nbytes:
        copy(memory.device, memory.address, address, size)
    elif math.prod(memory.shape[:axis]) * _RUN_BYTES + memory.nbytes < high - low:
        _gather(memory, address)
    else:
        _copy_spans(memory, made)
    return made


def _empty(memory, shape):
    """(a tensor or array on the host, its address)."""
    if is_torch(memory):
        made = sys.modules["torch"].empty(shape, dtype=memory.dtype, device="cpu")
        return made, made.data_ptr()
    import numpy

    made = numpy.empty(shape, memory.dtype)
    return made, made.ctypes.data


def is_torch(memory):
    """Is its dtype torch's?"""
    return type(memory.dtype).__module__.partition(".")[0] == "torch"


def _span(memory):
    """The first byte and the one behind the last, from the address."""
    reach = [(n - 1) * step for n, step in zip(memory.shape, memory.strides, strict=True)]
    low = sum(each for each in reach if each < 0)
    return low, sum(each for each in reach if each > 0) + memory.itemsize


def _run(memory):
    """(bytes of a piece without gaps, how many axes lead to such pieces)."""
    size, axis = memory.itemsize, len(memory.shape)
    while axis > 0 and (memory.strides[axis - 1] == size or memory.shape[axis - 1] == 1):
        axis -= 1
        size *= memory.shape[axis]
    return size, axis


def _gather(memory, address):
    """Copies each piece to its place in C's order."""
    size, axis = _run(memory)
    for index in itertools.product(*map(range, memory.shape[:axis])):
        offset = sum(i * step for i, step in zip(index, memory.strides, strict=False))
        copy(memory.device, memory.address + offset, address, size)
        address += size


def _copy_spans(memory, made):
    """Copies all that lies between the first and the last byte, as much as may be at once."""
    low, high = _span(memory)
    if high - low <= _SPAN_BYTES:
        made[...] = _from_span(memory, low, high - low)
        return
    reaches = [(n - 1) * abs(step) for n, step in zip(memory.shape, memory.strides, strict=True)]
    axis = reaches.index(max(reaches))
    for second in (False, True):
        part, where = memory.half(axis, second)
        _copy_spans(part, made[where])


def _from_span(memory, low, size):
    """The elements as they lie, in a copy of what lies between them as well."""
    import numpy

    data = numpy.empty(size, numpy.uint8)
    copy(memory.device, memory.address + low, data.ctypes.data, size)
    if not is_torch(memory):
        return numpy.ndarray(memory.shape, memory.dtype, data, -low, memory.strides)
    torch = sys.modules["torch"]
    steps = [step // memory.itemsize for step in memory.strides]
    return torch.from_numpy(data).view(memory.dtype).as_strided(memory.shape, steps)


def hosted(export):
    """The same export with its bytes in a memfd."""
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
                copy(export.device, export.address, address_of(view), export.size - start)
            finally:
                view.release()
    except BaseException:
        os.close(fd)
        raise
    return Export(fd=fd, size=export.size)


# ---- the order of things


def mark():
    """A cell has ended, or what was pushed is there: what that queued comes before all that is read
    from now on. Of each GPU in use: the default stream, torch's and cupy's current ones."""
    if not (_devices or sys.modules.get("torch") or sys.modules.get("cupy")):
        return
    module = sys.modules.get("_ddip")
    try:
        streams = {(device, 0) for device in _devices} | set(_streams())
        if module is not None and streams:
            module = _ddip()
            # the current device last: of the others an error says which one it is
            for device, stream in sorted(streams, key=lambda each: (each[0] < 0, each)):
                with contextlib.suppress(OSError):  # the other GPUs are marked all the same
                    module.device_mark(device, stream)
    except Exception:
        """Whoever reads from the GPU is told why that is not possible; the cell has ended as it
        has, whatever a library says here."""


def _streams():
    """(device, stream) of the libraries that have used a GPU; -1: the current one. cupy does not
    tell whether it has: a rank that only imports it gets no context for that."""
    global _current
    torch, cupy = torch_module(), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        _current = current_device()
        for device in filter(_has_context, range(torch.cuda.device_count())):
            yield device, 0
            yield device, torch.cuda.current_stream(device).cuda_stream
    if hasattr(cupy, "cuda") and (stream := cupy.cuda.get_current_stream().ptr):
        yield -1, stream


def _has_context(device):
    """Does torch's process have one on this GPU? Where the driver answers with the error of one
    that is lost, yes: the mark finds that out."""
    try:
        return sys.modules["torch"]._C._cuda_hasPrimaryContext(device)
    except RuntimeError:
        return True


def _order(device, stream):
    """An object of another library than torch is read on this GPU. The first time it comes behind
    all in the default stream: what the cells before have queued is not known by anything else."""
    wanted = {0} if device not in _devices or stream == dlpack.STREAM else set()
    _devices.add(device)
    if stream is not None and stream > _NAMED_STREAMS and not _cell_runs():
        wanted.add(stream)
    for each in sorted(wanted):
        _guarded(f"GPU {device}: ", _ddip().device_mark, device, each)


def _cell_runs():
    from ddip_engine import run

    return run.running()
