#!/usr/bin/env python3
"""Process groups are renewed on all of their ranks or on none. Only torch 2.14 and newer can do it:
cells/fail does it there; here a store and groups stand in for its own."""

import json
import sys
import types
import unittest
from unittest import mock

import engine_sources  # noqa: F401

sys.modules["_ddip"] = mock.Mock()

from ddip_engine import state  # noqa: E402
from ddip_engine.groups import renewal  # noqa: E402


class Group:
    supports_reconfigure = True

    def __init__(self, name, ranks):
        self.group_name, self.ranks, self.done = name, ranks, []

    def get_reconfigure_handle(self):
        return f"handle of {self.group_name} on 0"

    def reconfigure(self, options):
        self.done.append((options.uuid, options.handles))
        return mock.Mock()


class Renewal(unittest.TestCase):
    def setUp(self):
        self.default, self.pair = Group("0", [0, 1]), Group("7", [0, 1])
        self.store = {}
        world = types.SimpleNamespace(group_count=2, pg_map={})
        for group in (self.pair, self.default):
            world.pg_map[group] = "gloo", mock.Mock()
        self.world = world
        self.c10d = types.SimpleNamespace(
            _world=world,
            ProcessGroup=Group,
            GroupMember=types.SimpleNamespace(WORLD=self.default),
            ReconfigureOptions=types.SimpleNamespace,
            get_process_group_ranks=lambda group: group.ranks,
        )
        modules = {"torch.distributed.distributed_c10d": self.c10d}
        self.enterContext(mock.patch.dict("sys.modules", modules))
        self.enterContext(mock.patch.multiple(state, rank=0, size=2, generation=4))
        self.enterContext(mock.patch.object(renewal, "_failed", False))
        for name, function in (
            ("has_store", lambda: True),
            ("store_set", self.store.__setitem__),
            ("store_get", self.store.__getitem__),
        ):
            self.enterContext(mock.patch.object(renewal.rendezvous, name, function))
        self.other(["0", "7"])

    def other(self, names, count=2):
        """What rank 1 says."""
        groups = {name: ([0, 1], f"handle of {name} on 1") for name in names}
        self.store["renewal/4/1"] = json.dumps({"groups": groups, "count": count})

    def renew(self, may=True, backend="gloo"):
        return renewal.renew(self.c10d, lambda group: {"cpu": backend}, may)

    def test_all_groups(self):
        self.assertEqual(self.renew(), [self.default, self.pair])
        handles = ["handle of 0 on 0", "handle of 0 on 1"]
        self.assertEqual(self.default.done, [(4, handles)])

    def test_a_group_that_the_other_rank_has_not(self):
        self.other(["0"])
        self.assertEqual(self.renew(), [self.default])
        self.assertEqual(self.pair.done, [])

    def test_none(self):
        for names, count in ([], 2), (["0", "7"], 3), (["0", "7"], None):
            self.other(names, count)
            self.assertEqual(self.renew(), [])
        self.assertEqual(self.default.done, [])

    def none_here(self, **options):
        self.assertEqual(self.renew(**options), [])
        self.assertEqual(json.loads(self.store["renewal/4/0"])["groups"], {})

    def test_the_others_are_told_that_this_rank_cannot(self):
        self.none_here(may=False)
        self.none_here(backend="nccl")
        self.world.pg_map[self.default][1].check.side_effect = RuntimeError("its socket is gone")
        self.none_here()

    def test_not_tried_again_once_it_has_failed(self):
        self.default.reconfigure = mock.Mock(side_effect=RuntimeError("no"))
        with self.assertRaises(RuntimeError):
            self.renew()
        self.none_here()

    def test_an_older_torch(self):
        with mock.patch.object(Group, "reconfigure", None):
            self.none_here()

    def test_a_torch_that_lacks_a_part_of_it(self):
        for name in "ReconfigureOptions", "get_process_group_ranks":
            with mock.patch.object(self.c10d, name):
                delattr(self.c10d, name)
                self.none_here()


if __name__ == "__main__":
    unittest.main()
