#!/usr/bin/env python3
"""A cell shows on a rank what it shows in the notebook's own kernel: streams, values, errors."""

import re
import sys

import notebook

notebook.need("IPython", "ipykernel", "nbclient", "matplotlib", "pandas")

CELLS = {
    "a value": "6 * 7",
    "no value": "x = 1",
    "None": "None",
    "a semicolon": "5;",
    "two streams": "import sys\nprint('out'); print('err', file=sys.stderr); print('again')",
    "an open line": "print('open', end=''); 'value'",
    "a long list": "list(range(2000))",
    "a nested dict": "{'a': [{'b': list(range(40))}] * 3, 'c': 'x' * 100}",
    "unicode": "print('\\u4e2d\\u6587 \\U0001f600'); '\\u00fc\\n'",
    "rich reprs": (
        "class Both:\n    def _repr_html_(self): return '<b>b</b>'\n"
        "    def _repr_markdown_(self): return '**b**'\n"
        "    def __repr__(self): return 'Both'\nBoth()"
    ),
    "a mime bundle": (
        "class Bundle:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n"
        "        return {'application/json': {'a': 1}, 'text/plain': 'bundle'}\nBundle()"
    ),
    "a repr that raises": (
        "class Bad:\n    def _repr_html_(self): raise ValueError('no html')\n"
        "    def __repr__(self): return 'Bad'\nBad()"
    ),
    "displays": "from IPython.display import display, HTML, Markdown, JSON\n"
    "display(HTML('<i>i</i>'), Markdown('*m*'), 3); display(JSON({'a': [1]}))",
    "raw data": "display({'text/plain': 'p', 'text/html': '<p>'}, raw=True, metadata={'m': 1})",
    "a data frame": "import pandas; pandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})",
    "clear": "from IPython.display import clear_output\n"
    "print('gone'); clear_output(); print('stays')",
    "a shell": "!echo from a child; echo beside >&2",
    "a shell's lines": "lines = !printf 'a\\nb\\n'\nlines",
    "%time": "%%time\nprint('timed')\n3",
    "%%capture": "%%capture got\nprint('held')",
    "and what it held": "got.stdout",
    "help": "len?",
    "_ and Out": "_",
    "an exception": "def f(a):\n    b = a\n    return 1 / b\nf(0)",
    "a chain": "try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('second') from e",
    "a context": "try:\n    {}['k']\nexcept KeyError:\n    int('z')",
    "notes": "e = ValueError('with notes')\ne.__notes__ = ['one', 'two']\nraise e",
    "a group": "raise ExceptionGroup('many', [ValueError(1), TypeError('t')])",
    "a syntax error": "for\n    pass",
    "an indentation error": "if 1:\npass",
    "an exit": "raise SystemExit(3)",
    "assert": "assert 1 == 2, 'differ'",
    "recursion": "def g(n): return g(n + 1)\ng(0)",
    "await": "import asyncio\nawait asyncio.sleep(0)\n'awaited'",
    "a warning": "import warnings; warnings.warn('careful'); warnings.warn('careful')",
    "an empty cell": "# nothing",
}
if sys.version_info < (3, 11):
    del CELLS["a group"]
# Where a rank differs, and means to: a shell's streams stay apart, for there is no terminal; the
# text for a pager is shown; deep recursion and groups are short; an exit has no advice.
OTHERWISE = {"a shell", "help", "a group", "recursion", "an exit"}
# What is named otherwise: the cell, the rank of a value, the time, an address.
_SAME = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"<pre [^>]*><span [^>]*>Out\[0:\d+\]:</span> </pre>", ""),
    (r"^Out\[0:\d+\]:[ \n]", ""),
    (r"(Cell In\[\d+\], line |<cell \d+>:|\S*/ipykernel_\d+/\d+\.py:)(\d+)", r"CELL:\2"),
    (r"\d+\.py|<cell \d+>", "FILE"),
    (r"\b[\d.]+ [mµμn]?s\b", "TIME"),
    (r"0x[0-9a-f]+", "0xADDRESS"),
    (r"\ARank 0:\n|\Arank 0:\n|^-{70,}\n", ""),
)
_CHAINED = re.compile(r"\n\n(?:The above exception was|During handling of)[^\n]*\n\n")


def plain(value):
    for pattern, other in _SAME if isinstance(value, str) else ():
        value = re.sub(pattern, other, value, flags=re.M)
    return value


def told(output):
    """An error: its name and value, and the traceback of the last of a chain, without the lines
    around the one that raised: IPython shows the whole statement, a rank two lines."""
    name, value = output.ename, output.evalue
    said = value if name == "RemoteError" else f"{name}({value})"
    last = _CHAINED.split("\n".join(output.traceback))[-1]
    lines = [line for line in plain(last).splitlines() if line and not re.match(r" +\d+ ", line)]
    return [plain(said), lines]


def shown(outcome):
    """What a cell has shown: streams whole, errors, and what is displayed, in order."""
    streams = {name: plain(outcome.text(name)) for name in ("stdout", "stderr")}
    errors = [told(o) for o in outcome.outputs if o.output_type == "error"]
    displayed = [
        [{mime: plain(value) for mime, value in o.data.items()}, dict(o.metadata)]
        for o in outcome.outputs
        if "data" in o
    ]
    return streams, errors, displayed


def test_cells():
    different = []
    with notebook.notebook("%load_ext ddip", "%makedip -n 1") as nb:
        for name, source in CELLS.items():
            magic = source.startswith("%%")
            first = "" if magic else "#%%dip\n"  # which a rank gets, too
            here, there = shown(nb.run(first + source)), shown(nb.run(f"%%dip\n{source}"))
            if name in OTHERWISE:
                assert here != there, f"{name} is the same: it needs no exception"
            elif here != there:
                different.append(f"{name}:\n  here:  {here}\n  there: {there}")
    assert not different, "\n".join(different)


if __name__ == "__main__":
    notebook.run(globals())
