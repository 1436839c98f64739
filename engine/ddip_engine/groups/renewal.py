"""Gives the existing process groups new connections, in the same objects: what holds them stays
whole. Torch can do that from 2.14 on, so far tried with gloo only.

All ranks must do it, or none: each says in the store which groups it has.
"""

from __future__ import annotations

import json
from datetime import timedelta

from ddip_engine import patches, state
from ddip_engine.groups import rendezvous

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Found = dict[str, tuple[Any, list[int], Any]]  # what _candidates() returns

_WAIT = timedelta(seconds=60)  # for the other ranks, which were all there a moment ago
_failed = False  # torch could not do it once


def renew(c10d: Any, devices_of: Callable[[Any], dict[str, str]], may: bool) -> list[Any]:
    """Renews the groups that all of their ranks have. Returns them; an empty list, with nothing
    changed, if the default group cannot be renewed on all ranks. Waits for the other ranks.

    devices_of(group): maps devices to the backends that serve them; may: False if this rank's
    default group is not to be kept.
    """
    global _failed
    if not rendezvous.has_store() or state.size == 1:
        return []
    found = {}
    with patches.RECONFIGURE:
        found = _candidates(c10d, devices_of) if may and not _failed else {}
    offers = _exchange(found)
    wanted = _agreed(found, offers)
    try:
        for name in wanted:
            group, ranks, _ = found[name]
            _reconnect(group, [offers[rank]["groups"][name][1] for rank in ranks])
    except BaseException:
        _failed = True
        raise
    return [found[name][0] for name in wanted]


def _candidates(c10d: Any, devices_of: Callable[[Any], dict[str, str]]) -> Found:
    """Maps names to (group, its ranks, its handle) of the groups that torch can renew; empty if the
    default group is none of them."""
    found: Found
    found, ranks_of = {}, patches.GROUP_RANKS.get()
    if ranks_of is None or patches.RECONFIGURE_OPTIONS.get() is None:
        return found
    for group, (_, store) in patches.PG_MAP.get({}).items():
        official = patches.RECONFIGURE.of(group) is not None and group.supports_reconfigure
        if official and set(devices_of(group).values()) == {"gloo"} and _answers(store):
            found[group.group_name] = group, ranks_of(group), group.get_reconfigure_handle()
    default = c10d.GroupMember.WORLD
    return found if any(group is default for group, _, _ in found.values()) else {}


def _answers(store: Any) -> bool:
    try:
        store.check(["ddip"])
    except (OSError, RuntimeError):  # its connection was ended to free this rank
        return False
    return True


def _exchange(found: Found) -> list[dict[str, Any]]:
    """What each rank has: `groups`, a map of names to (ranks, handle), and `count`, from which
    torch makes the names of later groups."""
    mine = {
        "groups": {name: (ranks, handle) for name, (_, ranks, handle) in found.items()},
        "count": getattr(patches.WORLD.get(), "group_count", None),
    }
    key = f"renewal/{state.generation}"
    rendezvous.store_set(f"{key}/{state.rank}", json.dumps(mine).encode())
    return [json.loads(rendezvous.store_get(f"{key}/{rank}")) for rank in range(state.size)]


def _agreed(found: Found, offers: list[dict[str, Any]]) -> list[str]:
    """The names of the groups that all of their ranks have, in the same order on each rank: all
    or, if one has not the default group or names later groups otherwise, none."""
    if any(not each["groups"] for each in offers) or len({each["count"] for each in offers}) > 1:
        return []

    def is_whole(name: str, ranks: Iterable[int]) -> bool:
        return all(offers[r]["groups"].get(name, (None,))[0] == ranks for r in ranks)

    return sorted(name for name, (_, ranks, _) in found.items() if is_whole(name, ranks))


def _reconnect(group: Any, handles: list[Any]) -> None:
    options = patches.RECONFIGURE_OPTIONS.get()()
    options.uuid, options.handles, options.timeout = state.generation, handles, _WAIT
    group.reconfigure(options).wait()
