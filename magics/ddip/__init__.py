"""DDP groups in a notebook: `%load_ext ddip`, then `%makedip` and `%%dip`.

Everything is a file operation on a mount of ddipfs. Importing this package imports next to
nothing; what needs torch imports it when it is called.
"""

__version__ = "0.1.0"

# public name -> the module that has it
_HOMES = {
    "DipError": "errors",
    "RemoteError": "errors",
    "Preempted": "errors",
    "Group": "groups",
    "group": "groups",
    "ranch": "workers",
    "import_star": "imports",
    "global_imports": "imports",
    "TorchDDPCtx": "torchddp",
    "in_torchddp": "torchddp",
}

__all__ = [*_HOMES, "load_ipython_extension", "unload_ipython_extension"]


def __getattr__(name):
    """Public names come from their modules when they are first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ddip' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module("ddip." + _HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)


def load_ipython_extension(shell):
    """Adds the magics, completion and inspection to this shell; a second time does nothing."""
    from ddip.magics import load

    load(shell)


def unload_ipython_extension(shell):
    """Takes them away again. The group lives on."""
    from ddip.magics import unload

    unload(shell)
