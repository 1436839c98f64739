"""`%dip --debug all`: breakpoints stop all ranks, which go on and step together.

The front end sees one of them, the first that is stopped: its frames and variables. What it sets
goes to all ranks, and what makes that one go on to all that are stopped.
"""

from __future__ import annotations

import asyncio

from ddip.notebook.link import Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ddip.groups import Group


_TOGETHER_S = 2.0  # how long ranks that are not stopped yet are waited for
_MOVES = ("continue", "next", "stepIn", "stepOut")
_SETS = ("setBreakpoints", "setExceptionBreakpoints", "setFunctionBreakpoints")


class Links(Link):
    """A Link to one rank, and if `every` is true to all others, too."""

    def __init__(self, tell: Callable[[dict[str, Any]], object]) -> None:
        super().__init__(lambda event: self._take_event(self, event))
        self._front = tell
        self.every = False
        self._others: dict[int, Link] = {}  # by rank
        self._stops: dict[Link, dict[str, Any]] = {}  # the event of each that is stopped
        self._shown: Link | None = None  # the one whose stop the front end has been told
        self._late: set[Link] = set()  # waited for in vain, as in a collective; until they stop
        self._moves: Link | None = None  # the one that was shown before the last move
        self._settles: asyncio.Task[None] | None = None
        self._news: set[asyncio.Event] = set()  # those that are set when a rank stops
        self._runs = False  # a cell does

    # ---- connecting

    def connect(self, group: Group) -> None:
        """See Link."""
        super().connect(group)
        ranks = [rank for rank in range(group.size) if self.every and rank != self.rank]
        for rank in [*self._others]:
            if rank not in ranks:
                self.do(self._others.pop(rank).close)
        for rank in ranks:
            if rank not in self._others:
                self._others[rank] = self._link(rank)
            self._others[rank].connect(group)

    def _link(self, rank):
        made = Link(lambda event: self._take_event(made, event))
        made.rank = rank
        made.share(self._loop, self._kept, self._cells)
        return made

    def disconnect_tcp_socket(self) -> None:
        """See Link."""
        super().disconnect_tcp_socket()
        for link in self._others.values():
            link.close()
        self.ended()

    async def begun(self, cells: dict[str, str]) -> None:
        """A cell is about to run, see name()."""
        self._runs = True
        for link in (self, *self._others.values()):
            await link.name(cells)

    @property
    def told(self) -> int:
        """The rank that the front end is shown."""
        return (self._shown or self).rank

    def ended(self) -> None:
        """The cell has ended: nothing is stopped."""
        if self._settles is not None:
            self._settles.cancel()
        self._stops.clear()
        self._late.clear()
        self._shown = self._settles = None
        self._runs = False

    # ---- what the front end asks

    async def send_dap_request(self, request: dict[str, Any]) -> dict[str, Any]:
        """See Link."""
        command, shown = request["command"], self._shown or self
        if not self._others:
            return await super().send_dap_request(request)
        if command in _MOVES and self._stops:
            return await self._move(request, shown)
        if command in _SETS:
            await asyncio.gather(*(link.ask(request) for link in self._others.values()))
        if shown is self or command in _SETS:
            return await super().send_dap_request(request)
        return await shown.ask(request)

    async def _move(self, request, shown):
        await self._together()
        moved, self._moves, self._shown = [*self._stops], shown, None
        self._stops.clear()
        others = [link.ask(request) for link in moved if link is not shown]
        return (await asyncio.gather(shown.ask(request), *others))[0]

    # ---- what the ranks tell

    def _take_event(self, link, event):
        if not self._others:
            self._front(event)
        elif event["event"] == "stopped":
            if not self._runs:  # it stopped while its cell was ended
                return
            self._stops[link] = event
            self._late.discard(link)
            for news in self._news:
                news.set()
            if self._shown is None and self._settles is None:
                self._settles = asyncio.ensure_future(self._settle())
        elif link is (self._moves if event["event"] == "continued" else self):
            self._front(event)

    async def _settle(self):
        """Tells the front end of a stop when all ranks have stopped, or some time later."""
        await self._together()
        self._settles = None
        if self._stops:
            self._shown = min(self._stops, key=lambda link: link.rank)
            self._front(self._stops[self._shown])

    async def _together(self):
        end = asyncio.get_running_loop().time() + _TOGETHER_S
        news = asyncio.Event()
        self._news.add(news)
        try:
            while self._awaited():
                news.clear()
                left = end - asyncio.get_running_loop().time()
                await asyncio.wait_for(news.wait(), max(left, 0))
        except asyncio.TimeoutError:
            self._late |= self._awaited()
        finally:
            self._news.discard(news)

    def _awaited(self):
        return {self, *self._others.values()} - self._stops.keys() - self._late
