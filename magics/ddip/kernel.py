"""The kernel "DDP (ddipfs)": ipykernel's, whose cells run on the ranks. `python -m ddip.kernel`.

It is %autodip in a kernel of its own: it makes the group when the first cell needs one, a restart
of it restarts the ranks, and its panel of variables shows those of rank 0.
"""

from __future__ import annotations

import contextlib
import os

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

from ddip.errors import DipError
from ddip.notebook import magics
from ddip.notebook.debugger import RanksDebugger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class RanksKernel(IPythonKernel):
    """Runs each cell on the ranks, but those that begin with %%local."""

    banner = "DDP (ddipfs): cells run on all ranks; %%local runs one in this process"
    debugger_class = RanksDebugger

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._magics = magics.load(self.shell)
        self._magics.take_all(self._take_mark())
        made = getattr(self, "debugger", None)
        if made is not None and not isinstance(made, RanksDebugger):
            # ipykernel 6 does not ask for debugger_class
            self.debugger = RanksDebugger(
                made.log,
                self.debugpy_stream,
                made.event_callback,
                self.debug_shell_socket,
                made.session,
                self.debug_just_my_code,
            )
        if made is not None:
            self.debugger.group = self._magics.attachment.known

    def do_shutdown(self, restart: bool) -> Any:
        """Ends the kernel, and if it is a restart, restarts the ranks."""
        if restart:
            with contextlib.suppress(DipError, OSError):  # there is no group
                group = self._magics.attachment.known()
                if group is not None and group.is_started():
                    group.ctl("restart", wait=False)
                    self._leave_mark(group.path)
        return super().do_shutdown(restart)

    # The next process of this kernel has the same connection file. What the last one leaves beside
    # it is the path of the group that it has restarted.

    def _mark(self):
        return f"{self.parent.abs_connection_file}.ddipfs"

    def _leave_mark(self, path):
        with open(self._mark(), "w", encoding="utf-8") as file:
            file.write(path)

    def _take_mark(self):
        try:
            with open(self._mark(), encoding="utf-8") as file:
                path = file.read()
            os.unlink(self._mark())
        except OSError:
            return None
        return path


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=RanksKernel)
