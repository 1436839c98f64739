"""Progress bars of tqdm as a notebook draws them: HTML beside the text that has them.

A bar is known by its looks. So it does not matter which tqdm a rank has imported, or what widgets
the front end has; one that shows no HTML shows the text.
"""

from __future__ import annotations

import html
import itertools
import re

_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b")
# what tqdm draws: "desc:  33%|███▎      | 1/3 [00:01<00:02,  1.00it/s]", perhaps in a colour
_BAR = re.compile(
    r"(?P<left>.*?(?P<percent>\d{1,3})%)\|(?P<bar>(?:\x1b\[[0-9;]*m|[ 0-9#\u2588-\u258f])*)\|"
    r"(?P<right> .*\[.*)"
)
_LONGEST = 1000  # characters of a line that may be a bar
# All rows are of one height, and a bar shrinks before its row is cut off: an output area must get
# no scroll bar, whose coming and going would move what is below it.
_FONT = (
    "font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,1em);"
    "line-height:var(--jp-code-line-height,1.3)"
)
_BLOCK = (
    '<div style="margin:0;overflow:hidden;padding-left:var(--jp-code-padding,0);'
    f'{_FONT}">{{}}</div>'
)
_PRE = f'<pre style="margin:0;padding:0;{{}};{_FONT}">{{}}</pre>'
_HEIGHT = "height:calc(1em*var(--jp-code-line-height,1.3))"
_LINE = f'<div style="white-space:pre-wrap;overflow-wrap:anywhere;min-{_HEIGHT}">' + "{}</div>"
_ROW = (
    f'<div style="display:flex;align-items:center;white-space:pre;overflow:hidden;{_HEIGHT}">'
    '<span style="flex:none">{left} </span>'
    '<span role="progressbar" aria-valuenow="{percent}" style="flex:0 1 20em;min-width:2em;'
    'height:90%;background:rgba(128,128,128,.2)"><span style="display:block;'
    'width:{percent}%;height:100%;background:{colour}"></span></span>'
    '<span style="flex:0 1 auto;overflow:hidden">{right}</span></div>'
)
_RUNS, _DONE, _FAILED = (
    f"var(--jp-{name}-color1,{colour})"
    for name, colour in (("brand", "#1976d2"), ("success", "#388e3c"), ("error", "#d32f2f"))
)
# the 16 colours of a palette, as notebooks show them
_PALETTE = (
    "#3e424d #e75c58 #00a250 #ddb62b #208ffb #d160c4 #60c6c8 #c5c1b4 "
    "#282c36 #b22b31 #007427 #b27d12 #0065ca #a03196 #258f8f #a1a6b2"
).split()


def bundle(text: str, failed: bool = False) -> dict[str, str]:
    """The representations of a text. failed: what a bar in it lacks will never come."""
    data = {"text/plain": text}
    lines = text.split("\n")
    found = list(map(_bar, lines))
    if any(found):
        drawn = (
            _drawn(bar, failed) if bar else _LINE.format(_coloured(line) or "&nbsp;")
            for line, bar in zip(lines, found, strict=True)
        )
        data["text/html"] = _BLOCK.format("".join(drawn))
    return data


def pre(text: str, style: str = "white-space:pre-wrap;overflow-wrap:anywhere") -> str:
    """A text in HTML as a notebook shows what is printed, with its colours. style: CSS, how long
    lines are shown."""
    return _PRE.format(style, _coloured(text))


def runs(text: str) -> list[tuple[bool, str]]:
    """The lines of a text in pieces: (True, neighbouring bars), or (False, other lines)."""
    if "%|" not in text:
        return [(False, text)]
    grouped = itertools.groupby(
        text.splitlines(keepends=True), lambda line: _bar(line.removesuffix("\n")) is not None
    )
    return [(is_bar, "".join(lines)) for is_bar, lines in grouped]


def _bar(line):
    return _BAR.fullmatch(line) if "%|" in line and len(line) <= _LONGEST else None


def _drawn(bar, failed):
    percent = min(int(bar["percent"]), 100)
    own = _SGR.search(bar["bar"])
    colour = _style(own[1], {}).get("color") if own else None
    usual = _DONE if percent == 100 else _FAILED if failed else _RUNS
    left, right = _coloured(bar["left"]), _coloured(bar["right"])
    return _ROW.format(left=left, right=right, percent=percent, colour=colour or usual)


def _coloured(text):
    """A text in HTML, with its colours."""
    parts, style = [], {}
    for i, part in enumerate(_SGR.split(text)):
        if i % 2:
            style = _style(part, style)
        elif part := html.escape(_OTHER.sub("", part)):
            css = ";".join(f"{key}:{value}" for key, value in style.items())
            parts.append(f'<span style="{css}">{part}</span>' if css else part)
    return "".join(parts)


def _style(numbers, before):
    """What the numbers of an escape sequence for colours make of a style, in CSS."""
    style, rest = dict(before), [int(number or 0) for number in numbers.split(";")]
    while rest:
        number = rest.pop(0)
        kind = "color" if number // 10 in (3, 9) else "background"
        if number == 0:
            style = {}
        elif number in (22, 39, 49):
            style.pop("font-weight" if number == 22 else kind, None)
        elif number == 1:
            style["font-weight"] = "bold"
        elif number in (38, 48) and rest:
            if (colour := _extended(rest)) is not None:
                style[kind] = colour
        elif number // 10 in (3, 4) and number % 10 < 8:
            style[kind] = _PALETTE[number % 10]
        elif number // 10 in (9, 10) and number % 10 < 8:
            style[kind] = _PALETTE[8 + number % 10]
    return style


def _extended(rest):
    """Takes the numbers of one of the 256 colours, or of red, green and blue. None: unknown."""
    if rest[0] == 5 and len(rest) > 1:
        number = rest[1]
        del rest[:2]
        return _of_256(number) if number < 256 else None
    if rest[0] == 2 and len(rest) > 3:
        colour = "rgb({},{},{})".format(*rest[1:4])
        del rest[:4]
        return colour
    rest.clear()
    return None


def _of_256(number):
    if number < 16:
        return _PALETTE[number]
    grey = (8 + 10 * (number - 232),) * 3
    cube = (number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6
    parts = grey if number >= 232 else [part and 55 + 40 * part for part in cube]
    return "rgb({},{},{})".format(*parts)
