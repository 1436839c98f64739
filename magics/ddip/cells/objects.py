"""Moves objects between the notebook and the ranks: `vars/NAME.p5`, piece by piece."""

from __future__ import annotations

import errno
import os
import pickle
import time

from ddip import p5
from ddip.cells import functions
from ddip.errors import DipError
from ddip.mounts import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ddip.groups import Group


def dump(value: Any, name: str) -> tuple[memoryview, list[memoryview]]:
    """(pickle, buffers) of an object. name: what errors call it. Raises DipError."""
    try:
        return p5.dump(value, functions.reduce)
    except Exception as e:  # pickling runs methods of arbitrary objects
        where, part, why = p5.culprit(value, name, e, functions.reduce)
    text = f"{where} ({type(part).__name__}) cannot be pickled: {why}"
    if p5.base() is pickle.Pickler and getattr(type(part), "__module__", "") == "__main__":
        text += "; with cloudpickle installed, classes of the notebook travel too"
    raise DipError(text)


def push(
    group: Group, name: str, value: Any, rank: int | None = None, op: str | None = None
) -> None:
    """Sets a variable on all ranks or on one; with an OP, on each rank to that rank's part.

    Raises DipError, which says what cannot be pickled.
    """
    if not name.isidentifier():
        raise DipError(f"'{name}' is not a valid variable name")
    pickled, buffers = dump(value, name)
    since = time.time()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with files.open_(_path(group, name, rank, op), flags) as file:
            p5.write(lambda data: files.write_all(file, data), pickled, buffers)
            file.fsync()
    except OSError as e:
        raise group.error_from(e, f"push {name}", since) from e


def _path(group, name, rank, op):
    folder, slash, _ = name.partition("/")
    if not slash or folder.partition(".")[0] != "locals":  # `locals/NAME`: of the code that runs
        name = f"vars/{name}"
    where = "" if rank is None else f"rank{rank}"
    return os.path.join(group.path, where, f"{name}.{op}.p5" if op else f"{name}.p5")


def pull(group: Group, name: str, rank: int | None = 0, op: str | None = None) -> Any:
    """The object of that name on a rank; with an OP (and rank None), the OP over all ranks.

    Raises DipError.
    """
    since = time.time()
    place = f"rank {rank}" if op is None else "all ranks"
    try:
        with files.open_(_path(group, name, rank, op)) as file:
            pickled, buffers = p5.read(file)
    except FileNotFoundError:
        raise DipError(f"there is no variable {name} on {place}") from None
    except OSError as e:
        if e.errno == errno.ESRCH:
            raise DipError("no ranks run: %makedip starts them") from e
        raise group.error_from(e, f"pull {name} from {place}", since) from e
    except p5.Malformed as e:
        raise DipError(f"pull {name} from {place}: {e}") from None
    try:
        return pickle.loads(pickled, buffers=buffers)
    except Exception as e:  # unpickling imports what the pickle names
        raise DipError(f"{name} cannot be unpickled here: {type(e).__name__}: {e}") from e
