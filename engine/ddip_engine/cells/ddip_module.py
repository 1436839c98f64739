"""`import ddip` for cells that catch its exceptions: where the notebook's package is not installed,
a module with these alone.
"""

import sys
from importlib.machinery import ModuleSpec

from ddip_engine import interrupts


class _Finder:
    """Finds `ddip` after all other finders, and is its loader."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        return ModuleSpec(name, _Finder) if name == "ddip" else None

    @staticmethod
    def create_module(spec):
        return None  # an ordinary module

    @staticmethod
    def exec_module(module):
        module.__doc__ = "What a cell needs of ddip; the package is not installed here."
        module.__all__ = interrupts.__all__
        for name in interrupts.__all__:
            setattr(module, name, getattr(interrupts, name))


def install():
    """Makes `import ddip` work on this rank."""
    sys.meta_path.append(_Finder)
