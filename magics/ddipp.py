"""An alias for the extension: `%load_ext ddipp` loads ddip."""

from ddip import load_ipython_extension, unload_ipython_extension

__all__ = ["load_ipython_extension", "unload_ipython_extension"]
