"""Where output goes: the notebook's streams and displays, through IPython's public interfaces."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from IPython.core.interactiveshell import InteractiveShell

    class Output(Protocol):
        """What a view needs of a Sink."""

        redraws: bool
        coloured: bool

        def write(self, name: str, text: str) -> None: ...
        def flush(self) -> None: ...
        def display(
            self,
            data: dict[str, Any],
            metadata: dict[str, Any] | None = None,
            transient: dict[str, Any] | None = None,
            update: bool = False,
        ) -> None: ...
        def clear(self, wait: bool) -> None: ...


class Sink:
    """The output area of the cell that is running."""

    def __init__(self, shell: InteractiveShell | None = None) -> None:
        if shell is None and "IPython" in sys.modules:
            shell = sys.modules["IPython"].get_ipython()
        self._publisher = getattr(shell, "display_pub", None)
        self._last = None
        # a kernel's displays can be redrawn; a terminal prints each update
        self.redraws = getattr(shell, "kernel", None) is not None
        self.coloured = self.redraws

    def write(self, name: str, text: str) -> None:
        """Writes text to stdout or stderr, in the order of the calls; with escapes for what its
        encoding lacks. A stream that was closed before Python began is None: nothing is written."""
        stream = getattr(sys, name)
        if stream is None:
            return
        if self._last is not stream:
            self.flush()
        try:
            stream.write(text)
        except UnicodeEncodeError as e:
            stream.write(text.encode(e.encoding, "backslashreplace").decode(e.encoding))
        self._last = stream

    def flush(self) -> None:
        """Makes what was written visible."""
        last, self._last = self._last, None
        if last is not None:
            last.flush()

    def display(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        transient: dict[str, Any] | None = None,
        update: bool = False,
    ) -> None:
        """Publishes a bundle of representations, as display() does."""
        self.flush()
        if self._publisher is None:
            self.write("stdout", data.get("text/plain", "") + "\n")
            return
        self._publisher.publish(
            data=data, metadata=metadata or {}, transient=transient or {}, update=update
        )

    def clear(self, wait: bool) -> None:
        """Clears the whole area, as clear_output() does."""
        self.flush()
        if self._publisher is not None:
            self._publisher.clear_output(wait)
