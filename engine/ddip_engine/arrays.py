"""Views of arrays and tensors: npy, safetensors, pt; state dicts into modules and optimisers."""

import io
import json
import struct
import sys
from errno import EBADMSG

from ddip_engine.state import Refusal
from ddip_engine.view import article, export_memory, export_written, unsupported

# safetensors' names of types, and torch's; the last ones exist in newer versions only
_SAFE_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


def _torch():
    return sys.modules.get("torch")


def is_tensor(value):
    """True for a torch tensor, parameters included."""
    torch = _torch()
    return torch is not None and isinstance(value, torch.Tensor)


def holds_state(value):
    """True for what takes a state dict: a module or an optimiser."""
    torch = _torch()
    kinds = () if torch is None else (torch.nn.Module, torch.optim.Optimizer)
    return isinstance(value, kinds)


# ---- npy


def as_array(name, value, view="npy"):
    """(array, what owns its memory) of an array, tensor or number; the memory is the object's own
    where it lies on the CPU."""
    import numpy

    if is_tensor(value):
        return _tensor_as_array(name, value, view)
    if isinstance(value, (numpy.ndarray, numpy.generic, int, float, complex)):
        array = numpy.asarray(value)
        if array.dtype.hasobject:
            use = f"NumPy would have to pickle it: read {name}.pkl"
            raise unsupported(name, value, view, use)
        return array, array
    raise unsupported(
        name, value, view, f"want an array, a tensor or a number; read {name}.json or {name}.pkl"
    )


def _tensor_as_array(name, tensor, view):
    torch = _torch()
    if hasattr(tensor, "full_tensor"):
        raise unsupported(
            name, tensor, view, f"take {name}.full_tensor() or {name}.to_local() in a cell"
        )
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        raise unsupported(name, tensor, view, f"it is no dense tensor: read {name}.pt")
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    try:
        return plain.numpy(), plain.untyped_storage()
    except TypeError:
        kind = str(tensor.dtype).removeprefix("torch.")
        use = f"NumPy has no {kind}: read {name}.safetensors, {name}.pt or {name}.pkl"
        raise unsupported(name, tensor, view, use) from None


def _npy_header(name, array):
    from numpy.lib import format as npy

    out, fields = io.BytesIO(), npy.header_data_from_array_1_0(array)
    try:
        npy.write_array_header_1_0(out, fields)
    except UnicodeEncodeError:
        raise unsupported(
            name, array, "npy", f"field names beyond Latin-1: read {name}.pkl"
        ) from None
    except ValueError:  # too long for version 1.0
        out = io.BytesIO()
        npy.write_array_header_2_0(out, fields)
    return out.getvalue()


def export_npy(name, value):
    """NumPy's header and the live bytes; of an array with gaps, a copy's."""
    array, owner = as_array(name, value)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = owner = array.copy(order="C")
    order = "C" if array.flags.c_contiguous else "F"
    address = array.__array_interface__["data"][0]
    head = _npy_header(name, array)
    keep = (owner, array)
    return export_memory(head, address, array.nbytes, keep, lambda: array.tobytes(order))


def import_npy(name, data, old):
    """An array over the pushed memory, writable; a tensor if the name holds one."""
    import numpy
    from numpy.lib import format as npy

    view = data.data()
    try:
        head = io.BytesIO(view[: 64 << 10])
        version = npy.read_magic(head)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            return like(old, _load_npy(numpy, data), name)
        shape, fortran, dtype = readers[version](head)
    except ValueError as e:
        raise Refusal(EBADMSG, f"not .npy: {e}") from e
    if dtype.hasobject:
        raise Refusal(EBADMSG, f"an object array is a pickle: write it to {name}.pkl")
    start, count = head.tell(), 1
    for extent in shape:
        count *= extent
    if start + count * dtype.itemsize != len(view):
        want = start + count * dtype.itemsize
        raise Refusal(EBADMSG, f".npy of {len(view)} bytes: its header says {want}")
    order = "F" if fortran else "C"
    array = numpy.ndarray(shape, dtype, buffer=view, offset=start, order=order)
    return like(old, array, name)


def _load_npy(numpy, data):
    """Rare versions of the format, by NumPy itself."""
    return numpy.load(data.file(), allow_pickle=False)


def like(old, new, name):
    """new as what the name holds: a tensor, on its device, a Parameter, with a gradient."""
    torch = _torch()
    if not is_tensor(old):
        return new
    if not is_tensor(new):
        new = new.astype(new.dtype.newbyteorder("="), copy=False)
        try:
            new = torch.from_numpy(new)
        except TypeError as e:
            text = f"{name} holds a tensor, and torch has no {new.dtype}: del {name} first"
            raise Refusal(EBADMSG, text) from e
    new = new.detach().to(old.device)
    wants = old.requires_grad and (new.is_floating_point() or new.is_complex())
    if isinstance(old, torch.nn.Parameter):
        return torch.nn.Parameter(new, requires_grad=wants)
    return new.requires_grad_(wants)


def placed(old, new):
    """new where old lies, if that is a GPU: a tensor, or each tensor of a dict by its key."""
    torch = _torch()
    if type(new) is dict and isinstance(old, dict):
        return {key: placed(old.get(key), value) for key, value in new.items()}
    if not (is_tensor(old) and is_tensor(new)) or not old.is_cuda or new.device == old.device:
        return new
    moved = new.detach().to(old.device)
    if isinstance(new, torch.nn.Parameter):
        return torch.nn.Parameter(moved, requires_grad=new.requires_grad)
    return moved.requires_grad_(new.requires_grad)


# ---- safetensors


def export_safetensors(name, value):
    """One tensor live, several through a memfd; a module's or optimiser's state dict."""
    tensors, metadata = _named_tensors(name, value)
    head, plains = _safe_header(name, value, tensors, metadata)
    if is_tensor(value):
        (plain,) = plains
        keep, size = (plain.untyped_storage(), plain), plain.numel() * plain.element_size()
        return export_memory(head, plain.data_ptr(), size, keep, lambda: bytes(_raw(plain)))

    def write(file):
        file.write(head)
        for plain in plains:
            file.write(_raw(plain))

    return export_written(write)


def _raw(tensor):
    """The bytes of a contiguous CPU tensor of any type."""
    return tensor.reshape(-1).view(_torch().uint8).numpy().data if tensor.numel() else b""


def _named_tensors(name, value):
    torch = _torch()
    if is_tensor(value):
        return {name: value}, {}
    if holds_state(value):
        state = value.state_dict()
        if isinstance(value, torch.optim.Optimizer):
            return _flatten_optimizer(state)
        for key, field in state.items():
            if not is_tensor(field):  # half a state would be no state
                use = f"{key} is {article(field)}, no tensor: read {name}.pt"
                raise unsupported(name, value, "safetensors", use)
        return state, {}
    if isinstance(value, dict) and value and all(map(is_tensor, value.values())):
        return {str(k): v for k, v in value.items()}, {}
    use = f"want a tensor, a dict of tensors, a module or an optimizer; read {name}.pkl"
    raise unsupported(name, value, "safetensors", use)


def _safe_header(name, value, tensors, metadata):
    """(8-byte length and JSON, contiguous CPU tensors in their order)."""
    torch = _torch()
    kinds = {getattr(torch, v): k for k, v in _SAFE_TYPES.items() if hasattr(torch, v)}
    entries, plains, at = {"__metadata__": metadata} if metadata else {}, [], 0
    for key, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        if tensor.dtype not in kinds or tensor.layout is not torch.strided or tensor.is_meta:
            use = f"{key} is {tensor.dtype}, {tensor.layout}: read {name}.pt"
            raise unsupported(name, value, "safetensors", use)
        if hasattr(tensor, "full_tensor"):
            raise unsupported(
                name, value, "safetensors", f"{key} is a DTensor: gather it in a cell"
            )
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        size = plain.numel() * plain.element_size()
        entries[key] = {
            "dtype": kinds[plain.dtype],
            "shape": list(plain.shape),
            "data_offsets": [at, at + size],
        }
        plains.append(plain)
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, plains


def _flatten_optimizer(state):
    """state.<parameter>.<key> tensors; what is no tensor goes into the metadata as JSON."""
    tensors, rest = {}, {}
    for param, fields in state["state"].items():
        for key, field in fields.items():
            if is_tensor(field):
                tensors[f"state.{param}.{key}"] = field
            else:
                rest.setdefault(str(param), {})[key] = field
    return tensors, {"param_groups": json.dumps(state["param_groups"]), "state": json.dumps(rest)}


def _unflatten_optimizer(optimizer, tensors, metadata):
    if "param_groups" not in metadata:
        raise Refusal(EBADMSG, "no optimizer's state: its metadata has no param_groups")
    state = {int(k): dict(v) for k, v in json.loads(metadata.get("state", "{}")).items()}
    for key, tensor in tensors.items():
        _, param, field = key.split(".", 2)
        state.setdefault(int(param), {})[field] = tensor
    groups = json.loads(metadata["param_groups"])
    for group, held in zip(groups, optimizer.param_groups, strict=False):
        tuples = [key for key in group if isinstance(held.get(key), tuple)]
        group.update({key: tuple(group[key]) for key in tuples})  # JSON made lists of them
    return {"state": state, "param_groups": groups}


def import_safetensors(name, data, old):
    """A tensor if its one key is the name, else a dict; a state dict if the name takes one."""
    torch = _torch()
    if torch is None:
        raise Refusal(EBADMSG, "safetensors need torch, which this environment does not have")
    try:
        tensors, metadata = _parse_safetensors(torch, data.data())
        if isinstance(old, torch.optim.Optimizer):
            return _unflatten_optimizer(old, tensors, metadata)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RuntimeError) as e:
        raise Refusal(EBADMSG, f"not safetensors: {type(e).__name__}: {e}") from e
    if list(tensors) == [name] and not holds_state(old):
        return like(old, tensors[name], name)
    return placed(old, tensors)


def _parse_safetensors(torch, view):
    (length,) = struct.unpack_from("<Q", view)
    if 8 + length > len(view):
        raise ValueError(f"header of {length} bytes in a file of {len(view)}")
    entries = json.loads(bytes(view[8 : 8 + length]))
    metadata = entries.pop("__metadata__", {})
    tensors = {}
    for key, entry in entries.items():
        dtype = getattr(torch, _SAFE_TYPES[entry["dtype"]])
        begin, end = entry["data_offsets"]
        raw = view[8 + length + begin : 8 + length + end]
        if len(raw) != end - begin or begin < 0:
            raise ValueError(f"{key} wants bytes {begin} to {end}, the file ends before")
        if len(raw):
            flat = torch.frombuffer(raw, dtype=torch.uint8)
            flat = flat.clone() if (8 + length + begin) % 16 else flat
        else:
            flat = torch.empty(0, dtype=torch.uint8)
        tensors[key] = flat.view(dtype).reshape(entry["shape"])
    return tensors, metadata


# ---- pt


def export_pt(name, value):
    """torch.save; of a module or optimiser its state dict, which weights_only reads."""
    torch = _torch()
    if torch is None:
        raise unsupported(name, value, "pt", f"there is no torch here: read {name}.pkl")
    thing = value.state_dict() if holds_state(value) else value
    try:
        return export_written(lambda file: torch.save(thing, file))
    except Exception as e:
        use = f"torch.save: {type(e).__name__}: {e}"
        raise unsupported(name, value, "pt", use) from e


def import_pt(name, data, old):
    """torch.load(weights_only=True), onto the CPU, then as what the name holds."""
    torch = _torch()
    if torch is None:
        raise Refusal(EBADMSG, "pt needs torch, which this environment does not have")
    try:
        value = torch.load(data.file(), map_location="cpu", weights_only=True)
    except Exception as e:
        first = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise Refusal(EBADMSG, f"torch.load(weights_only=True): {first}") from e
    return like(old, value, name) if is_tensor(value) else placed(old, value)


# ---- state dicts


def check_state(name, holder, state):
    """Refuses a state dict that does not fit, before anything is loaded."""
    if not isinstance(state, dict):
        text = f"{name} is {type(holder).__name__}: want its state dict, not {type(state).__name__}"
        raise Refusal(EBADMSG, text)
    torch = _torch()
    problems = (
        _optimizer_problems(holder, state)
        if isinstance(holder, torch.optim.Optimizer)
        else _module_problems(holder.state_dict(), state)
    )
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise Refusal(EBADMSG, f"not the state of {name}: {'; '.join(problems[:3])}{more}")


def _module_problems(have, state):
    problems = [f"{key} is missing" for key in have if key not in state]
    problems += [f"{key} is unexpected" for key in state if key not in have]
    for key, value in have.items():
        other = state.get(key)
        if is_tensor(value) and is_tensor(other) and value.shape != other.shape:
            problems.append(f"{key} is {tuple(other.shape)}, want {tuple(value.shape)}")
    return problems


def _optimizer_problems(optimizer, state):
    if not {"state", "param_groups"} <= state.keys():
        return ["an optimizer's state dict has 'state' and 'param_groups'"]
    want = [len(group["params"]) for group in optimizer.param_groups]
    have = [len(group["params"]) for group in state["param_groups"]]
    if want != have:
        return [f"parameters by group: {have}, want {want}"]
    held, problems = optimizer.state_dict()["state"], []
    for param, fields in state["state"].items():
        for key, new in fields.items():
            old = held.get(param, {}).get(key)
            if is_tensor(old) and is_tensor(new) and old.shape != new.shape:
                problems.append(f"{param}.{key} is {tuple(new.shape)}, want {tuple(old.shape)}")
    return problems


def load_state(name, holder, state):
    """load_state_dict of a state that check_state has let through."""
    try:
        holder.load_state_dict(state)
    except Exception as e:  # code of the object's class
        text = f"{name}.load_state_dict: {type(e).__name__}: {e}"
        raise Refusal(EBADMSG, text) from e
