"""What one worker of ranch() does: imported in the notebook, run as the source of a cell on a rank.

So this file stands alone and must not import anything from this package.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from textwrap import dedent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables within the context."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def call(
    plan: dict[str, Any], rank: int, env: Mapping[str, str] | Iterable[tuple[str, str]] = ()
) -> Any:
    """Runs the plan's function as this rank, with these variables. Returns its result."""
    names = sys.modules["__main__"].__dict__
    names.update(plan["need"])
    exec(compile(dedent(plan["imports"]), "<imports>", "exec"), names)
    numbers = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(plan["nprocs"])}
    with environment(dict(env, **numbers)), plan["ctx"] or contextlib.nullcontext():
        return plan["fn"](*plan["args"], **plan["kwargs"])


def work(names: dict[str, Any]) -> None:
    """Runs the pushed plan on a rank; leaves the result or the failure in variables."""
    paths, data, buffers = names.pop("ddip_plan")
    sys.path.extend(path for path in paths if path not in sys.path)
    try:
        plan = pickle.loads(data, buffers=buffers)
        result = call(plan, names["rank"])
        names["ddip_result"] = result if plan["gather"] else None
    except BaseException as e:
        own = e.__traceback__
        while own is not None and own.tb_frame.f_globals is globals():
            own = own.tb_next
        text = "".join(traceback.format_exception(type(e), e, own))
        names["ddip_error"] = (e if _can_travel(e) else None, text)
        raise e.with_traceback(own) from None


def _can_travel(error):
    """True if an exception survives pickling: many lose arguments of their __init__."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # its class may do anything
        return False
