"""DDP groups in a notebook: `%load_ext ddip`, then `%makedip` and `%%dip`.

Everything is done by file operations on a ddipfs mount. Importing this package imports next to
nothing: functions that need torch import it when they are called.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ddip.errors import DipError as DipError
    from ddip.errors import RemoteError as RemoteError
    from ddip.groups import Group as Group
    from ddip.groups import group as group
    from ddip.interrupts import PeerFailed as PeerFailed
    from ddip.interrupts import Preempted as Preempted
    from ddip.interrupts import Restarted as Restarted
    from ddip.interrupts import Stopped as Stopped
    from ddip.interrupts import Timeout as Timeout
    from ddip.jobs.imports import global_imports as global_imports
    from ddip.jobs.imports import import_star as import_star
    from ddip.jobs.torchddp import TorchDDPCtx as TorchDDPCtx
    from ddip.jobs.torchddp import in_torchddp as in_torchddp
    from ddip.jobs.workers import ranch as ranch
    from ddip.shown.results import Out as Out


__version__ = "0.1.0"

# public name -> the module that defines it
_HOMES = {
    "DipError": "errors",
    "RemoteError": "errors",
    "Timeout": "errors",
    "PeerFailed": "errors",
    "Stopped": "errors",
    "Restarted": "errors",
    "Preempted": "errors",
    "Group": "groups",
    "group": "groups",
    "Out": "shown.results",
    "ranch": "jobs.workers",
    "import_star": "jobs.imports",
    "global_imports": "jobs.imports",
    "TorchDDPCtx": "jobs.torchddp",
    "in_torchddp": "jobs.torchddp",
}

__all__ = [*_HOMES, "load_ipython_extension", "unload_ipython_extension"]


if not TYPE_CHECKING:  # it would have every name

    def __getattr__(name):
        """Imports a public name from its module on first access."""
        if name not in _HOMES:
            raise AttributeError(f"module 'ddip' has no attribute '{name}'")
        from importlib import import_module

        value = getattr(import_module("ddip." + _HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__():
    return sorted(__all__)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Adds the magics, completion and inspection to this shell; idempotent. Does nothing on a rank,
    where they would wait for the cell that calls them."""
    if "ddip_engine.rank" in sys.modules:
        return
    from ddip.notebook.magics import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Removes them again. The group keeps running."""
    from ddip.notebook.magics import unload

    unload(shell)
