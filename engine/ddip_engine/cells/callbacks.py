"""What IPython lets users run around a cell's code: callbacks (pre_execute …), transformers.

An interrupt is no error of theirs: before the cell's code it ends the cell, afterwards only them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ddip_engine.cells.cell import Cell


def trigger(shell: Any, running: Callable[[], Cell], event: str, *args: Any, **kwargs: Any) -> None:
    """Takes the place of EventManager.trigger. running() returns the running cell."""
    cell, is_early = running(), event.startswith("pre_")
    if is_early:
        cell.raise_held()
    for function in shell.events.callbacks[event][:]:
        try:
            if _is_own(function):
                function(*args, **kwargs)
                continue
            with cell.code():
                cell.raise_held()
                function(*args, **kwargs)
        except KeyboardInterrupt:
            if is_early or cell.in_code:  # the latter: of a cell within the cell
                raise
            shell.showtraceback()
        except Exception:
            print(f"Error in callback {function} (for {event}):")
            shell.showtraceback()


def _is_own(function: Callable[..., object]) -> bool:
    """True for IPython's own callbacks, which take no time and must not be left half done."""
    return str(getattr(function, "__module__", "")).startswith("IPython.")


def transform(cell: Cell, function: Callable[[str], str], source: str) -> str:
    """Calls IPython's transform_cell, which may run transformers of the user's."""
    if cell.in_code:
        return function(source)
    try:
        with cell.code():
            return function(source)
    except KeyboardInterrupt as e:  # IPython would go on without a result, which callbacks want
        cell.held = e
        return source
