"""What modules call of modules above them. rank.py sets it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ticked: Any = None  # steer.ticked(): a clock has ticked while it is armed
inspect_name: Callable[[str], str] | None = None  # shell.inspect_name(); None without IPython
