"""The exceptions that interrupts raise in cells, each named after its cause.

All are KeyboardInterrupt, so a handler for that sees every one. The engine has this file as well:
it raises them, and what `import ddip` offers on a rank are its classes.
"""

from __future__ import annotations


class Timeout(KeyboardInterrupt):
    """The cell ran longer than the group's `timeout`."""


class PeerFailed(KeyboardInterrupt):
    """The cell failed on another rank, which this one waited for, or `grace` is over."""


class Stopped(KeyboardInterrupt):
    """The group is being stopped."""


class Restarted(Stopped):
    """The group is being restarted."""


class Preempted(KeyboardInterrupt):
    """The hosts of this cell are about to be taken away: it is time to write a checkpoint."""


# In the order of enum interrupt_why (wire.h), from WHY_TIMEOUT on; others are KeyboardInterrupt.
_SAID = {
    Timeout: "the cell ran longer than the group's timeout",
    PeerFailed: "the cell failed on another rank",
    Stopped: "the group was stopped",
    Restarted: "the group was restarted",
    Preempted: "the cluster is about to end this job (on_preempt)",
}

__all__ = [kind.__name__ for kind in _SAID]
for _kind in _SAID:
    _kind.__module__ = "ddip"


def error(why: int) -> KeyboardInterrupt:
    """The exception to raise. why: an int, enum interrupt_why."""
    if not 0 < why <= len(_SAID):
        return KeyboardInterrupt()
    kind, said = list(_SAID.items())[why - 1]
    return kind(said)
