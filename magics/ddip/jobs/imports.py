"""`import_star` and `global_imports`: import statements that act on a given namespace."""

from __future__ import annotations

import sys
from textwrap import dedent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


def import_star(modules: Iterable[str], ns: dict[str, Any] | None = None) -> None:
    """Runs `from MODULE import *` for each module of a list, into ns; None: into `__main__`.

    Python allows that statement only at module level; this also works in a function.
    """
    global_imports([f"from {name} import *" for name in modules], ns)


def global_imports(imports: str | Iterable[str], ns: dict[str, Any] | None = None) -> None:
    """Runs import statements (a text of any number of lines, or a list) in a namespace.

    ns: None means that of `__main__`. Raises ImportError or SyntaxError, as the statements do.
    """
    text = imports if isinstance(imports, str) else "\n".join(imports)
    space = sys.modules["__main__"].__dict__ if ns is None else ns
    exec(compile(dedent(text), "<imports>", "exec"), space)
