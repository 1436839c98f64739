"""Library functions that start processes from a notebook: here the ranks are those processes.

accelerate's notebook_launcher() calls its function; Lightning's notebook strategies become ddp.
"""

from __future__ import annotations

import functools

from ddip_engine import patches, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ddip_engine.patches import Row

_SPAWNING = ("ddp_notebook", "ddp_fork", "ddp_spawn")  # Lightning strategies, or prefixes of them
_told = False


def _called(plain: Callable[..., Any]) -> Callable[..., None]:
    """notebook_launcher() that calls the function here."""

    @functools.wraps(plain)
    def notebook_launcher(
        function: Callable[..., object],
        args: Iterable[Any] = (),
        num_processes: int | None = None,
        *others: Any,
        **options: Any,
    ) -> None:
        global _told
        if state.rank == 0 and not _told:
            asked = "" if num_processes in (None, state.size) else f", not on {num_processes}"
            ranks = "the rank that is" if state.size == 1 else f"the {state.size} ranks that are"
            print(f"notebook_launcher: the function is called on {ranks} here{asked}", flush=True)
        _told = True
        function(*args)

    return notebook_launcher


def _connected(plain: Callable[..., None]) -> Callable[..., None]:
    """The constructor of the class that receives the strategy of a Trainer or a Fabric."""

    @functools.wraps(plain)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        strategy = kwargs.get("strategy")
        for name in _SPAWNING:
            if isinstance(strategy, str) and strategy.startswith(name):
                kwargs["strategy"] = "ddp" + strategy.removeprefix(name)
        plain(self, *args, **kwargs)

    return __init__


# row -> function that makes what takes its place, once its module has been imported
CHANGES: dict[Row, Callable[[Any], Any]] = {
    patches.LAUNCHER: _called,
    **dict.fromkeys(patches.CONNECTORS, _connected),
}
