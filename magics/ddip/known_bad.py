"""Versions that are known to fail, and why: told when a group starts, and by `ddip doctor`."""

from __future__ import annotations

import platform
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


OLDEST_TORCH = (2, 6)

# name: as people call it; first, last: the versions that fail; machine: the only one on which they
# do, or None; why: what happens, and what helps
_TABLE = (
    ("NCCL", (2, 25, 1), (2, 25, 1), None,
     "ncclCommAbort() hangs, so ranks that wait for a failed one are killed; fixed in 2.26.2"),
    ("NCCL", (2, 28, 3), (2, 28, 8), None, "some jobs hang; fixed in 2.28.9"),
    ("NCCL", (2, 29, 2), (2, 29, 2), "aarch64", "some builds hang on ARM; fixed in 2.29.3"),
    ("torch", (2, 7, 0), (2, 7, 0), None,
     "init_process_group(device_id=…) with NCCL may hang; fixed in 2.7.1, or by the environment"
     " variable TORCH_NCCL_USE_COMM_NONBLOCKING=0"),
)  # fmt: skip


def numbers(version: str | Iterable[str | int]) -> tuple[int, ...]:
    """The first three numbers of a version, which may be a text or a tuple: (2, 28, 3)."""
    if isinstance(version, str):
        version = re.findall(r"\d+", version.partition("+")[0])
    return tuple(int(number) for number in (*version, 0, 0)[:3])


def too_old(torch: str) -> str:
    """That this version of torch is too old, and which one is not; "" if it is new enough."""
    if numbers(torch)[:2] >= OLDEST_TORCH:
        return ""
    return f"torch {torch} is too old: {'.'.join(map(str, OLDEST_TORCH))} or newer is needed"


def about(name: str, version: str | Iterable[str | int], machine: str | None = None) -> str:
    """Why this version of `NCCL` or `torch` is known to fail, as a text; "" if it is not."""
    found = numbers(version)
    machine = machine or platform.machine()
    for bad, first, last, only, why in _TABLE:
        if bad == name and first <= found <= last and only in (None, machine):
            return f"{name} {'.'.join(map(str, found))}: {why}"
    return ""
