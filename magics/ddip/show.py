"""What a notebook shows of a cell's stream: a view for one rank, for several, and for -q.

A view takes messages (dictionaries of `cells/N/stream`); the sink draws. Errors are only
collected here: errors.py and run.py tell them.
"""

import time

from ddip.screen import Screen, settled
from ddip.sink import Slot

HEAD_LINES = 5000  # lines of one cell that are printed as they come
HEAD_BYTES = 1 << 20
TAIL_LINES = 30  # of a longer output the last ones are redrawn in place
_REDRAW_S = 0.25  # between two drawings of one place
_PARTIAL_S = 0.2  # a line that is not whole for so long is shown
_SILENCE_S = 3.0  # without output a line tells that the cell runs


def _label(rank, data):
    """The bundle of a result with `Out[rank:n]:` in front, and the prompt alone."""
    prompt = f"Out[{rank}:{data['execution_count']}]: "
    bundle = dict(data["data"])
    if "text/plain" in bundle:
        lead = "\n" if "\n" in bundle["text/plain"] else ""
        bundle["text/plain"] = f"\x1b[31m{prompt}\x1b[0m{lead}{bundle['text/plain']}"
    if "text/html" in bundle:
        mark = f'<pre style="color:#b22;margin:0">{prompt}</pre>'
        bundle["text/html"] = mark + bundle["text/html"]
    return bundle, prompt


class View:
    """Shows the messages of the ranks of `seen`. files(rank, name): where all of a stream is."""

    def __init__(self, sink, seen, files):
        self.sink = sink
        self.seen = seen
        self.errors = {}  # rank -> the message of its exception
        self._files = files
        self._tail = None
        self._lines = self._bytes = 0
        self._progress = Progress(sink)
        self._kinds = {
            "stream": self._on_stream,
            "display_data": self._on_display,
            "update_display_data": self._on_update,
            "execute_result": self._on_result,
            "clear_output": self._on_clear,
        }

    def take(self, messages):
        """Shows a batch; an empty one means that some time has passed."""
        for message in _latest(messages):
            rank = message["rank"]
            if message["type"] == "error":
                self.errors[rank] = message
            elif rank in self.seen and message["type"] in self._kinds:
                self._kinds[message["type"]](rank, message)
                self._progress.moved()
        self.settle()
        self.sink.flush()

    def settle(self):
        """Draws what waits for its time."""
        if self._tail is not None:
            self._tail.draw()
        self._progress.draw()

    def patience(self):
        """Milliseconds until settle() has something to do, None: it has not."""
        waits = [self._progress.patience()]
        if self._tail is not None:
            waits.append(self._tail.patience())
        waits = [wait for wait in waits if wait is not None]
        return max(1, int(min(waits) * 1000)) if waits else None

    def end(self):
        """The cell has ended: everything is drawn."""
        if self._tail is not None:
            self._tail.draw(last=True)
        self._progress.end()
        self.sink.flush()

    def text(self, rank, name, text):
        """Prints text, or counts it where too much has been printed already."""
        if self._tail is not None:
            self._tail.add(rank, name, text)
            return
        lines = text.count("\n")
        if self._lines + lines <= HEAD_LINES and self._bytes + len(text) <= HEAD_BYTES:
            self._lines += lines
            self._bytes += len(text)
            self.sink.write(name, text)
            return
        head = _first_lines(text, HEAD_LINES - self._lines, HEAD_BYTES - self._bytes)
        self.sink.write(name, text[:head])
        self._tail = Tail(self.sink, self._files)
        self._tail.add(rank, name, text[head:])

    def _on_stream(self, rank, message):
        self.text(rank, message["name"], message["text"])

    def _on_display(self, rank, message):
        self.sink.display(message["data"], message.get("metadata"), message.get("transient"))

    def _on_update(self, rank, message):
        self.sink.display(
            message["data"], message.get("metadata"), message.get("transient"), update=True
        )

    def _on_result(self, rank, message):
        data, prompt = _label(rank, message)
        if not data.keys() & {"text/plain", "text/html"}:
            self.sink.write("stdout", prompt + "\n")
        self.sink.display(data, message.get("metadata"))

    def _on_clear(self, rank, message):
        self.sink.clear(message["wait"])


class LabelledView(View):
    """Several ranks: whole lines with the rank in front, displays with the rank above."""

    def __init__(self, sink, seen, files):
        super().__init__(sink, seen, files)
        self._open = {}  # (rank, name) -> a line that is not whole yet
        self._since = None  # when the oldest of them came
        self._slot = Slot(sink)
        self._displays = {}  # rank -> _Displays
        self._results = {}  # rank -> its result, shown at the end in the order of the ranks
        self._known = set()  # display ids that have their label

    def _on_stream(self, rank, message):
        key = rank, message["name"]
        *whole, rest = (self._open.pop(key, "") + message["text"]).split("\n")
        if whole:
            mark = f"[{rank}] "
            lines = "\n".join(mark + settled(line) for line in whole)
            self.text(rank, message["name"], lines + "\n")
        if rest:
            self._open[key] = settled(rest) if "\r" in rest else rest
        self._since = (self._since or time.monotonic()) if self._open else None

    def settle(self):
        if self.sink.redraws and self._since is not None:
            if time.monotonic() - self._since >= _PARTIAL_S:
                self._slot.show(self._partial())
                self._since = time.monotonic()
        elif self._slot.shown:
            self._slot.show("")
        super().settle()

    def _partial(self):
        return "\n".join(f"[{rank}] {line}" for (rank, _), line in sorted(self._open.items()))

    def patience(self):
        wait = super().patience()
        if not self.sink.redraws or self._since is None:
            return wait
        own = max(1, int((_PARTIAL_S - (time.monotonic() - self._since)) * 1000))
        return own if wait is None else min(own, wait)

    def end(self):
        if self._slot.shown:
            self._slot.show("")
        for (rank, name), line in sorted(self._open.items()):
            self.text(rank, name, f"[{rank}] {line}\n")
        self._open.clear()
        for rank, message in sorted(self._results.items()):
            super()._on_result(rank, message)
        self._results.clear()
        super().end()

    def _on_result(self, rank, message):
        self._results[rank] = message

    def _on_display(self, rank, message):
        shown = message.get("transient", {}).get("display_id")
        if shown is None and message["data"].get("text/plain") == "":
            return  # a label above nothing
        if shown is not None:
            if shown not in self._known:
                self._known.add(shown)
                self.sink.write("stdout", f"[{rank}]\n")
            super()._on_display(rank, message)
            return
        self._of(rank).show(message)

    def _on_clear(self, rank, message):
        self._of(rank).clear(message["wait"])

    def _of(self, rank):
        if rank not in self._displays:
            self._displays[rank] = _Displays(self.sink, rank)
        return self._displays[rank]


class _Displays:
    """The displays of one rank among others: clear_output() must clear these alone."""

    def __init__(self, sink, rank):
        self._sink = sink
        self._rank = rank
        self._ids = []
        self._next = 0  # the place that the next display takes

    def show(self, message):
        update = self._next < len(self._ids)
        if not update:
            from uuid import uuid4

            self._ids.append(f"ddip-{uuid4().hex}")
            self._sink.write("stdout", f"[{self._rank}]\n")
        place = {"display_id": self._ids[self._next]}
        self._next += 1
        self._sink.display(message["data"], message.get("metadata"), place, update=update)

    def clear(self, wait):
        self._next = 0
        for place in () if wait else self._ids:
            self._sink.display({"text/plain": ""}, {}, {"display_id": place}, update=True)


class QuietView:
    """Keeps everything until the end, then shows what is left of it in another view."""

    def __init__(self, view):
        self._view = view
        self._items = []  # messages; the text of a stream message is a Screen
        self._progress = Progress(view.sink)

    @property
    def errors(self):
        """The exceptions: rank -> message."""
        return self._view.errors

    @property
    def seen(self):
        """The ranks that are shown."""
        return self._view.seen

    def take(self, messages):
        """Takes a batch in."""
        for message in messages:
            if message["type"] == "error" or message["rank"] in self.seen:
                self._keep(message)
        self._progress.draw()

    def _keep(self, message):
        kind, rank = message["type"], message["rank"]
        if kind == "stream":
            last = self._items[-1] if self._items else {}
            if last.get("rank") != rank or last.get("name") != message["name"]:
                last = {**message, "text": Screen()}
                self._items.append(last)
            last["text"].write(message["text"])
        elif kind == "clear_output":
            self._items = [item for item in self._items if item["rank"] != rank]
        elif kind == "update_display_data":
            self._replace(message)
        else:
            self._items.append(message)

    def _replace(self, message):
        place = message["transient"]["display_id"]
        for i, item in enumerate(self._items):
            if item.get("transient", {}).get("display_id") == place:
                self._items[i] = {**message, "type": item["type"]}
                return
        self._items.append(message)

    def patience(self):
        """See View."""
        wait = self._progress.patience()
        return wait if wait is None else max(1, int(wait * 1000))

    def end(self):
        """Shows what is left."""
        self._progress.end()
        for item in self._items:
            if item["type"] == "stream":
                item["text"] = item["text"].text()
        self._view.take(self._items)
        self._view.end()


class Progress:
    """A line that tells how long a cell runs that prints nothing."""

    def __init__(self, sink):
        self._slot = Slot(sink)
        self._usable = sink.redraws
        self._started = self._moved = time.monotonic()

    def moved(self):
        """Something was shown."""
        self._moved = time.monotonic()

    def patience(self):
        """Seconds until draw() has something to do."""
        if not self._usable:
            return None
        if self._slot.shown:
            return 1.0
        return max(0.0, self._moved + _SILENCE_S - time.monotonic())

    def draw(self):
        """Shows or renews the line if it is time."""
        now = time.monotonic()
        if self._usable and (self._slot.shown or now - self._moved >= _SILENCE_S):
            self._slot.show(f"running for {now - self._started:.0f} s")

    def end(self):
        """Leaves the time that it took, if the line was ever shown."""
        if self._slot.shown:
            self._slot.show(f"ran for {time.monotonic() - self._started:.1f} s")


class Tail:
    """The end of an output that is too long for a notebook, and where all of it is."""

    def __init__(self, sink, files):
        self._sink = sink
        self._files = files
        self._slot = Slot(sink)
        self._lines = self._bytes = 0
        self._last = ""
        self._of = set()  # (rank, name) that had to be cut
        self._changed = False
        self._drawn = 0.0

    def add(self, rank, name, text):
        """More text."""
        self._lines += text.count("\n")
        self._bytes += len(text)
        self._of.add((rank, name))
        self._last = _last_lines(self._last + text[-HEAD_BYTES // 8 :])
        self._changed = True

    def patience(self):
        """Seconds until the next drawing, None: nothing has changed."""
        if not self._changed or not self._sink.redraws:
            return None
        return max(0.0, self._drawn + _REDRAW_S - time.monotonic())

    def draw(self, last=False):
        """Draws if it is time; last: whatever the time."""
        now = time.monotonic()
        due = self._sink.redraws and now - self._drawn >= _REDRAW_S
        if not self._changed or not (due or last):
            return
        self._drawn, self._changed = now, False
        self._last = settled(self._last)
        places = " ".join(self._files(*key) for key in sorted(self._of))
        size = f"{self._lines:,} more lines, {self._bytes / 1e6:.1f} MB: all of it is in {places}"
        text = f"… {size}\n{self._last}"
        if self._sink.redraws:
            self._slot.show(text)
        else:
            self._sink.write("stdout", text if text.endswith("\n") else text + "\n")


def _first_lines(text, lines, limit):
    """How much of a text is its first lines, within a limit, cut behind a line."""
    at = 0
    while lines > 0:
        found = text.find("\n", at) + 1
        if not found or found > limit:
            break
        at, lines = found, lines - 1
    return at


def _last_lines(text):
    """The last TAIL_LINES lines of a text."""
    at = len(text)
    for _ in range(TAIL_LINES + 1):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]


def _latest(messages):
    """The batch without updates that a later one of the batch overwrites."""
    last = {}
    for i, message in enumerate(messages):
        if message["type"] == "update_display_data":
            last[message["transient"].get("display_id")] = i
    if not last:
        return messages
    kept = set(last.values())
    return [
        message
        for i, message in enumerate(messages)
        if message["type"] != "update_display_data" or i in kept
    ]


def make(sink, seen, files, quiet):
    """The view for these ranks."""
    view = (LabelledView if len(seen) > 1 else View)(sink, seen, files)
    return QuietView(view) if quiet else view
