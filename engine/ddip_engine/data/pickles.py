"""The views pkl and p5: pickles of protocol 5, made by cloudpickle if it is installed.

The p5 format is in p5.py, which is in magics/ddip because the notebook side uses it as well.
"""

from __future__ import annotations

import pickle
import sys
from errno import EBADMSG

from ddip_engine import p5, raised
from ddip_engine.data import gpu
from ddip_engine.data.arrays import placed
from ddip_engine.data.view import export_written, one_line, reason, refusal_of, unsupported
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ddip_engine.data.view import Export, Incoming


def _reduce_special(value: Any) -> Any:
    """Reduces tensors that torch pickles but cannot unpickle everywhere.

    Types newer than its typed storages; tensors on a GPU, which another process may not have.
    """
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor:
        return NotImplemented
    name = str(value.dtype).removeprefix("torch.")
    new = name.startswith("float8") or name in ("uint16", "uint32", "uint64")
    return _reduce_to_host(value) if new or value.is_cuda else NotImplemented


def _reduce_to_host(value: Any) -> Any:
    """Reduces what is on a GPU, which another process may not have, to host arrays and tensors."""
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(value, torch.Tensor)
    if is_tensor and value.requires_grad:
        return p5.reduce_tensor(value)
    if gpu.memory_of(value) is None:
        return p5.reduce_tensor(value)
    plain = gpu.host(value)
    return p5.reduce_tensor(plain) if is_tensor else plain.__reduce_ex__(5)


def export_pkl(name: str, value: Any) -> Export:
    """A pickle that any Python can read; tensors as torch pickles them."""
    try:
        return export_written(lambda file: p5.pickler(file, _reduce_special).dump(value))
    except Exception as e:
        raise _unpicklable(name, value, "pkl", e) from e


def export_p5(name: str, value: Any) -> Export:
    """The pickle goes through memory (it is small), the buffers straight into the memfd."""
    try:
        pickled, buffers = p5.dump(value, _reduce_to_host)
    except Exception as e:
        raise _unpicklable(name, value, "p5", e) from e
    return export_written(lambda file: p5.write(file.write, pickled, buffers))


def _unpicklable(name: str, value: Any, view: str, error: Exception) -> Exception:
    if raised.is_a(error, (EngineError, MemoryError, OSError)):
        return error
    where, _, _ = p5.culprit(value, name, error)
    return unsupported(name, value, view, f"{one_line(where)} cannot be pickled ({reason(error)})")


def import_pkl(name: str, data: Incoming, old: Any) -> Any:
    """Unpickles here, in the rank: the bytes are trusted like the code of a cell."""
    return placed(old, _load(data.data(), None))


def import_p5(name: str, data: Incoming, old: Any) -> Any:
    """Arrays and tensors use the pushed memory itself, which is writable and private to a rank."""
    try:
        pickled, buffers = p5.split(data.data())
    except p5.Malformed as e:
        raise EngineError(EBADMSG, str(e)) from None
    return placed(old, _load(pickled, buffers))


def _load(data: memoryview, buffers: Iterable[memoryview] | None) -> Any:
    try:
        return pickle.loads(data, buffers=buffers)
    except BaseException as e:  # unpickling can run any code
        what = "cannot be unpickled here"
        if raised.is_a(e, AttributeError) and "__main__" in reason(e):
            use = "define it on the ranks first, or push it with cloudpickle"
            raise EngineError(EBADMSG, f"{what}: {reason(e)}; {use}") from e
        raise refusal_of(e, what, EBADMSG) from None
