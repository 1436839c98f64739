#!/usr/bin/env python3
"""The register of names of others: what is missing or fails costs only what its row says."""

import ast
import os
import runpy
import subprocess
import sys
import types
import unittest
import warnings
from unittest import mock

import engine_sources
from ddip_engine import patches


class Register(unittest.TestCase):
    def setUp(self):
        self.module = types.ModuleType("others")
        self.module.function = self.function = lambda: "theirs"
        self.module.Kind = type("Kind", (), {"_method": lambda self: "theirs"})
        self.enterContext(mock.patch.dict(sys.modules, others=self.module))
        self.enterContext(mock.patch.dict(patches.ROWS))
        self.enterContext(mock.patch.object(patches, "_lines", []))

    def row(self, path, module="others", kind=patches.PRIVATE, **options):
        return patches.Row(kind, module, path, "a test", "nothing", **options)

    def test_what_is_there(self):
        self.assertIs(self.row("function").get(), self.function)
        self.assertEqual(self.row("Kind._method").of(self.module.Kind())(), "theirs")
        self.assertEqual(patches._lines, [])

    def test_what_is_missing_is_counted_and_told_once(self):
        row = self.row("Kind._gone")
        self.assertEqual((row.get(7), row.of(self.module.Kind(), 8)), (7, 8))
        self.assertFalse(row.put(self.module.Kind(), 1))
        self.assertIsNone(row.replace(lambda real: real))
        self.assertEqual(row.missing, 4)
        self.assertEqual(patches._lines, ["patch_missing others.Kind._gone: nothing"])

    def test_a_part_of_the_way_is_missing(self):
        self.assertEqual(self.row("Gone._method").get(7), 7)
        self.assertEqual(patches._lines, ["patch_missing others.Gone._method: nothing"])

    def test_not_told(self):
        self.row("gone", optional=True).get()
        self.row("gone", module="not_imported").get()
        patches.check()
        self.assertEqual([line for line in patches._lines if "gone" in line], [])

    def test_check_names_all_but_those_of_instances(self):
        self.row("Kind._one")
        self.row("Kind._two", kind=patches.ATTRIBUTE)
        patches.check()
        self.assertIn("patch_missing others.Kind._one: nothing", patches._lines)
        self.assertNotIn("patch_missing others.Kind._two: nothing", patches._lines)

    def test_replaced_everywhere(self):
        other = types.SimpleNamespace(function=self.function)
        real = self.row("function").replace(lambda real: lambda: "ours and " + real(), other)
        self.assertIs(real, self.function)
        self.assertEqual((self.module.function(), other.function()), ("ours and theirs",) * 2)

    def test_what_of_ours_raises_steps_aside(self):
        row = self.row("function")
        for _ in range(2):
            with row:
                raise ValueError("bad\nlines")
        self.assertEqual(row.replace(lambda real: 1 / 0), self.function)
        self.assertIs(self.module.function, self.function)
        self.assertEqual(row.failures, 3)
        self.assertEqual(
            patches._lines, ["patch_failed others.function: ValueError: bad; lost: nothing"]
        )

    def test_an_interrupt_is_not_ours(self):
        with self.assertRaises(KeyboardInterrupt), self.row("function"):
            raise KeyboardInterrupt

    def test_warnings_of_our_calls_are_not_shown(self):
        def warns(value):
            warnings.warn("old", FutureWarning, stacklevel=1)
            return value

        self.module.function = warns
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            self.assertEqual(self.row("function").call(5), 5)
        self.assertEqual(shown, [])

    def test_lines_of_before_and_after_a_daemon_listens(self):
        heard = []
        self.enterContext(mock.patch.object(patches, "_tell", None))
        self.row("one").get()
        patches.tell_to(heard.append, 1)  # a forked child would be of another process
        self.row("two").get()
        self.assertEqual(heard, ["patch_missing others.one: nothing"])

    def test_every_name_is_there_in_this_torch(self):
        """Or one that is not is known to be missing in some versions."""
        import IPython.core.interactiveshell  # noqa: F401
        import torch.distributed.rpc  # noqa: F401

        patches.check()
        self.assertEqual(patches._lines, [])


class Lint(unittest.TestCase):
    """scripts/check-private, which lint runs, sees what is used of torch past the register."""

    def setUp(self):
        self.script = os.path.join(engine_sources.ROOT, "scripts", "check-private")
        self.names = runpy.run_path(self.script, run_name="check_private")

    def test_every_way_to_write_a_name_of_torch(self):
        c10d = "torch.distributed.distributed_c10d"
        for text, name in (
            ("torch.new", "torch.new"),
            ("_torch().cuda.new(1)", "torch.cuda.new"),
            ("self._torch.new.newer[0]", "torch.new.newer"),
            ("with sys.modules['torch'].new(): pass", "torch.new"),
            ("sys.modules.get('torch.futures').new", "torch.futures.new"),
            ("dist.api.new", "torch.distributed.new"),
            ("options = c10d.ReconfigureOptions()", f"{c10d}.ReconfigureOptions"),
            ("_c10d.GroupMember.WORLD.new", f"{c10d}.GroupMember.WORLD.new"),
            ("from torch.distributed import new as old", "torch.distributed.new"),
        ):
            found = list(self.names["of_torch"](ast.parse(text)))
            self.assertEqual(found, [(1, name)], text)
            self.assertNotIn(name, self.names["PUBLIC"] | self.names["ASKED_FOR"])
        self.assertEqual(
            list(self.names["of_torch"](ast.parse("a.torch_x; sys.modules['os'].name"))), []
        )

    def test_annotations_never_run(self):
        text = "import os\nTYPE_CHECKING = False\nif TYPE_CHECKING:\n    from torch import New\n"
        text += "    import _typeshed\nx: torch.New = torch.one\n"
        text += (
            "def f(a: torch.New, *b: torch.New) -> torch.New:\n    y: torch.New\n    torch.two\n"
        )
        names = [name for _, name in self.names["of_torch"](ast.parse(text))]
        self.assertEqual((len(names), names.count("torch.New")), (8, 6))
        lazy = self.names["running"]("from __future__ import annotations\n" + text)
        names = [name for _, name in self.names["of_torch"](lazy)]
        self.assertEqual(names, ["torch.one", "torch.two"])
        self.assertEqual(list(self.names["accesses"](lazy)), [])
        eager = self.names["running"](text)
        self.assertEqual(len(list(self.names["of_torch"](eager))), 8)

    def test_what_is_declared_public_is_there_in_this_torch(self):
        done = subprocess.run(
            [sys.executable, self.script, "--torch"], capture_output=True, text=True
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
