"""What open files have in common, whether mounted or served on a socket."""

import contextlib


class Opened:
    """A file that `with` closes. close() raises OSError if what was written is refused."""

    def __enter__(self):
        return self

    def __exit__(self, kind, *exc_info):
        # close() refuses an incomplete write: that must not hide why it is incomplete
        with contextlib.suppress(OSError) if kind else contextlib.nullcontext():
            self.close()
