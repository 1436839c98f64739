"""Ends a rank whose CUDA context is lost, and reports why."""

from __future__ import annotations

import os
import sys

from ddip_engine import state

EXIT_LOST = 70  # exit status of a process whose context was lost (EX_SOFTWARE)


def leave_if_lost(between_cells: bool = False) -> None:
    """Ends this process if its CUDA context is lost: nothing on its GPU works any more. The daemon
    replaces it, and reports the text that is written here.

    between_cells: a read has found it, so the last cell need not be what lost it.
    """
    module = sys.modules.get("_ddip")
    why = module.device_lost() if module is not None else ""
    if not why:
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    why += f"; CUDA_VISIBLE_DEVICES={visible}" if visible else ""
    where = "between two cells" if between_cells else _where_lost()
    text = f"the CUDA context is lost ({why}) {where}; all variables of this rank are lost"
    os.write(2, f"ddip: rank {state.rank}: {text}\n".encode())
    os._exit(EXIT_LOST)


def _where_lost() -> str:
    """The line of the cell or the program where the error surfaced, if an exception shows it. The
    first frame is the cell's: those above it are trimmed."""
    trace, line = None, 0
    if state.failed == state.cell:
        trace = getattr(sys, "last_traceback", None)
    file = trace.tb_frame.f_code.co_filename if trace is not None else ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    if line and file == f"<cell {state.cell}>":
        return f"at line {line} of cell {state.cell}"
    if line and not file.startswith("<cell "):
        return f"at line {line} of {file} (cell {state.cell})"
    late = "kernels fail late: with CUDA_LAUNCH_BLOCKING=1 in env the line is known"
    return f"by the end of cell {state.cell} ({late})"
