"""What open files have in common, whichever way they are reached."""

import contextlib


class Opened:
    """A file that `with` closes. close() raises OSError if what was written is refused."""

    def __enter__(self):
        return self

    def __exit__(self, kind, *exc_info):
        # what was not written to its end is refused: that must not hide why it was not
        with contextlib.suppress(OSError) if kind else contextlib.nullcontext():
            self.close()
