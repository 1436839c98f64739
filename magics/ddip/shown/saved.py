"""What is saved of tabs: HTML that looks like them and needs neither a kernel nor a script; and
text with prefixes where no HTML is shown."""

from __future__ import annotations

import html
import re

from ddip.shown import bars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeAlias

    Outputs: TypeAlias = Sequence[dict[str, Any]]  # those of a notebook


VIEW = "application/vnd.jupyter.widget-view+json"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_IMAGES = ("image/png", "image/jpeg")
_MARKUP = ("text/html", "image/svg+xml")
_SOURCES = ("text/markdown", "text/latex")  # shown as they are written
# A tab is a radio button that is not seen, with its label and what it shows. Where this style is
# taken away, ranks are below each other. What is shown begins where other output of a cell does.
_STYLE = """<style>.ddip-tabs { display: flex; flex-wrap: wrap; position: relative;
    font-size: var(--jp-widgets-font-size, 13px); }
.ddip-tabs::before { content: "rank"; padding: 0 .6em 0 8px; line-height: 26px; }
.ddip-tabs > label > span { display: none; }
.ddip-tabs > input { position: absolute; opacity: 0; pointer-events: none; }
.ddip-tabs > label { box-sizing: border-box; line-height: 24px; padding: 1px 10px 0;
    margin: 0 -1px -1px 0; text-align: center; white-space: nowrap; cursor: pointer;
    border: 1px solid var(--jp-border-color1, rgba(128,128,128,.5));
    background: var(--jp-layout-color2, rgba(128,128,128,.15)); }
.ddip-tabs > input:checked + label { padding-top: 0; z-index: 1;
    background: var(--jp-layout-color1, transparent); border-bottom-color: transparent;
    border-top: 2px solid var(--jp-brand-color1, #1976d2); }
.ddip-tabs > input:focus-visible + label { outline: 2px solid var(--jp-brand-color1, #1976d2);
    outline-offset: -3px; }
.ddip-tabs > div { order: 1; flex: 0 0 100%; min-width: 0; display: none; overflow-x: auto;
    box-sizing: border-box; padding: 4px 7px; --jp-code-padding: 0px;
    font-size: var(--jp-content-font-size1, 14px);
    border: 1px solid var(--jp-border-color1, rgba(128,128,128,.5)); }
.ddip-tabs > input:checked + label + div { display: block; }
</style>"""
_TAB = (
    '<input type="radio" name="{name}" id="{name}-{number}"{checked}>'
    '<label for="{name}-{number}" style="min-width:{width}ch;{style}">'
    "<span>rank </span>{title}</label><div>{body}</div>"
)
_WRAPPED = "white-space:pre-wrap;overflow-wrap:anywhere"
_STDERR = f"{_WRAPPED};background:var(--jp-rendermime-error-background,rgba(244,67,54,.2))"


def as_text(panes: Iterable[tuple[int, Outputs]]) -> str:
    """The text of all ranks, each line with the number of its rank. panes: (rank, its outputs)."""
    lines = []
    for rank, outputs in panes:
        for output in outputs:
            text = _ANSI.sub("", _plain(output)).removesuffix("\n")
            lines += [f"[{rank}] {line}" for line in text.split("\n")] if text else []
    return "\n".join(lines)


def as_html(name: str, tabs: Iterable[tuple[str, str, Outputs]], chosen: int, width: float) -> str:
    """Tabs in HTML. name: no other element of the page has it. tabs: (title, CSS of its text,
    outputs); chosen: the index of the one that is open; width: of a title, at least, in
    characters."""
    pieces = [
        _TAB.format(
            name=name,
            number=number,
            checked=" checked" if number == chosen else "",
            width=width,
            style=style,
            title=html.escape(title),
            body="".join(map(_html, outputs)),
        )
        for number, (title, style, outputs) in enumerate(tabs)
    ]
    return f'{_STYLE}<div class="ddip-tabs">{"".join(pieces)}</div>'


def is_shown(output: dict[str, Any]) -> bool:
    """True if as_html() shows this output, and not only a text that stands for it."""
    kinds = output.get("data", {}).keys()
    shown = {*_IMAGES, *_MARKUP, *_SOURCES}
    return VIEW not in kinds and (kinds <= {"text/plain"} or bool(kinds & shown))


def _plain(output):
    """An output as text with colours."""
    if output["output_type"] == "stream":
        return output["text"]
    if output["output_type"] == "error":
        return "\n".join(output["traceback"])
    return _source(output["data"]) or output["data"].get("text/plain", "")


def _source(data):
    """The source of what has nothing else that HTML could show; ""."""
    if any(kind in data for kind in (*_IMAGES, *_MARKUP)):
        return ""
    return next((data[kind] for kind in _SOURCES if kind in data), "")


def _html(output):
    data = output.get("data", {})
    for kind in _IMAGES:
        if kind in data:
            size = output["metadata"].get(kind, {})
            sides = "".join(f' {key}="{size[key]}"' for key in ("width", "height") if key in size)
            return f'<img src="data:{kind};base64,{data[kind].strip()}"{sides}>'
    shown = next((data[kind] for kind in _MARKUP if kind in data), None)
    style = _STDERR if output.get("name") == "stderr" else _WRAPPED
    return shown or bars.pre(_plain(output), style)
