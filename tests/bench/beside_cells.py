"""Cells of one IPython shell, by %%dip and by ipyparallel's %%px in turn. Prints seconds as JSON.

usage: beside_cells.py MOUNT COMMAND…, in an environment with ipyparallel; MOUNT has 2 ranks,
COMMAND mounts another group, at its last word
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import ipyparallel
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

TIMES = 15
PRINTS = "import time\nfor i in range(20): print(f'at {time.time():.6f}'); time.sleep(0.02)"
PICTURE = (
    "from IPython.display import Image, display\nimport os\n"
    "display(Image(b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(1 << 20), format='png'))"
)
SLEEP = "import time\nprint('sleeps', flush=True)\nfor i in range(1000): time.sleep(0.1)"
MAGIC = {"dip": "%%dip --see all\n", "px": "%%px --block\n"}


class Shown:
    """Standard output that notes when text arrived."""

    def __init__(self):
        self.text, self.lags, self.began = "", [], threading.Event()

    def write(self, text):
        now = time.time()
        self.lags += [now - float(at) for at in re.findall(r"at (\d+\.\d+)", text)]
        self.text += text
        if "sleeps" in text:
            self.began.set()
        return len(text)

    def flush(self):
        pass


def run(shell, source):
    """Runs a cell. Returns (seconds, what it has shown, its error)."""
    shown = Shown()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        begin = time.perf_counter()
        error = shell.run_cell(source).error_in_exec
        return time.perf_counter() - begin, shown, error


def ok(shell, source):
    taken, shown, error = run(shell, source)
    if error is not None:
        raise error
    return taken, shown


def interrupted(shell, magic):
    """Seconds from SIGINT, as the stop button sends it, to the prompt."""
    shown, sent = Shown(), []

    def press():
        shown.began.wait()
        time.sleep(0.2)  # both ranks sleep
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        with contextlib.suppress(KeyboardInterrupt):
            shell.run_cell(magic + SLEEP)
    taken = time.perf_counter()
    thread.join()
    ok(shell, magic + "pass")  # and the next one works
    return taken - sent[0]


def measure(shell, magic):
    """All measurements of one of the two; each is a list of seconds."""
    ok(shell, magic + "import os")
    lags = [lag for _ in range(3) for lag in ok(shell, magic + PRINTS)[1].lags]
    if not lags:
        raise RuntimeError(f"{magic.strip()}: no line was shown")
    return {
        "cell": [ok(shell, magic + "pass")[0] for _ in range(TIMES * 5)],
        "line": lags,
        "picture": [ok(shell, magic + PICTURE)[0] for _ in range(TIMES)],
        "error": [failing(shell, magic) for _ in range(TIMES)],
        "interrupt": [interrupted(shell, magic) for _ in range(5)],
    }


def failing(shell, magic):
    taken, shown, error = run(shell, magic + "1 / 0")
    if error is None or "ZeroDivisionError" not in shown.text:
        raise RuntimeError(f"{magic.strip()}: no traceback: {shown.text}")
    return taken


def completion(shell):
    """Seconds that it takes to complete the attributes of a remote module."""
    ok(shell, "%%dip\nimport subprocess as remote_name")
    taken = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        text = "%%dip\nremote_name.Pop"
        with provisionalcompleter():
            found = [each.text for each in shell.Completer.completions(text, len(text))]
        taken.append(time.perf_counter() - begin)
        if "Popen" not in found:
            raise RuntimeError(f"completion found {found}")
    return taken


def main():
    mount, *command = sys.argv[1:]
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "ddip")
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    ok(shell, f"%makedip -m {command[-1]}")
    ok(shell, "%%dip\npass")
    result = {"dip": {"start": [time.perf_counter() - begin]}}
    subprocess.run(["fusermount3", "-u", command[-1]], check=True)
    begin = time.perf_counter()
    with ipyparallel.Cluster(n=2, log_level=40) as client:
        client[:].activate()
        ok(shell, MAGIC["px"] + "pass")
        result["px"] = {"start": [time.perf_counter() - begin]}
        ok(shell, f"%makedip -m {mount}")
        for name, magic in MAGIC.items():
            result[name] |= measure(shell, magic)
    result["dip"]["complete"] = completion(shell)
    print(json.dumps(result))


main()
