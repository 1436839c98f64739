"""What this rank's Python has: the daemon compares it over the ranks of a group, which could
otherwise wait for each other for ever, and shows it in `hosts`."""

from __future__ import annotations

import os
import platform
import sys

import _ddip
from ddip_engine import patches
from ddip_engine.data import gpu
from ddip_engine.groups import dist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lines() -> bytes:
    """Lines of a name, a blank and a value. What is not there, or cannot be found out, is left out.

    In a rank with a GPU it starts CUDA, as a later init_process_group() would.
    """
    found = b""
    for name, find in _FACTS.items():
        try:
            value = find()
        except Exception:  # torch, or a library below it, may be broken in any way
            continue
        if value is not None:
            found += os.fsencode(f"{name} {value}".replace("\n", " ")) + b"\n"
    return found


def _torch() -> Any:
    """torch, if it can form process groups."""
    return sys.modules["torch"] if dist.c10d is not None else None


def _cuda() -> str | None:
    version = _torch().version
    return f"rocm-{version.hip}" if version.hip else version.cuda


def _nccl() -> str | None:
    """The version of NCCL, if torch's process groups have it."""
    if not hasattr(dist.c10d, "ProcessGroupNCCL"):
        return None
    version = patches.NCCL_VERSION.get()
    name = "rccl-" if _torch().version.hip else ""
    return name + (".".join(map(str, version())) if version else "unknown")


def _gpus() -> int | None:
    """The number of GPUs that the rank sees, and torch can use."""
    if not _torch():
        return None
    return gpu.device_count() if gpu.has_cuda() else 0


_FACTS: dict[str, Callable[[], Any]] = {
    "python": platform.python_version,
    "executable": lambda: sys.executable,
    "torch": lambda: _torch() and patches.VERSION.get("unknown"),
    "cuda": _cuda,
    "nccl": _nccl,
    "gpus": _gpus,
    "engine": _ddip.version,
    "cwd": os.getcwd,
    "addresses": _ddip.addresses,
}
