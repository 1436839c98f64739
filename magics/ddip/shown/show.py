"""What a notebook shows of a cell's stream: a view of one rank or of several.

A view accepts messages (dictionaries from `cells/N/stream`); the sink draws. Lines are printed as
they arrive; text that may be redrawn, such as a progress bar, is in the live region below them.
Errors are only collected here; failures.py and run.py report them.
"""

from __future__ import annotations

import math
import time

from ddip.shown import labels
from ddip.shown.cleared import without_cleared
from ddip.shown.displays import Displays
from ddip.shown.limit import Limit
from ddip.shown.region import FRAME_S, Region
from ddip.shown.screen import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

    from ddip.shown.elapsed import Elapsed
    from ddip.shown.sink import Output


_PARTIAL_S = 0.2  # an incomplete line is shown after this long
_ROWS = 24  # last rows of a stream to show in the live region
_ROW_CHARS = 1000  # last characters of a row to show there
_TURN_S = 0.2  # displays wait this long for those of lower ranks
_NAMES = ("stdout", "stderr")


class View:
    """Shows the messages of the ranks in `seen`. files(rank, name): where to read a whole stream.

    progress: an Elapsed, whose line is shown below everything, or None. labelled: output is
    labelled with its rank even if there is only one.
    """

    told: Collection[int] = ()  # ranks whose exceptions it shows

    def __init__(
        self,
        sink: Output,
        seen: Iterable[int],
        files: Callable[[int, str], str],
        progress: Elapsed | None = None,
        labelled: bool = False,
    ) -> None:
        self.sink = sink
        self.seen = set(seen)
        self.errors: dict[int, dict[str, Any]] = {}  # rank -> the message of its exception
        # (rank, message) of results, shown at the end
        self.results: list[tuple[int, dict[str, Any]]] = []
        self._always = labelled
        self._files = files
        self._limit = Limit(files)
        self._lost = 0  # bytes that the mount had dropped before they were read
        self._region = Region(sink)
        self._progress = progress
        self._streams: dict[tuple[int, str], Stream] = {}
        # (rank, name) -> since when its last line has been incomplete
        self._partial: dict[tuple[int, str], float] = {}
        # display id -> the last update message, not yet shown
        self._updates: dict[str, dict[str, Any]] = {}
        self._displays: dict[int, Displays] = {}
        self._labelled: set[str] = set()  # display ids that have a rank's label above
        # displays that wait for those of lower ranks
        self._held: list[tuple[int, dict[str, Any]]] = []
        self._held_since = 0.0
        self._clears: set[int] = set()  # ranks whose next output replaces what they have shown
        self._changed = False  # the region needs a redraw
        self._drawn = 0.0
        self._kinds = {
            "stream": self._on_stream,
            "display_data": self._on_display,
            "update_display_data": self._on_update,
            "execute_result": self._on_result,
            "clear_output": self._on_clear,
        }

    @property
    def _several(self):
        """True if output must be labelled with its rank."""
        return self._always or len(self.seen) > 1

    def take(self, messages: list[dict[str, Any]]) -> None:
        """Shows a batch of messages; an empty one means that some time has passed."""
        for message in without_cleared(messages) if self.sink.redraws else messages:
            rank: Any = message.get("rank")
            if message["type"] == "dropped" and (rank is None or rank in self.seen):
                self._lost, self._changed = self._lost + message["bytes"], True
            elif message["type"] == "notice":
                self._region.add("stderr", f"ddip: {message['text']}\n")
                self._changed = True
            elif message["type"] == "error":
                self.errors[rank] = message
            elif rank in self.seen and message["type"] in self._kinds:
                if message["type"] != "display_data" and any(rank == k for k, _ in self._held):
                    self._show_held()
                self._kinds[message["type"]](rank, message)
                if self._progress is not None:
                    self._progress.moved()
        if time.monotonic() - self._drawn >= FRAME_S:
            self._draw()
        self.sink.flush()

    def closed(self, rank: int, widget: str) -> None:
        """A rank has closed the widget of this comm id, which goes, and so does its label."""
        self._show_held()
        if rank in self._displays:
            self._displays[rank].closed(widget)

    def patience(self) -> int | None:
        """Milliseconds until take([]) has something to do; None if it has nothing to do."""
        if not self.sink.redraws:
            return None
        frame = self._drawn + FRAME_S - time.monotonic()
        if self._changed or self._updates:
            wait = frame
        elif self._progress is not None:
            wait = max(frame, self._progress.patience())
        else:
            return None
        return max(0, math.ceil(wait * 1000))

    def reveal(self, rank: int, text: str) -> None:
        """Shows this rank too from now on; text: its last output so far."""
        if rank not in self.seen:
            self.seen.add(rank)
            self._on_stream(rank, {"name": "stdout", "text": text})

    def asks(self, rank: int, prompt: str) -> bool:
        """Handles a rank that waits for input; the input field shows its prompt, not the view.

        Returns True if the prompt has already been shown anyway.
        """
        if (rank, "stdout") in self._streams:
            self._streams[rank, "stdout"].drop(prompt)
        if self._region.waits:
            self._region.give_way()  # what is held belongs above the input field
        self._draw(partial=True)
        self.sink.flush()
        return not self.sink.redraws and not self._several

    def end(self) -> None:
        """Draws everything when the cell has ended, the results last."""
        self._show_held()
        self._draw_updates()
        for (rank, name), stream in sorted(self._streams.items()):
            line = "" if stream.is_redrawn else stream.take_line()
            if line and self._several:
                self._print_lines(rank, name, line + "\n")
            elif line:
                self._print(rank, name, line)
        for displays in self._displays.values():
            displays.end()
        text = "" if self._progress is None else self._progress.last_line(bool(self.errors))
        self._region.draw(self._text(partial=True) + text, last=True, failed=bool(self.errors))
        for rank, message in sorted(self.results, key=lambda item: item[0]):
            self._show_result(rank, message)
        self.sink.flush()

    # ---- drawing

    def _draw(self, partial=False):
        """Updates the displays; partial: including incomplete lines."""
        self._drawn = time.monotonic()
        if partial or self._drawn - self._held_since >= _TURN_S:
            self._show_held()
        self._draw_updates()
        if not self.sink.redraws:
            return
        for displays in self._displays.values():
            displays.draw()
        text = self._text(partial)
        if self._progress is not None:
            text += self._progress.line()
        self._region.draw(text)
        young = any(self._drawn - since < _PARTIAL_S for since in self._partial.values())
        self._changed = self._region.waits or young or bool(self._held)

    def _text(self, partial=False):
        """The text of the live region; partial: including new incomplete lines."""
        rows = []
        for (rank, name), stream in sorted(self._streams.items()):
            since = self._partial.get((rank, name), self._drawn)
            if stream.is_redrawn or partial or self._drawn - since >= _PARTIAL_S:
                mark = self._mark(rank)
                rows += [f"{mark}{row[-_ROW_CHARS:]}\n" for row in stream.rows()[-_ROWS:]]
        lost = f"… {self._lost:,} bytes of output are not kept any more\n" if self._lost else ""
        return lost + self._limit.tail() + "".join(rows)

    def _mark(self, rank):
        """The mark in front of a row of the live region."""
        if not self._several:
            return ""
        return labels.chip(rank) if self.sink.coloured else f"[{rank}] "

    def _draw_updates(self):
        updates, self._updates = self._updates, {}
        for name, message in updates.items():
            if not any(displays.has_cleared(name) for displays in self._displays.values()):
                self.sink.display(
                    message["data"], message.get("metadata"), message["transient"], update=True
                )

    # ---- text

    def _on_stream(self, rank, message):
        self._begin_output(rank)
        name, text = message["name"], message["text"]
        if not self.sink.redraws and not self._several:
            self._print(rank, name, text)  # a terminal handles overwriting itself
            return
        for other in _NAMES:
            if other != name and (rank, other) in self._streams:
                self._print_lines(rank, "stdout", self._streams[rank, other].settle_above())
        stream = self._streams.setdefault((rank, name), Stream())
        was_redrawn = stream.is_redrawn
        lines = stream.write(text)
        self._print_lines(rank, "stdout" if was_redrawn else name, lines)
        self._changed = True
        if stream.is_redrawn or not stream.rows():
            self._partial.pop((rank, name), None)
        elif lines or (rank, name) not in self._partial:
            self._partial[rank, name] = time.monotonic()

    def _print_lines(self, rank, name, lines):
        if lines and self._several:
            mark = f"[{rank}] "
            lines = mark + lines[:-1].replace("\n", "\n" + mark) + "\n"
            displays = self._displays.get(rank) if self.sink.redraws else None
            if displays is not None and displays.write(lines):
                self._changed = True
                return
        if lines:
            self._print(rank, name, lines)

    def _print(self, rank, name, text):
        fits = self._limit.admit(rank, name, text)
        if fits:
            self._region.add(name, text[:fits])
        self._changed = True

    # ---- displays

    def _on_display(self, rank, message):
        shown = message.get("transient", {}).get("display_id")
        if shown is None and message["data"].get("text/plain") == "":
            return  # it would be a label above nothing
        if self._several and self.sink.redraws:
            if not self._held:
                self._held_since = time.monotonic()
            self._held.append((rank, message))
            self._changed = True
        else:
            self._show_display(rank, message)

    def _show_held(self):
        """Shows the displays that wait, in the order of the ranks."""
        held, self._held = self._held, []
        for rank, message in sorted(held, key=lambda item: item[0]):
            self._show_display(rank, message)

    def _show_display(self, rank, message):
        shown = message.get("transient", {}).get("display_id")
        self._begin_output(rank)
        self._updates.pop(shown, None)
        bundle = message["data"], message.get("metadata")
        if not self._several:
            self._region.give_way()
            self.sink.display(*bundle, message.get("transient"))
        elif shown is None:
            self._displays_of(rank).show(*bundle)
        else:
            label = shown not in self._labelled
            self._labelled.add(shown)
            self._displays_of(rank).show_named(shown, *bundle, label=label)

    def _on_update(self, rank, message):
        self._updates[message["transient"].get("display_id")] = message

    def _on_clear(self, rank, message):
        self._clears.add(rank)
        if not message["wait"]:
            self._begin_output(rank, wait=False)

    def _begin_output(self, rank, wait=True):
        """Clears the rank's output if it has asked for that. wait: output follows."""
        if rank not in self._clears:
            return
        self._clears.remove(rank)
        self._draw_updates()
        for name in _NAMES:
            self._streams.pop((rank, name), None)
            self._partial.pop((rank, name), None)
        self._changed = True
        if self._several and self.sink.redraws:
            self._displays_of(rank).clear(wait)
        elif not self._several:
            self._region.forget()
            self._limit = Limit(self._files)
            self.sink.clear(wait)

    def _displays_of(self, rank):
        if rank not in self._displays:
            label = self._mark(rank).rstrip()
            self._displays[rank] = Displays(self.sink, label, self._region.give_way)
        return self._displays[rank]

    def _on_result(self, rank, message):
        self.results.append((rank, message))

    def _show_result(self, rank, message):
        self._begin_output(rank)
        label, data = labels.result(rank, message["execution_count"], message["data"])
        if label:
            self.sink.write("stdout", label)
        self.sink.display(data, message.get("metadata"))
