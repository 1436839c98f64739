"""As much of cupy as the engine and its tests use, on the fake CUDA runtime ($DDIP_CUDART)."""

import contextlib
import ctypes
import os

import numpy

runtime = ctypes.CDLL(os.environ["DDIP_CUDART"])
runtime.fake_cuda_bytes.restype = ctypes.c_void_p
runtime.fake_cuda_bytes.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
runtime.fake_cuda_copied.restype = ctypes.c_uint64
for _name in ("fake_cuda_hold", "cudaFree", "cudaStreamDestroy"):
    getattr(runtime, _name).argtypes = [ctypes.c_void_p]
runtime.fake_cuda_capture.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]


class OutOfMemoryError(MemoryError):
    pass


class _Block:
    """Memory of a device."""

    def __init__(self, size):
        pointer, device = ctypes.c_void_p(), ctypes.c_int()
        self.address = None
        if runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(size, 1))):
            raise OutOfMemoryError(f"no {size} bytes")
        runtime.cudaGetDevice(ctypes.byref(device))
        self.address, self.device = pointer.value, device.value

    def __del__(self):
        runtime.cudaFree(self.address)


class ndarray:
    def __init__(self, block, shape, dtype, strides, offset=0):
        self._block, self._offset = block, offset
        self.shape, self.dtype, self.strides = tuple(shape), numpy.dtype(dtype), tuple(strides)
        self.nbytes = int(numpy.prod(self.shape)) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self):
        packed = numpy.lib.stride_tricks.as_strided(
            numpy.empty(1, self.dtype), self.shape, self.strides
        )
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self._block.address + self._offset if self.nbytes else 0, False),
            "strides": None if packed.flags.c_contiguous else self.strides,
            "version": 3,
        }

    @property
    def device(self):
        class Device:
            id = self._block.device

        return Device()

    def numpy(self):
        """The elements themselves, which only a fake device shows to the host."""
        size = max(getattr(self._block, "size", 0), 1)
        address = runtime.fake_cuda_bytes(self._block.address, size)
        whole = (ctypes.c_char * self._block.size).from_address(address)
        return numpy.ndarray(self.shape, self.dtype, whole, self._offset, self.strides)

    def __getitem__(self, key):
        part = self.numpy()[key]
        offset = part.__array_interface__["data"][0] - self.numpy().__array_interface__["data"][0]
        return ndarray(self._block, part.shape, self.dtype, part.strides, self._offset + offset)

    @property
    def T(self):
        return ndarray(self._block, self.shape[::-1], self.dtype, self.strides[::-1], self._offset)

    def __reduce__(self):
        return array, (self.numpy().copy(),)


def empty(shape, dtype=float, order="C"):
    plan = numpy.empty(shape, dtype, order) if numpy.prod(shape) < 1 << 30 else None
    size = plan.nbytes if plan is not None else int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
    block = _Block(size)
    block.size = size
    strides = plan.strides if plan is not None else (numpy.dtype(dtype).itemsize,)
    return ndarray(block, plan.shape if plan is not None else shape, dtype, strides)


def array(source, order="K"):
    source = numpy.asarray(source, order=order)
    made = empty(source.shape, source.dtype, "F" if source.flags.fnc else "C")
    made.numpy()[...] = source
    return made


class Packed:
    """An array that reports its location by dlpack only, as jax's do."""

    def __init__(self, array, lanes=1):
        self._array, self._lanes = array, lanes

    def __dlpack_device__(self):
        return 2, self._array.device.id

    def __dlpack__(self, stream=None):
        array, dims = self._array, len(self._array.shape)
        numbers = ctypes.c_int64 * dims
        shape = numbers(*array.shape)
        strides = numbers(*(step // array.dtype.itemsize for step in array.strides))
        code = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}[array.dtype.kind]
        kind = code | array.dtype.itemsize * 8 << 8 | self._lanes << 16
        device = 2 | array.device.id << 32
        words = (ctypes.c_uint64 * 6)(
            array._block.address,
            device,
            dims | kind << 32,
            ctypes.addressof(shape),
            ctypes.addressof(strides),
            array._offset,
        )
        self._alive = shape, strides, words, array
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = (
            ctypes.py_object,
            (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        )
        return new(ctypes.addressof(words), _PACKED, None)


_PACKED = b"dltensor"  # a capsule refers to it


class Stream:
    """A stream of the program's own; it becomes the current one."""

    def __init__(self):
        pointer = ctypes.c_void_p()
        runtime.cudaStreamCreateWithFlags(ctypes.byref(pointer), ctypes.c_uint(1))
        self.ptr = pointer.value

    def use(self):
        cuda.current = self
        return self

    def hold(self):
        """Enqueues a kernel that runs until release()."""
        runtime.fake_cuda_hold(self.ptr)


class _Null:
    ptr = 0


class cuda:
    current = _Null()
    Stream = Stream

    @staticmethod
    def get_current_stream():
        return cuda.current

    @staticmethod
    @contextlib.contextmanager
    def Device(number):
        before = ctypes.c_int()
        runtime.cudaGetDevice(ctypes.byref(before))
        runtime.cudaSetDevice(number)
        try:
            yield
        finally:
            runtime.cudaSetDevice(before)


class pool:
    """Of unused memory; here a number that tests set."""

    kept = 0

    def total_bytes(self):
        return pool.kept

    def free_all_blocks(self):
        pool.kept = 0


get_default_memory_pool = pool


def release():
    runtime.fake_cuda_release()
