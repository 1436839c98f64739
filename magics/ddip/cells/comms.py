"""Connects the comms of ranks, through which their widgets work, to the front end.

A rank's messages come in its cell's stream and are passed on through a comm of the kernel. The
front end's messages are sent to the rank in cells, as few as possible, as each cell uses up a
number. Without a kernel or the package comm nothing is passed on: widgets are shown as text.
"""

from __future__ import annotations

import base64
import collections
import functools
import itertools
import json
import operator
import sys
import threading

from ddip import ranks as rank_lists
from ddip.cells import cell as cells
from ddip.errors import DipError
from ddip.shown.cleared import OUTPUT, Frames, without_cleared
from ddip.shown.displays import Displays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.cells.cell import Cell
    from ddip.groups import Group


_KINDS = ("comm_open", "comm_msg", "comm_close")
_CONTENT = "name text data metadata transient wait ename evalue traceback".split()  # of any output
_CAPTURED = "ddip"  # the msg_id that Output widgets of ranks name: see ddip_engine/cells/comms.py
_CALL = (
    "__import__('ddip_engine.cells.comms').cells.comms.receive_all(__import__('json').loads({0!r})"
    "[str(__import__('ddip_engine.state').state.rank)])"
)

_ends: dict[str, Any] = {}  # comm id -> this kernel's comm
# comm id of a linked widget -> {rank: the comm id of that rank's}
_linked: dict[str, dict[int, str]] = {}
# (path of a group, rank, msg_id of a request) -> Displays of its widgets' callbacks
_shown: dict[tuple[str, int, str | None], Displays] = {}
# (comm id, path of a cell): a replay of this cell must not repeat its output
_captured: set[tuple[str, str]] = set()
carried: set[str] = set()  # paths of the cells that carry the front end's messages to widgets
_publishing = threading.RLock()  # held while a widget captures what is published
_lock = threading.Lock()  # protects _ways
# (group, ranks) -> the _Way that delivers the front end's messages there
_ways: dict[tuple[Group, tuple[int, ...]], _Way] = {}


class FrontEnd:
    """The front end, for the messages of one cell.

    seen: the ranks that are shown; None: all. request: the header of the one whose output these
    are; None: the one that is being executed. linked: the widgets that the ranks make in this cell,
    in the same order, are one: what the user does with that of one rank reaches all.

    An Output widget captures the output of a request, whose msg_id it names. Here, all ranks have
    one request in common. So a rank's widget gets that msg_id only while an output of that rank is
    published.
    """

    def __init__(
        self,
        shell: InteractiveShell | None,
        cell: Cell,
        seen: Collection[int] | None = None,
        request: dict[str, Any] | None = None,
        linked: bool = False,
    ) -> None:
        # rank -> (comm id, target, class) of each
        self._made: dict[int, list[tuple[Any, ...]]] | None = {} if linked else None
        self._kernel: Any = getattr(shell, "kernel", None)
        self._cell = cell
        self._seen = seen
        # rank -> comm ids; the last one captures
        self._capturing: dict[int, list[str]] = collections.defaultdict(list)
        # the failure of a cell is shown as such; a callback may fail in its widget
        self._capturable = OUTPUT if request is None else (*OUTPUT, "error")
        # comm id -> what it captures of this batch
        self._batch: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
        self._new: set[tuple[str, str]] = set()  # what end() adds to _captured
        self.request = request or _executed(shell)

    def take(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Passes on comm messages, and output that a widget captures. Returns the others."""
        others = [message for message in messages if not self._take(message)]
        self._publish_captured()
        return others

    def _take(self, message):
        is_seen = self._seen is None or message.get("rank") in self._seen
        if message["type"] in _KINDS:
            if message["type"] == "comm_open" and self._made is not None:
                made = self._made.setdefault(message["rank"], [])
                made.append((message["comm_id"], message.get("target_name"), _model(message)))
            if is_seen and self._kernel is not None:
                self._pass_on(message)
            return True
        widgets = self._capturing.get(message.get("rank"))
        if not widgets or message["type"] not in self._capturable:
            return False
        key = widgets[-1], self._cell.path
        if key not in _captured:
            self._new.add(key)
            self._batch[widgets[-1]].append(message)
        return True

    def end(self) -> None:
        """Notes that all output of the cell has been shown."""
        _captured.update(self._new)
        if self._made:
            self._link()

    def _link(self):
        kinds = [[kind for _, *kind in made] for made in self._made.values()]
        if any(each != kinds[0] for each in kinds):
            text = "the ranks have made different widgets: they are not linked"
            print(text, file=sys.stderr)
            return
        for widgets in zip(*self._made.values(), strict=True):
            ids = {rank: name for rank, (name, *_) in zip(self._made, widgets, strict=True)}
            _linked.update(dict.fromkeys(ids.values(), ids))

    def _publish_captured(self):
        """Publishes what each widget has captured, for this widget alone."""
        batch, self._batch = self._batch, collections.defaultdict(list)
        for name, messages in batch.items():
            widget = _ends.get(name)
            if widget is None:  # the front end has closed it
                continue
            for stream in (sys.stdout, sys.stderr):
                stream.flush()  # what has been written is not the widget's
            with _publishing:
                _set_msg_id(widget, self.request["msg_id"])
                try:
                    for message in _joined(without_cleared(messages)):
                        self.publish(message)
                finally:
                    _set_msg_id(widget, "")

    def publish(self, message: dict[str, Any]) -> None:
        """Publishes a rank's output as the request's, whichever is being executed."""
        content = {key: message[key] for key in _CONTENT if key in message}
        kind, parent = message["type"], {"header": self.request} if self.request else None
        with _publishing:
            self._kernel.session.send(
                self._kernel.iopub_socket, kind, content, parent=parent, ident=kind.encode()
            )

    def display(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        transient: dict[str, Any] | None = None,
        update: bool = False,
    ) -> None:
        """Publishes a bundle of representations, as Sink.display() does."""
        kind = "update_display_data" if update else "display_data"
        content = {"data": data, "metadata": metadata or {}, "transient": transient or {}}
        self.publish({"type": kind, **content})

    def _pass_on(self, message):
        name, rank = message["comm_id"], message["rank"]
        end = _ends.get(name)
        content = {key: message.get(key) for key in ("data", "metadata")}
        content["buffers"] = [base64.b64decode(buffer) for buffer in message.get("buffers", ())]
        if message["type"] == "comm_open" and end is None:
            self._open(message, content)
        elif message["type"] == "comm_msg" and end is not None:
            if not self._take_msg_id(name, rank, content["data"]):
                self._publish_captured()
                end.send(**content)
        elif message["type"] == "comm_close" and end is not None:
            self._publish_captured()
            if name in self._capturing[rank]:
                self._capturing[rank].remove(name)
            _ends.pop(name, None)
            end.close(**content)

    def _take_msg_id(self, name, rank, data):
        """Takes out of a widget's state from when on it captures. Returns True if that was all."""
        state, widgets = _state(data), self._capturing[rank]
        if state.get("msg_id") not in ("", _CAPTURED):
            return False
        begins = state.pop("msg_id") and self.request is not None
        if begins and name not in widgets:
            widgets.append(name)
        elif not begins and name in widgets:
            widgets.remove(name)
        return not state

    def _open(self, message, content):
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
        end.on_msg(lambda answer: self._send(rank, "comm_msg", answer))
        end.on_close(lambda answer: self._send(rank, "comm_close", answer))
        _ends[name] = end

    def _send(self, rank, kind, answer):
        """Sends a message from the front end to a rank; does not wait for the cell that carries it.

        What comes of it is shown where the comm was opened: the front end's request ends now.
        """
        buffers = [
            base64.b64encode(buffer).decode("ascii") for buffer in answer.get("buffers") or ()
        ]
        if kind == "comm_close":
            _ends.pop(answer["content"]["comm_id"], None)
        content, metadata = answer["content"], answer.get("metadata") or {}
        ids = _linked.get(content["comm_id"]) or {rank: content["comm_id"]}
        message = {
            each: [kind, {**content, "comm_id": name}, metadata, buffers]
            for each, name in ids.items()
        }
        key = self._cell.group, tuple(sorted(ids))
        with _lock:
            way = _ways.get(key) or _Way(*key, rank)
            way.add(self.request, message)
            if key not in _ways:
                threading.Thread(target=way.follow, daemon=True).start()
                _ways[key] = way


def _executed(shell):
    """The header of the request that a kernel is executing; None: there is none, or no kernel."""
    get_parent = getattr(shell, "get_parent", None)
    if getattr(shell, "kernel", None) is None or get_parent is None:
        return None
    return (get_parent() or {}).get("header")


def _state(data):
    """The state of a widget in a comm's data; {} in that of other comms."""
    state = data.get("state") if isinstance(data, dict) else None
    return state if isinstance(state, dict) else {}


def _set_msg_id(widget, msg_id):
    widget.send({"method": "update", "state": {"msg_id": msg_id}, "buffer_paths": []})


def _joined(messages):
    """The messages, with the text of neighbours of one stream in one."""
    joined = []
    for message in messages:
        last = joined[-1] if joined else {}
        if message["type"] == "stream" and message["name"] == last.get("name"):
            joined[-1] = {**last, "text": last["text"] + message["text"]}
        else:
            joined.append(message)
    return joined


def submit_waiting() -> None:
    """Submits the messages that wait for earlier ones: the user's next cell runs after them."""
    with _lock:
        for way in _ways.values():
            way.submit()


class _Way:
    """The front end's messages for one rank, or for those whose widgets are linked: one cell
    carries all that came while another ran. rank: whose output is shown that no widget captures.

    Call add() and submit() with the lock held.
    """

    def __init__(self, group, ranks, rank):
        self.group, self._ranks, self.rank = group, ranks, rank
        self._waiting = []  # (the request whose output the effects are, message)
        self._submitted = collections.deque()  # (request, cell whose stream is still to be read)

    def add(self, request, message):
        """Adds a message, which submit() will send."""
        widget = _tells_outputs(message)
        if self._waiting and widget and _tells_outputs(self._waiting[-1][1]) == widget:
            del self._waiting[-1]  # each message tells all outputs so far
        self._waiting.append((request, message))

    def submit(self):
        """Submits a cell that carries all waiting messages; one for each request."""
        waiting, self._waiting = self._waiting, []
        for request, some in itertools.groupby(waiting, operator.itemgetter(0)):
            messages = [message for _, message in some]
            each = {rank: [message[rank] for message in messages] for rank in self._ranks}
            try:
                source = _CALL.format(json.dumps(each))
                cell = cells.submit(self.group, source, rank_lists.spell(self._ranks))
            except DipError as e:
                print(f"rank {self.rank}: {e}", file=sys.stderr)
            else:
                carried.add(cell.path)
                self._submitted.append((request, cell))

    def _next(self):
        self.submit()
        if self._submitted:
            return self._submitted.popleft()
        _ways.pop((self.group, self._ranks), None)
        return None

    def follow(self):
        """Shows what the widgets' callbacks print and passes on what they send."""
        from IPython import get_ipython

        while True:
            with _lock:
                following = self._next()
            if following is None:
                return
            request, cell = following
            front_end = FrontEnd(get_ipython(), cell, {*self._ranks}, request)
            frames = Frames(functools.partial(self._take, front_end), (self.rank,))
            try:
                cells.follow(cell, frames.take, frames.patience, attached=True)
            except Exception as e:  # the messages that wait must be sent all the same
                print(e if isinstance(e, DipError) else repr(e), file=sys.stderr)
            frames.end()
            self._displays(front_end).end()

    def _displays(self, front_end):
        key = (self.group.path, self.rank, (front_end.request or {}).get("msg_id"))
        if key not in _shown:
            _shown[key] = Displays(front_end)
        return _shown[key]

    def _take(self, front_end, messages):
        displays = self._displays(front_end)
        rest = front_end.take(messages)  # what becomes of the widgets of all
        own = [m for m in rest if m.get("rank") in (None, self.rank)]
        for message in without_cleared(own):
            kind, name = message["type"], message.get("transient", {}).get("display_id")
            if kind == "clear_output":
                displays.clear(message["wait"])
            elif kind == "display_data" and name is None:
                displays.show(message["data"], message.get("metadata"))
            elif kind == "display_data":
                displays.show_named(name, message["data"], message.get("metadata"))
            elif kind == "stream" and displays.write(message["text"]):
                continue  # draw() shows it
            elif kind in ("stream", "error", "update_display_data"):
                front_end.publish(message)
        displays.draw()


def _model(message):
    """The class of the widget that a comm_open message is for."""
    return _state(message.get("data")).get("_model_name")


def _tells_outputs(message):
    """The comm id, if a message from the front end only tells an Output widget's outputs."""
    content = next(iter(message.values()))[1]
    return content["comm_id"] if list(_state(content.get("data"))) == ["outputs"] else None
