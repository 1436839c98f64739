"""The package's exceptions, which are shown as text, without the package's own frames."""

from __future__ import annotations


class DipError(Exception):
    """A request that cannot be carried out: the text says what is wrong and what would be right.

    errno: that of the file operation that failed; None if it was not a file operation.
    """

    def __init__(self, text: str = "", errno: int | None = None) -> None:
        super().__init__(text)
        self.errno = errno

    def _render_traceback_(self):
        """IPython shows this in place of a traceback."""
        return [f"\x1b[31m{type(self).__name__}\x1b[39m: {self}"]


class GroupGone(DipError):
    """The group no longer exists, and nothing was begun there."""


class RemoteTraceback(Exception):
    """The cause of an exception that was raised on ranks: its traceback there."""

    def __str__(self) -> str:
        return self.args[0]


class RemoteError(DipError):
    """A cell failed on ranks. ename, evalue: of the first that failed; ranks: all that failed.

    Outside IPython, Python shows the ranks' tracebacks above it, as those of its cause.
    """

    def __init__(
        self, ename: str, evalue: str, ranks: list[int], lines: list[str], first: int
    ) -> None:
        import re  # late: every call of `ddip` imports this module

        super().__init__(f"{ename}({evalue})")
        plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))
        self.__cause__ = RemoteTraceback(f"\n{plain}")
        self.ename = ename
        self.evalue = evalue
        self.ranks = ranks
        self.lines = lines
        self.first = first

    def _render_traceback_(self):
        return self.lines


try:  # on a rank, the engine has the classes that it raises
    from ddip_engine.interrupts import PeerFailed, Preempted, Restarted, Stopped, Timeout
except ImportError:
    from ddip.interrupts import PeerFailed, Preempted, Restarted, Stopped, Timeout  # noqa: F401


class RemoteInterrupt(KeyboardInterrupt):
    """The cell was interrupted. lines: what the ranks were doing."""

    def __init__(self, text: str, lines: list[str]) -> None:
        super().__init__(text)
        self.lines = lines

    def _render_traceback_(self):
        return self.lines


# front ends show this name, and to users it is a KeyboardInterrupt
RemoteInterrupt.__name__ = "KeyboardInterrupt"
