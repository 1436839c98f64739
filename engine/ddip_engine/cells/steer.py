"""Steering: runs a source in the main thread within a running cell, at one step on all ranks.

The daemon (fs/group/steer.h) has the steps agreed on. Tsteer arms the ticks: the main thread does
not pass the next one before an Nsteer has said at which step the source runs. At that step it
waits (Nsteered) until all ranks do, and runs the source at Tsteerrun. An Nsteer of step 0
withdraws it. A wait ends only by the daemon's word, so that no rank goes on while others run the
source: an interrupt that comes meanwhile is told to the daemon, and raised afterwards.

A watch (fs/group/watch.h) is armed the same way. From its step on, its expression is evaluated at
each tick, which is passed at an Nwatch. A steer that comes while the main thread waits there may
run at this tick.
"""

from __future__ import annotations

import collections
import contextlib
import errno
from _thread import allocate_lock  # by name, before a program's gevent puts its own in its place

import _ddip
from ddip_engine import raised, state
from ddip_engine.cells import cell as cells
from ddip_engine.cells import digest, run, saved, spliced, streams
from ddip_engine.data import frames, gpu, table
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ddip_engine.cells.cell import Cell, Ended, Interruptible

    Told = tuple[int, bytes, str, bytes, bytes, bytes, int]  # the fields of Rsteerrun

_SENT_S = 5.0  # in which a service thread sends what it has been given
_LOOK_S = 0.5  # between two looks whether a signal is to be handled

FALSE, TRUE, FAILED = range(3)  # enum watched of wire.h

_LAST = 64  # numbers that are kept: a message is not late by as many cells

_steer: _Steer | None = None  # that ticks ask for; None: none
_watch: _Watch | None = None  # the same
# numbers of steers and watches
_withdrawn: collections.deque[int] = collections.deque(maxlen=_LAST)
_over: collections.deque[int] = collections.deque(maxlen=_LAST)  # cells that have ended
_in_tick = False  # the main thread is in ticked()


class _Awaited:
    """What the main thread waits for at a tick."""

    def __init__(self, number: int, source: bytes) -> None:
        """Raises SyntaxError."""
        self.cell = cells.Cell(number, source)
        if self.cell.argv is not None or self.cell.program:
            raise SyntaxError("a program can't be run within a cell")
        if self.cell.frame is not None:
            raise SyntaxError("a frame of a failure is for a cell of its own")
        self.source: spliced.Source | None = None
        if not self.cell.saved:
            cells.remember_source(self.cell.file, self.cell.source)
            self.source = spliced.Source(self.cell.source, self.cell.file)
        self.clock: int | None = None  # agreed on; None: not yet
        self.step: int | None = None  # the same
        self.ended = self.asked = False
        self.changed = allocate_lock()  # released when one of these has changed
        self.changed.acquire()

    def wake(self) -> None:
        """Lets the main thread look at what has changed."""
        with contextlib.suppress(RuntimeError):  # another thread has released it
            self.changed.release()

    def wants_on(self) -> None:
        """The main thread has been interrupted."""
        if not self.asked:
            self.asked = True
            _ddip.notify("Nsteered", self.cell.number, state.ANY, 0)

    def end(self) -> None:
        """It is withdrawn, or has run."""
        global _steer, _watch
        self.ended = True
        if _steer is self:
            _steer = None
        if _watch is self:
            _watch = None
        _arm()
        self.wake()

    def leave(self) -> None:
        """The main thread does not wait for it any more."""
        self.end()


class _Steer(_Awaited):
    """A source that is to run within the running cell."""

    def __init__(self, number: int, source: bytes) -> None:
        super().__init__(number, source)
        self.goes = self.waits = False
        self.outcome: Told | EngineError | None = None  # None: it has not run
        self.done, self.sent = allocate_lock(), allocate_lock()
        self.done.acquire()
        self.sent.acquire()

    def wait(self, tick: _Tick) -> None:
        """Returns when the main thread may go on. Runs the source if this is its step."""
        function: Callable[[Cell], Ended] | None = None
        while not self.ended:
            if self.step is not None:
                if self.clock != state.ANY and (self.clock != tick.clock or tick.count < self.step):
                    return
                if not self.waits:
                    self.waits = True
                    _ddip.notify("Nsteered", self.cell.number, tick.clock, tick.count)
                    frame, source = spliced.users_frame(), self.source
                    function = spliced.function(source, frame) if source else saved.function(frame)
            if self.goes:
                assert function is not None  # since it waits
                self.run(function, tick)
                return
            tick.block(self)

    def run(self, function: Callable[[Cell], Ended], tick: _Tick) -> None:
        """Runs the source, and hands its outcome to the thread that is in run_now()."""
        figures, earlier = streams.figures, digest.before()
        ended, stray = run.within(self.cell, function)
        tick.error = tick.error or stray
        try:
            if raised.is_a(ended.error, EngineError):
                self.outcome = ended.error  # type: ignore[assignment]  # is one
            else:
                self.outcome = self.told(ended, earlier)
        except Exception as e:  # of ours, or of an object of the user's that misbehaves
            self.outcome = run.RAISED, b"", run.one_line(e), b"", table.text(False), b"", 0
        streams.figures += figures
        self.end()
        self.done.release()
        try:
            self.sent.acquire(timeout=_SENT_S)  # lets go of the GIL, so that the answer is not late
        except BaseException as e:  # a signal handler of the program's
            tick.error = tick.error or e

    def told(self, ended: Ended, earlier: digest.Snapshot | None) -> Told:
        """earlier: from digest.before()."""
        if ended.error is not None:
            cells.trim(ended.error, self.cell)
        outcome, value, error, trace, about = run.told(self.cell, ended, earlier)
        ended.error = None  # frames of the traceback refer to it
        streams.flush()
        gpu.mark()
        return outcome, value, error, trace, table.text(False), about, 0

    def leave(self) -> None:
        """The same; a thread in run_now() does not wait any more, either."""
        self.end()
        if self.done.locked():
            self.done.release()


class _Watch(_Awaited):
    """An expression that is evaluated at each step."""

    def __init__(self, number: int, source: bytes) -> None:
        super().__init__(number, source)
        if self.source is None:
            raise SyntaxError("want one expression")
        self.condition = spliced.Condition(self.source)
        self.passes = False  # the main thread may pass the tick at which it waits
        self.at: int | None = None  # the clock of that tick
        self.has_worked = False

    def wait(self, tick: _Tick, within: Interruptible) -> None:
        """Returns when the main thread may go on. within: the running cell."""
        if self.step is None or not self._counts(tick):
            while self.step is None and not self.ended:
                tick.block(self)
            if self.ended or not self._counts(tick):
                return
        what, where, text = self._evaluate(within)
        if self.ended:
            return
        self.passes, self.at = False, tick.clock
        _ddip.notify("Nwatched", self.cell.number, tick.clock, tick.count, what, where, text)
        while not self.ended and not self.passes:
            tick.block(self)
            _steer_at(tick)
        self.at = None
        _steer_at(tick)  # it may have been told that this tick is not passed

    def _counts(self, tick: _Tick) -> bool:
        """Is this a step? Of the clock that is set, else the best so far, from the step on that
        was agreed on."""
        worse = any(tick.ticks[: tick.clock]) if state.clock is None else tick.clock != state.clock
        if self.step is None or worse:
            return False
        return self.clock != tick.clock or tick.count >= self.step

    def _evaluate(self, within: Interruptible) -> tuple[int, str, str]:
        """(what it is, where, of what error)."""
        frame, what, text = spliced.users_frame(), FALSE, ""
        try:
            with within.code():
                within.raise_held()
                what = TRUE if self.condition.value(frame) else FALSE
            self.has_worked = True
        except Exception as e:
            what, text = (FALSE, "") if self.has_worked else (FAILED, run.one_line(e))
        return what, frames.place(frame) if frame else "", text


class _Tick:
    """One tick of the main thread."""

    def __init__(self, clock: int, cell: Interruptible) -> None:
        self.clock, self.ticks = clock, _ddip.arm(None)[: state.ANY]
        self.cell = cell
        self.count = self.ticks[clock]
        # of a signal handler of the program's, while it waited
        self.error: BaseException | None = None

    def block(self, awaited: _Awaited) -> None:
        """Waits until something has changed for it."""
        if self.cell.held is not None or self.error is not None:
            awaited.wants_on()
        try:
            # Python runs no handler of a signal that came just before the call until that returns
            while not awaited.changed.acquire(timeout=_LOOK_S):
                pass
        except BaseException as e:  # a signal handler of the program's
            if self.error is not None:
                raise
            self.error = e
            _want_on()


def _steer_at(tick: _Tick) -> None:
    if (steer := _steer) is not None:  # once: a service thread may end it meanwhile
        steer.wait(tick)


def _arm() -> None:
    _ddip.arm(_steer is not None or _watch is not None)


def _both() -> list[_Awaited]:
    return [each for each in (_steer, _watch) if each is not None]


def _want_on() -> None:
    for each in _both():
        each.wants_on()


# ---- messages, in service threads: those that come together may be taken in any order


def arm(fd: int, cell: int, number: int, watches: int, source: bytes) -> tuple[int, ...]:
    """Tsteer."""
    global _steer, _watch
    try:
        awaited: _Watch | _Steer = _Watch(number, source) if watches else _Steer(number, source)
    except SyntaxError as e:
        lines = "".join(raised.only(e))
        raise EngineError(errno.ENOEXEC, run.one_line(e), lines) from None
    earlier = _watch if watches else _steer
    if earlier is not None and earlier.cell.number > number:  # this one is late
        raise EngineError(errno.ECANCELED, "withdrawn")
    if isinstance(awaited, _Watch):
        _watch = awaited
    else:
        _steer = awaited
    if earlier is not None:  # the Nsteer that withdraws it is on its way
        earlier.end()
    _ddip.arm(True)
    # only now: what is noted from here on is also told to this one
    if cell in _over:
        awaited.end()
        return 0, 0, 0, 0, 0
    if number in _withdrawn:
        awaited.end()
        raise EngineError(errno.ECANCELED, "withdrawn")
    begun = state.entered == cell
    *ticks, us = _ddip.arm(None)
    if not begun:  # these are of the cell before it
        return 1, 0, 0, 0, 0
    watch = _watch
    if not watches and watch is not None:
        if (at := watch.at) is not None:  # this tick is not passed
            ticks[at] -= 1
        watch.wake()
    return 1, *ticks, us


def _named(number: int) -> _Awaited | None:
    return next((each for each in _both() if each.cell.number == number), None)


def decide(fd: int, number: int, clock: int, step: int) -> None:
    """Nsteer."""
    if not step:
        _withdrawn.append(number)
    awaited = _named(number)
    if awaited is not None and step:
        awaited.clock, awaited.step = clock, step
        awaited.wake()
    elif awaited is not None:
        awaited.end()


def let_pass(fd: int, number: int) -> None:
    """Nwatch."""
    watch = _watch
    if watch is not None and watch.cell.number == number:
        watch.passes = True
        watch.wake()


def run_now(fd: int, number: int) -> Told:
    """Tsteerrun: the main thread waits at the step."""
    steer = _steer
    if steer is None or steer.cell.number != number:
        raise EngineError(errno.ECANCELED, "the cell does not wait for it any longer")
    steer.goes = True
    steer.wake()
    steer.done.acquire()
    steer.sent.release()
    if steer.outcome is None:
        raise EngineError(errno.EINTR, "the cell was interrupted twice while it waited")
    if isinstance(steer.outcome, EngineError):
        raise steer.outcome.with_traceback(None)
    return steer.outcome


# ---- main thread


def ticked(clock: int) -> None:
    """A clock has ticked while it is armed. What a steer, an expression or a signal handler does
    meanwhile makes no steps."""
    global _in_tick
    cell = run.current()
    if cell is None or _in_tick or not _both():
        return
    tick, held = _Tick(clock, cell), cell.in_code
    cell.in_code = False
    cell.on_held = _want_on  # type: ignore[method-assign]  # has the same form
    try:
        _in_tick = True
        _steer_at(tick)
        if (watch := _watch) is not None:
            watch.wait(tick, cell)
    except BaseException:  # interrupted twice, or in the expression
        for each in _both():
            each.wants_on()
            each.leave()
        raise
    finally:
        _in_tick = False
        cell.in_code = held
        del cell.on_held
    cell.raise_held()
    if tick.error is not None:
        raise tick.error


def cell_ended(cell: int) -> None:
    """Nothing can run within it."""
    _over.append(cell)
    for each in (_steer, _watch):
        if each is not None:
            each.leave()
