"""Steering: runs a source in the main thread within a running cell, at one step on all ranks.

The daemon (fs/group/steer.h) has the steps agreed on. Tsteer arms the ticks: the main thread does
not pass the next one before an Nsteer has said at which step the source runs. At that step it
waits (Nsteered) until all ranks do, and runs the source at Tsteerrun. An Nsteer of step 0
withdraws it. A wait ends only by the daemon's word, so that no rank goes on while others run the
source: an interrupt that comes meanwhile is told to the daemon, and raised afterwards.
"""

import errno
import traceback
from _thread import allocate_lock  # by name, before a program's gevent puts its own in its place

import _ddip
from ddip_engine import cell as cells
from ddip_engine import digest, gpu, run, saved, spliced, state, streams, table
from ddip_engine.state import EngineError

OPTIMIZER, FORWARD, COLLECTIVE, ANY = range(4)  # enum clock of wire.h
_SENT_S = 5.0  # in which a service thread sends what it has been given

_armed = None  # the Steer that ticks ask for; None: none
_withdrawn = 0  # the highest number that was withdrawn: it may come before its Tsteer is answered


class _Steer:
    """A source that is to run within the running cell."""

    def __init__(self, number, source):
        """Raises SyntaxError."""
        self.cell = cells.Cell(number, source)
        if self.cell.argv is not None or self.cell.program:
            raise SyntaxError("a program can't be run within a cell")
        self.source = None
        if not self.cell.saved:
            cells.remember_source(self.cell.file, self.cell.source)
            self.source = spliced.Source(self.cell.source, self.cell.file)
        self.clock = self.step = None  # agreed on; None: not yet
        self.goes = self.ended = self.waits = False
        self.error = None  # of a signal handler of the program's, while it waited
        self.changed = allocate_lock()  # released when one of the above has changed
        self.changed.acquire()
        self.outcome = None  # the fields of Rsteerrun
        self.done, self.sent = allocate_lock(), allocate_lock()
        self.done.acquire()
        self.sent.acquire()

    def wake(self):
        if self.changed.locked():
            self.changed.release()

    def wants_on(self):
        """The main thread has been interrupted."""
        _ddip.notify("Nsteered", self.cell.number, ANY, 0)

    def wait(self, clock, count):
        """Returns when the main thread may go on. Runs the source if this is its step."""
        function = None
        while not self.ended:
            if self.step is not None:
                if self.clock != ANY and (self.clock != clock or count < self.step):
                    return
                if not self.waits:
                    self.waits = True
                    _ddip.notify("Nsteered", self.cell.number, clock, count)
                    make = spliced.function if self.source else saved.function
                    function = make(self.source, spliced.users_frame())
            if self.goes:
                self.run(function)
                return
            try:
                self.changed.acquire()
            except BaseException as e:  # a signal handler of the program's
                if self.error is not None:
                    raise
                self.error = e
                self.wants_on()

    def run(self, function):
        _ddip.arm(False)
        figures, earlier = streams.figures, digest.before()
        ended = run.within(self.cell, function)
        try:
            refused = isinstance(ended.error, EngineError)
            self.outcome = ended.error if refused else self.told(ended, earlier)
        except Exception as e:  # of ours, or of an object of the user's that misbehaves
            self.outcome = run.RAISED, b"", run.one_line(e), b"", table.text(False), b"", 0
        streams.figures += figures
        self.end()
        self.done.release()
        try:
            self.sent.acquire(timeout=_SENT_S)  # lets go of the GIL, so that the answer is not late
        except BaseException as e:  # a signal handler of the program's
            self.error = self.error or e

    def told(self, ended, earlier):
        if ended.error is not None:
            cells.trim(ended.error, self.cell)
        told = run.told(self.cell, ended)
        about = digest.text(earlier, ended.error, run.one_line)
        ended.error = None  # frames of the traceback refer to it
        streams.flush()
        gpu.mark()
        return *told, table.text(False), about, 0

    def leave(self):
        self.end()
        if self.done.locked():
            self.done.release()

    def end(self):
        """It is withdrawn, or has run."""
        global _armed
        self.ended = True
        if _armed is self:
            _armed = None
            _ddip.arm(False)
        self.wake()


# ---- messages, in service threads


def arm(fd, cell, number, source):
    """Tsteer."""
    global _armed
    try:
        steer = _Steer(number, source)
    except SyntaxError as e:
        lines = "".join(traceback.format_exception_only(type(e), e))
        raise EngineError(errno.ENOEXEC, run.one_line(e), lines) from None
    if not state.running or state.cell != cell:
        return 0, 0, 0, 0, 0
    if number <= _withdrawn:
        raise EngineError(errno.ECANCELED, "withdrawn")
    _armed = steer
    return 1, *_ddip.arm(True)


def decide(fd, number, clock, step):
    """Nsteer."""
    global _withdrawn
    steer = _armed
    if not step:
        _withdrawn = max(_withdrawn, number)
    if steer is None or steer.cell.number != number:
        return
    if step:
        steer.clock, steer.step = clock, step
        steer.wake()
    else:
        steer.end()


def run_now(fd, number):
    """Tsteerrun: the main thread waits at the step."""
    steer = _armed
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


def ticked(clock):
    """A clock has ticked while it is armed."""
    steer, cell = _armed, run.current()
    if steer is None or cell is None:
        return
    count = _ddip.arm(None)[clock]
    in_code, cell.in_code, cell.on_held = cell.in_code, False, steer.wants_on
    try:
        steer.wait(clock, count)
    except BaseException:  # interrupted twice: what it waits for hangs
        steer.leave()
        raise
    finally:
        cell.in_code = in_code
        del cell.on_held
    cell.raise_held()
    if steer.error is not None:
        raise steer.error


def cell_ended():
    """The running cell has ended: nothing can run within it."""
    if (steer := _armed) is not None:
        steer.end()
