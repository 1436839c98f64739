"""The extension under the original project's name: `%load_ext Ddip` loads ddip."""

from ddip import load_ipython_extension, unload_ipython_extension

__all__ = ["load_ipython_extension", "unload_ipython_extension"]
