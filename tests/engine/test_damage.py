#!/usr/bin/env python3
"""Whatever goes wrong has an errno and a text: objects' code, damaged bytes, missing resources."""

import io
import os
import re
import resource
import sys
import unittest
from errno import EBADMSG, EFBIG, EINVAL, EMFILE, ENOMEM, EOPNOTSUPP
from random import Random
from unittest import mock

from in_process import NAMES, Case, np, read, state, torch, values, write


class Fails(Exception):
    """Cannot even print itself."""

    def __str__(self):
        raise SystemExit


class Lies(OSError):
    """Cannot even be asked what it is."""

    __class__ = property(lambda self: 1 / 0)
    errno = property(lambda self: 1 / 0)


class Raises:
    """Any access to it raises the given error."""

    def __init__(self, error):
        object.__setattr__(self, "error", error)

    def fail(self, *_):
        raise object.__getattribute__(self, "error")

    __repr__ = __str__ = __reduce_ex__ = __getattr__ = __dir__ = __len__ = fail


class Lacks:
    """Unpickling it raises the given error."""

    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        return raised, (self.error,)


def raised(error):
    raise error


class Errors(Case):
    """Every failure has an errno that says whose fault it is, and a text; never EIO."""

    def test_an_objects_own_code_fails(self):
        kinds = (SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Fails(), OSError(5, "x"))
        for error in (*kinds, Lies(), ValueError("a\x1b[31mb\nc" * 1000)):
            NAMES["x"], name = Raises(error), type(error).__name__
            for view_name in values.VIEWS:
                if view_name in ("doc", "npy", "safetensors", "csv", "png", "clone"):
                    continue  # clone names what fails, and copies the rest
                with self.subTest(error=type(error), view=view_name):
                    self.refuses(EOPNOTSUPP, name, read, "x", view_name)
        text = str(self.caught(read, "x", ""))
        self.assertTrue(text.isprintable() and len(text) < 400, text)

    def caught(self, function, *args):
        with self.assertRaises(state.EngineError) as caught:
            function(*args)
        return caught.exception

    def test_the_machine_lacks_something(self):
        for error, errno in ((MemoryError(), ENOMEM), (OSError(EMFILE, "no descriptors"), EMFILE)):
            NAMES["x"] = Raises(error)
            for view_name in ("", "json", "pkl", "p5", "dir"):
                self.refuses(errno, "x", read, "x", view_name)

    def test_the_machine_lacks_something_for_what_is_written(self):
        files = {view: self.bytes_of(view) for view in ("npy", "safetensors", "pt")}
        for error, errno in ((MemoryError(), ENOMEM), (OSError(EMFILE, "no descriptors"), EMFILE)):
            NAMES["x"] = Lacks(error)
            for view_name in ("pkl", "p5"):
                self.refuses(
                    errno, "cannot be unpickled here: ", write, "y", read("x", view_name), view_name
                )
            for view_name, where in (
                ("npy", "numpy.ndarray"),
                ("safetensors", "torch.frombuffer"),
                ("pt", "torch.load"),
            ):
                with mock.patch(where, side_effect=error):
                    self.refuses(errno, "", write, "y", files[view_name], view_name)
            self.assertNotIn("y", NAMES)

    def test_a_file_that_describes_itself_has_all_its_bytes(self):
        for what, view_name, data in self.self_describing():
            write("y", data, view_name)
            NAMES["y"] = kept = object()
            for cut in (*range(len(data)), len(data) + 1):
                with self.subTest(what=what, cut=cut):
                    damaged = (data + b"\0")[:cut]
                    self.refuses(EBADMSG, "", write, "y", damaged, view_name)
                    self.refuses(EBADMSG, "", write, "y", damaged, view_name, "cat")
                    self.assertIs(NAMES["y"], kept)
            del NAMES["y"]

    def self_describing(self):
        for version in (1, 0), (2, 0), (3, 0):
            file = io.BytesIO()
            np.lib.format.write_array(file, np.arange(6.0).reshape(2, 3), version)
            yield f"npy {version}", "npy", file.getvalue()
        NAMES["y"] = {"a": torch.ones(4), "b": torch.ones(3, dtype=torch.uint8)}
        yield "safetensors", "safetensors", read("y", "safetensors")

    def bytes_of(self, view_name):
        NAMES["y"] = torch.ones(3)
        try:
            return read("y", view_name)
        finally:
            del NAMES["y"]

    def test_a_cancelled_view_is_no_refusal(self):
        for view_name in ("", "json", "pkl", "p5", "pt", "dir"):
            NAMES["x"] = Raises(state.Cancelled())
            with self.assertRaises(state.Cancelled):
                read("x", view_name)

    def test_deep_and_circular_objects(self):
        deep, circle = [], {}
        for _ in range(100_000):
            deep = [deep]
        circle["self"] = circle["again"] = circle
        NAMES.update(deep=deep, circle=circle)
        for view_name in ("", "json", "pkl"):
            self.refuses(EOPNOTSUPP, "recursion", read, "deep", view_name)
        self.refuses(EOPNOTSUPP, "Circular", read, "circle", "json")
        for view_name in ("pkl", "p5"):
            for _ in range(2):  # over no old value, over a cyclic one
                write("back", read("circle", view_name), view_name)
                self.assertIs(NAMES["back"]["self"], NAMES["back"]["again"])
                self.assertIs(NAMES["back"]["self"], NAMES["back"])
        self.refuses(EBADMSG, "", write, "back", "[" * 100_000, "json")
        self.refuses(EBADMSG, "", write, "back", "[" * 100_000)
        self.refuses(EBADMSG, "", write, "back", "-" * 100_000 + "1")
        for version, size in ((b"\1\0", 2), (b"\2\0", 4)):
            head = b"{'descr': '<f8', 'fortran_order': False, 'shape': " + b"-" * 30_000 + b"1}\n"
            npy = b"\x93NUMPY" + version + len(head).to_bytes(size, "little") + head
            self.refuses(EBADMSG, "not .npy", write, "back", npy, "npy")

    def test_a_pickle_that_exits(self):
        for call in (b"cbuiltins\nexit\n(tR.", b"cos\nabort_is_no_such_name\n(tR."):
            for view_name in ("pkl", "pt"):
                self.refuses(EBADMSG, "", write, "x", call, view_name)

    def test_without_libraries(self):
        NAMES.update(n=5, t=[1])
        kept = {
            name: sys.modules.pop(name)
            for name in list(sys.modules)
            if name.split(".")[0] in ("numpy", "torch")
        }
        sys.modules["numpy"] = None
        try:
            self.refuses(EOPNOTSUPP, "NumPy", read, "n", "npy")
            self.refuses(EOPNOTSUPP, "NumPy", write, "n", b"x", "npy")
            for view_name in ("pt", "safetensors"):
                self.refuses(EOPNOTSUPP, f"no view .{view_name}", read, "n", view_name)
                self.refuses(EOPNOTSUPP, "torch", write, "n", b"x", view_name)
            self.assertEqual(
                (read("n"), read("t", "json"), read("n", "pkl")[:2]),
                (b"5\n", b"[1]\n", b"\x80\x05"),
            )
        finally:
            sys.modules.update(kept)


class Mutations(Case):
    """Damaged bytes are refused with an errno and a text, or give an object, and nothing else."""

    ALLOWED = (EBADMSG, EINVAL, EOPNOTSUPP, EFBIG, ENOMEM)  # a damaged size may be huge
    ROUNDS = 500  # for each view of each object

    def mutate(self, random, data):
        """Makes one to four edits: bits, runs, numbers at their limits, cuts, copies."""
        data = bytearray(data)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(data) + 1)
            kind = random.randrange(6)
            if kind == 0 and at < len(data):
                data[at] ^= 1 << random.randrange(8)
            elif kind == 1:
                data[at : at + random.randrange(9)] = random.randbytes(random.randrange(9))
            elif kind == 2:
                number = random.choice((0, 1, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1))
                data[at : at + 8] = number.to_bytes(8, "little")
            elif kind == 3:
                del data[at:]
            elif kind == 4:
                data[at:at] = data[: random.randrange(64)]
            else:
                digit = re.search(rb"\d+", data[at:])
                if digit:
                    new = random.choice((b"-1", b"0", b"9" * 20, b"1e9", b"true", b"null", b"[]"))
                    data[at + digit.start() : at + digit.end()] = new
        return bytes(data)

    def attack(self, name, view_name, rounds=ROUNDS):
        """Writes mutations of a name's view, over nothing and over its own value."""
        good, random = read(name, view_name), Random(f"{name}.{view_name}")
        old = NAMES[name]
        for number in range(rounds):
            data = self.mutate(random, good)
            NAMES.pop("y", None)
            if number % 2:
                NAMES["y"] = old
            try:
                write("y", data, view_name)
            except state.EngineError as e:
                self.assertIn(e.errno, self.ALLOWED, (view_name, number, str(e), data[:200]))
                self.assertTrue(str(e), (view_name, number))
                self.assertTrue(number % 2 == 0 or NAMES["y"] is old)

    def test_texts_and_arrays(self):
        NAMES.update(
            a=np.arange(12.0).reshape(3, 4), r=np.zeros(2, [("a", "i4"), ("b", "f8", (2,))]),
            w=np.zeros(2, [(f"field{i}", "f4") for i in range(5000)]), t=torch.ones(2, 3).long(),
            d={"a": torch.randn(3), "b": torch.ones(2, 2).half()}, m=torch.nn.Linear(2, 3),
            j={"a": [1, 2.5, None, {"b": "text"}], "c": True},
        )  # fmt: skip
        adam = torch.optim.Adam(NAMES["m"].parameters())
        NAMES["m"](torch.ones(2)).sum().backward()
        adam.step()
        NAMES["o"] = adam
        for names, view_name in (
            ("art", "npy"),
            ("w", "npy"),
            ("tdmo", "safetensors"),
            ("j", "json"),
            ("j", ""),
        ):
            for name in names:
                with self.subTest(name=name, view=view_name):
                    self.attack(name, view_name, 4 if name == "w" else self.ROUNDS)

    def test_pickles(self):
        """In a process of its own with limited memory: the numbers in a pickle are believed."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = self.attack_pickles()
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def attack_pickles(self):
        with open("/proc/self/statm", encoding="ascii") as f:
            now = int(f.read().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 30),) * 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        NAMES.update(
            a=np.arange(6.0),
            t=torch.randn(2, 3),
            o={"k": [1, (2.5, "x"), {3}]},
            m=torch.nn.Linear(2, 3),
        )
        pairs = [
            (n, v) for v, names in (("pkl", "ato"), ("p5", "ato"), ("pt", "atom")) for n in names
        ]
        for name, view_name in pairs:
            try:
                self.attack(name, view_name)
            except BaseException as e:
                print(f"{name}.{view_name}: {type(e).__name__}: {e}", flush=True)
                return 2
        return 0


if __name__ == "__main__":
    unittest.main()
