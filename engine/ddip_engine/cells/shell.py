"""IPython as the runner of cells: a shell whose displays, results and errors go to the stream.

The class must be named ZMQInteractiveShell: libraries recognize a notebook by that name. Without
IPython, available() returns False, and the functions that are called regardless do nothing.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import functools
import inspect
import re
import subprocess
import sys

from ddip_engine import patches, raised, state
from ddip_engine.cells import callbacks, colour, commands, dap, debuggers, freed, prompts, streams
from ddip_engine.cells import cell as cells

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import CodeType
    from typing import Any

    from ddip_engine.cells.cell import Cell, Ended

    Mime = dict[str, Any]  # MIME type -> data, or metadata
    Hidden = tuple[list[type], dict[str, Any], dict[str, Any]]  # see hide()

_shell: _Shell | None = None  # the instance; None without IPython
_cell = cells.Cell(0, b"")  # that runs, or ran last; number 0: none has run yet
_no_result: Any = None  # an ExecutionResult without one, which takes the place of the last cell's
_KEPT_TYPES = (int, float, complex, bool, str, bytes)  # results that `_` may keep alive
_KEPT_BYTES = 64 << 10
_SHELL_NAMES = {"get_ipython", "In", "Out", "_ih", "_oh", "_dh", "_", "__", "___", "__builtin__"}
_BUILTINS = {"get_ipython", "display", "__IPYTHON__"}  # what IPython adds to those of Python
_own_names: dict[str, Any] = {}  # what make() put into the namespace, unless it begins with "_"
_WORD = re.compile(r"[A-Za-z_]\w*")
_WAITS = re.compile(r"\b(await|async)\b")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# The magics of the notebook, of which the ranks have none.
_ELSEWHERE = ("dip", "makedip", "steer", "watch", "autodip", "dipush", "dipull", "dipper")


def available() -> bool:
    """True if IPython runs the cells."""
    return _shell is not None


def _base() -> tuple[Any, ...]:
    """IPython's classes, not imported before the shell is made."""
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets import Type

    return CachingCompiler, DisplayHook, DisplayPublisher, HistoryManager, InteractiveShell, Type


def make() -> None:
    """Makes the shell around the fresh `__main__`. Raises ImportError if there is no IPython."""
    global _shell, _no_result
    from IPython.core.interactiveshell import ExecutionResult

    _, _, _, history, _, _ = _base()
    history.enabled = False  # it would start a thread, and write into the home directory
    history.hist_file = ":memory:"
    classes = _classes()
    _shell = classes["shell"].instance(user_module=state.main)
    _shell.last_execution_result = _no_result = ExecutionResult(None)
    _shell.set_hook("show_in_pager", _page, 99)
    names = state.main.__dict__
    _own_names.update((k, v) for k, v in names.items() if not k.startswith("_"))
    state.engine_names.update(_own_names)


def _classes() -> dict[str, Any]:
    """The four subclasses, derived from the classes of the installed IPython."""
    compiler, hook, publisher, _, shell, trait = _base()
    made = {
        "compiler": type("Compiler", (_Compiler, compiler), {}),
        "hook": type("ShellDisplayHook", (_Hook, hook), {}),
        "publisher": type("ShellDisplayPublisher", (_Publisher, publisher), {}),
    }
    made["shell"] = type(
        "ZMQInteractiveShell",
        (_Shell, shell),
        {
            "displayhook_class": trait(made["hook"]),
            "display_pub_class": trait(made["publisher"]),
            "compiler_class": trait(made["compiler"]),
        },
    )
    return made


# IPython's own class is added to each: see _classes()
_Part: Any = object


class _Compiler(_Part):
    """Names a cell's code after the cell, or after the program's file."""

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        """Keeps the lines for tracebacks. Returns the file name to compile with."""
        raw = transformed_code if raw_code is None else raw_code
        name = _cell.file_of(transformed_code, raw)
        cells.remember_source(name, transformed_code)
        return name

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        """`Cell In[17]` for a cell's code in coloured tracebacks; None for a file's."""
        found = colour.CELL.fullmatch(name)
        return ("Cell", "In[%s]" % found.group(1)) if found else None


class _Hook(_Part):
    """Sends the value of the last expression to the cell's result and to the stream."""

    _: Any  # IPython's, as the next ones
    __: Any
    ___: Any

    def quiet(self) -> bool:
        """A semicolon at the end of the cell hides the result."""
        text = _cell.source.rstrip()
        return ";" in text.rpartition("\n")[2] and cells.ends_in_semicolon(text)

    def write_output_prompt(self) -> None:
        """Nothing: front ends have prompts of their own."""

    def write_format_data(self, format_dict: Mime, md_dict: Mime | None = None) -> None:
        """Sends execute_result. md_dict: metadata."""
        self.shell.result_text = cells.bound(format_dict.get("text/plain", ""))
        if "text/plain" in format_dict:
            format_dict = {**format_dict, "text/plain": self.shell.result_text}
        streams.display(
            "execute_result", data=format_dict, metadata=md_dict or {}, execution_count=_cell.number
        )

    def log_output(self, format_dict: Mime) -> None:
        """Nothing: there is no log."""

    def update_user_ns(self, result: object) -> None:
        """`_`, `__`, `___` keep only numbers and short texts, so that a cell's memory is freed."""
        names = self.shell.user_ns
        small = isinstance(result, _KEPT_TYPES) and sys.getsizeof(result) <= _KEPT_BYTES
        if not small or names.get("_", "") is not self._:
            return
        self.___, self.__, self._ = self.__, self._, result
        names.update({"_": self._, "__": self.__, "___": self.___})

    def forget(self) -> None:
        """`_`, `__` and `___` are empty again."""
        self._, self.__, self.___ = "", "", ""
        self.shell.user_ns.update({"_": "", "__": "", "___": ""})

    def finish_displayhook(self) -> None:
        """IPython's own would flush."""
        self._is_active = False


class _Publisher(_Part):
    """display() and its kin."""

    def publish(
        self,
        data: Mime,
        metadata: Mime | None = None,
        source: str | None = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **kwargs: Any,
    ) -> None:
        """Sends display_data; prefixes a display_id with the rank, since all ranks count alike."""
        transient = dict(transient or {})
        if "display_id" in transient:
            transient["display_id"] = "r%d-%s" % (state.rank, transient["display_id"])
        for mime, renderer in getattr(self.shell, "mime_renderers", {}).items():
            if mime in data:
                renderer(data[mime], (metadata or {}).get(mime))
                return
        streams.display(
            "update_display_data" if update else "display_data",
            data=data,
            metadata=metadata or {},
            transient=transient,
        )

    def clear_output(self, wait: bool = False) -> None:
        """wait: until there is other output."""
        streams.display("clear_output", wait=wait)


class _Shell(_Part):
    """InteractiveShell for the engine: no terminal, no history, no cache of results."""

    execution_count = 1  # the cell's number; not a trait: no observers to notify in each cell
    result_text = ""  # of the running cell
    shown_error: BaseException | None = None  # the exception that was shown last

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.displayhook.cache_size = 0
        self.displayhook.do_full_cache = 0
        self.autoawait = True
        self.loop_runner = cells.run_async

    def _atexit_once(self) -> None:
        """The rank drops the names itself at exit; IPython would also collect garbage: 50 ms."""

    def init_virtualenv(self) -> None:
        """The interpreter already is the environment's own."""

    def init_prompts(self) -> None:
        """No sys.ps1: libraries would take the rank for a terminal, and refuse to run DDP."""

    def init_user_ns(self) -> None:
        """IPython's own exit and quit accept no exit status, which programs pass."""
        super().init_user_ns()
        if (quitter := patches.QUITTER.get()) is not None:
            quitters = {name: quitter(name, "Ctrl-D") for name in ("exit", "quit")}
            self.user_ns.update(quitters)
            self.user_ns_hidden.update(quitters)

    def init_sys_modules(self) -> None:
        """`__main__` is the user's namespace."""
        sys.modules["__main__"] = self.user_module

    def reset(self, *args: Any, **kwargs: Any) -> None:
        """`%reset` removes the user's names; those of the engine stay."""
        super().reset(*args, **kwargs)
        state.name_numbers()

    def del_var(self, varname: str, by_name: bool = False) -> None:
        """`%xdel` removes all names of the object. If that is a number, it may be the rank's."""
        super().del_var(varname, by_name)
        state.give_back(state.main, state.engine_names)

    def enable_gui(self, gui: str | None = None) -> None:
        """There is no event loop to enable; figures appear inline."""

    def _tee(self, channel: str) -> AbstractContextManager[None]:
        """Newer versions keep a copy of all output for the history; none is kept here."""
        return contextlib.nullcontext()

    def init_events(self) -> None:
        """Callbacks can be interrupted like a cell: see callbacks.py."""
        super().init_events()
        self.events.trigger = functools.partial(callbacks.trigger, self, lambda: _cell)

    def transform_cell(self, raw_cell: str) -> str:
        """Leaves valid Python as it is: no magic is valid Python, except for one word like `ls`."""
        if not self.input_transformers_post and not self._may_be_magic(raw_cell):
            if _parse(raw_cell) is not None:
                return raw_cell
        return callbacks.transform(_cell, super().transform_cell, raw_cell)

    def transform_ast(self, node: ast.Module) -> ast.Module:
        """Runs transformers of the user's, which can be interrupted."""
        with _cell.code():
            return super().transform_ast(node)

    def plain_tree(self, source: str) -> ast.Module | None:
        """The tree of a cell to which IPython would add nothing: Python without `await` that no
        extension changes or observes. None if run_cell() must run the cell."""
        if (
            _WAITS.search(source)
            or self.ast_transformers
            or self.input_transformers_post
            or self.custom_exceptions
            or self.events.callbacks["pre_run_cell"]
            or self.events.callbacks["post_run_cell"]
            or self.ast_node_interactivity != "last_expr"
            or self.logger.log_active
            or self.compile.flags & _OTHER_SYNTAX
            or self._may_be_magic(source)
        ):
            return None
        tree = _parse(source)
        return tree if tree and tree.body else None

    def run_plain(self, source: str, tree: ast.Module) -> _Result:
        """Does for such a cell what run_cell() does, in half the time. Returns a result."""
        result = _Result()
        try:
            self.events.trigger("pre_execute")
            with self.builtin_trap, self.display_trap:
                name = self.compile.cache(source)
                self.run_ast_nodes(tree.body, name, compiler=self.compile, result=result).send(None)
        except StopIteration:  # how a coroutine reports that it is done
            pass
        except BaseException as e:  # an interrupt before the user's code, or a second one
            result.error_in_exec = e
            self.showtraceback()
        finally:
            self.events.trigger("post_execute")
        return result

    def _may_be_magic(self, raw_cell: str) -> bool:
        """True for a single line that begins with a magic's name, and for cell magics."""
        text = raw_cell.strip()
        word = _WORD.match(text)
        if word is None or "\n" in text:
            return text.startswith("%%")
        name = word.group()
        return name not in self.user_ns and self.find_line_magic(name) is not None

    def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
        """Says of the notebook's own magics where they run."""
        if magic_name in _ELSEWHERE and self.find_line_magic(magic_name) is None:
            from IPython.core.error import UsageError

            raise UsageError(
                f"%{magic_name} runs in the notebook, and this cell runs on the ranks: it belongs"
                " into the first line of a cell of its own"
            )
        return super().run_line_magic(magic_name, line, _stack_depth + 1)

    async def run_ast_nodes(
        self,
        nodelist: list[ast.stmt],
        cell_name: str,
        interactivity: str = "last_expr",
        compiler: Any = compile,
        result: Any = None,
    ) -> bool:
        """Compiles all of the cell before any of it runs: with a SyntaxError, nothing runs."""
        if interactivity not in ("last_expr", "none"):
            return await super().run_ast_nodes(
                nodelist, cell_name, interactivity=interactivity, compiler=compiler, result=result
            )
        shown = interactivity == "last_expr" and nodelist and isinstance(nodelist[-1], ast.Expr)
        parts: list[tuple[ast.Module | ast.Interactive, str]]
        parts = [(ast.Module(nodelist[:-1] if shown else nodelist, []), "exec")]
        if shown:
            parts.append((ast.Interactive(nodelist[-1:]), "single"))
        try:
            with compiler.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
                codes = [compiler(part, cell_name, mode) for part, mode in parts]
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as e:
            result.error_before_exec = e
            self.showtraceback()
            return True
        for code in codes:
            waits = bool(code.co_flags & inspect.CO_COROUTINE)
            if await self.run_code(code, result, async_=waits):
                return True
        return False

    async def run_code(
        self, code_obj: CodeType, result: Any = None, *, async_: bool = False
    ) -> bool:
        """Runs code of the cell. Returns True if it raised, with the exception in result;
        SystemExit is not shown."""
        __tracebackhide__ = "__ipython_bottom__"
        try:
            with _cell.code():
                await self._run_user_code(code_obj, async_)
        except SystemExit as e:
            self.shown_error = e  # in a cell within the cell, it counts as if it were shown
            if result is not None:
                result.error_in_exec = e
        except self.custom_exceptions as e:
            if result is not None:
                result.error_in_exec = e
            with _cell.code():
                self.CustomTB(*sys.exc_info())
        except BaseException as e:
            if result is not None:
                result.error_in_exec = e
            self.showtraceback(running_compiled_code=True)
        else:
            return False
        return True

    async def _run_user_code(self, code_obj: CodeType, async_: bool) -> None:
        try:
            dap.begin(_cell)
            _cell.raise_held()
            if async_:
                await eval(code_obj, self.user_global_ns, self.user_ns)
            else:
                exec(code_obj, self.user_global_ns, self.user_ns)
        except prompts.Left as left:
            raise prompts.itself(left) from None
        finally:  # a debugger (it has a botframe) would follow into the shell
            if hasattr(getattr(sys.gettrace(), "__self__", None), "botframe"):
                sys.settrace(None)
            dap.end(_cell)

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        """Shows the exception without the frames that are not the user's."""
        value = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        if value is None or not _cell.number:  # the latter: the front end has no cell for it
            super().showtraceback(exc_tuple, *args, **kwargs)
            return
        cells.trim(value, _cell)
        if self.InteractiveTB.mode == "Context" and not _shows_itself(value) and not args:
            lines = _cell.explain(colour.render, value)
            self._showtraceback(type(value), value, lines)
            self.debugger()
            return
        try:
            super().showtraceback((type(value), value, raised.trace(value)), *args, **kwargs)
        except Exception:  # a SyntaxError with fields that IPython does not expect
            self._showtraceback(type(value), value, colour.render(value))

    def debugger(self, force: bool = False) -> None:
        """Begins one; without force, only if %pdb is on."""
        debuggers.begin(self, _cell, super().debugger, force)

    def _showtraceback(
        self, etype: type[BaseException], evalue: BaseException, stb: object
    ) -> None:
        self.shown_error = evalue
        told = cells.message(raised.plain(evalue))
        if not isinstance(stb, str | list) or not all(isinstance(line, str) for line in stb):
            stb = colour.render(evalue)  # what the exception's _render_traceback_() has returned
        text = stb if isinstance(stb, str) else "\n".join(stb)
        lines = cells.bound_traceback(text).split("\n")
        streams.display(
            "error", ename=raised.name(evalue), evalue=told, traceback=lines, **freed.place(evalue)
        )

    def system_raw(self, cmd: str) -> None:
        """`!cmd`: its status is in _exit_code."""
        command = self.var_expand(cmd, depth=1)
        self.user_ns["_exit_code"] = status = commands.run(command)
        if status and getattr(self, "system_raise_on_error", False):  # a setting since IPython 9
            raise subprocess.CalledProcessError(status, command)

    system = system_raw

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        """`x = !cmd` and `%sx cmd`."""
        from IPython.utils.text import LSString, SList

        if cmd.rstrip().endswith("&"):  # as in IPython
            raise OSError("Background processes not supported.")
        text = commands.output(self.var_expand(cmd, depth=depth + 1))
        return SList(text.splitlines()) if split else LSString(text)


def _shows_itself(error: BaseException) -> bool:
    """True for errors that IPython shows in a way of their own: syntax errors, usage errors."""
    from IPython.core.error import UsageError

    try:
        own = hasattr(error, "_render_traceback_")
    except BaseException:
        return False
    return own or raised.is_a(error, (SyntaxError, UsageError))


class _Result:
    """The part of IPython's ExecutionResult that is used."""

    error_before_exec: BaseException | None = None
    error_in_exec: BaseException | None = None


def _parse(source: str) -> ast.Module | None:
    """The tree of a cell; None if it has a magic, or an error to be reported with its place."""
    try:
        return compile(source, "<cell>", "exec", _PARSE, True)
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
        return None


_PARSE = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_OTHER_SYNTAX = __future__.barry_as_FLUFL.compiler_flag


def _page(
    shell: object,
    text: str | Mime,
    start: int = 0,
    screen_lines: int = 0,
    pager_cmd: str | None = None,
) -> None:
    """What a pager would show (`obj?`) is printed."""
    plain = text.get("text/plain", "") if isinstance(text, dict) else text
    print(_ANSI.sub("", plain))


def run_cell(cell: Cell) -> Ended:
    """Runs a cell as a notebook does. Returns cell.Ended."""
    global _cell
    _cell, shell = cell, _shell
    assert shell is not None  # as available() says
    cell.in_code = False  # it has not begun
    shell.result_text, shell.shown_error = "", None
    last = getattr(sys, "last_value", None)
    shell.execution_count = cell.number
    try:
        tree = shell.plain_tree(cell.source) if cell.argv is None else None
        if tree is not None:
            result = shell.run_plain(cell.source, tree)
        else:
            # from %who and `%reset -s`
            shell.user_ns_hidden = {**state.engine_names, **shell.user_ns_hidden}
            result = shell.run_cell(cell.source, shell_futures=cell.argv is None)
        return _ended(shell, result, last)
    finally:
        # run_cell() leaves them set; setting such a trait is slow
        if shell.last_execution_result is not _no_result:
            shell.last_execution_result = _no_result
        if shell.displayhook.exec_result is not None:
            shell.displayhook.exec_result = None


def close_traps() -> None:
    """Closes IPython's own traps: if an interrupt left one open, no later cell would set it."""
    if _shell is not None:
        if patches.DISPLAY_LEVEL.of(_shell.display_trap, 0):
            patches.DISPLAY_LEVEL.put(_shell.display_trap, 0)
        if patches.BUILTIN_LEVEL.of(_shell.builtin_trap, 0):
            patches.BUILTIN_LEVEL.put(_shell.builtin_trap, 0)


def _ended(shell: _Shell, result: Any, last: BaseException | None) -> Ended:
    """Converts IPython's result. An exception that a magic showed and swallowed counts too."""
    before, during, shown = result.error_before_exec, result.error_in_exec, shell.shown_error
    # The frames of the traceback refer to this result: with the exception in it, that is a cycle.
    result.error_before_exec = result.error_in_exec = shell.shown_error = None
    if shown is last:
        shown = None  # %tb shows the last cell's exception again
    syntax = isinstance(before, (SyntaxError, ValueError))
    error = next((each for each in (before, during, shown) if each is not None), None)
    return cells.Ended(error, syntax, shell.result_text)


def forget() -> None:
    """Drops the exception that the debugger magics hold."""
    for shower in (getattr(_shell, "InteractiveTB", None), getattr(_shell, "SyntaxTB", None)):
        for name in ("etype", "evalue", "value", "tb"):
            if hasattr(shower, name):
                setattr(shower, name, None)


def hide() -> Hidden | None:
    """A program finds no IPython, as in a new process. Returns the argument for unhide()."""
    if _shell is None:
        return None
    single = sys.modules["traitlets.config.configurable"].SingletonConfigurable
    kinds = [each for each in type(_shell).__mro__ if issubclass(each, single) and each != single]
    for kind in kinds:
        patches.INSTANCE.put(kind, None)
    names, own = state.main.__dict__, builtins.__dict__
    taken = {name: names.pop(name) for name in _SHELL_NAMES & names.keys()}
    taken |= state.take(_own_names)
    return kinds, taken, {name: own.pop(name) for name in _BUILTINS & own.keys()}


def unhide(hidden: Hidden | None) -> None:
    """Restores what hide() removed; names that the program bound stay."""
    if hidden is None:
        return
    for kind in hidden[0]:
        patches.INSTANCE.put(kind, _shell)
    for namespace, names in zip((state.main, builtins), hidden[1:], strict=True):
        state.give_back(namespace, names)


def inspect_name(name: str) -> str:
    """What `name?` prints. There must be IPython."""
    assert _shell is not None
    return _shell.object_inspect_text(name)


def reset() -> None:
    """Drops the results that the shell remembers, along with the namespace."""
    if _shell is not None:
        _shell.displayhook.forget()
        _shell.compile.reset_compiler_flags()


def warm() -> None:
    """Imports what the first coloured traceback of a process would import."""
    try:
        raise ValueError("warm")
    except ValueError as e:
        colour.render(e)
