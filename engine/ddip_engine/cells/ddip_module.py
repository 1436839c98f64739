"""`import ddip` for cells that catch its exceptions: where the notebook's package is not installed,
a module with these alone.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

from ddip_engine import interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


class _Finder:
    """Finds `ddip` after all other finders, and is its loader."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As importlib asks a finder."""
        return ModuleSpec(name, _Finder) if name == "ddip" else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """As importlib asks a loader."""
        return None  # an ordinary module

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Gives it the exceptions."""
        module.__doc__ = "What a cell needs of ddip; the package is not installed here."
        for name in ("__all__", *interrupts.__all__):
            setattr(module, name, getattr(interrupts, name))


def install() -> None:
    """Makes `import ddip` work on this rank."""
    sys.meta_path.append(_Finder)
