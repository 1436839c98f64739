#!/usr/bin/env python3
"""What a thread of the engine ends while the main thread looks at it: no error, nothing is lost."""

import sys
import types
import unittest
from unittest import mock

import engine_sources  # noqa: F401

sys.modules["_ddip"] = types.ModuleType("_ddip")
from ddip_engine.cells import imports  # noqa: E402

del sys.modules["_ddip"]


class Waiting:
    """An interrupt that was put off, and whose thread ends it just when another one comes."""

    held = False

    def is_early(self):
        imports._waiting = None
        return True


class Threads(unittest.TestCase):
    def test_interrupt(self):
        """It is put off as well, and has a thread that sends it."""
        frame, sent = sys._getframe(), []
        self.addCleanup(imports.clean_up)
        imports._waiting = Waiting()
        with (
            mock.patch.object(imports, "_delaying", lambda _: [(frame, False)]),
            mock.patch.object(imports, "start_new_thread", lambda run, _: sent.append(run)),
        ):
            self.assertTrue(imports.put_off(frame, 1))
        self.assertEqual(sent, [imports._waiting._send])
        self.assertTrue(imports.holds())


if __name__ == "__main__":
    unittest.main()
