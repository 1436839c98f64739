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
from ddip.notebook import asked, breakpoints, magics, restarts
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
        self._magics.take_all(restarts.take(self._mark()))
        folder = os.path.dirname(self._mark())
        self._ends = restarts.BySignal(self.shell, self._magics.attachment, folder)
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

    def tell_variables(self, code: str) -> None:
        """Answers a hidden request of an editor for the variables of the rank that is shown."""
        rank = breakpoints.rank(self.shell)
        asked.tell(self.shell, self._magics.attachment.known(), rank, code)

    def do_shutdown(self, restart: bool) -> Any:
        """Ends the kernel, and if it is a restart, restarts the ranks."""
        if restart:
            with contextlib.suppress(DipError, OSError):  # there is no group
                group = self._magics.attachment.known()
                if group is not None and restarts.restart(group):
                    restarts.leave(self._mark(), group.path)
        return super().do_shutdown(restart)

    def _mark(self):
        return f"{self.parent.abs_connection_file}.ddipfs"


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=RanksKernel)
