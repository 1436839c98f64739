#!/usr/bin/env python3
"""What the user's frames hold is read by another thread, and nothing is left behind in them."""

import gc
import os
import re
import sys
import threading
import unittest
import weakref
from errno import ENOENT
from types import SimpleNamespace

from in_process import NAMES, Case, state, values

from ddip_engine.cells import cell  # isort: skip (in_process makes it importable)
from ddip_engine.data import frames  # isort: skip


NAMED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "frames.list")


class Rule(unittest.TestCase):
    """Whose code it is, by the name of its file: the daemon decides alike (tests/unit/frames.c)."""

    def test_names(self):
        with open(NAMED, encoding="utf-8") as f:
            for line in f:
                whose, _, name = line.rstrip("\n").partition(" ")
                frame = SimpleNamespace(f_code=compile("", name, "exec"))
                self.assertEqual(frames.is_users(frame), whose == "users", name)


class Thing:
    """An object that a weak reference can watch."""


def elsewhere(function, *args):
    """function(*args), called in another thread while this one waits for it."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*args)))
    thread.start()
    thread.join()
    return found[0]


def users(source):
    """Runs source as a user's code, in the namespace of cells."""
    exec(compile(source, "/home/me/train.py", "exec"), NAMES)


class Frames(Case):
    def setUp(self):
        super().setUp()
        state.running = True
        installed = frames._INSTALLED
        frames._INSTALLED = re.compile("^(?!/home/me/)")
        self.addCleanup(setattr, frames, "_INSTALLED", installed)
        NAMES.update(elsewhere=elsewhere, read=self.read, lines=self.lines)

    def read(self, name):
        return elsewhere(values.get, name, "").head.decode().rstrip()

    def lines(self):
        return elsewhere(frames.lines).head.decode()

    def test_names_are_found_from_the_innermost_frame_on(self):
        users(
            "def inner(x):\n    y = 2\n"
            "    return read('frames:x'), read('frames:y'), read('frames:z'), read('frame 1:x')\n"
            "def main():\n    x, z = 'outer', 3\n    return inner(1)\ngot = main()"
        )
        self.assertEqual(NAMES["got"], ("1", "2", "3", "outer"))

    def test_absent_names_say_where_they_were_looked_for(self):
        users("def main():\n    a = 1\n    read('frames:b')")
        NAMES["read"] = lambda name: values.get(name, "")  # where it raises
        self.refuses(ENOENT, "no local 'b' in main() at train.py:3, on rank 0", NAMES["main"])

    def test_frames_are_listed_with_their_names(self):
        users("import math\ndef main(a):\n    b, _c, f = 2, 3, math\n    return lines()")
        users("got = main(1)")
        first, second = NAMES["got"].splitlines()
        self.assertEqual(first, "0\t/home/me/train.py:4\tmain\ta b")
        self.assertTrue(second.startswith("1\t/home/me/train.py:1\t<module>\t"), second)

    def test_no_reference_is_left_behind(self):
        users(
            "def main():\n    thing = Thing()\n    gone = ref(thing)\n    lines()\n"
            "    elsewhere(get, 'frames:thing', '')\n    elsewhere(frames_names)\n"
            "    del thing\n    return gone()\n"
        )
        NAMES.update(get=values.get, Thing=Thing, ref=weakref.ref)
        NAMES["frames_names"] = lambda: frames.names("frames")
        left = NAMES["main"]()
        gc.collect()
        self.assertIsNone(left)

    def test_what_the_program_has_of_its_locals_stays(self):
        users(
            "def main():\n    a = 1\n    mine = locals()\n    del mine['a']\n    lines()\n"
            "    return mine\n"
            "class Body:\n    b = 2\n    seen = read('frames:b')\n"
            "def generate():\n    c = 3\n    yield read('frames:c')\n"
        )
        self.assertNotIn("a", NAMES["main"]())
        self.assertEqual(NAMES["Body"].b, 2)
        self.assertEqual(next(NAMES["generate"]()), "3")

    def test_a_traced_frame_keeps_its_locals(self):
        users("def main():\n    a = 1\n    a += 1\n    return a\n")
        seen = []

        def trace(frame, event, arg):
            if frame.f_code is NAMES["main"].__code__ and event == "line":
                seen.append(self.lines())
            return trace

        sys.settrace(trace)
        try:
            self.assertEqual(NAMES["main"](), 2)
        finally:
            sys.settrace(None)
        self.assertTrue(seen)

    def test_between_cells_there_are_no_frames(self):
        state.running = False
        users("def main():\n    a = 1\n    return lines()\ngot = main()")
        self.assertEqual(NAMES["got"], "")


class Entry:
    """An entry of a traceback, which counts how often its successor is set."""

    sets = 0

    def __init__(self, whose, following):
        self.tb_frame = SimpleNamespace(f_code=SimpleNamespace(co_filename=whose), whose=whose)
        self._following = following

    @property
    def tb_next(self):
        return self._following

    @tb_next.setter
    def tb_next(self, following):
        self._following = following
        Entry.sets += 1


class Trimmed(unittest.TestCase):
    """The traceback of a cell: without the frames of the engine."""

    def test_only_what_changes_is_set(self):
        # To set tb_next takes a walk along the rest: after a deep recursion, it must be rare.
        whose = ["engine", "engine"] + ["cell"] * 1000 + ["engine"] + ["cell"] * 1000
        at = None
        for who in reversed(whose):
            at = Entry(who, at)
        names = SimpleNamespace(
            owns=lambda file: file == "cell", hides=lambda frame: frame.whose == "engine"
        )
        at = cell._cut(at, names, False)
        self.assertEqual(Entry.sets, 1)
        kept = 0
        while at is not None:
            self.assertEqual(at.tb_frame.whose, "cell")
            kept, at = kept + 1, at.tb_next
        self.assertEqual(kept, 2000)


if __name__ == "__main__":
    unittest.main()
