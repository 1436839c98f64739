#!/usr/bin/env python3
"""Cells, their output and their failures work with the group's files behind a socket: what takes
other operations there than on a mount."""

import os
import signal
import subprocess
import sys

os.environ["DDIP_TEST_SOCKET"] = "1"

import notebook
import test_errors
import test_output

# Runs a cell, stops the daemon, and interrupts three times, each when the last one has come.
STOPS = """
import os, signal, sys, threading
import notebook
from ddip import Group
from ddip.cells import run

group, daemon, stops = sys.argv[1], int(sys.argv[2]), sys.argv[3]
made = []

class Kept(run.cells.Interrupts):
    def __enter__(self):
        made.append(super().__enter__())
        return made[0]

def interrupt():
    notebook.until(lambda: made)
    if stops == "running":
        notebook.until(lambda: made[0]._cell and made[0]._cell.read("rank0/stdout"))
        os.kill(daemon, signal.SIGSTOP)
    for count in range(3):
        os.kill(os.getpid(), signal.SIGINT)
        notebook.until(lambda: made[0].count > count)

run.cells.Interrupts = Kept
if stops == "before":
    os.kill(daemon, signal.SIGSTOP)
thread = threading.Thread(target=interrupt)
thread.start()
try:
    run.run(None, Group(group), "import time; print('begun', flush=True); time.sleep(10_000)")
except KeyboardInterrupt as e:
    print(f"{type(e).__name__}: {e}")
thread.join()
"""
LONG_S = 30  # much longer than it takes


def test_silent_daemon():
    """The third interrupt ends the wait for a cell, or for its number, while the daemon does not
    answer."""
    sys.path.insert(0, notebook.MAGICS)
    from ddip.mounts import p9

    with notebook.notebook("%load_ext ddip", "%makedip -n 1") as nb:
        socket = f"{nb.mount}.sock"
        path = f"{socket}/{os.path.basename(nb.group)}"
        daemon = p9.daemon_of(socket)
        tests = os.path.dirname(os.path.abspath(__file__))
        where = {**os.environ, "PYTHONPATH": os.pathsep.join([notebook.MAGICS, tests])}
        for stops, said in (
            ("running", "KeyboardInterrupt: cell 1 goes on: "),
            ("before", "KeyboardInterrupt: "),
        ):
            words = [notebook.PYTHON, "-c", STOPS, path, str(daemon), stops]
            try:
                done = subprocess.run(
                    words, env=where, capture_output=True, text=True, timeout=LONG_S, check=False
                )
            finally:
                os.kill(daemon, signal.SIGCONT)
            shown = done.stdout.removeprefix("begun\n")  # which had come, or not
            assert shown.startswith(said) and not done.stderr, done
            with open(f"{nb.group}/ctl", "w", encoding="utf-8") as ctl:
                ctl.write("interrupt\n")


if __name__ == "__main__":
    output = "streams rich cleared results flood replay"
    errors = "errors told failure_is_shown_at_once a_hang_explains_itself interrupt input_fields"
    errors += " one_dialog_at_a_time prompts_end within_a_rank two_notebooks of_others"
    errors += " kernel_restart"
    others = notebook.some(test_output, output) | notebook.some(test_errors, errors)
    notebook.run({"test_silent_daemon": test_silent_daemon} | others)
