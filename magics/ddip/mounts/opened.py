"""What open files have in common, whether mounted or served on a socket."""

from __future__ import annotations

import contextlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Self


class Opened:
    """A file that `with` closes. close() raises OSError if what was written is refused."""

    if TYPE_CHECKING:

        def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        # close() refuses an incomplete write: that must not hide why it is incomplete
        if kind is None:
            self.close()
            return
        with contextlib.suppress(OSError):
            self.close()
