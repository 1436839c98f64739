"""A source that runs as if it stood in a frame of the user's code: with its variables and globals.

It becomes the body of an inner function whose free variables are those of the frame; what it binds
there is bound in the frame afterwards. Other names that it assigns are global. rank, local_rank and
world_size are there also where the program has no such names.
"""

from __future__ import annotations

import ast
import symtable
import sys
import types

import _ddip
from ddip_engine import raised, state
from ddip_engine.cells import cell as cells
from ddip_engine.cells import prompts, streams
from ddip_engine.data import frames
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from types import CellType, CodeType, FrameType, FunctionType
    from typing import Any

    from ddip_engine.cells.cell import Cell, Ended

_OPTIMIZED = 0x1  # a flag of code objects: its variables are in no dictionary
_NAME = "<module>"  # as tracebacks name it


class Source:
    """A source, parsed."""

    def __init__(self, text: str, file: str) -> None:
        """Raises SyntaxError."""
        self.text, self.file = text, file
        try:
            self.tree = ast.parse(text, file)
            compile(text, file, "exec", 0, True)  # finds what parsing does not
            names = symtable.symtable(text, file, "exec").get_symbols()
        except (ValueError, OverflowError, MemoryError, RecursionError) as e:
            raise SyntaxError(str(e) or type(e).__name__) from None
        self.bound = {n.get_name() for n in names if n.is_assigned() or n.is_imported()}
        self.declared = set(_declared(self.tree))
        imports = [node for node in ast.walk(self.tree) if isinstance(node, ast.ImportFrom)]
        self.has_star = any(name.name == "*" for node in imports for name in node.names)


def _declared(node: ast.AST) -> Iterator[str]:
    """The names that it declares global itself: symtable counts what its functions declare, too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Global):
            yield from child.names
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _declared(child)


class Condition:
    """An expression that is evaluated again and again where users_frame() is; it changes nothing
    there. What it is compiled to is kept for the code of the last frame."""

    def __init__(self, source: Source) -> None:
        """Raises SyntaxError."""
        if len(source.tree.body) != 1 or not _last_expression(source.tree.body):
            raise SyntaxError("want one expression")
        self.source = source
        self.code: CodeType | None = None
        self.globals: dict[str, Any] | None = None
        self.function: Callable[[], object] | None = None
        self.cells: dict[str, CellType] = {}  # its free variables

    def value(self, frame: FrameType | None) -> object:
        """What it is in this frame, which may be None."""
        code, names = (frame.f_code, frame.f_globals) if frame else (None, state.main.__dict__)
        if self.function is None or code is not self.code or names is not self.globals:
            self.function = self._compile(frame)
            self.code, self.globals = code, names
        if frame is None or not self.cells:
            return self.function()
        held = frames.read(frame, lambda held: {n: held[n] for n in self.cells if n in held}, True)
        for name, value in held.items():
            self.cells[name].cell_contents = value
        try:
            return self.function()
        finally:  # keeps nothing alive
            for name in held:
                del self.cells[name].cell_contents

    def _compile(self, frame: FrameType | None) -> Callable[[], object]:
        self.cells = {}
        if frame is None or not is_function(frame):
            return _outside_functions(self.source, frame)
        names = names_of(frame) - self.source.declared
        function, cells_ = _as_function(self.source, frame.f_globals, names, {})
        self.cells = {name: cells_[name] for name in names & {*function.__code__.co_freevars}}
        return function


def users_frame() -> FrameType | None:
    """The innermost frame of the user's code above the caller; that of `__main__` if there is
    none: of a program that is an installed package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frames.is_users(frame):
        frame = frame.f_back
    return frame


def run_cell(cell: Cell) -> Ended:
    """Runs it in a frame of the failure that this rank keeps, and shows its value. Returns
    cells.Ended."""
    assert cell.frame is not None
    cell.in_code = False  # it has not begun
    cells.remember_source(cell.file, cell.source)
    try:
        source = Source(cell.source, cell.file)
        ended = function(source, frames.of_failure(cell.frame))(cell)
    except EngineError as e:
        return cells.Ended(e)
    except SyntaxError as e:
        e.__traceback__ = None  # all of its frames are this file's
        ended = cells.Ended(e, syntax=True)
    if ended.error is not None:
        cells.trim(ended.error, cell)
        if not raised.is_a(ended.error, SystemExit):
            streams.display("error", **cell.explain(cells.describe, ended.error))
    elif ended.value:
        data = {"text/plain": ended.value}
        streams.display("execute_result", data=data, metadata={}, execution_count=cell.number)
    return ended


def function(source: Source, frame: FrameType | None) -> Callable[[Cell], Ended]:
    """A function of a cell that runs the source in this frame and returns cells.Ended."""

    def run(cell: Cell) -> Ended:
        try:
            steps, after = _compile(source, frame)
            with cell.code():
                cell.raise_held()
                try:
                    value = steps()
                finally:
                    after()
                return cells.Ended(value="" if value is None else cells.bound(repr(value)))
        except prompts.Left as left:
            return cells.Ended(prompts.itself(left))
        except BaseException as e:
            return cells.Ended(e)

    return run


def _compile(
    source: Source, frame: FrameType | None
) -> tuple[Callable[[], object], Callable[[], object]]:
    """(a function that runs it and returns its last expression's value, what is to be called
    behind it)."""
    if frame is not None and is_function(frame):
        return _in_function(source, frame)
    return _outside_functions(source, frame), lambda: None


def _outside_functions(source: Source, frame: FrameType | None) -> Callable[[], object]:
    """A function that runs it where variables are in a dictionary; frame None: in `__main__`."""
    names = frame.f_globals if frame else state.main.__dict__
    if frame and (frame.f_locals is not names or source.has_star):
        return _in_module(source, names, frame.f_locals)
    return _as_function(source, names, (), {})[0]


def _last_expression(body: Sequence[ast.stmt]) -> ast.expr | None:
    last = body[-1] if body else None
    return last.value if isinstance(last, ast.Expr) else None


def _in_module(
    source: Source, names: dict[str, Any], own: Mapping[str, Any]
) -> Callable[[], object]:
    body = source.tree.body
    last = _last_expression(body)
    code = compile(ast.Module(body[:-1] if last else body, []), source.file, "exec", 0, True)
    value = last and compile(ast.Expression(last), source.file, "eval", 0, True)

    def run() -> object:
        exec(code, names, own)
        return eval(value, names, own) if value else None

    return run


def is_function(frame: FrameType) -> bool:
    """Is it the frame of a function, whose variables are in no dictionary?"""
    return bool(frame.f_code.co_flags & _OPTIMIZED)


def names_of(frame: FrameType) -> set[str]:
    """The names of the variables of a function's frame."""
    code = frame.f_code
    names = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    return {name for name in names if name.isidentifier()}


def values_of(frame: FrameType, names: Iterable[str]) -> dict[str, Any]:
    """{name: value} of those that have one. The caller runs in this frame."""
    return frames.read(frame, lambda held: {n: held[n] for n in names if n in held}, True)


def _in_function(
    source: Source, frame: FrameType
) -> tuple[Callable[[], object], Callable[[], object]]:
    names = sorted(names_of(frame) - source.declared)
    before = values_of(frame, names)
    run, variables = _as_function(source, frame.f_globals, names, before)

    def after() -> None:
        changed = {}
        for name in names:
            try:
                value = variables[name].cell_contents
            except ValueError:  # deleted, or not bound yet
                continue
            if name not in before or value is not before[name]:
                changed[name] = value
        if changed:
            bind(frame, changed)

    return run, after


def _as_function(
    source: Source, globals_: dict[str, Any], names: Collection[str], before: Mapping[str, Any]
) -> tuple[FunctionType, dict[str, CellType]]:
    """(the source as a function with these globals, and with variables of these names that have
    the values of `before`; its variables, as cells)."""
    numbers = {"rank": state.rank, "local_rank": state.local_rank, "world_size": state.size}
    given = {n: v for n, v in numbers.items() if n not in globals_ and n not in source.bound}
    before = {**{n: v for n, v in given.items() if n not in names}, **before}
    names = sorted({*names, *before})
    body = [*source.tree.body]
    if last := _last_expression(body):
        body[-1] = ast.copy_location(ast.Return(last), body[-1])
    if outside := sorted(source.bound - source.declared - {*names}):
        body.insert(0, ast.Global(outside))
    if names:
        body.insert(0, ast.Nonlocal(names))
    inner = _def("inner", body or [ast.Pass()])
    unset = [ast.Assign([ast.Name(n, ast.Store())], ast.Constant(0)) for n in names]
    outer = _def("outer", [*unset, inner])
    tree = ast.fix_missing_locations(ast.Module([outer], []))
    made = _code_in(_code_in(compile(tree, source.file, "exec", 0, True)))
    made = made.replace(co_name=_NAME)
    if hasattr(made, "co_qualname"):  # Python 3.11
        made = made.replace(co_qualname=_NAME)  # type: ignore[call-arg]
    variables = {n: types.CellType(before[n]) if n in before else types.CellType() for n in names}
    closure = tuple(variables[name] for name in made.co_freevars)
    return types.FunctionType(made, globals_, _NAME, None, closure), variables


def _def(name: str, body: list[ast.stmt]) -> ast.FunctionDef:
    none = ast.arguments(
        posonlyargs=[], args=[], vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=[]
    )
    made = ast.FunctionDef(name=name, args=none, body=body, decorator_list=[], returns=None)
    if sys.version_info >= (3, 12):
        made.type_params = []
    return made


def _code_in(code: CodeType) -> CodeType:
    return next(each for each in code.co_consts if isinstance(each, types.CodeType))


def bind(frame: FrameType, changed: dict[str, Any]) -> None:
    """Binds variables of a function's frame."""
    if sys.version_info >= (3, 13):
        frame.f_locals.update(changed)
    else:
        _ddip.set_locals(frame, changed)
