#!/usr/bin/env python3
"""NCCL connects the ranks before user code runs, since a rank that waits for that cannot be freed.
The tests' torch has no NCCL: a group stands in for its own."""

import sys
import types
import unittest
from unittest import mock

import engine_sources  # noqa: F401

sys.modules["_ddip"] = mock.Mock()

from ddip_engine import dist, state  # noqa: E402


class Connect(unittest.TestCase):
    def setUp(self):
        self.sum = 2.0
        torch = mock.Mock()
        torch.ones.return_value.item.side_effect = lambda: self.sum
        self.enterContext(mock.patch.dict("sys.modules", torch=torch))
        self.c10d = mock.Mock()
        self.c10d.BackendConfig = lambda name: types.SimpleNamespace(
            get_device_backend_map=lambda: {"cuda": name, "cpu": name}
        )
        self.c10d.Backend = lambda name: name
        self.c10d._world.pg_map = {}
        self.enterContext(mock.patch.object(dist, "c10d", self.c10d))
        self.enterContext(mock.patch.object(dist, "_begin", self.begin))
        self.use("nccl", 2)

    def use(self, backend, size):
        self.enterContext(mock.patch.object(dist, "_backend", backend))
        self.enterContext(mock.patch.object(state, "size", size))

    def begin(self, backend, *args, **kwargs):
        self.c10d.all_reduce.assert_not_called()
        self.c10d._world.pg_map[self.c10d.GroupMember.WORLD] = (backend, None)

    def test_with_nccl(self):
        dist.make_default()
        self.c10d.all_reduce.assert_called_once()

    def test_without(self):
        for backend, size in ("gloo", 2), ("nccl", 1):
            self.use(backend, size)
            dist.make_default()
            self.c10d.all_reduce.assert_not_called()

    def test_that_fails(self):
        self.c10d.all_reduce.side_effect = RuntimeError("no route")
        with self.assertRaisesRegex(state.EngineError, "NCCL.*no route.*backend gloo"):
            dist.make_default()

    def test_that_is_wrong(self):
        self.sum = 1.0
        with self.assertRaisesRegex(state.EngineError, "sum of ones over 2 ranks is 1;"):
            dist.make_default()


if __name__ == "__main__":
    unittest.main()
