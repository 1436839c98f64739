# `ddip_engine.interrupts`, for mypy: the engine is built with the magics' module.

from ddip.interrupts import PeerFailed as PeerFailed
from ddip.interrupts import Preempted as Preempted
from ddip.interrupts import Restarted as Restarted
from ddip.interrupts import Stopped as Stopped
from ddip.interrupts import Timeout as Timeout
from ddip.interrupts import error as error

__all__: list[str]
