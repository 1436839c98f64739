"""Memory of GPUs: found in an object, copied from and to it by a thread of C's that needs no GIL.

What a running cell has queued on a GPU is not waited for, what ended cells have queued is. An
object is a torch tensor on a CUDA device, or has `__cuda_array_interface__` (cupy, numba, jax).
"""

import functools
import glob
import itertools
import math
import mmap
import os
import sys
from errno import EBADMSG, EOPNOTSUPP

from ddip_engine import state
from ddip_engine.state import EngineError
from ddip_engine.view import Export, article

EXIT_LOST = 70  # the status of a process whose context was lost (EX_SOFTWARE)
_PIECE = 64 << 20  # bytes that are copied at once: a cancelled request ends that soon
_MAP_NORESERVE = 0x4000
_RUNS = 4096  # so many pieces of an object with gaps are copied one by one,
_GAPS = 4  # more only if its gaps are larger than this times its bytes
_LIBRARIES = ("nvidia/cu*/lib", "nvidia/cuda_runtime/lib", "nvidia/nccl/lib")


class Memory:
    """Where the elements of an object lie: strides in bytes, dtype torch's or NumPy's."""

    def __init__(self, owner, address, shape, strides, dtype, itemsize, near):
        self.owner = owner
        self.address = address
        self.shape = tuple(shape)
        self.itemsize = itemsize
        self.strides = tuple(strides) if strides is not None else _packed(self.shape, itemsize)
        self.dtype = dtype
        self.nbytes = math.prod(self.shape) * itemsize
        self._near = near

    @functools.cached_property
    def device(self):
        """The number of the GPU that it lies on."""
        return _owner(self.address, self._near) if self.nbytes else self._near

    def order(self):
        """ "C" or "F": the elements lie so without gaps; None: they do not."""
        for order in "CF":
            packed = _packed(self.shape, self.itemsize, order)
            pairs = zip(self.shape, self.strides, packed, strict=True)
            if not self.nbytes or all(n == 1 or have == want for n, have, want in pairs):
                return order
        return None


def _packed(shape, itemsize, order="C"):
    """The strides of elements without gaps."""
    strides, step = [], itemsize
    for n in reversed(shape) if order == "C" else shape:
        strides.append(step)
        step *= n
    return tuple(reversed(strides)) if order == "C" else tuple(strides)


def memory_of(value):
    """The Memory of an object on a GPU; None: it is not on one, or not a dense array."""
    torch = sys.modules.get("torch")
    if hasattr(torch, "optim") and isinstance(value, torch.Tensor):
        if value.device.type != "cuda" or value.layout is not torch.strided or value.is_quantized:
            return None
        if hasattr(value, "full_tensor"):
            return None
        return _memory_of_tensor(value.detach().resolve_conj().resolve_neg())
    if not hasattr(type(value), "__cuda_array_interface__"):
        return None
    facts = getattr(value, "__cuda_array_interface__", None)
    return _memory_of_interface(value, facts) if facts is not None else None


def _memory_of_tensor(tensor):
    size = tensor.element_size()
    strides = [step * size for step in tensor.stride()]
    near = tensor.device.index
    return Memory(tensor, tensor.data_ptr(), tensor.shape, strides, tensor.dtype, size, near)


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
    near = state.local_rank
    return Memory(value, facts["data"][0], shape, strides, dtype, dtype.itemsize, near)


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


def libraries():
    """(key, text) of the libraries that are there, or why they are not."""
    module = _ddip()
    for name, function in (("cuda", module.device_open), ("nccl", module.nccl_open)):
        try:
            yield f"{name}_library", function(_folders())
        except OSError as e:
            yield f"{name}_error", e.strerror


def _guarded(what, function, *args):
    try:
        return function(*args)
    except OSError as e:
        raise EngineError(e.errno, f"{what}{e.strerror}") from e


def _owner(address, near):
    """The device of this memory; near is asked first, where the rank has a context."""
    return _guarded("", _ddip().device_owner, address, near)


def _copy(device, address, host, size, into=False):
    """Copies from a device to the host's memory, or into the device."""
    copy = _ddip().device_copy
    while size > 0:
        args = device, address, host, min(size, _PIECE), into
        done = _guarded(f"GPU {device}: ", copy, *args)
        address, host, size = address + done, host + done, size - done


def read(memory):
    """All bytes, of what has no gaps."""
    data = bytearray(memory.nbytes)
    _copy(memory.device, memory.address, _address(data), memory.nbytes)
    return bytes(data)


def _address(data):
    import ctypes

    return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data)) if len(data) else 0


def host(value):
    """The same on the host: a CPU tensor, a NumPy array; what is not on a GPU as it is."""
    memory = memory_of(value)
    if memory is None:
        return value
    if memory.order() == "C":
        made, address = _empty(memory, memory.shape)
        _copy(memory.device, memory.address, address, memory.nbytes)
        return made
    runs = list(itertools.islice(_runs(memory), _RUNS + 1))
    low, high = _span(memory)
    if len(runs) <= _RUNS or high - low > _GAPS * memory.nbytes:
        return _gathered(memory)
    return _from_span(memory, low, high - low)


def _empty(memory, shape):
    """(a tensor or array on the host, its address)."""
    if _is_torch(memory):
        made = sys.modules["torch"].empty(shape, dtype=memory.dtype)
        return made, made.data_ptr()
    import numpy

    made = numpy.empty(shape, memory.dtype)
    return made, made.ctypes.data


def _is_torch(memory):
    return type(memory.dtype).__module__.partition(".")[0] == "torch"


def _span(memory):
    """The first byte and the one behind the last, from the address."""
    reach = [(n - 1) * step for n, step in zip(memory.shape, memory.strides, strict=True)]
    low = sum(each for each in reach if each < 0)
    return low, sum(each for each in reach if each > 0) + memory.itemsize


def _runs(memory):
    """(offset, bytes) of all pieces without gaps, in C's order."""
    size, axis = memory.itemsize, len(memory.shape)
    while axis > 0 and (memory.strides[axis - 1] == size or memory.shape[axis - 1] == 1):
        axis -= 1
        size *= memory.shape[axis]
    for index in itertools.product(*map(range, memory.shape[:axis])):
        yield sum(i * step for i, step in zip(index, memory.strides, strict=False)), size


def _gathered(memory):
    made, address = _empty(memory, memory.shape)
    for offset, size in _runs(memory):
        _copy(memory.device, memory.address + offset, address, size)
        address += size
    return made


def _from_span(memory, low, size):
    """Copies the bytes between the elements as well."""
    import numpy

    data = numpy.empty(size, numpy.uint8)
    _copy(memory.device, memory.address + low, data.ctypes.data, size)
    if not _is_torch(memory):
        return numpy.ndarray(memory.shape, memory.dtype, data, -low, memory.strides).copy()
    torch = sys.modules["torch"]
    steps = [step // memory.itemsize for step in memory.strides]
    flat = torch.from_numpy(data)[: size - size % memory.itemsize].view(memory.dtype)
    return flat.as_strided(memory.shape, steps).contiguous()


def hosted(export):
    """The same export with its bytes in a memfd."""
    if export.device < 0:
        return export
    fd = os.memfd_create("ddip-view", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, export.size)
        with mmap.mmap(fd, export.size) as memory:
            memory[: len(export.head)] = export.head
            start = len(export.head)
            view = memoryview(memory)[start:]
            try:
                _copy(export.device, export.address, _address(view), export.size - start)
            finally:
                view.release()
    except BaseException:
        os.close(fd)
        raise
    return Export(fd=fd, size=export.size)


# ---- writing


def tensor_on(tensor, device):
    """The tensor on this device; of the host's to a GPU without its own stream."""
    torch = sys.modules["torch"]
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    plain = tensor.detach().contiguous()
    with torch.cuda.device(device):
        made = torch.empty(plain.shape, dtype=plain.dtype, device=device)
        _fill(made, plain.data_ptr())
    return made


def array_like(old, array):
    """A NumPy array as one of the library of old, which is on a GPU, on the same device."""
    device = memory_of(old).device
    cupy = sys.modules.get("cupy")
    if isinstance(old, getattr(cupy, "ndarray", ())):
        with cupy.cuda.Device(device):
            return _array_of(cupy.empty, array)
    cuda = getattr(sys.modules.get("numba"), "cuda", None)
    if cuda is not None and type(old).__module__.partition(".")[0] == "numba":
        with cuda.gpus[device]:
            return _array_of(cuda.device_array, array)
    text = f"it holds {article(old)} on GPU {device}, which is made in a cell only; or del it first"
    raise EngineError(EBADMSG, text)


def _array_of(empty, array):
    array = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    made = empty(array.shape, array.dtype)
    _fill(made, array.ctypes.data)
    return made


def _fill(made, address):
    """Copies the host's bytes to a new object of this thread's device. Its memory may be in use
    still: by what is in the library's stream for who had it before."""
    memory = memory_of(made)
    mark()
    _copy(memory.device, memory.address, address, memory.nbytes, into=True)


def on_device(value):
    """An array or a tensor, or each of a list or a dict, on this rank's GPU."""
    if type(value) is dict:
        return {key: on_device(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(on_device(each) for each in value)
    if memory_of(value) is not None:
        return value
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    is_tensor = hasattr(torch, "optim") and isinstance(value, torch.Tensor)
    if not is_tensor and not hasattr(value, "__array_interface__"):
        raise EngineError(EBADMSG, f"{article(value)} is no array: nothing to be put on a GPU")
    if hasattr(torch, "optim") and torch.cuda.is_available():
        tensor = value if is_tensor else torch.from_numpy(value)
        return tensor_on(tensor, torch.device("cuda", torch.cuda.current_device()))
    if cupy is not None and not is_tensor:
        return _array_of(cupy.empty, value)
    raise EngineError(EOPNOTSUPP, "no torch with CUDA and no cupy is loaded that could hold it")


# ---- text


def image(value):
    """What print shows of an object, on the host: of a large one all but its edges is zero, and
    takes no memory."""
    memory = memory_of(value)
    if memory is None or memory.order() != "C":
        return host(value)
    threshold, kept = _elision()
    if memory.nbytes <= threshold * memory.itemsize:
        return host(value)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    data = mmap.mmap(-1, memory.nbytes, flags=flags)
    address = _address(data)
    for offset, size in _edges(memory.shape, memory.strides, memory.itemsize, kept):
        _copy(memory.device, memory.address + offset, address + offset, size)
    if _is_torch(memory):
        flat = sys.modules["torch"].frombuffer(data, dtype=memory.dtype)
        return flat.reshape(memory.shape)
    import numpy

    return numpy.ndarray(memory.shape, memory.dtype, data)


def _elision():
    """(elements that print shows all of, how many it looks at, at each end of an axis of more)."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    options = getattr(getattr(torch, "_tensor_str", None), "PRINT_OPTS", None)
    threshold, items = getattr(options, "threshold", 0), getattr(options, "edgeitems", 0)
    if numpy is not None:
        own = numpy.get_printoptions()
        threshold, items = max(threshold, own["threshold"]), max(items, own["edgeitems"])
    return threshold, items + 1


def _edges(shape, strides, itemsize, kept):
    """(offset, bytes) of the elements at the ends of all axes."""
    ends = [sorted({*range(min(n, kept)), *range(max(n - kept, 0), n)}) for n in shape[:-1]]
    last, n = min(shape[-1], kept), shape[-1]
    for index in itertools.product(*ends):
        offset = sum(i * step for i, step in zip(index, strides, strict=False))
        if n <= 2 * kept:
            yield offset, n * itemsize
            continue
        yield offset, last * itemsize
        yield offset + (n - last) * itemsize, last * itemsize


def text(value):
    """str() of an object on a GPU, from its image; None: it is not on one."""
    if memory_of(value) is None:
        return None
    shown = image(value)
    torch = sys.modules.get("torch")
    if not hasattr(torch, "optim") or not isinstance(value, torch.Tensor) or value.ndim == 0:
        return f"{shown}"
    contents = torch._tensor_str._tensor_str(shown, len("tensor("))
    return value.__repr__(tensor_contents=contents)


# ---- the order of things


def mark():
    """A cell has ended: what it queued comes before all that is read from now on."""
    module = sys.modules.get("_ddip")
    streams = list(_streams())
    if module is None or not (streams or module.device_is_open()):
        return
    try:
        module = _ddip()
        for stream in (0, *streams):
            module.device_mark(stream)
    except (OSError, EngineError):
        """Whoever reads from the GPU is told why that is not possible."""


def leave_if_lost():
    """Ends this process if its CUDA context is lost: nothing on its GPU works any more. The daemon
    puts another one in its place, and tells what is written here."""
    module = sys.modules.get("_ddip")
    why = module.device_lost() if module is not None else ""
    if not why:
        return
    text = f"the CUDA context is lost ({why}) {_where_lost()}; all variables of this rank are lost"
    os.write(2, f"ddip: rank {state.rank}: {text}\n".encode())
    os._exit(EXIT_LOST)


def _where_lost():
    """The line of the cell where that came up, as far as an exception says it."""
    trace, line = getattr(sys, "last_traceback", None), 0
    file = f"<cell {state.cell}>"
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    if line:
        return f"at line {line} of cell {state.cell}"
    late = "kernels fail late: with CUDA_LAUNCH_BLOCKING=1 in env the line is known"
    return f"by the end of cell {state.cell} ({late})"


def _streams():
    """The streams of the libraries that have used a GPU, other than the default one."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if hasattr(torch, "optim") and torch.cuda.is_initialized():
        yield torch.cuda.current_stream().cuda_stream
    if hasattr(cupy, "cuda"):
        yield cupy.cuda.get_current_stream().ptr
