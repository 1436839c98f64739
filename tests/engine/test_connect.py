#!/usr/bin/env python3
"""NCCL connects the ranks before user code runs, since a rank that waits for that cannot be freed.
The tests' torch has no NCCL: a group stands in for its own."""

import sys
import types
import unittest
from unittest import mock

import engine_sources  # noqa: F401

sys.modules["_ddip"] = mock.Mock()

from ddip_engine import known_bad, patches, state  # noqa: E402
from ddip_engine.groups import dist  # noqa: E402


class Connect(unittest.TestCase):
    def setUp(self):
        self.sum = 2.0
        self.torch = torch = mock.Mock()
        torch.ones.return_value.item.side_effect = lambda: self.sum
        torch.__version__, torch.version.hip = "2.13.0+cu130", None
        torch.cuda.nccl.version.return_value = (2, 28, 9)
        self.enterContext(mock.patch.dict("sys.modules", torch=torch))
        self.enterContext(mock.patch.object(dist, "_versions_told", False))
        dist._ddip.notify.reset_mock()
        self.c10d = mock.Mock()
        self.c10d.BackendConfig = lambda name: types.SimpleNamespace(
            get_device_backend_map=lambda: {"cuda": name, "cpu": name}
        )
        self.c10d.Backend = lambda name: name
        self.made_with = None
        self.c10d.get_backend_config = lambda group: self.made_with
        self.enterContext(mock.patch.object(dist, "c10d", self.c10d))
        modules = {patches.BACKEND_CONFIG.module: self.c10d}
        self.enterContext(mock.patch.dict("sys.modules", modules))
        self.enterContext(mock.patch.object(dist, "_begin", self.begin))
        self.use("nccl", 2)

    def use(self, backend, size):
        self.enterContext(mock.patch.object(dist, "_backend", backend))
        self.enterContext(mock.patch.object(state, "size", size))

    def begin(self, backend, *args, **kwargs):
        self.c10d.all_reduce.assert_not_called()
        self.made_with = backend

    def test_an_old_torch(self):
        self.torch.__version__ = "2.5.1+cu124"
        wanted = r"torch 2\.5\.1\+cu124 is too old: 2\.6 or newer .* install -U torch.*backend none"
        with self.assertRaisesRegex(state.EngineError, wanted):
            dist.start("gloo", "127.0.0.1", 1, "")
        self.assertIsNone(self.made_with)
        self.torch.cuda.is_available.return_value = False
        dist.start("none", "127.0.0.1", 1, "")
        self.torch.__version__ = "2.6.0a0+git1234567"
        dist.start("gloo", "127.0.0.1", 1, "")
        self.assertTrue(self.c10d._world.pg_map)

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

    def told(self, rank=0):
        """What the daemon is told of the versions when a rank connects twice."""
        self.enterContext(mock.patch.object(state, "rank", rank))
        dist.make_default()
        self.c10d.all_reduce.reset_mock()
        dist.make_default()
        return [call.args for call in dist._ddip.notify.call_args_list]

    def test_versions_that_are_right(self):
        self.assertEqual(self.told(), [])

    def test_versions_that_fail(self):
        self.torch.__version__ = "2.7.0+cu128"
        self.torch.cuda.nccl.version.return_value = (2, 28, 3, "alpha")
        kinds, texts = zip(*self.told(), strict=True)
        self.assertEqual(kinds, ("Nknownbad", "Nknownbad"))
        self.assertRegex(texts[0], r"^torch 2\.7\.0: .*device_id.*fixed in 2\.7\.1")
        self.assertEqual(texts[1], "NCCL 2.28.3: some jobs hang; fixed in 2.28.9")

    def test_one_rank_tells(self):
        self.torch.cuda.nccl.version.return_value = (2, 28, 3)
        self.assertEqual(self.told(rank=1), [])

    def test_without_nccl_nothing_is_told(self):
        self.torch.cuda.nccl.version.return_value = (2, 28, 3)
        self.use("gloo", 2)
        self.assertEqual(self.told(), [])

    def test_the_table(self):
        for name, version, machine, bad in (
            ("NCCL", (2, 28, 2), "x86_64", False),
            ("NCCL", "2.28.8", "x86_64", True),
            ("NCCL", (2, 29, 2), "x86_64", False),
            ("NCCL", (2, 29, 2), "aarch64", True),
            ("torch", "2.7.1", "x86_64", False),
            ("torch", "2.7.0a0+git1234567", "x86_64", True),
            ("torch", "nonsense", "x86_64", False),
        ):
            self.assertEqual(bool(known_bad.about(name, version, machine)), bad, (name, version))


if __name__ == "__main__":
    unittest.main()
