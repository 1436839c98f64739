"""What goes to other hosts with a program: its file, and the modules and packages beside it that
import statements name, in it or in one another."""

from __future__ import annotations

import ast
import os
import pickle

from ddip.ranks import parse
from ddip.tool.call import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ddip.tool.call import Tool
    from ddip.tool.cells import Choice

_VARIABLE = "_ddip_files"  # holds the files in the ranks until the program begins
_FILES_MAX = 1000
_BYTES_MAX = 8 << 20
_HERE = "here"  # the launcher for which all hosts are this machine


def send(tool: Tool, choice: Choice, file: str | None, module: str | None) -> list[str]:
    """Sends the files to the ranks that will run the program, if they are on other hosts.

    file: of the program; None: the module, or standard input. Returns what the first line of the
    cell says of it: [folder, variable], or []. Raises OSError.
    """
    if not (file or module) or not _has_hosts(tool):
        return []
    folder = os.path.dirname(os.path.realpath(file)) if file else os.getcwd()
    files = _Files(folder)
    if file:
        files.add(os.path.basename(file), read=os.path.realpath(file))
    elif module:
        files.add_imported(module.partition(".")[0])
    files.report(besides=1 if file else 0)
    if files.data:
        for place in _places(choice, tool.group.size):
            tool.put(f"{place}/{_VARIABLE}.pkl", iter([pickle.dumps(files.data)]))
        return [folder, _VARIABLE]
    return []


def _has_hosts(tool: Tool) -> bool:
    settings = dict(line.partition(" ")[::2] for line in tool.read("ctl").splitlines())
    return settings.get("hosts", "local") != "local" and settings.get("launcher") != _HERE


def _places(choice: Choice, size: int) -> list[str]:
    """The folders of variables of the ranks that run the program."""
    if choice.ranks is None:
        return ["vars"]
    return [f"rank{k}/vars" for k in parse([choice.ranks], size)]


class _Files:
    """The files that go, and the names that do not because there is too much below them."""

    def __init__(self, folder: str) -> None:
        self.data: dict[str, bytes] = {}  # path below the folder -> bytes
        self.too_much: list[str] = []
        self._folder = folder
        self._bytes = 0
        self._seen: set[str] = set()  # names that were imported

    def add(self, name: str, read: str | None = None) -> bool:
        """Adds a file, and what it imports. A file that cannot be read does not go.

        Returns False if it is too much.
        """
        try:
            with open(read or os.path.join(self._folder, name), "rb") as file:
                data = file.read(_BYTES_MAX + 1)
        except OSError:
            return True
        if len(self.data) == _FILES_MAX or self._bytes + len(data) > _BYTES_MAX:
            return False
        self.data[name] = data
        self._bytes += len(data)
        if name.endswith(".py") or read:
            for imported in _imports(data):
                self.add_imported(imported)
        return True

    def add_imported(self, name: str) -> None:
        """Adds the module or package of this name, if it lies in the folder."""
        if name in self._seen:
            return
        self._seen.add(name)
        path = os.path.join(self._folder, name)
        if os.path.isfile(f"{path}.py"):
            fits = self.add(f"{name}.py")
        else:
            fits = self._add_package(path)
        if not fits:
            self.too_much.append(name)

    def _add_package(self, path: str) -> bool:
        """Adds all files of a folder of modules, or none of them. Returns False if too many."""
        found: list[str] = []
        for place, folders, names in os.walk(path):
            folders[:] = [each for each in folders if _goes(each)]
            found += [os.path.join(place, each) for each in names if _goes(each)]
            if len(found) > _FILES_MAX:
                return False
        if not any(each.endswith(".py") for each in found):
            return True  # no package, but a folder that has the name of one
        before, size = dict(self.data), self._bytes
        for each in found:
            if os.path.isfile(each) and not self.add(os.path.relpath(each, self._folder)):
                self.data, self._bytes = before, size
                return False
        return True

    def report(self, besides: int) -> None:
        """Says what goes with the program's own files (besides: how many), and what does not."""
        modules = len(self.data) - besides
        if modules > 0:
            kib = -(-self._bytes // 1024)
            what = (
                "1 file beside the program goes"
                if modules == 1
                else f"{modules} files beside the program go"
            )
            say(f"{what} with it to the hosts ({kib} KiB)")
        if self.too_much:
            names = ", ".join(self.too_much)
            say(
                f"{names}: not sent to the hosts, because over {_FILES_MAX} files or"
                f" {_BYTES_MAX >> 20} MiB would go with the program; install it there"
            )


def _goes(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__" and not name.endswith(".pyc")


def _imports(source: bytes) -> list[str]:
    """The first parts of the names that its import statements name, except relative ones."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # Python will say what is wrong with it
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module)
    return [name.partition(".")[0] for name in found]
