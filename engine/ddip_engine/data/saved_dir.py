"""The directory of saved namespaces: written aside by all ranks, put in place whole, checked.

    manifest.json   what was saved: the number of ranks, the names, the files and their sizes
    lost            what could not be saved, a line `NAME: reason` each; missing if all was
    rankK.p5        the names of rank K, as clone.py writes them: it has pickles

The ranks need no process group to meet, which may be broken or absent. They meet in the directory
that they write: the size of its file `.K` says how far rank K has come. A size takes no room on a
full disk. Making a file, and opening one, asks the server of a network file system, not a cache.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import shutil
import stat
import time

from ddip_engine import state
from ddip_engine.data.view import Incoming
from ddip_engine.state import EngineError

FORMAT = "ddip-saved 1"
MANIFEST, LOST = "manifest.json", "lost"
BEGUN, WRITTEN, DONE, _FAILED = 1, 2, 3, 16  # sizes; FAILED + errno
_SHARED_S = 10.0  # in which ranks of several hosts have to see each other's files
_POLL_S = (0.0005, 0.02)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = _FILE | os.O_DIRECTORY
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_AT_CWD = -100
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)  # by this kernel, this file system


def refusal(path, error):
    """The EngineError for an OSError about this directory."""
    host = f" on {state.host}" if state.host else ""
    why = os.strerror(error.errno) if error.errno else str(error)
    return EngineError(error.errno or errno.EIO, f"{path}{host}: {why}")


def _check(path, fd, kind, what):
    """Refuses what another user has made, or can change."""
    found = os.fstat(fd)
    if not kind(found.st_mode):
        raise EngineError(errno.EINVAL, f"{path}: it is no {what}")
    if found.st_uid != os.geteuid():
        text = f"it belongs to user {found.st_uid}, and this rank runs as {os.geteuid()}"
        raise EngineError(errno.EPERM, f"{path}: {text}: nothing is unpickled for another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        text = "others can write to it: nothing of it is unpickled (chmod go-w)"
        raise EngineError(errno.EPERM, f"{path}: {text}")
    return found


def _open_folder(path):
    try:
        fd = os.open(path, _FOLDER)
    except NotADirectoryError:
        if os.path.islink(path):  # O_NOFOLLOW
            raise EngineError(errno.ELOOP, f"{path}: it is a symbolic link") from None
        raise
    try:
        _check(path, fd, stat.S_ISDIR, "directory")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _beside(path, kind):
    """What is beside the directory and has its name with this suffix."""
    folder, name = os.path.split(path)
    found = [each for each in os.listdir(folder) if each.startswith(f"{name}.{kind}-")]
    return [os.path.join(folder, each) for each in found]


class Aside:
    """The directory that is being written. A context: what fails in it leaves nothing behind."""

    def __init__(self, path, token):
        self.path, self.aside = path, f"{path}.tmp-{token}"
        self.fd = self.own = -1
        self.placed = False

    def __enter__(self):
        try:
            self._check_old()
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.aside, 0o700)
            self.fd = _open_folder(self.aside)
            for rank in range(state.size):
                fd = os.open(f".{rank}", _FILE | os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self.fd)
                if rank == state.rank:
                    self.own = fd
                else:
                    os.close(fd)
            if state.rank == 0:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(self.own, fcntl.LOCK_EX)
                self._clean_up()
            self.say(BEGUN)
            if state.rank and state.host:
                self._find_first()
        except BaseException as e:
            self.__exit__(type(e), e, None)
            raise
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and self.fd >= 0 and not self.placed:
            with contextlib.suppress(OSError):
                os.ftruncate(self.own, _FAILED + (getattr(error, "errno", None) or 0))
            if state.rank == 0:
                shutil.rmtree(self.aside, ignore_errors=True)
            for name in (f"rank{state.rank}.p5", f"rank{state.rank}.json"):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self.fd)
            if state.rank:
                with contextlib.suppress(OSError):  # rank 0 has not come: another host's directory
                    if self.heard(0) == 0:
                        shutil.rmtree(self.aside, ignore_errors=True)
        for fd in (self.fd, self.own):
            if fd >= 0:
                os.close(fd)

    def _check_old(self):
        """What is there must be nothing, empty, or saved by this user."""
        try:
            fd = _open_folder(self.path)
        except FileNotFoundError:
            return
        try:
            names = os.listdir(fd)
        finally:
            os.close(fd)
        if names and MANIFEST not in names:
            text = "it is there, and is no directory that `save` has made"
            raise EngineError(errno.ENOTEMPTY, f"{self.path}: {text}")

    def _clean_up(self):
        """Removes what saves to this place have left that were killed."""
        for path in _beside(self.path, "tmp"):
            if path == self.aside:
                continue
            with contextlib.suppress(OSError, EngineError):
                os.close(_open_folder(path))
                fd = os.open(f"{path}/.0", _FILE | os.O_RDWR)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
                finally:
                    os.close(fd)

    def _find_first(self):
        end = time.monotonic() + _SHARED_S
        while self.heard(0) == 0:
            if time.monotonic() > end:
                text = f"rank 0 has not come there as host {state.host} sees it, in {_SHARED_S:g} s"
                text += ": it must be one directory for all hosts"
                raise EngineError(errno.ENOENT, f"{self.path}: {text}")
            time.sleep(_POLL_S[1])

    # ---- what the ranks say

    def say(self, size):
        """Tells the others how far this rank has come."""
        os.ftruncate(self.own, size)

    def heard(self, rank):
        """How far that rank has come; None: it has given up, and removed all."""
        try:
            fd = os.open(f".{rank}", _FILE, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        try:
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    def wait(self, ranks, size):
        """Waits until these ranks have come as far. Raises EngineError if one has failed."""
        pause, most = _POLL_S
        for rank in ranks:
            while (said := self.heard(rank)) is not None and said < size:
                time.sleep(pause)
                pause = min(2 * pause, most)
            if said is None or said >= _FAILED:
                no = (said or 0) - _FAILED
                why = f": {os.strerror(no)}" if no > 0 else ""
                no = no if no > 0 else errno.ECANCELED
                raise EngineError(no, f"{self.path}: rank {rank} has failed{why}: nothing is saved")

    # ---- files

    def write(self, name, write):
        """Makes a file of what write(file) writes, and has it on the disk. Returns its size."""
        with open(os.open(name, _NEW, 0o600, dir_fd=self.fd), "wb", 1 << 20) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def take(self, name):
        """The JSON in a file, which is removed."""
        with open(os.open(name, _FILE, dir_fd=self.fd)) as file:
            said = json.load(file)
        os.unlink(name, dir_fd=self.fd)
        return said

    def place(self):
        """Puts the directory in its place, in that of the one which is there. On rank 0."""
        os.fsync(self.fd)
        old = self.aside
        try:
            os.rename(self.aside, self.path)  # nothing, or an empty one, is there
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not _exchange(self.aside, self.path):
                old = self.aside.replace(".tmp-", ".old-")
                os.rename(self.path, old)
                os.rename(self.aside, self.path)
        self.placed = True
        _sync(os.path.dirname(self.path))
        for path in {old, *_beside(self.path, "old")}:
            shutil.rmtree(path, ignore_errors=True)

    def part(self):
        """The last word: rank 0 has placed it, the others have seen that."""
        if state.rank:
            self.wait([0], DONE)
            self.placed = True
            self.say(DONE)
            return
        self.say(DONE)
        for rank in range(1, state.size):
            with contextlib.suppress(EngineError):  # it is there all the same
                self.wait([rank], DONE)
        for rank in range(state.size):
            os.unlink(f".{rank}", dir_fd=self.fd)


def _sync(path):
    fd = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _exchange(one, other):
    """Exchanges two names at once. False: not here."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:  # an old libc
        return False
    if rename(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    no = ctypes.get_errno()
    if no in _NO_EXCHANGE:
        return False
    raise OSError(no, os.strerror(no))


class Saved:
    """A directory that was saved. Its files are checked when it is opened, all of them: ranks that
    see the same directory come to the same result."""

    def __init__(self, path):
        self.path = path
        try:
            self.fd = _open_folder(path)
        except FileNotFoundError as e:
            with contextlib.suppress(OSError):
                for old in _beside(path, "old"):  # a crash between two renames
                    raise EngineError(errno.ENOENT, f"{path}: the last one is {old}") from None
            raise e from None
        self.files = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self):
        said = self._manifest()
        self.size = said["size"]
        for name, facts in said["files"].items():
            fd = self.files[name] = self._file(name)
            have = _check(f"{self.path}/{name}", fd, stat.S_ISREG, "file").st_size
            if have != facts["bytes"]:
                text = f"{have} bytes, where the manifest says {facts['bytes']}"
                raise EngineError(errno.EBADMSG, f"{self.path}/{name}: {text}")
        if not all(f"rank{rank}.p5" in self.files for rank in range(self.size)):
            raise EngineError(errno.EBADMSG, f"{self.path}/{MANIFEST}: it lacks a rank's file")

    def _manifest(self):
        try:
            fd = self._file(MANIFEST)
        except FileNotFoundError:
            raise EngineError(errno.EINVAL, f"{self.path}: `save` has not made it") from None
        with open(fd, encoding="utf-8") as file:
            _check(f"{self.path}/{MANIFEST}", fd, stat.S_ISREG, "file")
            try:
                said = json.load(file)
                if said["format"] != FORMAT:
                    raise ValueError(f"format {said['format']}, this reads {FORMAT}")
                int(said["size"]), said["files"].items()
            except (ValueError, LookupError, TypeError, AttributeError) as e:
                raise EngineError(errno.EBADMSG, f"{self.path}/{MANIFEST}: {e}") from None
        return said

    def _file(self, name):
        if "/" in name:
            raise EngineError(errno.EBADMSG, f"{self.path}/{MANIFEST}: a file named {name}")
        return os.open(name, _FILE | os.O_NONBLOCK, dir_fd=self.fd)

    def data(self, rank):
        """The bytes of a rank's names."""
        fd = self.files[f"rank{rank}.p5"]
        return Incoming(fd, os.fstat(fd).st_size).data()

    def close(self):
        """Bytes that are in use stay."""
        for fd in (self.fd, *self.files.values()):
            os.close(fd)
