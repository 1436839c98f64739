"""A front end that does what VS Code's Jupyter extension does. Nothing here is a test.

It starts a kernel itself, with a connection file of its own. It sends hidden requests before,
between and after the user's cells, and reads their answers from the first output. It signals only
the kernel's process to interrupt it, and ends it by a signal, also to restart it: no kernel hears
of a shutdown. What it reads of an answer, and the order of its requests, are the extension's.
"""

import contextlib
import json
import os
import re
import signal
import subprocess

import notebook

ARGUMENTS = {
    "ddipfs": ["-Xfrozen_modules=off", "-m", "ddip.kernel"],
    "python3": ["-m", "ipykernel_launcher"],
}
PROBE = """def _VSCODE_getVariable(what_to_get, is_debugging, *args):
    import json as _VSCODE_json

    def info(value):
        shape = str(getattr(value, "shape", ""))
        count = len(value) if hasattr(value, "__len__") else 0
        return {"type": type(value).__name__, "shape": shape, "count": count}

    def types(names):
        return {name: type(globals()[name]).__name__ for name in names}

    text = _VSCODE_json.dumps({"info": info, "types": types}[what_to_get](*args))
    if is_debugging:
        return text
    print(text)
"""
_ROWS = """def _VSCODE_getDataFrame(what_to_get, is_debugging, df, *args):
    import json as _VSCODE_json
    import warnings as _VSCODE_warnings

    _VSCODE_warnings.warn("not of the answer")
    print(_VSCODE_json.dumps(df.tolist()[args[0]:args[1]]))
"""
FORGET = "try:\n    del {0}\nexcept:\n    pass\n"
# A request that returns at once; its thread updates the display that it has made.
_THREAD = """def __jupyter_exec_background__():
    from IPython.display import display
    from threading import Thread

    output = display({{"{0}": ""}}, raw=True, display_id=True)

    def do_implementation():
        import json

        def _VSCODE_getVariableDescriptions(names):
            found = {{name: repr(globals()[name]) for name in names if name in globals()}}
            return json.dumps(found)

        variables= %who_ls
        return _VSCODE_getVariableDescriptions(variables)

    def bg_main():
        output.update({{"{0}.result": do_implementation()}}, raw=True)

    Thread(target=bg_main, daemon=True).start()


__jupyter_exec_background__()
del __jupyter_exec_background__"""
_FIELD = r".*?\[.*?;31m{}:.*?\[0m\s+?"
_VALUE = re.compile(_FIELD.format("String form") + r"([\s\S]+?)\n(.*\[.*;31m?)")
_TYPE = re.compile(_FIELD.format("Type") + r"\s*(\w+)")
# where links in tracebacks are: a cell by its number, a file, and lines of the last of these
_ESCAPE = r"\x1b\[.+?m"
_CELL = re.compile(
    rf"(?:{_ESCAPE})*Cell(?:{_ESCAPE}|\s)*In(?:{_ESCAPE}|\s)*\[(\d+)\](?:{_ESCAPE}|\s|,)+line (\d+)"
)
_FILE = re.compile(rf"File\s+(?:{_ESCAPE})?(.+):(\d+)")
_LINE = re.compile(rf"^((?:{_ESCAPE}|\s|-|>)*)(\d+)(?:{_ESCAPE})*( .*)")


def submit(client, source, cell=None):
    """Submits a cell, by what is behind the scheme of its id; None: a request that the user does
    not see. Returns its message id."""
    content = {
        "code": source,
        "silent": False,
        "store_history": cell is not None,
        "user_expressions": {},
        "allow_stdin": True,
        "stop_on_error": False,
    }
    message = client.session.msg("execute_request", content)
    if cell is not None:
        message["metadata"]["cellId"] = f"vscode-notebook-cell:{cell}"
    client.shell_channel.send(message)
    return message["header"]["msg_id"]


class Window:
    """A notebook that is open in the editor, with its kernel."""

    def __init__(self, nb, kernel="ddipfs", name="a.ipynb"):
        """nb: a Notebook, whose group and environment it has."""
        self.nb, self._arguments = nb, ARGUMENTS[kernel]
        self.file = os.path.join(nb.folder, name)
        self.events = []  # of the debugger
        self.process = self._client = self._connection = None
        self._count = 0  # of kernels, of requests: each has its own name

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc_info):
        self.end()

    def _next(self):
        self._count += 1
        return self._count

    # ---- the kernel

    def start(self):
        """Starts a kernel, and runs what the editor runs first in each."""
        from jupyter_client import BlockingKernelClient
        from jupyter_client.connect import write_connection_file

        base = f"kernel-v2-{os.path.basename(self.file)}-{self._next()}"
        self._connection = os.path.join(self.nb.folder, f"{base}.json")
        sockets = os.path.join(self.nb.folder, f"{base}-ipc")
        write_connection_file(self._connection, transport="ipc", ip=sockets)
        self.process = subprocess.Popen(
            [notebook.PYTHON, *self._arguments, f"--f={self._connection}"],
            env=self.nb.environment | {"PYDEVD_IPYTHON_COMPATIBLE_DEBUGGING": "1"},
            cwd=self.nb.folder,
            stdout=subprocess.DEVNULL,  # how another client connects
        )
        self._client = BlockingKernelClient(connection_file=self._connection)
        self._client.load_connection_file()
        self._client.start_channels(hb=False)  # while it starts, its heart may stand still
        self._client.wait_for_ready(timeout=notebook.HANG_LIMIT_S)
        has_widgets = "print(getattr(__import__('ipywidgets'), '__version__'))"
        assert re.match(r"\d", self.hidden(f"try:\n    {has_widgets}\nexcept:\n    print(0)"))
        inline = "try:\n    import matplotlib\n    %matplotlib inline\nexcept:\n    pass"
        jedi = "%config Completer.use_jedi = False"
        assert self.hidden(f'__vsc_ipynb_file__ = "{self.file}"\n{jedi}\n{inline}') == ""

    def end(self):
        """Ends the kernel: what it has started, then itself."""
        self._client.stop_channels()
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        os.unlink(self._connection)
        assert self.process.wait(notebook.HANG_LIMIT_S) == -signal.SIGTERM

    def restart(self):
        """Ends the kernel and starts another."""
        self.end()
        self.start()

    def interrupt(self):
        """Does what the stop button does."""
        os.kill(self.process.pid, signal.SIGINT)

    # ---- requests

    def send(self, source, hidden=False):
        """Submits a cell, or a request that the user does not see. Returns its message id."""
        return submit(self._client, source, None if hidden else f"{self.file}#{self._next()}")

    def _message(self, request):
        """The next output of a request; an event of the debugger is None, and kept."""
        while True:
            message = self._client.get_iopub_msg(timeout=notebook.HANG_LIMIT_S)
            if message["msg_type"] == "debug_event":
                self.events.append(message["content"])
                return None
            if message["parent_header"].get("msg_id") == request:
                return message

    def finish(self, request):
        """Waits for the end of a request. Returns its Outcome, with its number."""
        from nbformat.notebooknode import NotebookNode

        outputs, state = notebook.Outputs(), None
        while state != "idle":
            message = self._message(request)
            if message is not None:
                outputs.take(message)
                state = message["content"].get("execution_state", state)
        outcome = notebook.Outcome(NotebookNode(outputs=outputs))
        outcome.number = self._reply(request)["execution_count"]
        return outcome

    def until(self, request, text):
        """Waits until a cell has printed this text."""
        shown = ""
        while text not in shown:
            shown += (self._message(request) or {}).get("content", {}).get("text", "")

    def _reply(self, request):
        while True:
            reply = self._client.get_shell_msg(timeout=notebook.HANG_LIMIT_S)
            if reply["parent_header"].get("msg_id") == request:
                return reply["content"]

    def run(self, source, hidden=False):
        """Runs a cell. Returns its Outcome."""
        return self.finish(self.send(source, hidden))

    def ok(self, source):
        """Runs a cell that must not fail."""
        outcome = self.run(source)
        assert outcome.error is None, outcome.error[2]
        return outcome

    def hidden(self, source):
        """Runs a request that the user does not see. Returns its first output, which is printed."""
        outputs = self.run(source, hidden=True).outputs
        assert all(o.get("name") == "stdout" for o in outputs), outputs
        return outputs[0]["text"] if outputs else ""

    # ---- variables

    def types(self):
        """{name: type} of the panel of variables."""
        call = '_VSCODE_getVariable("types", False, _VSCODE_rwho_ls)\n'
        forget = FORGET.format("_VSCODE_getVariable") + FORGET.format("_VSCODE_rwho_ls")
        return json.loads(self.hidden(f"{PROBE}\n\n_VSCODE_rwho_ls = %who_ls\n{call}\n{forget}"))

    def info(self, name):
        """The shape and the length of a variable."""
        call = f'_VSCODE_getVariable("info", False, {name})\n'
        forget = FORGET.format("_VSCODE_getVariable")
        return json.loads(self.hidden(f"{PROBE}\n\n{call}\n{forget}"))

    def value(self, name):
        """(type, value) of a variable in the panel."""
        content = {"code": name, "cursor_pos": 0, "detail_level": 0}
        message = self._client.session.msg("inspect_request", content)
        self._client.shell_channel.send(message)
        text = self._reply(message["header"]["msg_id"])["data"]["text/plain"]
        return tuple(each and each[1] for each in (_TYPE.search(text), _VALUE.search(text)))

    def rows(self, name, first, end):
        """Rows of a variable, for the data viewer; or its error."""
        call = f'_VSCODE_getDataFrame("rows", False, {name}, {first}, {end})\n'
        forget = FORGET.format("_VSCODE_getDataFrame")
        outcome = self.run(f"{_ROWS}\n\n{call}\n{forget}", hidden=True)
        return outcome.error[1] if outcome.error else json.loads(outcome.outputs[0]["text"])

    def described(self):
        """{name: value} as a thread of the kernel has found them, later than the request's end."""
        mime, place = f"application/vnd.vscode.bg.execution.{self._next()}", None
        request = self.send(_THREAD.format(mime), hidden=True)
        while True:
            content = (self._message(request) or {}).get("content", {})
            assert "ename" not in content, content
            data, shown = content.get("data", {}), content.get("transient", {}).get("display_id")
            if mime in data:
                place = shown
            if f"{mime}.result" in data:
                assert shown == place is not None, (shown, place)
                self._reply(request)
                return json.loads(data[f"{mime}.result"])

    # ---- the debugger

    def debug(self, command, **arguments):
        """The body of the answer to a request of the Debug Adapter Protocol."""
        content = {"type": "request", "seq": self._next(), "command": command}
        message = self._client.session.msg("debug_request", content | {"arguments": arguments})
        self._client.control_channel.send(message)
        while True:
            answer = self._client.get_control_msg(timeout=notebook.HANG_LIMIT_S)
            if answer["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                assert answer["content"]["success"], answer["content"]
                return answer["content"].get("body")

    def debug_cell(self, cells, *lines):
        """Begins to debug the last of the notebook's cells. lines: its breakpoints. Returns (its
        path, its message id)."""
        version = "import builtins\nimport ipykernel\nbuiltins.print(ipykernel.__version__)"
        assert int(self.hidden(version).partition(".")[0]) >= 6
        words = {"clientID": "vscode", "adapterID": "Python Kernel Debug Adapter"}
        self.debug("initialize", **words, pathFormat="path", linesStartAt1=True)
        assert self.debug("debugInfo")["stoppedThreads"] == []
        self.debug("attach", request="attach", justMyCode=True)
        assert self.debug("setFunctionBreakpoints", breakpoints=[])["breakpoints"] == []
        self.debug("setExceptionBreakpoints", filters=["uncaught"])
        self.hidden("import debugpy\ndebugpy.debug_this_thread()")
        path = [self.debug("dumpCell", code=each)["sourcePath"] for each in cells][-1]
        source, points = {"name": "a.ipynb", "path": path}, [{"line": line} for line in lines]
        found = self.debug("setBreakpoints", source=source, breakpoints=points, lines=lines)
        assert [each["line"] for each in found["breakpoints"]] == list(lines), found
        self.debug("configurationDone")
        return path, self.send(cells[-1])

    def stopped(self, request):
        """Waits until a cell has stopped: (the thread, its topmost frame). None: it has ended."""
        self.events.clear()
        while not any(event["event"] == "stopped" for event in self.events):
            message = self._message(request)
            if message and message["content"].get("execution_state") == "idle":
                self._reply(request)
                return None
        thread = self.events[-1]["body"]["threadId"]
        assert thread in [each["id"] for each in self.debug("threads")["threads"]]
        return thread, self.debug("stackTrace", threadId=thread, startFrame=0, levels=1)[
            "stackFrames"
        ][0]

    def end_debug(self, path):
        """What follows when a cell that was debugged has ended, or the user stops that."""
        self.debug("disconnect", restart=False)
        assert self.hidden(f"import os\nos.remove('{path}')") == ""


def links(coloured):
    """The links in a traceback: (number of a cell or path of a file, line)."""
    found, place = [], None
    for line in coloured.split("\n"):
        if file := _FILE.search(line):
            place = re.sub(_ESCAPE, "", file[1])
        elif cell := _CELL.search(line):
            place = int(cell[1])
            found.append((place, int(cell[2])))
        elif place is None or not line.strip():
            place = None
        elif number := _LINE.match(line):
            found.append((place, int(number[2])))
    return found


def descendants(pid):
    """The pids of a process's children and theirs, the latest first."""
    found = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{each}/stat", encoding="utf-8") as file:
            if int(file.read().rpartition(")")[2].split()[1]) == pid:
                found = [*descendants(int(each)), int(each), *found]
    return found


@contextlib.contextmanager
def window(kernel="ddipfs", **options):
    """A Window whose notebook has a group of its own. options: see notebook()."""
    with notebook.notebook(**options) as nb, Window(nb, kernel) as made:
        yield made
