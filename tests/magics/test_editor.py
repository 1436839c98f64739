#!/usr/bin/env python3
"""The magics work with an editor that talks to the kernel as VS Code does.

It marks each cell with its own id, sends hidden requests between the user's, never answers a comm
(it has no widget manager), and stops a cell by interrupting the kernel.
"""

import contextlib
import os
import tempfile

import notebook
import vscode

notebook.need("torch", "IPython", "ipykernel", "jupyter_client", "nbformat", "ipywidgets", "tqdm")


class Editor:
    """A kernel and its only client."""

    def __init__(self, mount, **environment):
        from jupyter_client import KernelManager

        # chosen ports may be taken by others before the kernel has started
        sockets = os.path.join(os.path.dirname(mount), "ipc")
        self._manager = KernelManager(kernel_name="python3", transport="ipc", ip=sockets)
        self._environment = os.environ | notebook.environment_of(mount) | environment
        self._cells = 0

    def __enter__(self):
        self._manager.start_kernel(env=self._environment)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=notebook.HANG_LIMIT_S)
        return self

    def __exit__(self, *exc_info):
        self._client.stop_channels()
        self._manager.shutdown_kernel()

    def send(self, source, hidden=False):
        """Submits a cell, or a request that the user does not see. Returns its message id."""
        self._cells += 1
        cell = None if hidden else f"/a.ipynb#W{self._cells}sZmlsZQ"
        return vscode.submit(self._client, source, cell)

    def open_comm(self, target):
        """Opens a comm to a target that the kernel knows."""
        content = {"comm_id": target, "target_name": target, "data": {}}
        self._client.shell_channel.send(self._client.session.msg("comm_open", content))

    def finish(self, cell):
        """Waits for the end of a cell. Returns its notebook.Outcome, with its number."""
        from nbformat.notebooknode import NotebookNode

        outputs, state = notebook.Outputs(), None
        while state != "idle":
            message = self._client.get_iopub_msg(timeout=notebook.HANG_LIMIT_S)
            if message["parent_header"].get("msg_id") != cell:
                continue
            outputs.take(message)
            state = message["content"].get("execution_state", state)
        outcome = notebook.Outcome(NotebookNode(outputs=outputs))
        reply = {"parent_header": {}}
        while reply["parent_header"].get("msg_id") != cell:
            reply = self._client.get_shell_msg(timeout=notebook.HANG_LIMIT_S)
        outcome.number = reply["content"]["execution_count"]
        return outcome

    def run(self, source, hidden=False):
        """Runs a cell. Returns its outcome."""
        return self.finish(self.send(source, hidden))

    def ok(self, source, hidden=False):
        """Runs a cell that must not fail."""
        outcome = self.run(source, hidden)
        assert outcome.error is None, outcome.error[2]
        return outcome

    def until_shown(self, text):
        """Waits until the running cell has shown this text, which its source does not contain."""
        shown = ""
        while text not in shown:
            shown += str(self._client.get_iopub_msg(timeout=notebook.HANG_LIMIT_S)["content"])

    def stop(self):
        """Does what the stop button does."""
        self._manager.interrupt_kernel()

    def answer(self, line):
        """Waits for an input field and fills it. Returns its prompt."""
        asked = self._client.get_stdin_msg(timeout=notebook.HANG_LIMIT_S)["content"]["prompt"]
        self._client.input(line)
        return asked


@contextlib.contextmanager
def editor(**environment):
    """An Editor whose notebook has a group of two ranks. environment: of its kernel, besides."""
    with (
        tempfile.TemporaryDirectory() as folder,
        notebook.place(folder) as mount,
        Editor(mount, **environment) as made,
    ):
        made.ok("import sys as _VSCODE_sys\nprint(_VSCODE_sys.executable)", hidden=True)
        made.ok("%load_ext ddip\n%makedip -n 2")
        yield made


def test_hidden_requests():
    """The editor's requests between two cells are its own, and change nothing in the cells."""
    with editor() as ed:
        first = ed.ok("%%dip\nprint('shown')\nrank + 5")
        assert "shown" in first.text() and first.data()[0].endswith("5"), first.outputs
        asked = ed.ok("import json as _VSCODE_json\nprint(_VSCODE_json.dumps([1]))", hidden=True)
        assert asked.text() == "[1]\n", asked.outputs
        running = ed.send("%%dip\nimport time\ntime.sleep(0.3)\nprint('late')")
        waiting = ed.send("print('asked meanwhile')", hidden=True)
        assert "late" in ed.finish(running).text()
        assert ed.finish(waiting).text() == "asked meanwhile\n"
        assert ed.ok("%%dip\n6").number == 4, "hidden requests take no number"


def test_no_widgets():
    """A bar whose comms nobody answers runs to its end, and is shown as text."""
    with editor() as ed:
        bar = "from tqdm.notebook import tqdm\nfor i in tqdm(range(3)): pass\nprint('after')"
        outcome = ed.ok(f"%%dip -S all\n{bar}")
        assert outcome.text().count("after") == 2, outcome.outputs
        views = [o for o in outcome.outputs if "widget-view" in str(o.get("data", ""))]
        assert len(views) == 2, outcome.outputs
        assert all("3" in view["data"]["text/plain"] for view in views), views


def test_stop_and_input():
    """The stop button interrupts the ranks; a rank's input field becomes one of the editor's."""
    with editor() as ed:
        running = ed.send("%%dip\nimport time\nkept = 1\nprint('be' + 'gun')\ntime.sleep(10_000)")
        ed.until_shown("begun")
        ed.stop()
        error = ed.finish(running).error
        assert error[0] == "KeyboardInterrupt", error[2]
        asking = ed.send("%%dip\nname = input('name? ') if rank == 0 else None\nname, kept")
        assert "name? " in ed.answer("Ada")
        assert ed.finish(asking).data()[-1].endswith("('Ada', 1)")


def test_breakpoints():
    """A breakpoint of the editor's debugger in a cell for ranks: one line says what to use."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 1") as nb:
        code, other = "%%dip\nx = 1\nprint(x)", "%%dip\ny = 1"
        begun = nb.begin("1")
        client = begun[0]

        def debug(seq, command, **arguments):
            content = {"type": "request", "seq": seq, "command": command, "arguments": arguments}
            client.control_channel.send(client.session.msg("debug_request", content))
            return client.get_control_msg(timeout=notebook.HANG_LIMIT_S)["content"]

        adapter = {"clientID": "test", "adapterID": "", "pathFormat": "path"}
        assert debug(1, "initialize", **adapter, linesStartAt1=True)["success"]
        debug(2, "attach")
        path = debug(3, "dumpCell", code=code)["body"]["sourcePath"]
        set_ = debug(4, "setBreakpoints", source={"path": path}, breakpoints=[{"line": 2}])
        assert set_["success"], set_
        nb.finish(begun)
        for source, count in ((code, 1), (other, 0), (code, 1)):
            shown = nb.ok(source)
            assert shown.text("stderr").count("breakpoint() in the code does") == count, source
        assert shown.text() == "1\n", shown.outputs
        debug_again = nb.begin("2")
        client = debug_again[0]
        debug(5, "disconnect", restart=False, terminateDebuggee=True)
        nb.finish(debug_again)


if __name__ == "__main__":
    notebook.run(globals())
