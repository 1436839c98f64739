#!/usr/bin/env python3
"""What of a stream is settled and what may be redrawn, and where the live region stands."""

import os
import sys

import notebook

sys.path.insert(0, notebook.MAGICS)
from ddip import region, screen


def _written(*texts):
    """(settled lines, live rows) of a stream that these texts came in."""
    stream = screen.Stream()
    return "".join(map(stream.write, texts)), stream.rows()


def test_streams():
    for texts, settled, live in (
        (["a\nb", "c\nd"], "a\nbc\n", ["d"]),
        (["a\r\nb\r\n"], "a\nb\n", []),
        (["\rone", "\rtwo"], "", ["two"]),
        (["longer\rab"], "", ["abnger"]),
        (["\r50%", "\r100%\n", "plain\n"], "100%\nplain\n", []),
        (["\router\n\rinner\x1b[A", "\router 2\n\rinner 2\x1b", "[A"], "", ["outer 2", "inner 2"]),
        (["\x1b[31mred\x1b[0m\n"], "\x1b[31mred\x1b[0m\n", []),
        (["\rdone\n", *["\rnext %d" % i for i in range(20)]], "done\n", ["next 19"]),
        (["".join("\r%d" % i for i in range(100_000))], "", ["99999"]),
        (["|\b/\b-"], "", ["-"]),
    ):
        assert _written(*texts) == (settled, live), (texts[:3], _written(*texts))


def test_bounds():
    """However many rows a program leaves to be redrawn, a few stay live."""
    settled, live = _written("".join(f"\rrow {i}\n" for i in range(1000)))
    assert len(live) < 100 and settled.count("\n") + len(live) == 1000, (len(live), settled[-50:])


class _Area:
    """A sink that keeps what a notebook would show."""

    def __init__(self):
        self.outputs = []  # [text] of a stream, [display id, text]

    def write(self, name, text):
        self.outputs.append([text])

    def display(self, data, transient=None, update=False):
        place = transient["display_id"]
        if update:
            (found,) = (each for each in self.outputs if each[0] == place)
            found[1] = data["text/plain"]
        else:
            self.outputs.append([place, data["text/plain"]])

    def texts(self):
        return [each[-1] for each in self.outputs if each[-1]]


def test_region():
    """It is below all that is printed; it moves seldom, and no line is lost."""
    clock = [0.0]
    region.time = type("Clock", (), {"monotonic": lambda: clock[0]})
    area = _Area()
    below = region.Region(area)
    below.add("stdout", "first\n")
    for i in range(1000):
        clock[0] += 1.0
        below.draw(f"bar {i}\n")
        below.add("stdout", f"line {i}\n")
        assert f"line {i - 1}\n" in "".join(area.texts()) + "\n" or i == 0, "it is seen at once"
    below.draw("bar\n", last=True)
    assert area.texts()[-1] == "bar" and area.texts()[0] == "first\n"
    assert "".join(area.texts()[1:-1]) == "".join(f"line {i}\n" for i in range(1000))
    displays = [each for each in area.outputs if len(each) == 2]
    assert len(displays) < 200, "of 1000 times that it could have moved"


if __name__ == "__main__":
    os.environ.setdefault("TMPDIR", "/tmp")
    notebook.run(globals())
