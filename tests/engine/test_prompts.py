#!/usr/bin/env python3
"""Which interrupts end a prompt: all but a person's while a command runs there, also if one comes
when the prompt is only being written, or read by a function of the user's."""

import code
import io
import pdb
import sys
import unittest

import engine_sources  # noqa: F401

from ddip_engine.cells import prompts  # isort: skip (engine_sources makes it importable)


class Prompts(unittest.TestCase):
    def setUp(self):
        self.found = {}
        self.addCleanup(prompts.forget)

    def note(self, where):
        """An interrupt comes here: what is raised, from a person and from the group."""
        frame = sys._getframe()
        for by_person in (True, False):
            made = prompts.passing(KeyboardInterrupt(), frame, by_person)
            self.found[where, by_person] = type(made)
        prompts.forget()

    def expect(self):
        leaves = {key for key, kind in self.found.items() if kind is prompts.Left}
        self.assertEqual(leaves, {("write", True), ("write", False), ("read", True),
                                  ("read", False), ("command", False)})  # fmt: skip
        self.assertEqual(self.found["command", True], KeyboardInterrupt)

    def test_debugger(self):
        test, lines = self, ["!note()\n", "c\n"]

        class Out(io.StringIO):
            def write(self, text):
                if "Pdb" in text:
                    test.note("write")
                return super().write(text)

        class In:
            def readline(self):
                test.note("read")
                return lines.pop(0)

        debugger = pdb.Pdb(stdin=In(), stdout=Out(), nosigint=True, readrc=False)
        debugger.run("x = 1", {"note": lambda: self.note("command")})
        self.expect()

    def test_console(self):
        lines = ["note()"]

        class Console(code.InteractiveConsole):
            def raw_input(console, prompt=""):
                self.note("write")
                self.note("read")
                if not lines:
                    raise EOFError
                return lines.pop(0)

            def write(console, text):
                pass

        Console({"note": lambda: self.note("command")}).interact("")
        self.expect()

    def test_elsewhere(self):
        self.note("write")
        self.assertEqual(set(self.found.values()), {KeyboardInterrupt})


if __name__ == "__main__":
    unittest.main()
