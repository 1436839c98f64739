#!/usr/bin/env python3
"""The directory of a save: what is in place, and what is left behind, when a rank is killed or
interrupted, or its disk hangs."""

import errno
import json
import multiprocessing
import os
import signal
import tempfile
import time
import unittest

import engine_sources  # noqa: F401
from ddip_engine import state
from ddip_engine.data import saved_dir

fork = multiprocessing.get_context("fork")
CALLS = ("mkdir", "open", "rename", "unlink", "rmdir", "ftruncate", "fsync")


def now(function, *args):
    return function(*args)


class Rank:
    """A process that saves once, of so many ranks."""

    def __init__(self, path, text, rank=0, size=1, **hooks):
        self.path, self.text, self.rank, self.size, self.hooks = path, text, rank, size, hooks
        self.process = fork.Process(target=self._run)
        self.process.start()

    def _run(self):
        state.rank, state.size = self.rank, self.size
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.hooks.get("begin", lambda: None)()
        try:
            with saved_dir.Aside(self.path, self.hooks.get("token", "t")) as aside:
                call = self.hooks.get("call", now)
                aside.save(call, self._pickle, lambda said: self._manifest(aside, said))
        except KeyboardInterrupt:
            os._exit(errno.EINTR)
        except state.EngineError as e:
            os._exit(e.errno)
        with saved_dir._freed:
            os._exit(0)

    def _pickle(self):
        return self.hooks.get("write", lambda write_all: write_all(self.text.encode())), {}

    def _manifest(self, aside, said):
        self.hooks.get("manifest", lambda: None)()
        files = {f"rank{rank}.p5": each for rank, each in enumerate(said)}
        told = {"format": saved_dir.FORMAT, "size": self.size, "files": files}
        aside.write(saved_dir.MANIFEST, lambda write_all: write_all(json.dumps(told).encode()))

    def status(self):
        self.process.join()
        return self.process.exitcode


class Saves(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.path = folder.name, os.path.join(folder.name, "ck")
        self.token = 0
        state.rank, state.size = 0, 1

    def saved(self, *texts, **hooks):
        """Saves; returns the exit statuses."""
        self.token += 1
        hooks["token"] = str(self.token)
        ranks = [Rank(self.path, text, k, len(texts), **hooks) for k, text in enumerate(texts)]
        return [rank.status() for rank in ranks]

    def has(self):
        """The texts in place, from a directory that is whole."""
        saved = saved_dir.Saved(self.path)
        try:
            return [bytes(saved.data(rank)).decode() for rank in range(saved.size)]
        finally:
            saved.close()

    def is_all(self, *texts):
        self.assertEqual(os.listdir(self.folder), ["ck"])
        self.assertEqual(self.has(), [*texts])
        files = [f"rank{rank}.p5" for rank in range(len(texts))]
        self.assertEqual(sorted(os.listdir(self.path)), ["manifest.json", *files])

    def killed_anywhere(self, *others):
        """A rank is killed before each of its calls in turn, over what the last save has left."""
        calls, last, new = 1, None, 0
        while True:
            text = f"text {calls}"
            (status,) = self.saved(text, begin=lambda: killed_at(calls, others))  # noqa: B023
            if status == 0:
                return calls, new
            self.assertEqual(status, -signal.SIGKILL)
            try:
                found = self.has()
            except state.EngineError as e:  # between two renames
                self.assertIn("the last one is", str(e))
            except FileNotFoundError:
                self.assertIsNone(last)
            else:
                self.assertIn(found, ([text], [last]))
                new += found == [text]
            if calls > 1:  # over an old one from now on
                last = f"last {calls}"
                self.assertEqual(self.saved(last), [0])
                self.is_all(last)
            calls += 1

    def test_killed(self):
        calls, new = self.killed_anywhere("_exchange")
        self.assertGreater(calls, 15)
        self.assertGreater(new, 0)

    def test_killed_where_names_cannot_be_exchanged(self):
        real = saved_dir._exchange
        self.addCleanup(setattr, saved_dir, "_exchange", real)
        saved_dir._exchange = lambda *_: False
        self.killed_anywhere()

    def test_interrupted_while_rank_0_waits_for_all(self):
        self.assertEqual(self.saved("old 0", "old 1"), [0, 0])
        came, begun = fork.Event(), fork.Event()

        def late(write_all):
            came.set()
            begun.wait()
            write_all(b"late")

        first = Rank(self.path, "new", 0, 2)
        second = Rank(self.path, "", 1, 2, write=late)
        came.wait()
        until(lambda: any("rank0.json" in names for _, _, names in os.walk(self.folder)))
        os.kill(first.process.pid, signal.SIGINT)
        self.assertEqual(first.status(), errno.EINTR)
        begun.set()
        self.assertEqual(second.status(), errno.ECANCELED)
        self.is_all("old 0", "old 1")

    def test_interrupted_when_rank_0_has_taken_it(self):
        """It is too late: what is put in place is whole."""
        self.assertEqual(self.saved("old 0", "old 1"), [0, 0])
        taken, told = fork.Event(), fork.Event()

        def call(function, *args):
            if args[-1:] == (saved_dir._DONE,):
                taken.wait()
                told.set()
                raise KeyboardInterrupt
            return function(*args)

        def manifest():
            taken.set()
            told.wait()

        first = Rank(self.path, "new 0", 0, 2, manifest=manifest)
        second = Rank(self.path, "new 1", 1, 2, call=call)
        self.assertEqual([first.status(), second.status()], [0, 0])
        self.is_all("new 0", "new 1")

    def test_a_disk_that_hangs(self):
        self.assertEqual(self.saved("old"), [0])
        hangs, goes_on = fork.Event(), fork.Event()

        def write(write_all):
            hangs.set()
            goes_on.wait()
            write_all(b"new")

        rank = Rank(self.path, "", write=write)
        hangs.wait()
        os.kill(rank.process.pid, signal.SIGINT)
        self.assertEqual(rank.status(), errno.EINTR)  # with the disk as it is
        self.assertEqual(self.has(), ["old"])
        self.assertEqual(self.saved("next"), [0])
        self.is_all("next")

    def test_room_is_made_first(self):
        """What a save has replaced is freed later, but before the next one writes, whatever a
        network disk says of it."""
        real, freed = os.close, []

        def close(fd):
            was_removed = fd in deleted()
            if was_removed:
                freed.append(fd)
                time.sleep(0.1)
            real(fd)
            if was_removed:
                raise OSError(errno.ESTALE, "")

        def deleted():
            links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
            links = {link: os.readlink(link) for link in links if os.path.islink(link)}
            ours = [link for link, path in links.items() if path.startswith(self.folder)]
            return [int(os.path.basename(o)) for o in ours if links[o].endswith(" (deleted)")]

        self.addCleanup(setattr, os, "close", real)
        os.close = close
        for token in "abc":
            with saved_dir.Aside(self.path, token) as aside:

                def write(write_all):
                    self.assertEqual(deleted(), [])
                    write_all(b"text")

                def manifest(_):
                    aside.write(saved_dir.MANIFEST, write)

                aside.save(now, lambda: (write, {}), manifest)
        with saved_dir._freed:
            self.assertEqual(os.listdir(self.folder), ["ck"])
        self.assertGreater(len(freed), 2)


def killed_at(calls, others):
    """From now on this process is killed before that one of its calls."""

    def counted(real):
        def call(*args, **kwargs):
            nonlocal calls
            calls -= 1
            if not calls:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    for name in others:
        setattr(saved_dir, name, counted(getattr(saved_dir, name)))


def until(condition):
    while not condition():
        time.sleep(0.001)


if __name__ == "__main__":
    unittest.main()
