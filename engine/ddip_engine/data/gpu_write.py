"""Makes objects on a GPU from pushed data: on the GPU of what they replace, or on the rank's."""

from __future__ import annotations

import contextlib
import sys
from errno import EBADMSG, EOPNOTSUPP

from ddip_engine import patches, state
from ddip_engine.data import gpu
from ddip_engine.data.view import article
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy
    import torch


def tensor_on(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor on this device; from the host to a GPU without torch's own stream."""
    torch = gpu.torch_module()
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    if not gpu.opens():
        return tensor.to(device)
    plain = tensor.detach().contiguous()
    with patches.ON_DEVICE.get(contextlib.nullcontext)(device):
        made = torch.empty(plain.shape, dtype=plain.dtype, device=device)
        _fill(made, plain.data_ptr())
    return made


def array_like(old: Any, array: numpy.ndarray) -> Any:
    """Converts a NumPy array to one of the library of old, on the GPU that old is on. Raises
    EngineError."""
    device = gpu.memory_of(old).device  # type: ignore[union-attr]  # it is on one
    library = type(old).__module__.partition(".")[0]
    if library in _MAKERS and sys.modules.get(library) is not None:
        return _MAKERS[library](device, array)
    text = f"it holds {article(old)} on GPU {device}, which is made in a cell only; or del it first"
    raise EngineError(EBADMSG, text)


def _cupy_array(device: int, array: numpy.ndarray) -> Any:
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(device):
        return _array_of(cupy.empty, array)


def _numba_array(device: int, array: numpy.ndarray) -> Any:
    cuda = sys.modules["numba"].cuda
    with cuda.gpus[device]:
        return _array_of(cuda.device_array, array)


# Library other than torch -> function that makes one of its arrays.
_MAKERS: dict[str, Callable[[int, numpy.ndarray], Any]] = {
    "cupy": _cupy_array,
    "numba": _numba_array,
}


def _array_of(empty: Callable[[tuple[int, ...], numpy.dtype], Any], array: numpy.ndarray) -> Any:
    array = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    made = empty(array.shape, array.dtype)
    _fill(made, array.ctypes.data)
    return made


def _fill(made: Any, address: int) -> None:
    """Copies host bytes to a new object on this thread's device. Its memory may still be in use, by
    work in the library's stream for its previous owner."""
    memory: gpu.Memory = gpu.memory_of(made)  # type: ignore[assignment]  # it is on a GPU
    if memory.device >= 0:  # loads CUDA, which mark() needs
        gpu.mark()
    gpu.copy(memory, 0, address, memory.nbytes, into=True)


def on_device(value: Any) -> Any:
    """Puts an array or a tensor, or each in a list, tuple or dict, on this rank's GPU. Raises
    EngineError."""
    if type(value) is dict:
        return {key: on_device(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(on_device(each) for each in value)
    if gpu.memory_of(value) is not None:
        return value
    torch, is_tensor = gpu.torch_module(), gpu.is_tensor(value)
    if not is_tensor and not hasattr(value, "__array_interface__"):
        raise EngineError(EBADMSG, f"{article(value)} is no array: nothing to be put on a GPU")
    if torch is not None and gpu.has_cuda():
        tensor = value if is_tensor else torch.from_numpy(value)
        return tensor_on(tensor, torch.device("cuda", gpu.current_device()))
    for library, make in _MAKERS.items():
        if hasattr(sys.modules.get(library), "cuda") and not is_tensor:
            return make(state.local_rank, value)
    text = (
        "nothing is loaded that could hold it: import torch with CUDA, cupy or numba.cuda in a cell"
    )
    raise EngineError(EOPNOTSUPP, text)
