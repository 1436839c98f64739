"""The errors of the package: they are shown as text, without the package's own frames."""

import re

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class DipError(Exception):
    """Something that cannot be done: the text says what was wrong and what would be right.

    errno: of the file operation that failed, None: it was no file operation.
    """

    def __init__(self, text="", errno=None):
        super().__init__(text)
        self.errno = errno

    def _render_traceback_(self):
        """IPython shows this in place of a traceback."""
        return [f"\x1b[31m{type(self).__name__}\x1b[39m: {self}"]


class RemoteTraceback(Exception):
    """The cause of an exception that was raised on ranks: how it looked over there."""

    def __str__(self):
        return self.args[0]


class RemoteError(DipError):
    """A cell failed on ranks. ename, evalue: of the first that did; ranks: all of them.

    Where Python shows it, the tracebacks of the ranks are above, as those of its cause.
    """

    def __init__(self, ename, evalue, ranks, lines, first):
        super().__init__(f"{ename}({evalue})")
        self.__cause__ = RemoteTraceback("\n" + _COLOURS.sub("", "\n".join(lines)))
        self.ename = ename
        self.evalue = evalue
        self.ranks = ranks
        self.lines = lines
        self.first = first

    def _render_traceback_(self):
        return self.lines


try:  # in a rank the engine has it, and raises it
    from ddip_engine.preempted import Preempted
except ImportError:

    class Preempted(KeyboardInterrupt):
        """Raised in cells: their hosts are about to be taken away (on_preempt)."""

        __module__ = "ddip"


class RemoteInterrupt(KeyboardInterrupt):
    """The cell was interrupted. lines: what the ranks were doing."""

    def __init__(self, text, lines):
        super().__init__(text)
        self.lines = lines

    def _render_traceback_(self):
        return self.lines


# front ends show the name: to them it is the interrupt that it is
RemoteInterrupt.__name__ = "KeyboardInterrupt"
