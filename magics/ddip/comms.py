"""Connects the comms of ranks, through which their widgets work, to the front end.

A rank's messages come in its cell's stream and are passed on through a comm of the kernel. The
front end's messages are sent to the rank in cells, as few as possible, as each cell uses up a
number. Without a kernel or the package comm nothing is passed on: widgets are shown as text.
"""

import base64
import collections
import json
import sys
import threading

from ddip import cell as cells
from ddip.errors import DipError
from ddip.show import Displays
from ddip.sink import Sink

KINDS = ("comm_open", "comm_msg", "comm_close")
_CALL = "__import__('ddip_engine.comms').comms.receive_all(__import__('json').loads({0!r}))"

_ends = {}  # comm id -> this kernel's comm
_shown = {}  # (path of a group, rank) -> the Displays for what its widgets' callbacks show
_lock = threading.Lock()  # protects _ways
_ways = {}  # (group, rank) -> the _Way that delivers the front end's messages there


def pass_on(shell, group, message):
    """Passes a rank's comm message on to the front end."""
    if getattr(shell, "kernel", None) is None:
        return
    end = _ends.get(message["comm_id"])
    content = {key: message.get(key) for key in ("data", "metadata")}
    content["buffers"] = [base64.b64decode(buffer) for buffer in message.get("buffers", ())]
    if message["type"] == "comm_open" and end is None:
        _open(group, message, content)
    elif message["type"] == "comm_msg" and end is not None:
        end.send(**content)
    elif message["type"] == "comm_close" and end is not None:
        del _ends[message["comm_id"]]
        end.close(**content)


def _open(group, message, content):
    try:
        import comm
    except ImportError:
        return
    rank, name = message["rank"], message["comm_id"]
    end = comm.create_comm(
        target_name=message.get("target_name"),
        target_module=message.get("target_module"),
        comm_id=name,
        **content,
    )
    end.on_msg(lambda answer: _send(group, rank, "comm_msg", answer))
    end.on_close(lambda answer: _send(group, rank, "comm_close", answer))
    _ends[name] = end


def _send(group, rank, kind, answer):
    """Sends a message from the front end to a rank; does not wait for the cell that carries it."""
    buffers = [base64.b64encode(buffer).decode("ascii") for buffer in answer.get("buffers") or ()]
    if kind == "comm_close":
        _ends.pop(answer["content"]["comm_id"], None)
    message = [kind, answer["content"], answer.get("metadata") or {}, buffers]
    with _lock:
        way = _ways.get((group, rank))
        if way is not None:
            way.waiting.append(message)
            return
        way = _ways[group, rank] = _Way(group, rank, message)
    threading.Thread(target=way.follow, daemon=True).start()


def submit_waiting():
    """Submits the messages that wait for earlier ones: the user's next cell runs after them."""
    with _lock:
        for way in _ways.values():
            way.submit()


class _Way:
    """The front end's messages for one rank: one cell carries all that came while another ran.

    Call everything except follow() with the lock held.
    """

    def __init__(self, group, rank, message):
        self.group, self.rank = group, rank
        self.waiting = [message]
        self._submitted = collections.deque()  # cells whose streams are still to be read
        self.submit()

    def submit(self):
        """Submits a cell that carries all waiting messages."""
        if not self.waiting:
            return
        source, self.waiting = _CALL.format(json.dumps(self.waiting)), []
        try:
            self._submitted.append(cells.submit(self.group, source, str(self.rank)))
        except DipError as e:
            print(f"rank {self.rank}: {e}", file=sys.stderr)

    def _next(self):
        self.submit()
        if self._submitted:
            return self._submitted.popleft()
        del _ways[self.group, self.rank]
        return None

    def follow(self):
        """Shows what the widgets' callbacks print and passes on what they send."""
        while True:
            with _lock:
                cell = self._next()
            if cell is None:
                return
            try:
                cells.follow(cell, self._take, attached=True)
            except (DipError, OSError) as e:
                print(e, file=sys.stderr)

    def _take(self, messages):
        from IPython import get_ipython

        shell = get_ipython()
        for message in messages:
            if message["type"] in KINDS:
                pass_on(shell, self.group, message)
            elif message["type"] in ("display_data", "update_display_data", "clear_output"):
                self._show(shell, message)
            elif message["type"] == "stream":
                print(message["text"], end="", file=getattr(sys, message["name"]), flush=True)
            elif message["type"] == "error":
                print(*message["traceback"], sep="\n", file=sys.stderr)

    def _show(self, shell, message):
        """Shows a display; after clear_output() it replaces the previous one."""
        sink, key = Sink(shell), (self.group.path, self.rank)
        if key not in _shown:
            _shown[key] = Displays(sink, lambda: None)
        if message["type"] == "clear_output":
            _shown[key].clear(message["wait"])
        elif message.get("transient", {}).get("display_id"):
            update = message["type"] == "update_display_data"
            sink.display(message["data"], message.get("metadata"), message["transient"], update)
        else:
            _shown[key].show(message)
