#!/usr/bin/env python3
"""JupyterLab in a real browser: what only an eye sees."""

import importlib.util
import os
import shutil
import sys
import time

import notebook

sys.path.insert(0, os.path.join(notebook.ROOT, "scripts"))
NEEDED = ("jupyterlab", "jupyterlab_widgets", "selenium")
LAB = os.path.join(notebook.ROOT, "build/picture-venv/bin/python")

SHOWN, TABS, FAILS, KEPT, RUNS, REPLAY, AGAIN, STILL = range(1, 9)
CELLS = (
    "%load_ext ddip\n%makedip -n 2",
    "%%dip\nprint('hello from rank', rank)",
    "%%dip -S tabs\nprint('printed by', rank)\nif rank == 1:\n    raise ValueError('boom')",
    "%%dip\nimport os, time, torch.distributed as dist\nif rank == 1:\n"
    "    raise KeyError('the cause')\ndist.barrier()",
    "%%dip\nkept = 40 + rank",
    "%%dip\nprint('seen', flush=True)\nwhile not os.path.exists('gate'):\n    time.sleep(0.05)\n"
    "print('missed')",
    "%dip --replay",
    "%load_ext ddip\n%makedip",
    "%%dip\nprint('still', kept)",
)


def need():
    """Continues in a Python that has JupyterLab; skips the test if there is none."""
    what = "Debian's chromium and chromium-driver, JupyterLab and Selenium: scripts/setup --picture"
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        notebook.skip(f"it needs {what}")
    for path in (notebook.PYTHON, os.path.join(notebook.BUILD, "ddipfs")):
        if not os.access(path, os.X_OK):
            notebook.skip(f"there is no {path}")
    if all(importlib.util.find_spec(name) for name in NEEDED):
        return
    if os.access(LAB, os.X_OK) and os.path.realpath(sys.prefix) != os.path.realpath(
        os.path.dirname(os.path.dirname(LAB))
    ):
        os.execv(LAB, [LAB, *sys.argv])
    notebook.skip(f"it needs {what}")


def count_is(text, word, count):
    """Asserts how often a word is in a text."""
    assert text.count(word) == count, f"{text.count(word)} times {word!r}, not {count}:\n{text}"


def finished(page, number):
    """Runs a cell to its end, however it ends. Returns its text."""
    page.start(number)
    browser.wait(f"the end of cell {number}", lambda: page.is_done(number))
    return page.output(number)


def first_output(page):
    """A cell shows what rank 0 prints."""
    page.run(0)
    text = page.run(SHOWN)
    count_is(text, "hello from rank 0", 1)


def look_at_tabs(page):
    """One tab for each rank, that of the failed one in front and red, its traceback shown once."""
    finished(page, TABS)
    browser.wait("the failed tab", lambda: "ValueError" in page.tabs(TABS)[1][0])
    (_, plain), (title, red) = page.tabs(TABS)
    assert title == "1 ✗ ValueError" and red == "rgba(198, 40, 40, 1)" != plain, (title, red, plain)
    text = page.output(TABS)
    count_is(text, "Traceback (most recent call last)", 1)
    assert "printed by 1" in text and "printed by 0" not in text, text
    page.choose(TABS, 0)
    browser.wait("the other tab", lambda: "printed by 0" in page.output(TABS))
    text = page.output(TABS)
    count_is(text, "Traceback", 0)
    count_is(text, "rank 1: ValueError: boom", 1)


def look_at_failure(page):
    """It reads from the cause down, and is told once."""
    text = finished(page, FAILS)
    count_is(text, "Traceback (most recent call last)", 1)
    count_is(text, "raise KeyError('the cause')", 1)
    freed = "rank 0 was in barrier()"
    count_is(text, freed, 1)
    assert text.index("raise KeyError") < text.index(freed), text


def reload(page):
    """The page is loaded again while a cell runs: what it has missed is told on request."""
    finished(page, KEPT)
    page.start(RUNS)
    browser.wait("output", lambda: "seen" in page.output(RUNS))
    page.reload()
    page.start(REPLAY)
    page.write("gate")
    text = browser.wait("what was missed", lambda: page.is_done(REPLAY) and page.output(REPLAY))
    assert "seen" in text and "missed" in text, text


def restart(page):
    """Kernel > Restart leaves the ranks and what they have."""
    page.restart()
    finished(page, AGAIN)
    assert page.number(AGAIN) < KEPT, "the kernel was not restarted"
    text = finished(page, STILL)
    assert "still 40" in text, text


def test_notebook():
    """A notebook from its first cell to the one after a restart of its kernel."""
    notebook.need_mount()
    with browser.page("seen", CELLS) as page:
        for step in (first_output, look_at_tabs, look_at_failure, reload, restart):
            begun = time.monotonic()
            step(page)
            print(f"{step.__name__}: {time.monotonic() - begun:.1f} s")


need()
import browser  # noqa: E402

if __name__ == "__main__":
    notebook.run(globals())
