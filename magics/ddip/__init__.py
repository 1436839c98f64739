"""DDP groups in a notebook: `%load_ext ddip`, then `%makedip` and `%%dip`.

Everything is done by file operations on a ddipfs mount. Importing this package imports next to
nothing: functions that need torch import it when they are called.
"""

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


def load_ipython_extension(shell):
    """Adds the magics, completion and inspection to this shell; idempotent."""
    from ddip.notebook.magics import load

    load(shell)


def unload_ipython_extension(shell):
    """Removes them again. The group keeps running."""
    from ddip.notebook.magics import unload

    unload(shell)
