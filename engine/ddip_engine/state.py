"""What all of the engine's Python shares: the rank's numbers, the namespace, the error type.

It has no behaviour of its own, and imports only the standard library, so that every other module
may import it.
"""

from __future__ import annotations

import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

rank = 0  # numbers as torchrun names them, set by Tinit
size = 1
local_rank = 0
local_size = 1
generation = 0  # of the process group: grows with each rebuild
cell = 0  # number of the last cell that was started
entered = 0  # the same, but of one whose clocks count
running = False  # a cell
interrupts = 0  # how many were raised in cells
cell_file: str | None = None  # the name of the running cell in tracebacks
failed = 0  # number of the last cell that left a traceback, sys.last_traceback
cleared = 0  # number of the last cell whose traceback has lost the variables of its frames
external = ""  # the ranks of this group that are other programs' processes, like "1,3"
autogc = True  # free memory after each cell
OPTIMIZER, FORWARD, COLLECTIVE, ANY = range(4)  # enum clock of wire.h
clock: int | None = None  # that counts the steps, see steer.py; None: the best that ticks
host = ""  # this host's name in `hosts`; "": the group names none
fixed_cwd = ""  # the directory of programs, on a named host; "": the caller's
settings_env: dict[str, str] = {}  # the group's `env` settings
engine_env: dict[str, str] = {}  # what the engine set in the environment of this rank
default_env: dict[str, str] = {}  # the same, unless the variable is set otherwise
torch_error = ""  # why torch, which is installed, cannot be imported
pid = os.getpid()  # of the engine process; a child that user code forked has another one

main = sys.modules["__main__"]  # the user's namespace, once fresh_main() has made it
first_names: dict[str, Any] = {}  # __name__ and the like, as they are in an empty namespace
engine_names: dict[
    str, Any
] = {}  # what the engine itself put into that namespace: hidden while unchanged


class EngineError(Exception):
    """A request that cannot be met: an errno for the caller, a text that explains it, and
    what to show in place of a traceback."""

    def __init__(self, errno: int, text: str, trace: str = "") -> None:
        super().__init__(text)
        self.errno, self.trace = errno, trace


class Cancelled(BaseException):
    """Raised in code that serves a request whose reply is no longer wanted."""


def run_path(name: str) -> str:
    """The path of this name in the group's directory on this host, which the agent made known."""
    return os.path.join(engine_env.get("DDIP_RUN_DIR", ""), name)


def fresh_main() -> None:
    """Makes an empty `__main__` and installs it; the old module stays alive (it may be running)."""
    global main
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules.setdefault("_ddip_first_main", sys.modules["__main__"])
    sys.modules["__main__"] = main = module


def name_numbers() -> None:
    """Defines rank, local_rank and world_size in the user's namespace."""
    put(rank=rank, local_rank=local_rank, world_size=size)


def put(**names: Any) -> None:
    """Defines names in the user's namespace as the engine's own, so that they are not listed."""
    main.__dict__.update(names)
    engine_names.update(names)


def take(names: Mapping[str, Any]) -> dict[str, Any]:
    """Removes those of these names that still have their values from `__main__`. Returns them."""
    own = main.__dict__
    return {name: own.pop(name) for name, v in names.items() if name in own and own[name] is v}


def give_back(module: types.ModuleType, names: Mapping[str, Any]) -> None:
    """Defines these names again in a module, except those that have been bound since."""
    for name, value in names.items():
        module.__dict__.setdefault(name, value)
