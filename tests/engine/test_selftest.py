#!/usr/bin/env python3
"""A self-test pairs the right ranks over the right library, without an engine and without torch."""

import os
import sys
import types
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

package = types.ModuleType("ddip_engine")
package.__path__ = [os.path.join(ROOT, "engine", "ddip_engine")]
sys.modules["ddip_engine"] = package
# modules that pairing ranks does not need
for name in ("patches", "data.gpu", "groups.communicator", "groups.dist", "groups.rendezvous"):
    sys.modules[f"ddip_engine.{name}"] = types.ModuleType(name)

from ddip_engine.groups import selftest  # noqa: E402


class Pairs(unittest.TestCase):
    def test_each_rank_meets_each_other_one_once_and_alone(self):
        for size in range(1, 12):
            turns = [list(selftest.peers(rank, size)) for rank in range(size)]
            self.assertEqual({len(each) for each in turns}, {size - 1 + size % 2})
            for rank, each in enumerate(turns):
                met = [to for to, source in filter(None, each)]
                self.assertEqual(sorted(met), [other for other in range(size) if other != rank])
                for turn, peer in enumerate(each):
                    if peer is not None:
                        self.assertEqual(turns[peer[0]][turn], (rank, rank))
                        self.assertEqual(peer, (peer[0], peer[0]))


class Sums(unittest.TestCase):
    """The numbers that all_reduce adds up."""

    def test_they_are_exact_in_float32_for_as_many_ranks_as_there_may_be(self):
        most, largest_base, largest_added = 16384, 60, 2
        largest = selftest.sum_of_summands(most) + most * (largest_base + largest_added)
        self.assertLess(largest, 1 << 24)
        for size in (1, 2, 508, 509, 510, 1018, 5800, most):
            self.assertEqual(
                selftest.sum_of_summands(size), sum(selftest.summand(k) for k in range(size))
            )

    def test_neighbours_add_other_numbers(self):
        self.assertTrue(all(selftest.summand(k) != selftest.summand(k + 1) for k in range(16384)))


class Told(unittest.TestCase):
    def test_few_pairs_are_all_told(self):
        pairs = [(float(k), 0, f"pair {k}") for k in range(256)]
        self.assertEqual(selftest.told(pairs), [line for _, _, line in pairs])

    def test_of_many_the_quickest_the_middle_the_slowest_and_all_wrong_ones_are_told(self):
        pairs = [(float(k * 7919 % 1001), k in (3, 5), f"pair {k}") for k in range(1001)]
        found = {float(line.split()[1]) * 7919 % 1001 for line in selftest.told(pairs)}
        self.assertEqual(found, {0.0, 500.0, 1000.0, 3 * 7919 % 1001.0, 5 * 7919 % 1001.0})


class Group:
    """Torch's default group, of two ranks."""

    GroupMember = types.SimpleNamespace(WORLD=types.SimpleNamespace(size=lambda: 2))


class Links(unittest.TestCase):
    def setUp(self):
        selftest.state.size = 2
        selftest.dist.has_own_nccl = lambda: False
        selftest.dist.c10d = Group
        selftest.dist.device_of_default = lambda: ("cuda", "nccl")
        selftest.gpu.has_nccl = lambda: True

    def test_nccl_itself_is_tested_where_ranks_can_meet_for_it_and_torch_where_they_cannot(self):
        for can_meet in (True, False):
            selftest.rendezvous.has_store = lambda can=can_meet: can
            self.assertEqual(selftest._is_nccl(), can_meet)

    def test_no_count_of_wrong_elements_is_too_much_for_a_reply(self):
        link = types.SimpleNamespace(
            about="x",
            chosen=list,
            rank=0,
            size=2,
            neighbours=lambda: (1, 1),
            measure=lambda *_: (1.0, 1 << 31),
        )
        self.assertEqual(selftest._run_on(link, [4])[1], (1 << 32) - 1)


if __name__ == "__main__":
    unittest.main()
