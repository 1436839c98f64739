"""Where output goes: the notebook's streams and displays, through IPython's public interfaces."""

import sys


class Sink:
    """The output area of the cell that is running."""

    def __init__(self, shell=None):
        if shell is None and "IPython" in sys.modules:
            shell = sys.modules["IPython"].get_ipython()
        self._publisher = getattr(shell, "display_pub", None)
        self._last = None
        # a kernel's displays can be redrawn; a terminal prints each update
        self.redraws = getattr(shell, "kernel", None) is not None
        self.coloured = self.redraws

    def write(self, name, text):
        """Writes text to stdout or stderr, in the order of the calls."""
        stream = getattr(sys, name)
        if self._last is not None and self._last is not stream:
            self._last.flush()
        stream.write(text)
        self._last = stream

    def flush(self):
        """Makes what was written visible."""
        if self._last is not None:
            self._last.flush()
            self._last = None

    def display(self, data, metadata=None, transient=None, update=False):
        """Publishes a bundle of representations, as display() does."""
        self.flush()
        if self._publisher is None:
            self.write("stdout", data.get("text/plain", "") + "\n")
            return
        self._publisher.publish(
            data=data, metadata=metadata or {}, transient=transient or {}, update=update
        )

    def clear(self, wait):
        """Clears the whole area, as clear_output() does."""
        self.flush()
        if self._publisher is not None:
            self._publisher.clear_output(wait)
