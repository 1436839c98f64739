#!/usr/bin/env python3
"""A stream is divided into settled and redrawable text, and the live region stays in its place."""

import os
import re
import sys

import notebook

sys.path.insert(0, notebook.MAGICS)
from ddip.shown import bars, labels, limit, region, screen


def _written(*texts):
    """(settled lines, live rows) of a stream that received these texts."""
    stream = screen.Stream()
    return "".join(map(stream.write, texts)), stream.rows()


def _luminance(colour):
    """The luminance of one of the 256 colours, from 0 to 1, as WCAG defines it."""
    grey = [8 + 10 * (colour - 232)] * 3
    at = (colour - 16) // 36, (colour - 16) // 6 % 6, (colour - 16) % 6
    parts = [x / 255 for x in (grey if colour >= 232 else [x and 55 + 40 * x for x in at])]
    parts = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_chips():
    """Eight ranks have distinct chips, each readable, in colours that no palette changes."""
    chips = [labels.chip(rank) for rank in range(8)]
    found = [re.fullmatch(r"\x1b\[48;5;(\d+);38;5;(\d+)m (\d) \x1b\[0m ", c) for c in chips]
    assert [m[3] for m in found] == [*"01234567"] and len({m[1] for m in found}) == 8, chips
    for m in found:
        darker, lighter = sorted(_luminance(int(m[i])) for i in (1, 2))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, m[0]


def test_tail():
    """Of output that does not fit, the end of each rank stays, and where all of it is."""
    for count in (1, 2, 64):
        some = limit.Limit(lambda rank, name: f"/rank{rank}/{name}")
        for rank in range(count):
            lines = "".join(f"[{rank}] line {i}\n" for i in range(2 * limit.HEAD_LINES))
            some.admit(rank, "stdout", lines)
        head, *rest = some.tail().removesuffix("\n").split("\n")
        each = max(3, limit.TAIL_LINES // count)
        ends = range(2 * limit.HEAD_LINES - each, 2 * limit.HEAD_LINES)
        places = [f"/rank{rank}/stdout" for rank in range(count)] if count > 1 else []
        assert rest == [*places, *(f"[{k}] line {i}" for k in range(count) for i in ends)], rest
        assert head.endswith("all of it is in" if places else " /rank0/stdout"), head


def test_colours():
    """In HTML, text has its colours until they end."""
    found = bars.pre("\x1b[31ma\x1b[39mb\x1b[1;32mc\x1b[22md\x1b[39;00me<").partition(">")[2]
    red, bold = '<span style="color:#e75c58">a</span>', '<span style="font-weight:bold;color:'
    green = f'{bold}#00a250">c</span><span style="color:#00a250">d</span>'
    assert found == f"{red}b{green}e&lt;</pre>", found


def test_height_of_bars():
    """Eight bars get no scroll bar, however narrow the output area is, and keep their height while
    they run: each row is of one line and cut off, the bar in it shrinks first."""

    def drawn(step):
        text = "".join(
            f"{labels.chip(k)}epoch {'x' * 9 * step}: {step * k:3d}%|{'#' * (step % 9):10}|"
            f" {step * k}/700 [00:0{step % 9}<00:01, {10**step}.00it/s]\n"
            for k in range(8)
        )
        return bars.bundle(text.removesuffix("\n"))["text/html"]

    outer, *rows = re.findall(r'<div style="([^"]*)"', drawn(3))
    assert "overflow:hidden" in outer and len(rows) == 8 == len(set(map(_styles, rows))) * 8
    found = _styles(rows[0])
    assert ("overflow", "hidden") in found and ("white-space", "pre") in found, found
    assert any(name == "height" for name, _ in found), found
    assert "flex:0 1 20em;min-width:2em" in drawn(3) and "width:20em" not in drawn(3)
    shape = [
        re.sub(r"(?<=>)[^<]+|\d+(?=%|\")|var\(--jp-\w+-color1,#\w+\)", "", drawn(k)) for k in (1, 9)
    ]
    assert shape[0] == shape[1], shape
    (line,) = re.findall(
        r'<div style="(white-space:pre-wrap[^"]*)"',
        bars.bundle("y" * 900 + "\n 50%|#####     | 2/4 [00:02<00:02]")["text/html"],
    )
    assert "overflow-wrap:anywhere" in line, line


def _styles(text):
    return frozenset(tuple(part.split(":", 1)) for part in text.split(";"))


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


def test_far_moves():
    """A move that leads nowhere near costs nothing."""
    for move in "A", "B", "C", "D", "G":
        for count in "999999999", "9" * 5000:
            settled, rows = _written(f"a\x1b[{count}{move}x\n" * 3, f"\x1b[{count}C" * 9, "end")
            assert len(settled + "".join(rows)) < 100_000, (move, count)


def test_bounds():
    """However many rows a program leaves to be redrawn, only a few stay live."""
    settled, live = _written("".join(f"\rrow {i}\n" for i in range(1000)))
    assert len(live) < 100 and settled.count("\n") + len(live) == 1000, (len(live), settled[-50:])


class _Area:
    """A sink that records what a notebook would show."""

    redraws = True

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
    """The region is below all that is printed; it moves rarely, and no line is lost."""
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


def test_bars():
    """A bar of tqdm is HTML, too, with its rank's chip and its own colour; no other text is."""
    text = labels.chip(1) + "epoch <2>:  25%|██▌       | 1/4 [00:01<00:03,  1.0s/it]"
    data = bars.bundle("before\n" + text)
    page = data["text/html"]
    assert data["text/plain"] == "before\n" + text
    for part in (">before<", 'aria-valuenow="25"', "width:25%", "epoch &lt;2&gt;:  25%", "> 1 <"):
        assert part in page, (part, page)
    assert "| 1/4" not in page and "background:rgb(175,0,175)" in page, page
    assert "--jp-brand-color1" in page
    assert "--jp-error-color1" in bars.bundle(text, True)["text/html"]
    done = "100%|##########| 4/4 [00:04<00:00,  1.0s/it]"
    assert "--jp-success-color1" in bars.bundle(done, True)["text/html"]
    for number in ("32", "38;2;1;2;3"):
        own = bars.bundle(f" 50%|\x1b[{number}m█████     \x1b[0m| 2/4 [00:02<00:02]")["text/html"]
        assert ("#00a250" if number == "32" else "rgb(1,2,3)") in own, own
    red = bars.bundle(f"\x1b[1;31mE\x1b[0mrror\n{done}")["text/html"]
    assert '<span style="font-weight:bold;color:#e75c58">E</span>rror' in red, red
    long = "1%|| " * 200_000
    for other in ("", "50%", "a|b|c", "12it [00:01, 11.9it/s]", "5%|x| [", long):
        assert bars.bundle(other) == {"text/plain": other} and bars.runs(other) == [(False, other)]
    mixed = f"{done}\n{done}\nx\n{done}\n"
    assert [is_bar for is_bar, _ in bars.runs(mixed)] == [True, False, True]
    assert "".join(lines for _, lines in bars.runs(mixed)) == mixed


if __name__ == "__main__":
    os.environ.setdefault("TMPDIR", "/tmp")
    notebook.run(globals())
