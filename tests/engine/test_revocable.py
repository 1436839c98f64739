#!/usr/bin/env python3
"""C learns which communicators it may revoke, and nobody frees them meanwhile. The tests' torch
has no NCCL: groups and backends stand in for its own."""

import os
import sys
import types
import unittest
from unittest import mock

import engine_sources  # noqa: F401

C = mock.Mock()
sys.modules["_ddip"] = C

from ddip_engine.groups import revocable  # noqa: E402


class Backend:
    """A backend like torch's ProcessGroupNCCL; address: of its communicator."""

    def __init__(self, address):
        self.address = address

    def _comm_ptr(self):
        if self.address is None:
            raise RuntimeError("NCCL communicator was aborted on rank 0.")
        return self.address

    def abort(self):
        return len(C.nccl_claim.mock_calls), len(C.nccl_release.mock_calls)


class Group:
    def __init__(self, address):
        self.backend = Backend(address)
        self.ranks = 2

    def size(self):
        return self.ranks

    def _get_backend(self, device):
        return self.backend

    def shutdown(self):
        return len(C.nccl_claim.mock_calls), len(C.nccl_release.mock_calls)


class Revocable(unittest.TestCase):
    def setUp(self):
        C.reset_mock()
        C.nccl_claim.return_value = C.nccl_can_revoke.return_value = True
        C.nccl_claims.return_value = 7
        torch = mock.Mock()
        torch.cuda.current_device.return_value = 1
        self.enterContext(mock.patch.dict("sys.modules", torch=torch))
        self.enterContext(mock.patch.dict(os.environ, TORCH_NCCL_ASYNC_ERROR_HANDLING="0"))
        self.enterContext(mock.patch.object(revocable.gpu, "has_nccl", lambda: True))
        nccl = type("ProcessGroupNCCL", (Backend,), {"abort": Backend.abort})
        group = type("ProcessGroup", (Group,), {"shutdown": Group.shutdown})
        self.c10d = types.SimpleNamespace(
            is_nccl_available=lambda: True,
            ProcessGroup=group,
            ProcessGroupNCCL=nccl,
            GroupMember=types.SimpleNamespace(WORLD=None),
        )
        self.served = []
        modules = {"torch.distributed.distributed_c10d": self.c10d}
        self.enterContext(mock.patch.dict("sys.modules", modules))
        revocable.install(self.c10d, lambda: self.served)
        with revocable.claimed():
            pass
        C.reset_mock()

    def tearDown(self):
        revocable._c10d = None

    def group(self, address, backend="nccl"):
        made = self.c10d.ProcessGroup(address)
        made.backend.__class__ = self.c10d.ProcessGroupNCCL
        if backend == "nccl":
            self.served.append(made)
        if self.c10d.GroupMember.WORLD is None:
            self.c10d.GroupMember.WORLD = made
        return made

    def told(self):
        return [call.args for call in C.nccl_revocable.mock_calls]

    def test_c_is_told_of_all_communicators_once_for_each_group_that_is_used(self):
        world, sub = self.group(100), self.group(200)
        self.group(300, "gloo")
        revocable.used(None)
        revocable.used(None)
        self.assertEqual(self.told(), [(7, [(100, 1), (200, 1)])])
        revocable.used(sub)
        self.assertEqual(len(self.told()), 2)
        self.assertEqual(revocable._kept, [world.backend, sub.backend])

    def test_a_group_whose_communicator_is_made_later_is_told_of_then(self):
        world = self.group(0)
        revocable.used(None)
        world.backend.address = 100
        revocable.used(None)
        self.assertEqual(self.told(), [(7, []), (7, [(100, 1)])])

    def test_no_device_is_asked_for_where_there_is_no_communicator(self):
        """A build with NCCL on a machine without a driver: the collectives are gloo's."""
        no_driver = RuntimeError("Found no NVIDIA driver on your system.")
        sys.modules["torch"].cuda.current_device.side_effect = no_driver
        self.group(0)
        revocable.used(None)
        self.assertEqual(self.told(), [(7, [])])

    def test_an_aborted_communicator_is_none(self):
        self.group(100)
        sub = self.group(None)
        revocable.used(sub)
        self.assertEqual(self.told(), [(7, [(100, 1)])])

    def test_c_is_told_of_none_that_torch_frees_by_itself_or_that_another_nccl_made(self):
        self.group(100)
        with mock.patch.dict(os.environ, TORCH_NCCL_ASYNC_ERROR_HANDLING="1"):
            revocable.used(None)
        revocable._seen.clear()
        C.nccl_can_revoke.return_value = False
        revocable.used(None)
        self.assertEqual(self.told(), [])

    def test_c_is_told_of_none_in_a_rank_that_is_alone(self):
        self.group(100).ranks = 1
        revocable.used(None)
        self.assertEqual(self.told(), [])

    def test_torch_frees_within_a_claim_after_which_all_are_told_anew(self):
        world = self.group(100)
        revocable.used(None)
        self.assertEqual(world.backend.abort(), (1, 0))
        self.assertEqual(world.shutdown(), (2, 1))
        self.assertEqual(len(C.nccl_release.mock_calls), 2)
        self.assertEqual(revocable._kept, [])
        revocable.used(None)
        self.assertEqual(len(self.told()), 2)

    def test_nothing_is_freed_while_c_is_at_it(self):
        world = self.group(100)
        C.nccl_claim.return_value = False
        with self.assertRaises(RuntimeError):
            world.backend.abort()
        self.assertEqual(C.nccl_release.mock_calls, [])


if __name__ == "__main__":
    unittest.main()
