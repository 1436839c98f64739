#!/usr/bin/env python3
"""Coloured tracebacks: each exception once, in the order in which they were raised."""

import collections
import unittest

import engine_sources  # noqa: F401
from ddip_engine.cells import colour

LENGTH = 200
asked = collections.Counter()


class Counting(Exception):
    """Counts how often its text is asked for."""

    def __str__(self):
        asked[self.args] += 1
        return f"number {self.args[0]}"


def chain(length, explicit):
    """An exception with length - 1 causes, or contexts."""
    last = None
    for number in range(length):
        error = Counting(number)
        if explicit:
            error.__cause__ = last
        else:
            error.__context__ = last
        last = error
    return last


class Colour(unittest.TestCase):
    def setUp(self):
        asked.clear()

    def test_a_chain_takes_time_in_proportion_to_its_length(self):
        for explicit in (True, False):
            asked.clear()
            text = "\n".join(colour.render(chain(LENGTH, explicit)))
            places = [text.index(f"number {number}\n") for number in range(LENGTH - 1)]
            self.assertEqual(places, sorted(places))
            self.assertTrue(text.endswith(f"number {LENGTH - 1}"))
            self.assertEqual(set(asked.values()), {1})

    def test_a_circle_of_causes_ends(self):
        error = chain(3, True)
        error.__cause__.__cause__.__cause__ = error
        self.assertEqual(len("\n".join(colour.render(error)).split("number ")), 4)

    @unittest.skipUnless(hasattr(colour.builtins, "ExceptionGroup"), "Python before 3.11")
    def test_the_members_of_a_group_have_their_causes(self):
        group = colour.builtins.ExceptionGroup("group", [chain(2, True), chain(1, True)])
        text = "\n".join(colour.render(group))
        for part in ("group (2 sub-exceptions)", "1 of 2:", "number 1", "2 of 2:"):
            self.assertIn(part, text)
        self.assertEqual(text.count("number 0"), 2)


if __name__ == "__main__":
    unittest.main()
