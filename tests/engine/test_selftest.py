#!/usr/bin/env python3
"""Which ranks a self-test pairs, without an engine and without torch."""

import os
import sys
import types
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

package = types.ModuleType("ddip_engine")
package.__path__ = [os.path.join(ROOT, "engine", "ddip_engine")]
sys.modules["ddip_engine"] = package
# what it is made of is not needed to pair ranks
for name in ("communicator", "dist", "gpu", "run"):
    sys.modules[f"ddip_engine.{name}"] = types.ModuleType(name)

from ddip_engine import selftest  # noqa: E402


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


if __name__ == "__main__":
    unittest.main()
