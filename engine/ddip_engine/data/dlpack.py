"""Objects that expose their GPU memory through dlpack: those of jax.

Uses only what the first version of dlpack has, and needs no library for it.
"""

from __future__ import annotations

import ctypes
from errno import EOPNOTSUPP

from ddip_engine.data.view import reason
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy

_GPU_MEMORY = (2, 13)  # kDLCUDA, kDLCUDAManaged
_NAME = b"dltensor"  # of a capsule that has not been consumed
_BITS = 8  # per byte
_INTEGER, _UNSIGNED, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_KINDS = {_INTEGER: "i", _UNSIGNED: "u", _FLOAT: "f", _COMPLEX: "c", _BOOL: "b"}  # NumPy's names
STREAM = 1  # the legacy default stream, as dlpack numbers it: ordered after an object's own work


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("dims", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


def is_on_gpu(value: Any) -> bool:
    """Does the object report through dlpack that it is on a GPU?"""
    kind = type(value)
    if not hasattr(kind, "__dlpack__") or not hasattr(kind, "__dlpack_device__"):
        return False
    try:
        return value.__dlpack_device__()[0] in _GPU_MEMORY
    except Exception:  # the object's own code says that it has no device
        return False


def take(value: Any) -> tuple[tuple[Any, Any], int, list[int], list[int] | None, numpy.dtype]:
    """(owner, address, shape, strides in bytes or None, NumPy dtype). The memory stays as long as
    the owner lives. Raises EngineError."""
    try:
        capsule = value.__dlpack__(stream=STREAM)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        tensor = _Tensor.from_address(pointer(capsule, _NAME))
    except Exception as e:
        raise EngineError(EOPNOTSUPP, f"its __dlpack__ fails: {reason(e)}") from e
    dtype = _dtype(tensor)
    shape = tensor.shape[: tensor.dims]
    strides = None
    if tensor.strides:
        strides = [step * dtype.itemsize for step in tensor.strides[: tensor.dims]]
    return (value, capsule), (tensor.data or 0) + tensor.offset, shape, strides, dtype


def _dtype(tensor: _Tensor) -> numpy.dtype:
    try:
        import numpy
    except ImportError as e:
        text = "arrays of a GPU need NumPy, which this environment does not have"
        raise EngineError(EOPNOTSUPP, text) from e
    name = f"{_KINDS.get(tensor.code, '?')}{tensor.bits // _BITS}"
    if (tensor.code, tensor.bits) == (_BFLOAT, 16):
        name = "bfloat16"  # known if ml_dtypes is loaded, which jax does
    try:
        dtype = numpy.dtype(name)
    except TypeError:
        dtype = None
    if dtype is None or tensor.lanes != 1 or dtype.itemsize * _BITS != tensor.bits:
        what = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
        raise EngineError(EOPNOTSUPP, f"NumPy has no type for its elements (dlpack: {what})")
    return dtype
