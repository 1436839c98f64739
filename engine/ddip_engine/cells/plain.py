"""Runs a cell as Python itself does: for environments without IPython.

The last expression's value is the result, `await` works at top level; there are no magics.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re

from ddip_engine import state
from ddip_engine.cells import cell as cells
from ddip_engine.cells import dap, prompts, streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

    from ddip_engine.cells.cell import Cell, Ended

_MAGIC = re.compile(r"\s*[%!?]|.*\?\s*$|\s*\w+\s*=\s*[%!]")


def run_cell(cell: Cell) -> Ended:
    """Runs a cell as Python itself does. Returns cell.Ended."""
    cell.in_code = False  # it has not begun
    cells.remember_source(cell.file, cell.source)
    try:
        steps = _compile(cell)
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as e:
        e.__traceback__ = None  # all of its frames are this file's
        _explain(e, cell)
        streams.display("error", **cells.describe(e))
        return cells.Ended(e, syntax=True)
    value = None
    try:
        with cell.code():
            cell.raise_held()
            for code in steps:
                value = _evaluate(code, cell)
        return cells.Ended() if value is None else cells.Ended(value=_show(value, cell))
    except SystemExit as e:
        return cells.Ended(e)
    except BaseException as e:
        cells.trim(e, cell)
        streams.display("error", **cell.explain(cells.describe, e))
        return cells.Ended(e)


def _explain(error: BaseException, cell: Cell) -> None:
    """Adds to a SyntaxError the line that compiling a tree omits, and a hint for magics."""
    if not isinstance(error, SyntaxError) or not error.lineno:
        return
    error.text = error.text or linecache.getline(cell.file, error.lineno)
    if error.text and _MAGIC.match(error.text):
        error.msg += " (magics and shell commands need IPython, which this Python does not have)"


def _compile(cell: Cell) -> list[CodeType]:
    """Compiles everything but a final expression, and then that expression, each to code."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(cell.source, cell.file, "exec", flags | ast.PyCF_ONLY_AST, True)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    steps = [compile(tree, cell.file, "exec", flags, True)]
    if last is not None:
        steps.append(compile(last, cell.file, "eval", flags, True))
    return steps


def _evaluate(code: CodeType, cell: Cell) -> Any:
    try:
        dap.begin(cell)
        value = eval(code, state.main.__dict__)
        return cells.run_async(value) if code.co_flags & inspect.CO_COROUTINE else value
    except prompts.Left as left:
        raise prompts.itself(left) from None
    finally:
        dap.end(cell)


def _show(value: object, cell: Cell) -> str:
    """Returns the result as text, and sends it as an execute_result."""
    with cell.code():
        cell.raise_held()
        text = cells.bound(repr(value))
    state.main.__dict__["_"] = value if isinstance(value, (int, float, str)) else None
    streams.display(
        "execute_result", data={"text/plain": text}, metadata={}, execution_count=cell.number
    )
    return text
