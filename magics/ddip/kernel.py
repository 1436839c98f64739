"""The kernel "DDP (ddipfs)": ipykernel's, whose cells run on the ranks. `python -m ddip.kernel`.

It is %autodip in a kernel of its own: it makes the group when the first cell needs one, a restart
of it restarts the ranks, and its panel of variables shows those of rank 0.
"""

import asyncio
import contextlib
import os

from ipykernel.debugger import Debugger
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

from ddip import files, magics
from ddip.errors import DipError

_SHORT = ("int", "float", "bool", "complex", "str", "NoneType")  # types whose value is shown
_SHOWN = 200  # variables whose value is shown
_TEXT = 200  # characters of a value


class RanksDebugger(Debugger):
    """ipykernel's, but for the variables outside a breakpoint: they are rank 0's."""

    group = staticmethod(lambda: None)  # the group that cells run on

    async def inspectVariables(self, message):
        """All variables, as the Debug Adapter Protocol lists them."""
        return await asyncio.to_thread(self._answer, message, lambda: {"variables": self._found()})

    async def richInspectVariables(self, message):
        """One of them, as a front end displays it."""
        asked = message["arguments"]
        if "frameId" in asked:  # at a breakpoint of the notebook's own
            return await super().richInspectVariables(message)
        return await asyncio.to_thread(self._answer, message, lambda: self._one(asked))

    def _answer(self, message, body):
        answer = {
            "type": "response",
            "request_seq": message["seq"],
            "success": True,
            "command": message["command"],
        }
        try:
            return answer | {"body": body()}
        except (DipError, OSError) as e:  # the group is gone, or the variable
            return answer | {"success": False, "message": str(e), "body": {"variables": []}}

    def _found(self):
        group, found = self.group(), []
        for name, facts in group.table().items() if group is not None else ():
            value = _described(facts)
            if facts["type"] in _SHORT and len(found) < _SHOWN:
                with contextlib.suppress(OSError):  # it has gone meanwhile
                    value = _text(group, name)[:_TEXT]
            found.append(
                {"name": name, "type": facts["type"], "value": value, "variablesReference": 0}
            )
        return found

    def _one(self, asked):
        group = self.group()
        text = _text(group, asked["variableName"]) if group is not None else ""
        return {"data": {"text/plain": text}, "metadata": {}}


def _text(group, name):
    return files.read_text(os.path.join(group.path, "rank0", "vars", name)).rstrip("\n")


def _described(facts):
    known = [facts[key] for key in ("dtype", "device") if facts[key] != "-"]
    if facts["shape"] != "-":
        known.insert(0, f"[{facts['shape'].replace(',', ', ')}]")
    return " ".join(known)


class RanksKernel(IPythonKernel):
    """Runs each cell on the ranks, but those that begin with %%local."""

    banner = "DDP (ddipfs): cells run on all ranks; %%local runs one in this process"
    debugger_class = RanksDebugger

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._magics = magics.load(self.shell)
        self._magics.take_all(self._take_mark())
        if getattr(self, "debugger", None) is not None:
            self.debugger.group = self._magics.attachment.known

    def do_shutdown(self, restart):
        """Ends the kernel, and if it is a restart, restarts the ranks."""
        if restart:
            with contextlib.suppress(DipError, OSError):  # there is no group
                group = self._magics.attachment.known()
                if group is not None and group.is_started():
                    group.ctl("restart", wait=False)
                    self._leave_mark(group.path)
        return super().do_shutdown(restart)

    # The next process of this kernel has the same connection file. What the last one leaves beside
    # it is the path of the group that it has restarted.

    def _mark(self):
        return f"{self.parent.abs_connection_file}.ddipfs"

    def _leave_mark(self, path):
        with open(self._mark(), "w", encoding="utf-8") as file:
            file.write(path)

    def _take_mark(self):
        try:
            with open(self._mark(), encoding="utf-8") as file:
                path = file.read()
            os.unlink(self._mark())
        except OSError:
            return None
        return path


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=RanksKernel)
