#!/usr/bin/env python3
"""Kernels that are restarted or shut down while a cell runs: the cell goes on."""

import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from importlib.util import find_spec

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient")

FIRST = ("%load_ext ddip", "%makedip -n 2", "%%dip\nimport os, time")
# prints on until the gate is open; whatever interrupts it is printed
GOES_ON = (
    "%%dip\nstep = 0\ntry:\n    while not os.path.exists({gate!r}):\n        step += 1\n"
    "        print('step', step, flush=True)\n        time.sleep(0.05)\n"
    "except KeyboardInterrupt:\n    print('interrupted')\n    raise\nprint('done', step > 0)"
)
LONG_S = 20  # much longer than it takes
WAYS = [(verb, now) for verb in ("restart_kernel", "shutdown_kernel") for now in (False, True)]


def goes_on(nb, source, begins, way):
    """Ends the kernel by one of WAYS while its cell runs; shows the cell in another kernel."""
    begun = nb.begin(source)
    nb.until(begun, begins)
    number = nb.status()["cell"]
    since = time.monotonic()
    nb.manage(way[0], now=way[1])
    took = time.monotonic() - since
    assert nb.status()["cell"] == number and nb.status()["state"] == "busy", (way, nb.status())
    begun[0].stop_channels()
    with nb.other() as again:
        again.ok("%load_ext ddip")
        said = again.ok("%makedip").text()
        assert f"cell {number} runs" in said and "%dip --replay" in said, said
        nb.open_gate()
        shown = again.ok("%dip --replay").text()
        os.remove(nb.gate)
    return shown, took


def test_ends_of_kernels():
    """Each way in which a front end ends a kernel, seen from the next kernel."""
    for way in WAYS:
        with notebook.notebook(*FIRST) as nb:
            shown, took = goes_on(nb, GOES_ON.format(gate=nb.gate), "step 2", way)
            assert shown.startswith("step 1\nstep 2\n") and shown.endswith("done True\n"), shown
            assert "interrupted" not in shown, (way, shown)
            print(*way, f"took {took:.1f} s")


def test_own_daemon():
    """The same for a daemon that the kernel has started, and for a rank that asks for input."""
    with notebook.notebook(*FIRST, own=True) as nb:
        shown, _ = goes_on(nb, GOES_ON.format(gate=nb.gate), "step 2", WAYS[0])
        assert shown.endswith("done True\n") and "interrupted" not in shown, shown


def test_input_field():
    """A kernel that ends while it shows a rank's input field leaves the rank asking."""
    with notebook.notebook(*FIRST) as nb:
        begun = nb.begin("%%dip --ranks 0\nname = input('name: ')\nprint('hi', name)")
        begun[0].get_stdin_msg(timeout=notebook.HANG_LIMIT_S)
        nb.manage("restart_kernel")
        begun[0].stop_channels()
        assert nb.status()["state"] == "busy", nb.status()
        with open(f"{nb.group}/rank0/stdin", "w", encoding="utf-8") as stdin:
            stdin.write("Ada\n")
        notebook.until(lambda: nb.is_printed("hi Ada"))


def test_stop():
    """An interrupt of which nothing follows interrupts the cell, soon."""
    with notebook.notebook(*FIRST) as nb:
        begun = nb.begin(GOES_ON.format(gate=nb.gate))
        nb.until(begun, "step 2")
        since = time.monotonic()
        nb.manage("interrupt_kernel")
        outcome = nb.finish(begun)
        print(f"stopped after {time.monotonic() - since:.3f} s")
        assert outcome.error[0] == "KeyboardInterrupt" and "goes on" not in outcome.error[1]
        assert "interrupted" in outcome.text(), outcome.text()
        begun = nb.begin(GOES_ON.format(gate=nb.gate))
        nb.until(begun, "step 2")
        os.kill(nb.pid, signal.SIGINT)
        assert nb.finish(begun).error[0] == "KeyboardInterrupt"


def test_interrupt_within_another():
    """One that comes while another is looked at, anywhere there, is looked at as well."""
    sys.path.insert(0, notebook.MAGICS)
    from ddip.cells import shutdown

    class Shell:
        class kernel:
            do_shutdown = print

    places = set()

    def comes(frame, event, arg):
        if (frame.f_code, frame.f_lineno) not in places:
            places.add((frame.f_code, frame.f_lineno))
            leaves()
        return comes

    def look():
        sys.settrace(comes)
        try:
            leaves()
        finally:
            sys.settrace(None)

    before, shutdown._FOLLOWS_S = shutdown._FOLLOWS_S, 0.01
    try:
        with shutdown.noticed(Shell) as leaves:
            thread = threading.Thread(target=look, daemon=True)
            thread.start()
            thread.join(LONG_S)
            assert not thread.is_alive() and places, sorted(line for _, line in places)
    finally:
        shutdown._FOLLOWS_S = before


@contextlib.contextmanager
def server(nb):
    """Jupyter's server, as a function request(method, path) that returns what its API answers."""
    runtime = os.path.join(nb.folder, "runtime")
    words = "--no-browser --allow-root --IdentityProvider.token=word --ServerApp.port=0".split()
    started = subprocess.Popen(
        [sys.executable, "-m", "jupyter_server", *words, f"--ServerApp.root_dir={nb.folder}"],
        env={**nb.environment, "JUPYTER_RUNTIME_DIR": runtime},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    told = os.path.join(runtime, f"jpserver-{started.pid}.json")

    def request(method, path):
        with open(told, encoding="utf-8") as file:
            place = f"{json.load(file)['url']}api/{path}"
        asked = urllib.request.Request(place, method=method, data=b"" if method == "POST" else None)
        asked.add_header("Authorization", "token word")
        with urllib.request.urlopen(asked, timeout=notebook.HANG_LIMIT_S) as answer:
            return json.loads(answer.read() or b"null")

    def serves():
        with contextlib.suppress(OSError, ValueError):  # not yet
            return bool(request("GET", "status"))

    try:
        notebook.until(serves)
        yield request
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(notebook.HANG_LIMIT_S)


def answers(nb, kernel):
    """True if the kernel of this connection file runs a cell."""
    with contextlib.suppress(RuntimeError):  # it does not yet beat
        return nb.finish(nb.begin("1", kernel)).data() == ["1"]


def test_server():
    """The menu's Restart and Shut Down, which are requests to Jupyter's server."""
    if find_spec("jupyter_server") is None:
        print("not tried: there is no jupyter_server")
        return
    with notebook.notebook(*FIRST) as nb, server(nb) as request:
        for end in (("POST", "/restart"), ("DELETE", "")):
            kernel = request("POST", "kernels")["id"]
            (file,) = glob.glob(f"{nb.folder}/runtime/kernel-{kernel}.json")
            notebook.until(lambda file=file: answers(nb, file))
            begun = nb.begin("%load_ext ddip\n%makedip\n%autodip on", file)
            assert nb.finish(begun).error is None
            source = GOES_ON.format(gate=nb.gate).removeprefix("%%dip\n")
            begun = nb.begin(source, file)
            nb.until(begun, "step 2")
            request(end[0], f"kernels/{kernel}{end[1]}")
            assert nb.status()["state"] == "busy", (end, nb.status())
            begun[0].stop_channels()
            nb.open_gate()
            assert nb.ok("%dip --replay").text().endswith("done True\n")
            os.remove(nb.gate)
        request("DELETE", f"kernels/{request('POST', 'kernels')['id']}")


if __name__ == "__main__":
    notebook.run(globals())
