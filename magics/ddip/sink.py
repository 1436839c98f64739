"""Where output goes: the notebook's streams and displays, through IPython's public ends."""

import sys


class Sink:
    """The output area of the cell that runs now."""

    def __init__(self, shell=None):
        if shell is None and "IPython" in sys.modules:
            shell = sys.modules["IPython"].get_ipython()
        self._publisher = getattr(shell, "display_pub", None)
        self._last = None
        # a kernel's displays can be redrawn; a terminal prints each update
        self.redraws = getattr(shell, "kernel", None) is not None
        self.coloured = self.redraws

    def write(self, name, text):
        """Text to stdout or stderr, in the order of the calls."""
        stream = getattr(sys, name)
        if self._last is not None and self._last is not stream:
            self._last.flush()
        stream.write(text)
        self._last = stream

    def flush(self):
        """What was written is to be seen."""
        if self._last is not None:
            self._last.flush()
            self._last = None

    def display(self, data, metadata=None, transient=None, update=False):
        """A bundle of representations, as display() publishes it."""
        self.flush()
        if self._publisher is None:
            self.write("stdout", data.get("text/plain", "") + "\n")
            return
        self._publisher.publish(
            data=data, metadata=metadata or {}, transient=transient or {}, update=update
        )

    def clear(self, wait):
        """clear_output() of the whole area."""
        self.flush()
        if self._publisher is not None:
            self._publisher.clear_output(wait)
