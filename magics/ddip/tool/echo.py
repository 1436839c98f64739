"""The echo of the terminal at standard input, which is off while a password is typed."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from typing_extensions import Self

LOOK_MS = 100  # between looks whether this is a job in the foreground


def is_foreground() -> bool:
    """False for a background job, which would be stopped if it read from the terminal."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True


class Echo:
    """Turns it off and on again. From guard() to the end of the context, Ctrl-Z turns it on before
    it stops. Without that, Ctrl-Z stops at once, which no handler in Python can do."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._before: list[Any] | None = None  # the terminal's attributes while it is off
        # the previous handler of Ctrl-Z, if it was the default
        self._stops: Callable[[int, FrameType | None], Any] | int | None = None

    def __enter__(self) -> Self:
        return self

    def guard(self) -> None:
        """Call it in the main thread, before set(False)."""
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            self._stops = signal.signal(signal.SIGTSTP, self._stop)

    def __exit__(self, *exc_info: object) -> None:
        if self._stops is not None:
            signal.signal(signal.SIGTSTP, self._stops)
        self.set(True)

    def set(self, on: bool) -> None:
        """Turns it on or off. Only for a job in the foreground: another would be stopped."""
        with self._lock, contextlib.suppress(termios.error):
            if on and self._before is not None:
                before, self._before = self._before, None
                termios.tcsetattr(0, termios.TCSANOW, before)
            elif not on and self._before is None:
                before = termios.tcgetattr(0)
                flags = before[3] & ~termios.ECHO | termios.ECHONL
                termios.tcsetattr(0, termios.TCSANOW, [*before[:3], flags, *before[4:]])
                self._before = before

    def _stop(self, *_: object) -> None:
        with self._lock:  # it stays on until this has stopped
            self.set(True)
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, self._stop)
