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

SHOWN, TABS, FAILS, KEPT, RUNS, REPLAY, HANGS, GOES, AGAIN, STILL = range(1, 11)
CELLS = (
    "%load_ext ddip\n%makedip -n 2",
    "%%dip\nprint('hello from rank', rank)",
    "%%dip -S tabs\nimport os, time\nprint('printed by', rank)\n"
    "while not os.path.exists('tabs'):\n    time.sleep(0.05)\n"
    "if rank == 1:\n    raise ValueError('boom')",
    "%%dip\nimport os, time, torch.distributed as dist\nif rank == 1:\n"
    "    raise KeyError('the cause')\ndist.barrier()",
    "%%dip\nkept = 40 + rank",
    "%%dip\nprint('seen', flush=True)\nwhile not os.path.exists('gate'):\n    time.sleep(0.05)\n"
    "print('missed')",
    "%dip --replay",
    "%%dip -S tabs\nif rank == 1:\n    time.sleep(600)\ndist.barrier()",
    "%%dip -S tabs\nprint('goes on', flush=True)\nwhile not os.path.exists('end'):\n"
    "    time.sleep(0.05)",
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


def shows(page, number, *words):
    """Waits until a cell shows these words, which may be drawn after its end. Returns its text."""

    def text():
        found = page.output(number)
        return all(word in found for word in words) and (found or " ")

    return browser.wait(f"{words} below cell {number}", text)


def finished(page, number, *words):
    """Runs a cell to its end, however it ends, until it shows these words. Returns its text."""
    page.start(number)
    browser.wait(f"the end of cell {number}", lambda: page.is_done(number))
    return shows(page, number, *words)


def first_output(page):
    """A cell shows what rank 0 prints."""
    page.run(0)
    text = finished(page, SHOWN, "hello from rank 0")
    count_is(text, "hello from rank 0", 1)


def look_at_tabs(page):
    """One tab for each rank, and in their place at the end what the ranks have shown: that of the
    failed one is open and red, its traceback shown once."""
    page.start(TABS)
    browser.wait("tabs", lambda: page.tabs(TABS) == ["0 …", "1 …"])
    page.write("tabs")
    finished(page, TABS)
    look_at_ended_tabs(page)
    page.save()


def look_at_ended_tabs(page):
    """What stays of tabs."""
    browser.wait("what stays", lambda: page.ended_tabs(TABS))
    (_, plain), (title, red) = page.ended_tabs(TABS)
    assert (title, red) == ("1 ✗ ValueError", "rgba(211, 47, 47, 1)") and plain != red
    text = shows(page, TABS, "printed by 1", "Traceback (most recent call last)")
    count_is(text, "Traceback (most recent call last)", 1)
    assert "printed by 1" in text and "printed by 0" not in text, text
    page.choose(TABS, 0)
    text = shows(page, TABS, "printed by 0")
    count_is(text, "Traceback", 0)
    count_is(text, "rank 1: ValueError: boom", 1)


def look_at_failure(page):
    """It reads from the cause down, and is told once."""
    freed = "rank 0 was in barrier()"
    text = finished(page, FAILS, "raise KeyError('the cause')", freed)
    count_is(text, "Traceback (most recent call last)", 1)
    count_is(text, "raise KeyError('the cause')", 1)
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
    browser.wait("the end of the replay", lambda: page.is_done(REPLAY))
    shows(page, REPLAY, "seen", "missed")


def stop(page):
    """The tab of the rank that others wait for is marked; a stop opens it, and nothing is red."""
    page.start(HANGS)
    browser.wait("a mark", lambda: page.tabs(HANGS) == ["0 in barrier", "1 ⚠ line 3"])
    page.stop()
    browser.wait("the end of the hang", lambda: page.is_done(HANGS))
    browser.wait("what stays", lambda: page.ended_tabs(HANGS))
    (title, colour), other = page.ended_tabs(HANGS)
    assert (title, colour) == ("0 ■ interrupted", other[1]) and other[0] == "1 ■ interrupted"
    shows(page, HANGS, "----> 3     time.sleep(600)", "s: rank 1 is in no collective")


def restart(page):
    """Kernel > Restart leaves the ranks and what they have, also within a cell, whose tabs say what
    to do."""
    page.start(GOES)
    shows(page, GOES, "goes on")
    page.restart()
    said = browser.wait("what to do", lambda: page.below_tabs(GOES))
    assert said.startswith("Its kernel is gone; in the next one %dip --replay "), said
    page.write("end")
    finished(page, AGAIN)
    assert page.number(AGAIN) < KEPT, "the kernel was not restarted"
    finished(page, STILL, "still 40")


def reopened(page):
    """A page that is opened when the kernel has ended shows the same."""
    page.reload()
    look_at_ended_tabs(page)


def test_notebook():
    """A notebook from its first cell to the one after a restart of its kernel."""
    notebook.need_mount()
    with browser.page("seen", CELLS) as page:
        for step in (first_output, look_at_tabs, look_at_failure, reload, stop, restart, reopened):
            begun = time.monotonic()
            step(page)
            print(f"{step.__name__}: {time.monotonic() - begun:.1f} s")


need()
import browser  # noqa: E402

if __name__ == "__main__":
    notebook.run(globals())
