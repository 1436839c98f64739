"""The files that come with a program from the machine where it was started: itself, and the modules
that lie beside it. A host that does not have the same ones gets copies, which its ranks share."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile

from ddip_engine import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddip_engine.cells.cell import Program


def take(program: Program) -> str | None:
    """Returns the folder of the copies; None if none came, or if this host has the same files where
    they came from. Raises OSError if they cannot be written."""
    if not program.beside:
        return None
    folder, variable = program.beside
    files = state.main.__dict__.pop(variable, None)
    if not files or not state.host:
        return None
    if all(_is_there(os.path.join(folder, name), data) for name, data in files.items()):
        return None
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(b"%d %s %d " % (len(name), os.fsencode(name), len(data)) + data)
    copies = os.path.join(state.run_path("files"), digest.hexdigest()[:16])
    if not os.path.isdir(copies):
        _write(files, copies)
    return copies


def _is_there(path: str, data: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(data) + 1) == data
    except OSError:
        return False


def _write(files: Mapping[str, bytes], folder: str) -> None:
    """Other ranks of this host may be doing the same: the first one's folder stays."""
    files_dir = os.path.dirname(folder)
    os.makedirs(files_dir, exist_ok=True)
    new = tempfile.mkdtemp(dir=files_dir)
    try:
        for name, data in files.items():
            path = os.path.join(new, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        os.rename(new, folder)
    except OSError as e:
        if not os.path.isdir(folder):
            text = f"{e.strerror}: the program's files cannot be copied to host {state.host}"
            raise OSError(e.errno, text, e.filename) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
