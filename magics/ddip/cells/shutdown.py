"""Tells the interrupt that precedes a kernel's shutdown from one that the user asks for.

Front ends interrupt a kernel before they shut it down or restart it: shutdown_kernel() in
jupyter_client/manager.py sends SIGINT, then at once either shutdown_request or SIGKILL. So a cell
that outlives its kernel must not be interrupted before it is known which of them follows. The
request comes on the control channel, which ipykernel serves in a thread of its own.
"""

from __future__ import annotations

import contextlib
import time

from ddip import patches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell


# The request came 0 to 30 ms after the signal, and up to 140 ms on a machine with ten times as many
# running processes as cores. The stop button interrupts that much later.
_FOLLOWS_S = 0.2
_LOOK_S = 0.01


def noticed(
    shell: InteractiveShell | None,
) -> AbstractContextManager[Callable[[], bool] | None]:
    """Within it, its value is a function: does a shutdown of this shell's kernel follow the
    interrupt that has just come? It waits for that a moment. None if there is no kernel."""
    kernel = getattr(shell, "kernel", None)
    own = None if kernel is None else patches.SHUTDOWN.of(kernel)
    return contextlib.nullcontext() if own is None else _noticed(kernel, own)


@contextlib.contextmanager
def _noticed(kernel: Any, own: Callable[..., Any]) -> Iterator[Callable[[], bool]]:
    requested = False

    def do_shutdown(*args, **kwargs):
        nonlocal requested
        requested = True
        return own(*args, **kwargs)

    def follows():
        # no lock: a signal's handler calls this, and the next signal's within it
        end = time.monotonic() + _FOLLOWS_S
        while not requested and time.monotonic() < end:
            time.sleep(_LOOK_S)
        return requested

    patches.SHUTDOWN.put(kernel, do_shutdown)
    try:
        yield follows
    finally:
        patches.SHUTDOWN.put(kernel, own)
