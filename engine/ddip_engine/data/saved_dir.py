"""The directory of saved namespaces: written aside by all ranks, put in place whole, checked.

    manifest.json   what was saved: the number of ranks, the names, the files and their sizes
    lost            what could not be saved, a line `NAME: reason` each; missing if all was
    rankK.p5        the names of rank K, as clone.py writes them: it has pickles

The ranks need no process group to meet, which may be broken or absent. They meet in the directory
that they write: the size of its file `.K` says how far rank K has come. A size takes no room on a
full disk. Making a file, and opening one, asks the server of a network file system, not a cache.

Rank 0 removes rankK.json once all ranks have written theirs, and puts the directory in its place
when it has removed them all. So a rank that gives up removes that file first: if it is gone, the
rank's part is not its own any more.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import shutil
import stat
import time
from _thread import allocate_lock, start_new_thread

from ddip_engine import state
from ddip_engine.data.view import Incoming
from ddip_engine.state import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Any, TypeAlias, TypeVar

    from typing_extensions import Self

    T = TypeVar("T")
    Said: TypeAlias = dict[str, Any]  # JSON
    # passes the bytes of a file to its argument, part by part
    Writer: TypeAlias = Callable[[Callable[[bytes | memoryview], None]], object]
    Manifest: TypeAlias = Callable[[list[Said]], object]  # is told what each rank has said

FORMAT = "ddip-saved 1"
MANIFEST, LOST = "manifest.json", "lost"
_BEGUN, _READY, _WRITTEN, _DONE, _FAILED = 1, 2, 3, 4, 16  # sizes; FAILED + errno
_SHARED_S = 10.0  # in which ranks of several hosts have to see each other's files
_LEAVES_S = 2.0  # how long an interrupted rank waits for the disk
# Bytes of a write, after which the rank looks whether they are still wanted. 2 GiB with fsync took
# 3 s by these, and 7 s by 16 MiB (ext4, Linux 6.18, memory in use).
_PART = 64 << 10
_FREED = 64  # files that are freed later, at most
_POLL_S = (0.0005, 0.02)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = _FILE | os.O_DIRECTORY
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_AT_CWD = -100
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)  # by this kernel, this file system


def refusal(path: str, error: OSError) -> EngineError:
    """The EngineError for an OSError about this directory."""
    host = f" on {state.host}" if state.host else ""
    why = os.strerror(error.errno) if error.errno else str(error)
    return EngineError(error.errno or errno.EIO, f"{path}{host}: {why}")


def _check(path: str, fd: int, kind: Callable[[int], bool], what: str) -> os.stat_result:
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


def _open_folder(path: str) -> int:
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


def _beside(path: str, kind: str) -> list[str]:
    """What is beside the directory and has its name with this suffix."""
    folder, name = os.path.split(path)
    found = [each for each in os.listdir(folder) if each.startswith(f"{name}.{kind}-")]
    return [os.path.join(folder, each) for each in found]


class _Disk:
    """Calls functions one after the other, each in a thread: nothing interrupts a wait for a disk,
    but the wait for a thread can be."""

    def __init__(self) -> None:
        self.ended = allocate_lock()  # of the last one: held while it runs

    def start(self, function: Callable[..., Any], *args: Any) -> tuple[LockType, list[Any]]:
        """Calls it when what was called before has ended. Returns the lock that it holds until it
        has, and the list which has its outcome then."""
        before, ended = self.ended, allocate_lock()
        outcome: list[Any] = []

        def run() -> None:
            with before:
                pass
            try:
                outcome.extend((function(*args), None))
            except BaseException as e:
                outcome.extend((None, e))
            ended.release()

        ended.acquire()
        self.ended = ended
        try:
            start_new_thread(run, ())
        except RuntimeError:  # the system refuses
            self.ended = before
            raise
        return ended, outcome

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Returns function(*args). If this is interrupted, the function is not."""
        ended, outcome = self.start(function, *args)
        with ended:
            value, error = outcome
        outcome.clear()
        try:
            if error is not None:
                raise error
            return value
        finally:
            del error  # its traceback has this frame


class Aside:
    """The directory that is being written, as PATH.tmp-TOKEN; all ranks have the same token. A
    context: what fails in it leaves nothing behind. An interrupt that comes when it is in place is
    ignored."""

    def __init__(self, path: str, token: str) -> None:
        self.path, self.aside, self.old = path, f"{path}.tmp-{token}", f"{path}.old-{token}"
        self.fd = self.own = -1
        self.offered = self.placed = False
        self.given_up = False
        self.disk = _Disk()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.given_up = kind is not None
        ended, _ = self.disk.start(self._leave, getattr(error, "errno", None) or 0)
        if ended.acquire(timeout=-1 if kind is None else _LEAVES_S):
            ended.release()
        return self.placed and isinstance(error, KeyboardInterrupt)

    def save(
        self,
        call: Callable[..., Any],
        pickle: Callable[[], tuple[Writer, Said]],
        manifest: Manifest,
    ) -> None:
        """Saves. call: see saved.py; pickle(): returns a function that passes the bytes of rankK.p5
        to its argument, and a dict; manifest(dicts): writes what is told of all ranks."""
        call(self.disk.call, self._begin)
        write, said = call(pickle)
        call(self.disk.call, self._offer, write, said)
        if state.rank == 0:
            call(self.disk.call, self._wait, range(1, state.size), _WRITTEN)
            self.disk.call(self._place, manifest)
            call(self.disk.call, self._part)
        else:
            call(self.disk.call, self._wait, [0], _DONE)
            self.placed = True

    # ---- in the threads

    def _begin(self) -> None:
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
        self._say(_BEGUN)
        if state.rank == 0:
            self._make_room()
            self._say(_READY)
        elif state.host:
            self._find_first()

    def _check_old(self) -> None:
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

    def _make_room(self) -> None:
        """Removes what saves to this place have left that were killed."""
        with _freed:
            pass
        left = _beside(self.path, "old")  # listed first: the next line finds what has replaced them
        if not os.path.exists(f"{self.path}/{MANIFEST}"):
            left = []
        left += [path for path in _beside(self.path, "tmp") if path != self.aside]
        for path in left:
            with contextlib.suppress(OSError, EngineError):
                if path.startswith(f"{self.path}.old-") or _is_left(path):
                    os.close(_open_folder(path))
                    shutil.rmtree(path)

    def _find_first(self) -> None:
        end = time.monotonic() + _SHARED_S
        while self._heard(0) == 0:
            if time.monotonic() > end:
                text = f"rank 0 has not come there as host {state.host} sees it, in {_SHARED_S:g} s"
                text += ": it must be one directory for all hosts"
                raise EngineError(errno.ENOENT, f"{self.path}: {text}")
            time.sleep(_POLL_S[1])

    def _offer(self, write: Writer, said: Said) -> None:
        """Writes this rank's names, and offers them to rank 0."""
        self._wait([0], _READY)
        try:
            size = self.write(f"rank{state.rank}.p5", write)
            text = json.dumps({"bytes": size, **said}).encode()
            self.write(f"rank{state.rank}.json", lambda write_all: write_all(text))
        except FileNotFoundError:
            self._wait([0], _WRITTEN)  # raises: it has given up, and removed all
            raise
        self._say(_WRITTEN)
        self.offered = True

    def write(self, name: str, write: Writer) -> int:
        """Makes a file of what write(write_all) passes to its argument, and has it on the disk.
        Returns its size."""
        with open(os.open(name, _NEW, 0o600, dir_fd=self.fd), "wb") as file:

            def write_all(data: bytes | memoryview) -> None:
                data = memoryview(data)
                for at in range(0, len(data), _PART):
                    if self.given_up:
                        raise EngineError(errno.ECANCELED, f"{self.path}: given up")
                    file.write(data[at : at + _PART])

            write(write_all)
            file.flush()
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def _take(self, rank: int) -> Said:
        """Takes what a rank has offered. Raises EngineError if it has given up."""
        name = f"rank{rank}.json"
        try:
            with open(os.open(name, _FILE, dir_fd=self.fd)) as file:
                said = json.load(file)
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            text = f"{self.path}: rank {rank} has given up: nothing is saved"
            raise EngineError(errno.ECANCELED, text) from None
        return said

    def _place(self, manifest: Manifest) -> None:
        """Puts the directory in its place, in that of the one which is there. On rank 0."""
        manifest([self._take(rank) for rank in range(state.size)])
        os.fsync(self.fd)
        try:
            os.rename(self.aside, self.path)  # nothing, or an empty one, is there
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if _exchange(self.aside, self.path):
                self.placed = True
                os.rename(self.aside, self.old)
            else:
                os.rename(self.path, self.old)
                os.rename(self.aside, self.path)
        self.placed = True
        _sync(os.path.dirname(self.path))
        self._say(_DONE)
        _remove(_beside(self.path, "old"))

    def _part(self) -> None:
        """Removes the ranks' files when all of them know that it is in place. On rank 0."""
        for rank in range(1, state.size):
            with contextlib.suppress(EngineError):  # it is there all the same
                self._wait([rank], _DONE)
        for rank in range(state.size):
            os.unlink(f".{rank}", dir_fd=self.fd)

    def _leave(self, no: int) -> None:
        """The last word. no: the errno if this rank gives up."""
        try:
            if self.own >= 0 and not self.placed:
                self._give_up(no)
            if self.own >= 0:
                self._say(_DONE if self.placed else _FAILED + no)
        except OSError:  # the disk is not reached any more
            return
        finally:
            for fd in (self.fd, self.own):
                if fd >= 0:
                    os.close(fd)

    def _give_up(self, no: int) -> None:
        """Removes what this rank has written, unless rank 0 has taken it."""
        if state.rank == 0:
            self._say(_FAILED + no)
            shutil.rmtree(self.aside, ignore_errors=True)
            return
        try:
            os.unlink(f"rank{state.rank}.json", dir_fd=self.fd)
        except FileNotFoundError:
            if self.offered:
                with contextlib.suppress(EngineError):  # rank 0 has given up, too
                    self._wait([0], _DONE, _SHARED_S)
                    self.placed = True
                return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"rank{state.rank}.p5", dir_fd=self.fd)
        if self._heard(0) == 0:  # rank 0 has not come: another host's directory
            shutil.rmtree(self.aside, ignore_errors=True)

    # ---- what the ranks say

    def _say(self, size: int) -> None:
        """Tells the others how far this rank has come."""
        os.ftruncate(self.own, size)

    def _heard(self, rank: int) -> int | None:
        """How far that rank has come; None: it has given up, and removed all."""
        try:
            fd = os.open(f".{rank}", _FILE, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        try:
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    def _wait(self, ranks: Iterable[int], size: int, limit: float = 0) -> None:
        """Waits until these ranks have come as far. Raises EngineError if one has failed, and when
        this rank has given up; limit: that many seconds later."""
        pause, most = _POLL_S
        end = time.monotonic() + limit
        for rank in ranks:
            while (said := self._heard(rank)) is not None and said < size:
                if self.given_up and time.monotonic() > end:
                    raise EngineError(errno.ECANCELED, f"{self.path}: given up")
                time.sleep(pause)
                pause = min(2 * pause, most)
            if said is None or said >= _FAILED:
                no = (said or 0) - _FAILED
                why = f": {os.strerror(no)}" if no > 0 else ""
                no = no if no > 0 else errno.ECANCELED
                raise EngineError(no, f"{self.path}: rank {rank} has failed{why}: nothing is saved")


def _is_left(path: str) -> bool:
    """Has a save left it that was killed? The lock of one that is written is held. One that was
    replaced, or only begun, has no lock."""
    os.close(_open_folder(path))
    try:
        fd = os.open(f"{path}/.0", _FILE | os.O_RDWR)
    except FileNotFoundError:
        names = os.listdir(path)
        return not names or MANIFEST in names
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(fd)
    return True


_freed = allocate_lock()  # held while the blocks of removed files are freed


def _remove(paths: list[str]) -> None:
    """Removes directories. The blocks of their files are freed later, by a thread, as that takes a
    disk long; if this process ends before, the kernel does."""
    files: list[int] = []
    for path in paths:
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for each in entries:
                if each.is_file(follow_symlinks=False) and len(files) < _FREED:
                    files.append(os.open(each.path, _FILE | os.O_NONBLOCK))
        shutil.rmtree(path, ignore_errors=True)

    def free() -> None:
        try:
            for fd in files:
                with contextlib.suppress(OSError):  # of what has been removed
                    os.close(fd)
            for path in paths:  # a network file system has kept the names of open files
                shutil.rmtree(path, ignore_errors=True)
        finally:
            _freed.release()

    _freed.acquire()
    try:
        start_new_thread(free, ())
    except RuntimeError:  # the system refuses
        free()


def _sync(path: str) -> None:
    fd = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _exchange(one: str, other: str) -> bool:
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
    see the same directory come to the same result. Raises EngineError and OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.fd = _open_folder(path)
        except FileNotFoundError as e:
            with contextlib.suppress(OSError):
                for old in _beside(path, "old"):  # a crash between two renames
                    raise EngineError(errno.ENOENT, f"{path}: the last one is {old}") from None
            raise e from None
        self.files: dict[str, int] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
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

    def _manifest(self) -> Said:
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

    def _file(self, name: str) -> int:
        if "/" in name:
            raise EngineError(errno.EBADMSG, f"{self.path}/{MANIFEST}: a file named {name}")
        return os.open(name, _FILE | os.O_NONBLOCK, dir_fd=self.fd)

    def data(self, rank: int) -> memoryview:
        """The bytes of a rank's names, which stay when this is closed."""
        fd = self.files[f"rank{rank}.p5"]
        return Incoming(fd, os.fstat(fd).st_size).data()

    def close(self) -> None:
        """Closes the files."""
        for fd in (self.fd, *self.files.values()):
            os.close(fd)
