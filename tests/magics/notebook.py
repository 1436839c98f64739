"""Shared by the tests of the magics: a notebook with a real kernel and a group of its own; all
groups of a test file are on one mount. With DDIP_TEST_NO_TORCH its kernels and ranks have no torch.

Nothing here is a test. A test file is a program: `run()` calls its functions named test_*.
"""

import contextlib
import functools
import glob
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
PYTHON = os.environ.get("PYTHON") or os.path.join(ROOT, ".venv/bin/python")
MAGICS = os.path.join(ROOT, "magics")
WITHOUT = []  # where modules are found that hide others
if os.environ.get("DDIP_TEST_NO_TORCH"):
    WITHOUT = [os.path.join(ROOT, "tests", "fake", "no_torch")]
    os.environ["PYTHONPATH"] = WITHOUT[0]
# Only guards against hangs: nothing should come near it, even on a busy machine.
HANG_LIMIT_S = int(os.environ.get("HANG_LIMIT_S", "300"))
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# A line that a cell shows after a while without output: that depends on the timing.
_PASSING = re.compile(r"^(ran|running) for [0-9.]+ s$\n?", re.M)


class NeedsMount(Exception):
    """Nothing can be mounted here, as tests/run has found."""


class NeedsPackage(Exception):
    """A test needs a package that the tests' interpreter lacks."""


def need_package(name):
    """Skips this one test if there is no such package, which the end of the program tells."""
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise NeedsPackage(name)


def skip(why):
    """Ends the program as skipped."""
    print(why)
    sys.exit(77)


def need(*modules):
    """Continues in the tests' interpreter; skips the test if that lacks a module."""
    if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(PYTHON))):
        if not os.access(PYTHON, os.X_OK):
            skip(f"there is no {PYTHON}")
        os.execv(PYTHON, [PYTHON, *sys.argv])
    from importlib.util import find_spec

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        skip(f"{PYTHON} has no {' '.join(missing)}")
    if not os.access(os.path.join(BUILD, "ddipfs"), os.X_OK):
        skip("ddipfs is not built")


def need_mount():
    """Skips the test where nothing can be mounted."""
    if os.environ.get("DDIP_TEST_NO_MOUNT"):
        raise NeedsMount


def client(node, kernel="python3", **options):
    """An nbclient for a notebook. kernel: the name of a kernel that is installed."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    # chosen ports may be taken by others before the kernel has started
    sockets = os.path.join(tempfile.mkdtemp(prefix="kernel."), "ipc")
    return NotebookClient(
        node,
        timeout=HANG_LIMIT_S,
        startup_timeout=HANG_LIMIT_S,
        iopub_timeout=HANG_LIMIT_S,  # when it expires, output would be lost silently
        kernel_name=kernel,
        config=Config({"KernelManager": {"transport": "ipc", "ip": sockets}}),
        **options,
    )


class Outputs(list):
    """The outputs that messages contain, as a front end shows them."""

    def __init__(self):
        super().__init__()
        self.captured = {}  # comm id of an Output widget -> its Outputs
        self._captures = None  # the comm id of the one that captures
        self._displays = {}  # by display_id
        self._clears = False  # the next output replaces all

    def take(self, message):
        """Adds the output of this message, or updates what was shown."""
        if message["msg_type"] == "comm_msg":
            self._take_msg_id(message["parent_header"], message["content"])
        elif self._captures:
            self.captured.setdefault(self._captures, Outputs()).take(message)
        else:
            self._show(message)

    def _take_msg_id(self, request, content):
        msg_id = (content["data"].get("state") or {}).get("msg_id")
        if msg_id is not None:
            assert bool(msg_id) != bool(self._captures), "one captures, then another"
            assert msg_id in ("", request["msg_id"]), content
            self._captures = content["comm_id"] if msg_id else None

    def _show(self, message):
        from nbformat.v4 import output_from_msg

        kind, content = message["msg_type"], message["content"]
        place = content.get("transient", {}).get("display_id")
        if kind == "clear_output":
            self._clears = True
        shows = kind in ("stream", "display_data", "execute_result", "error")
        if self._clears and (shows or (kind == "clear_output" and not content["wait"])):
            self._clears = False
            self.clear()
        if shows and kind == "stream" and self and self[-1].get("name") == content["name"]:
            self[-1].text += content["text"]
        elif shows:
            self.append(output_from_msg(message))
            if place:
                self._displays.setdefault(place, []).append(self[-1])
        elif kind == "update_display_data":
            for output in self._displays.get(place, ()):
                output.data = content["data"]


class Outcome:
    """The outputs of a cell that ran, except those that depend on how long it took."""

    def __init__(self, cell, captured=None):
        self.captured = captured  # see Outputs; None: not known
        self._all = cell.outputs
        self.outputs = [output for output in cell.outputs if not self._is_passing(output)]

    @staticmethod
    def _is_passing(output):
        data = output.get("data", {})
        return list(data) == ["text/plain"] and not _PASSING.sub("", _ANSI.sub("", *data.values()))

    def text(self, name="stdout"):
        """What was printed to that stream, without colours."""
        return _ANSI.sub("", "".join(o.text for o in self.outputs if o.get("name") == name))

    def data(self, mime="text/plain", passing=False):
        """The representations of that kind, of all displays and results; cleared ones are left out.

        passing: also how long the cell has run.
        """
        found = [o.data.get(mime) for o in self._all if "data" in o]
        if mime.startswith("text/"):
            found = [_ANSI.sub("", value) for value in found if value]
        if mime == "text/plain" and not passing:
            found = [_PASSING.sub("", value) for value in found]
        return [value for value in found if value]

    @property
    def coloured(self):
        """The traceback of the error as received, with its colours; "" if there is none."""
        tracebacks = [o.traceback for o in self.outputs if o.output_type == "error"]
        return "\n".join(tracebacks[0]) if tracebacks else ""

    @property
    def error(self):
        """(name, value, traceback without colours) of the error; None if there is none."""
        for output in self.outputs:
            if output.output_type == "error":
                text = _ANSI.sub("", "\n".join(output.traceback))
                return output.ename, output.evalue, text
        return None


class Notebook:
    """A kernel that runs cells one by one."""

    def __init__(self, mount, environment=(), group="group", folder=None, kernel="python3"):
        """mount: $DDIP_MOUNT. group: $DDIP_GROUP. folder: to run in; None: the one with mount."""
        import nbformat

        self.mount = mount
        self.folder = folder or os.path.dirname(mount)
        self.gate = os.path.join(self.folder, "gate")  # cells wait for this file
        self.group = os.path.join(mount, group)
        self._node = nbformat.v4.new_notebook()
        self._new = nbformat.v4.new_code_cell
        self._client = client(self._node, kernel, allow_errors=True)
        self._extra = dict(environment)
        self.environment = {
            **os.environ,
            **environment_of(mount),
            "DDIP_GROUP": group,
            **self._extra,
        }
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        self._client.create_kernel_manager()
        self._stack.enter_context(self._client.setup_kernel(env=self.environment, cwd=self.folder))
        return self

    def __exit__(self, *exc_info):
        self._stack.close()

    def open_gate(self):
        """Releases the cells that wait for the file `gate`."""
        with open(self.gate, "w", encoding="utf-8"):
            pass

    def other(self):
        """A second notebook with the same group."""
        return Notebook(self.mount, self._extra, os.path.basename(self.group), self.folder)

    def of_kernel(self, name):
        """A second notebook with the same group, of another kernel."""
        group = os.path.basename(self.group)
        return Notebook(self.mount, self._extra, group, self.folder, name)

    @property
    def pid(self):
        """The pid of the kernel."""
        return self._client.km.provisioner.pid

    def manage(self, verb, **how):
        """Calls restart_kernel(), shutdown_kernel() … of the kernel's manager, as front ends do."""
        from jupyter_core.utils import run_sync

        run_sync(getattr(self._client.km, verb))(**how)

    def await_ready(self):
        """Waits until the kernel that a restart has started answers: its output would be lost."""
        from jupyter_core.utils import run_sync

        run_sync(self._client.kc.wait_for_ready)(timeout=HANG_LIMIT_S)

    def run(self, source):
        """Runs a cell. Returns its Outcome."""
        cell = self._new(source)
        self._node.cells.append(cell)
        self._client.execute_cell(cell, len(self._node.cells) - 1)
        return Outcome(cell)

    def ok(self, source):
        """Runs a cell that must not fail."""
        outcome = self.run(source)
        assert outcome.error is None, outcome.error[2]
        return outcome

    def begin(self, source, kernel=None):
        """Starts a cell without waiting for it. Returns the argument for finish().

        kernel: the connection file of another kernel than the notebook's.
        """
        client = self.open(kernel)
        client.wait_for_ready(timeout=HANG_LIMIT_S)
        return client, client.execute(source)

    def open(self, kernel=None):
        """A client of its own of the kernel, which may be busy."""
        from jupyter_client import BlockingKernelClient

        kernel = kernel or self._client.km.connection_file
        client = BlockingKernelClient(connection_file=kernel)
        client.load_connection_file()
        client.start_channels()
        return client

    def until(self, begun, text):
        """Waits until a started cell has shown this text, which its source may contain, too.

        Returns the content of the message as text.
        """
        shown = ""
        while text not in shown:
            message = begun[0].get_iopub_msg(timeout=HANG_LIMIT_S)
            shown = "" if message["msg_type"] == "execute_input" else str(message["content"])
        return shown

    def finish(self, begun):
        """Waits for the end of a started cell. Returns its Outcome."""
        from nbformat.notebooknode import NotebookNode

        client, cell = begun
        outputs, ended = Outputs(), False
        while not ended:
            message = client.get_iopub_msg(timeout=HANG_LIMIT_S)
            if message["parent_header"].get("msg_id") != cell:
                continue
            outputs.take(message)
            ended = message["content"].get("execution_state") == "idle"
        client.stop_channels()
        return Outcome(NotebookNode(outputs=outputs), outputs.captured)

    def talk(self, source, *answers):
        """Runs a cell and answers its input fields. Returns (Outcome, the prompts)."""
        begun, prompts = self.begin(source), []

        def answer():
            for line in answers:
                prompts.append(begun[0].get_stdin_msg(timeout=HANG_LIMIT_S)["content"]["prompt"])
                begun[0].input(line)

        thread = threading.Thread(target=answer)
        thread.start()
        outcome = self.finish(begun)
        thread.join()
        return outcome, prompts

    def complete(self, code):
        """What completes this code."""
        return self._ask("complete", code)["matches"]

    def kernel_info(self):
        """What the kernel says of itself."""
        return self._ask("kernel_info")

    def debug(self, command, **arguments):
        """The answer to a request of the Debug Adapter Protocol."""
        client = self._client.kc
        request = {"type": "request", "seq": 1, "command": command, "arguments": arguments}
        message = client.session.msg("debug_request", request)
        client.control_channel.send(message)
        return self._answer(client.get_control_msg, message["header"]["msg_id"])

    def _ask(self, kind, *words):
        client = self._client.kc
        return self._answer(client.get_shell_msg, getattr(client, kind)(*words))

    @staticmethod
    def _answer(get, msg_id):
        from jupyter_core.utils import run_sync

        while True:
            message = run_sync(get)(timeout=HANG_LIMIT_S)
            if message["parent_header"].get("msg_id") == msg_id:
                return message["content"]

    def status(self):
        """The group's `status` as a dictionary."""
        with open(f"{self.group}/status", encoding="utf-8") as file:
            return dict(line.rstrip("\n").partition(" ")[::2] for line in file)

    def interrupt(self):
        """Does what the stop button does: signals the kernel's whole process group."""
        os.killpg(os.getpgid(self.pid), signal.SIGINT)

    def when(self, condition, act):
        """Calls act() in a thread as soon as condition() is true."""

        def wait():
            until(condition)
            act()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def submit(self, source):
        """Submits a cell as another program would, and does not wait for it."""
        fd = os.open(os.path.join(self.group, "cell"), os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, source.encode())
        os.close(fd)

    def is_shown(self, text):
        """True if the running cell has shown that so far."""
        cells = self._node.cells
        shown = cells[-1].outputs if cells else ()
        texts = (o.get("text") or o.get("data", {}).get("text/plain", "") for o in shown)
        return any(text in each for each in texts)

    def is_printed(self, text, rank=0):
        """True if the rank has printed that."""
        with open(f"{self.group}/rank{rank}/stdout", encoding="utf-8") as file:
            return text in file.read()


def _on_a_socket(mount):
    """A program that serves the requested mount on a socket, and mounts it for the test to see."""
    program = f"{mount}.ddipfs"
    with open(program, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nmkdir -p {mount}\nexec {BUILD}/ddipfs "$@" {mount}\n')
    os.chmod(program, 0o700)
    return {"DDIPFS": program, "DDIP_MOUNT": f"{mount}.sock"}


def at_terminal(nb, lines):
    """Types the lines at IPython in a terminal of its own, for the group of a Notebook. Returns the
    completed process."""
    return subprocess.run(
        [PYTHON, "-m", "IPython", "--simple-prompt", "--no-banner", "--quick"],
        input="\n".join(lines) + "\n",
        env={**os.environ, **environment_of(nb.mount)} | {"DDIP_GROUP": os.path.basename(nb.group)},
        cwd=nb.folder,
        capture_output=True,
        text=True,
        check=False,
    )


def environment_of(mount):
    """The environment in which a kernel finds the package, the daemon and its mount."""
    return _places(mount) | (_on_a_socket(mount) if os.environ.get("DDIP_TEST_SOCKET") else {})


def _places(mount):
    """The environment for a kernel that mounts."""
    return {
        "PYTHONPATH": os.pathsep.join([*WITHOUT, MAGICS]),
        "DDIPFS": os.path.join(BUILD, "ddipfs"),
        "DDIP_MOUNT": mount,
        "PATH": os.path.dirname(PYTHON) + os.pathsep + os.environ["PATH"],
        "IPYTHONDIR": os.path.join(os.path.dirname(mount), "ipython"),
        "JUPYTER_PLATFORM_DIRS": "1",
    }


_shared = contextlib.ExitStack()  # run() ends it
_group_numbers = itertools.count(1)


@functools.cache
def shared_mount():
    """The mount of this file's tests, started when it is first requested."""
    folder = _shared.enter_context(tempfile.TemporaryDirectory())
    mount = _shared.enter_context(place(folder))
    environment = {**os.environ, **environment_of(mount)}
    at = environment["DDIP_MOUNT"]
    os.makedirs(mount, exist_ok=True)
    words = ["-s", at] if at.endswith(".sock") else [at]
    words = [environment["DDIPFS"], "-o", f"python={PYTHON}", *words]
    subprocess.run(words, env=environment, cwd=folder, check=True)
    return mount


@contextlib.contextmanager
def _new_group():
    """(mount, name) of a group on the shared mount, which is removed afterwards."""
    mount, name = shared_mount(), f"test{next(_group_numbers)}"
    path = os.path.join(mount, name)
    os.mkdir(path)
    try:
        yield mount, name
    finally:
        with open(f"{path}/ctl", "w", encoding="utf-8") as ctl:
            ctl.write("stop\n")
        os.rmdir(path)


@contextlib.contextmanager
def _new_mount(folder):
    """(mount, name) of the group of a mount that the test makes; it is unmounted afterwards."""
    with place(folder) as mount:
        yield mount, "group"


@contextlib.contextmanager
def notebook(*first, own=False, **environment):
    """A Notebook with a group of its own, which is removed afterwards. first: cells to run.

    own: with a mount of its own, which its first cell starts.
    """
    with tempfile.TemporaryDirectory() as folder:
        with _new_mount(folder) if own else _new_group() as (mount, group):
            with Notebook(mount, environment.items(), group, folder) as nb:
                for source in first:
                    nb.ok(source)
                yield nb


@functools.cache
def _kept_notebook(*first):
    return _shared.enter_context(notebook(*first))


def shared_notebook(*first):
    """A Notebook that all tests with these first cells share, as a context."""
    return contextlib.nullcontext(_kept_notebook(*first))


@contextlib.contextmanager
def place(folder):
    """A path to mount on; whatever is mounted there is unmounted at the end. Or NeedsMount."""
    need_mount()
    mount = os.path.join(folder, "mnt")
    try:
        yield mount
    finally:
        until(lambda: not os.path.ismount(mount) or _is_unmounted(mount))
        until(lambda: not is_served(mount))


def _is_unmounted(mount):
    """Unmounts it. False: not yet; the watchdog briefly uses the mount when there is news."""
    done = subprocess.run(["fusermount3", "-u", mount], capture_output=True, text=True, check=False)
    assert "busy" in done.stderr or not os.path.ismount(mount), done.stderr
    return done.returncode == 0


def is_served(mount):
    """True while the mount's daemon runs: it exits after everything that it started."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:  # it has exited
            continue
        if os.fsencode(mount) in words:
            return True
    return False


def until(condition):
    """Waits for a condition. Raises AssertionError on a timeout."""
    end = time.monotonic() + HANG_LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


def some(module, words):
    """Those tests of a module, as run() takes them. words: their names without test_."""
    names = [f"test_{word}" for word in words.split()]
    return {name: getattr(module, name) for name in names}


def run(space):
    """Calls the tests of a module in order, or those whose names contain one of the arguments."""
    os.environ.setdefault("TMPDIR", "/tmp")
    os.environ.setdefault("DDIP_STATE", os.environ["TMPDIR"])
    words, failed, count, without, lacks = sys.argv[1:], [], 0, 0, []
    for name, test in list(space.items()):
        if not name.startswith("test_") or (words and not any(word in name for word in words)):
            continue
        count += 1
        begun = time.monotonic()
        try:
            test()
        except NeedsMount:
            without += 1
            print(f"not tried: {name} needs a mount")
        except NeedsPackage as e:
            lacks.append(str(e))
            print(f"not tried: {name} needs {e}")
        except Exception as e:
            failed.append(f"FAILED {name}: {type(e).__name__}: {_ANSI.sub('', str(e))[-600:]}")
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
        else:
            print(f"ok {name} {time.monotonic() - begun:.1f} s")
        sys.stdout.flush()
    _shared.close()
    print(*failed, f"{count - len(failed) - without - len(lacks)} of {count} passed", sep="\n")
    if without and not failed:
        skip(f"{without} of {count} need a mount" if without < count else "it needs a mount")
    if lacks and not failed:
        skip(f"{len(lacks)} of {count} need {', '.join(sorted(set(lacks)))}")
    sys.exit(bool(failed) or count == 0)
