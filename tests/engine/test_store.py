#!/usr/bin/env python3
"""The store where ranks meet, and its client, do what torch expects of one, without an engine.

It needs torch, and runs itself again in the environment that has it.
"""

import contextlib
import errno
import os
import shutil
import socket
import sys
import tempfile
import threading
import types
import unittest
from datetime import timedelta

import engine_sources  # noqa: F401
from torch import distributed

sys.modules["_ddip"] = types.ModuleType("_ddip")
OPEN = set()  # the sockets that the client reports as open
sys.modules["_ddip"].store_socket = lambda fd, is_open: (OPEN.add if is_open else OPEN.discard)(fd)

from ddip_engine import boot  # noqa: E402
from ddip_engine.groups import store  # noqa: E402
from ddip_engine.groups.store_client import Client  # noqa: E402


class Listener:
    """A listening socket whose accept() fails as often as it is told to."""

    def __init__(self, real):
        self.real, self.fileno, self.failures = real, real.fileno, []

    def accept(self):
        if self.failures:
            raise OSError(self.failures.pop(), "as told")
        return self.real.accept()


class TestStore(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        # longer than a Unix socket's address can be
        deep = os.path.join(folder, *["a directory with a long name"] * 5)
        os.makedirs(deep)
        self.path = os.path.join(deep, "store")
        listener = store.listen(self.path)
        self.listener = Listener(listener)
        threading.Thread(target=store.Server(self.listener).serve, daemon=True).start()
        self.client = Client(self.path)
        self.second = Client(self.path)
        self.other = distributed.PrefixStore("p", self.second)
        self.mine = distributed.PrefixStore("p", self.client)

    def tearDown(self):
        for client in (self.client, self.second, *self.client._clones):
            client.close()

    def test_values_are_bytes_and_seen_by_others(self):
        self.mine.set("k", b"\0\xff" * 3)
        self.assertEqual(self.other.get("k"), b"\0\xff" * 3)
        self.mine.set("k", "text")
        self.assertEqual(self.other.get("k"), b"text")
        self.mine.set("", "")
        self.assertEqual(self.other.get(""), b"")

    def test_large_values_come_whole(self):
        value = os.urandom(3_000_000)
        self.client.set("large", value)
        self.assertEqual(self.client.get("large"), value)

    def test_counters(self):
        self.assertEqual(self.mine.add("n", 3), 3)
        self.assertEqual(self.other.add("n", -5), -2)
        self.assertEqual(self.mine.get("n"), b"-2")

    def test_keys_are_checked_counted_and_deleted(self):
        self.assertFalse(self.mine.check(["a"]))
        self.mine.set("a", "1")
        self.mine.set("b", "2")
        self.assertTrue(self.other.check(["a", "b"]))
        self.assertEqual(self.client.num_keys(), 2)
        self.assertEqual(sorted(self.client.list_keys()), ["p/a", "p/b"])
        self.assertTrue(self.other.delete_key("a"))
        self.assertFalse(self.other.delete_key("a"))

    def test_compare_set_as_tcp_store(self):
        tcp = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        for each in tcp, self.mine:
            each.set("there", "old")
        steps = [("new", "", "a"), ("new", "x", "b"), ("new", "a", "c"), ("none", "x", "y"),
                 ("there", "old", "z"), ("there", "old", "q")]  # fmt: skip
        for step in steps:
            self.assertEqual(self.mine.compare_set(*step), tcp.compare_set(*step), step)

    def test_several_at_once(self):
        self.mine.multi_set(["a", "b"], ["1", "2"])
        self.mine.append("a", "+")
        self.assertEqual(self.other.multi_get(["a", "b"]), [b"1+", b"2"])

    def test_get_waits_for_the_key(self):
        got = []
        thread = threading.Thread(target=lambda: got.append(self.other.get("late")))
        thread.start()
        self.mine.set("early", "0")
        self.mine.set("late", "1")
        thread.join()
        self.assertEqual(got, [b"1"])

    def test_a_wait_that_takes_too_long_is_torchs_error_and_the_client_goes_on(self):
        with self.assertRaises(distributed.DistStoreError) as caught:
            self.mine.wait(["never"], timedelta(milliseconds=10))
        self.assertIn("never", str(caught.exception))
        self.mine.set("never", "1")
        self.assertEqual(self.mine.get("never"), b"1")

    def test_a_client_whose_socket_was_shut_while_nobody_waited_connects_again(self):
        self.client.set("a", "1")
        self.assertEqual(OPEN, {self.client._connection._socket.fileno()})
        self.client._connection._socket.shutdown(2)
        self.assertEqual(self.client.get("a"), b"1")
        self.assertEqual(OPEN, {self.client._connection._socket.fileno()})

    def test_a_wait_whose_socket_is_shut_fails_and_the_next_request_connects_again(self):
        answers = []

        def wait():
            try:
                self.client.get("never")
            except Exception as e:
                answers.append(e)

        self.client.set("a", "1")
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        while self.client._connection._lock.acquire(blocking=False):
            self.client._connection._lock.release()
        while thread.is_alive():
            for fd in list(OPEN):
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as same:
                    same.shutdown(socket.SHUT_RDWR)
        thread.join()
        self.assertIsInstance(answers[0], (OSError, distributed.DistNetworkError))
        self.assertEqual(OPEN, set())
        self.assertEqual(self.client.get("a"), b"1")

    def test_a_clone_is_another_connection(self):
        clone, got = self.mine.clone(), []
        thread = threading.Thread(target=lambda: got.append(clone.get("late")))
        thread.start()
        self.mine.set("late", "1")
        thread.join()
        self.assertEqual(got, [b"1"])

    def test_a_request_that_fails_fails_alone(self):
        self.mine.set("text", "x")
        wrong = [(store.ADD, b"p/text", b"1"), (store.SET, b"a key without a value"), (99,)]
        for request in wrong:
            with self.assertRaises(distributed.DistNetworkError):
                self.client._call(*request)
            self.assertEqual(self.other.get("text"), b"x")
        self.assertEqual(self.mine.add("n", 1), 1)

    def test_who_cannot_be_accepted_yet_waits(self):
        self.mine.set("a", "1")
        self.listener.failures += [errno.ECONNABORTED, errno.EMFILE, errno.EMFILE]
        self.assertEqual(self.other.get("a"), b"1")
        self.assertEqual(self.listener.failures, [])

    def test_only_this_user_can_open_it(self):
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)

    def test_a_libuv_backend_that_takes_no_listening_socket_is_not_used(self):
        """As that of torch 2.6 and 2.7."""

        class OldStore(distributed.TCPStore):
            def __init__(self, *args, use_libuv=True, **kwargs):
                if use_libuv and "master_listen_fd" in kwargs:
                    raise NotImplementedError("The libuv TCPStore backend does not support it")
                super().__init__(*args, use_libuv=use_libuv, **kwargs)

        for kind, is_libuv in ((OldStore, False), (distributed.TCPStore, True)):
            listener = socket.create_server(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            made = boot._tcp_store(kind, "127.0.0.1", port, listener.detach())
            self.assertEqual(made.libuvBackend, is_libuv)
            made.set("k", "v")
            client = distributed.TCPStore("127.0.0.1", port, is_master=False)
            self.assertEqual(client.get("k"), b"v")


if __name__ == "__main__":
    unittest.main()
