"""The exception that is raised in cells when the cluster takes their hosts away, and `import ddip`
for cells that catch it: if the notebook's package is not installed, a module with only this class.
"""

import sys
from importlib.machinery import ModuleSpec


class Preempted(KeyboardInterrupt):
    """The hosts of this cell are about to be taken away: it is time to write a checkpoint."""


Preempted.__module__ = "ddip"


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
        module.__all__ = ["Preempted"]
        module.Preempted = Preempted


def install():
    """Makes `import ddip` work on this rank."""
    sys.meta_path.append(_Finder)
