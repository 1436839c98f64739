"""How the next process of a kernel "DDP (ddipfs)" learns that it is a restart: a file with the path
of the group.

A Jupyter server asks for a shutdown before a restart, and starts the next process with the same
connection file: the mark is beside it. VS Code starts kernels itself. It ends one by SIGTERM, also
to restart it, and starts the next one at once with another connection file, so there the mark has
the name of the notebook, which VS Code sets in each kernel. A notebook that is opened again as soon
looks the same, and without ranks a kernel that ends would lose all variables, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time

from ddip import groups
from ddip.errors import DipError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from ddip.notebook.attachment import Attachment


_NOTEBOOK = "__vsc_ipynb_file__"  # the variable that VS Code sets first
_SOON_S = 20.0  # a restart: a conda environment may take as long to be activated


def leave(mark: str, group: str) -> None:
    """Makes a mark. Raises OSError."""
    fd = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(group)


def take(mark: str, since: float = 0.0) -> str | None:
    """Removes a mark. Returns the path of the group; None if there is no mark, it is older, or
    another user has made it."""
    try:
        fd = os.open(mark, os.O_RDONLY | os.O_NOFOLLOW)
        with open(fd, encoding="utf-8") as file:
            status, path = os.fstat(fd), file.read()
        os.unlink(mark)
    except (OSError, UnicodeDecodeError):
        return None
    return path if status.st_uid == os.getuid() and status.st_mtime >= since else None


class BySignal:
    """A kernel that VS Code ends leaves a mark for its notebook, and takes that of the last one."""

    def __init__(self, shell: InteractiveShell, attachment: Attachment, folder: str) -> None:
        """folder: that of the connection file."""
        self._shell, self._attachment, self._folder = shell, attachment, folder
        self._since = time.time() - _SOON_S
        self._watch(shell.events.register)

    def _watch(self, act: Callable[[str, Callable[..., object]], object]) -> None:
        for event in ("pre_run_cell", "post_run_cell"):
            act(event, self._look)

    def _mark(self) -> str | None:
        """The path of the notebook's mark; None: this is not VS Code."""
        name = self._shell.user_ns.get(_NOTEBOOK)
        if not isinstance(name, str):
            return None
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        return os.path.join(self._folder, f"notebook-{digest}.ddipfs")

    def _look(self, *_: object) -> None:
        """Before and after each request until the first cell: the last kernel may be ending."""
        if self._attachment.group is not None:
            self._watch(self._shell.events.unregister)
            return
        mark = self._mark()
        if mark is None:
            return
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._end)
        path = take(mark, self._since)
        if path is not None:
            with contextlib.suppress(DipError, OSError):  # the group is gone
                restart(groups.Group(path))
            self._attachment.restarted = path

    def _end(self, signum: int, frame: object) -> None:
        signal.signal(signum, signal.SIG_DFL)
        group, mark = self._attachment.group, self._mark()
        if group is not None and mark is not None:
            with contextlib.suppress(OSError):
                leave(mark, group.path)
        os.kill(os.getpid(), signum)


def restart(group: groups.Group) -> bool:
    """Restarts the ranks of a group and does not wait. Returns False if there are none. Raises
    DipError or OSError if the group is gone."""
    if not group.is_started():
        return False
    group.ctl("restart", wait=False)
    return True
