#!/usr/bin/env python3
"""Each view of an object, without an engine, reads and writes the right bytes, or refuses to."""

import ctypes
import io
import json
import os
import pickle
import types
import unittest
from collections import OrderedDict
from errno import EBADMSG, EFBIG, EINVAL, ENOENT, EOPNOTSUPP

from in_process import DTYPES, NAMES, Case, np, read, state, texts, torch, values, views, write


class Text(Case):
    def test_reading(self):
        NAMES.update(a=1, b="two\n", c=None, d=np.zeros(10**6), e={"k": [1.5]})
        self.assertEqual(read("a"), b"1\n")
        self.assertEqual(read("b"), b"two\n\n")
        self.assertEqual(read("c"), b"None\n")
        self.assertEqual(read("d"), b"[0. 0. 0. ... 0. 0. 0.]\n")
        self.assertEqual(read("e"), b"{'k': [1.5]}\n")

    def test_writing(self):
        for text, want in (
            ("5\n", 5), ("-2.5", -2.5), ("None\n", None), ("hello\n", "hello"), ("hi\n\n", "hi\n"),
            ("[1, 'a']\n", [1, "a"]), ("{'k': (1,)}", {"k": (1,)}), ("'q'\n", "q"), ("", ""),
            ("True", True), ("007", "007"), ("it's", "it's"), ("1e5", 1e5),
            ("wait ... for it", "wait ... for it"), ("'[0, ..., 1]'", "[0, ..., 1]"),
        ):  # fmt: skip
            NAMES.pop("x", None)
            write("x", text)
            self.assertEqual(NAMES["x"], want)
            self.assertIs(type(NAMES["x"]), type(want))

    def test_refusals(self):
        NAMES["x"] = "old"
        for text in ("[1, 2", "{'a': }", "'open", "(name)"):
            self.refuses(EBADMSG, "begins like", write, "x", text)
        self.refuses(EBADMSG, "UTF-8", write, "x", b"a\xff")
        self.refuses(ENOENT, "no variable y", read, "y")
        self.refuses(EINVAL, "no view .nosuch", read, "x", "nosuch")
        self.refuses(EINVAL, "not a valid variable name", write, "a-b", "1")
        self.refuses(EINVAL, "not a valid variable name", write, "class", "1")
        self.assertEqual(NAMES["x"], "old")

    def test_text_that_is_no_literal_replaces_only_text(self):
        for held in (torch.ones(3), np.ones(3), [1], {}, 5, 2.5, None, True, b"b", len, object()):
            NAMES["x"] = held
            for text in ("tensor([1., 1., 1.])", "hello", "007", "", str(held).strip("[{") + "?"):
                self.refuses(EBADMSG, "x.json, .npy, .safetensors, .pt or .pkl", write, "x", text)
            self.assertIs(NAMES["x"], held)
        write("x", "'hello'")
        self.assertEqual(NAMES["x"], "hello")
        write("x", "good bye")
        self.assertEqual(NAMES["x"], "good bye")

    def test_fingerprints_ignore_an_order_that_means_nothing(self):
        def fingerprint(value):
            NAMES["x"] = value
            return read("x", "fingerprint")

        def holder(value):
            made = Holder()
            made.held = value
            return made

        class Holder:
            pass

        up, down = set(), set()
        for held, numbers in (up, (0, 8)), (down, (8, 0)):
            for number in numbers:
                held.add(number)
        self.assertNotEqual(str(up), str(down))
        ones = torch.ones(2)
        for a, b in (
            (up, down),
            (frozenset(up), frozenset(down)),
            ([up, {"a": up}], [down, {"a": down}]),
            ({frozenset(up): ones}, {frozenset(down): ones}),
            ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
            ({"a": ones, "b": 2}, {"b": 2, "a": ones}),
            (holder(up), holder(down)),
        ):
            self.assertEqual(fingerprint(a), fingerprint(b), a)
        for a, b in (
            (up, {0, 9}),
            (up, frozenset(up)),
            ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
            (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
            ([1, 2], [2, 1]),
        ):
            self.assertNotEqual(fingerprint(a), fingerprint(b), a)

    def test_elided_text_is_no_object(self):
        circle = [1]
        circle.append(circle)
        pandas = []
        try:
            import pandas as pd

            pandas = [pd.DataFrame({"a": range(200)}), pd.Series(range(200))]
        except ImportError:
            pass
        things = [
            np.zeros(5000), np.zeros((2000, 2)), np.zeros((2, 5000)), np.zeros((40, 40, 40)),
            torch.zeros(5000), torch.zeros(2000, 2), torch.zeros(2, 5000),
            torch.nn.Parameter(torch.zeros(5000)), torch.zeros(2000, 2, requires_grad=True),
            circle, {"a": np.zeros(5000)}, [torch.zeros(5000)], object(), lambda: 0,
            types.SimpleNamespace(a=np.zeros(5000)), [...], {"a": (1, ...)}, *pandas,
        ]  # fmt: skip
        for thing in things:
            NAMES["x"] = thing
            text = read("x")
            for held in ({}, {"y": "text"}):
                with self.subTest(text=text[:80], held=held):
                    NAMES.pop("y", None)
                    NAMES.update(held)
                    self.refuses(EBADMSG, "", write, "y", text)
                    self.assertEqual(NAMES.get("y"), held.get("y"))
        for text in ("x… cut, 5 bytes", "...", "<socket object at 0x7f00>"):
            self.refuses(EBADMSG, "", write, "y", text)

    def test_bounds(self):
        laughs = ["ha"]
        for _ in range(60):
            laughs = [laughs, laughs]
        kept = views.TEXT_BYTES, views.ELEMENTS
        views.TEXT_BYTES = texts.TEXT_BYTES = 1 << 16
        views.ELEMENTS = 1 << 12
        try:
            NAMES.update(
                laughs=laughs, long=[0] * 4097, deep=[[{"a": [0] * 4000}], [0] * 100],
                text="a" * 65537, texts=["a" * 40000] * 2, wordy=["a" * 17] * 3800,
                array=np.zeros((64, 65)), tensor=torch.zeros(4097), grid=np.zeros((8192, 8)),
                short=[0] * 4000, circle=[1],
            )  # fmt: skip
            NAMES["circle"].append(NAMES["circle"])
            for name in ("laughs", "long", "deep", "text", "texts", "wordy"):
                for suffix in ("", "json"):
                    self.refuses(EFBIG, ".pkl", read, name, suffix)
            for name in ("array", "tensor"):
                self.refuses(EFBIG, ".npy", read, name, "json")
                self.assertIn(b"...", read(name))
            self.refuses(EFBIG, "grid.csv", read, "grid", "csv")
            self.assertEqual(read("circle"), b"[1, [...]]\n")
            self.refuses(EOPNOTSUPP, "Circular", read, "circle", "json")
            self.assertEqual(len(read("short", "json")), 12001)
            try:
                import pandas as pd
            except ImportError:
                return
            NAMES["frame"] = pd.DataFrame({"a": range(100_000)})
            self.refuses(EFBIG, "frame.csv", read, "frame", "csv")
            NAMES["frame"] = NAMES["frame"][:3]
            self.assertEqual(read("frame", "csv"), b"a\n0\n1\n2\n")
        finally:
            views.TEXT_BYTES, views.ELEMENTS = kept
            texts.TEXT_BYTES = kept[0]

    def test_large(self):
        write("x", "a" * (3 << 20))
        self.assertEqual(read("x"), b"a" * (3 << 20) + b"\n")


class Json(Case):
    def test_round_trip(self):
        for value in (1, -2.5, "ä\"'\n", None, True, [1, [2, {}]], {"a": {"b": [None]}}):
            NAMES["x"] = value
            data = read("x", "json")
            write("y", data, "json")
            self.assertEqual(NAMES["y"], value)

    def test_arrays(self):
        NAMES.update(
            a=np.arange(6).reshape(2, 3), t=torch.ones(2, requires_grad=True), f=np.float32(2)
        )
        self.assertEqual(json.loads(read("a", "json")), [[0, 1, 2], [3, 4, 5]])
        self.assertEqual(json.loads(read("t", "json")), [1.0, 1.0])
        self.assertEqual(json.loads(read("f", "json")), 2.0)

    def test_numbers_that_json_does_not_have_are_null(self):
        nan, inf = float("nan"), float("inf")
        NAMES.update(
            n=nan, l=[1.5, inf, {"NaN": -inf}], a=np.array([nan, 1]), t=torch.tensor([inf, 2.0])
        )
        self.assertEqual(read("n", "json"), b"null\n")
        self.assertEqual(read("l", "json"), b'[1.5, null, {"NaN": null}]\n')
        self.assertEqual(read("a", "json"), b"[null, 1.0]\n")
        self.assertEqual(read("t", "json"), b"[null, 2.0]\n")
        write("x", "[NaN, Infinity]", "json")  # as Python's own json writes them
        self.assertEqual(repr(NAMES["x"]), "[nan, inf]")

    def test_refusals(self):
        NAMES["x"] = {1, 2}
        self.refuses(EOPNOTSUPP, "x.pkl", read, "x", "json")
        self.refuses(EBADMSG, "not JSON", write, "x", "{", "json")


class Npy(Case):
    def load(self, name):
        return np.load(io.BytesIO(read(name, "npy")))

    def check(self, array):
        NAMES["x"] = array
        got = self.load("x")
        self.assertEqual((got.dtype, got.shape), (array.dtype, array.shape))
        np.testing.assert_array_equal(got, array)
        if array.flags.c_contiguous or array.flags.f_contiguous:
            out = io.BytesIO()
            np.save(out, array)
            self.assertEqual(read("x", "npy"), out.getvalue())
        write("y", read("x", "npy"), "npy")
        np.testing.assert_array_equal(NAMES["y"], array)
        self.assertEqual(NAMES["y"].dtype, array.dtype)
        self.assertTrue(NAMES["y"].flags.writeable)

    def test_dtypes_and_orders(self):
        for dtype in DTYPES:
            base = np.arange(24).astype("i8").astype(dtype).reshape(2, 3, 4)
            for array in (
                base,
                base.T,
                base[:, ::2],
                base[0, 0, 0:0],
                np.asfortranarray(base[0]),
                base[1, 1, 1].reshape(()),
                base[:, None],
                base[::-1],
            ):
                with self.subTest(dtype=dtype, shape=array.shape):
                    self.check(np.asarray(array))

    def test_structured(self):
        self.check(np.zeros(3, [("a", "i4"), ("b", "f8", (2,))]))
        NAMES["x"] = np.zeros(2, [(f"field{i}", "f4") for i in range(8000)])  # header version 2.0
        out = io.BytesIO()
        np.save(out, NAMES["x"])
        self.assertEqual(read("x", "npy"), out.getvalue())
        write("y", read("x", "npy"), "npy")
        self.assertEqual(NAMES["y"].dtype, NAMES["x"].dtype)

    def test_large_is_live(self):
        NAMES["x"] = array = np.zeros(10**6)
        export = values.get("x", "npy")
        self.assertIsNotNone(export.keep)
        array[:] = 7
        got = ctypes.string_at(export.address + 8, 8)
        self.assertEqual(np.frombuffer(got)[0], 7)
        for other in (array.reshape(1000, 1000).T, array[::3]):
            self.check(other)

    def test_numbers_and_tensors(self):
        for value, dtype in (
            (3, "i8"),
            (2.5, "f8"),
            (True, "?"),
            (np.float32(1), "f4"),
            (1j, "c16"),
        ):
            NAMES["x"] = value
            got = self.load("x")
            self.assertEqual((got.dtype, got.shape, got[()]), (np.dtype(dtype), (), value))
        tensors = [
            torch.arange(6.0).reshape(2, 3),
            torch.arange(6).reshape(2, 3).T,
            torch.tensor(3),
            torch.randn(500, 500, requires_grad=True),
            torch.randn(500, 500)[:, ::2],
            torch.nn.Parameter(torch.randn(3)),
            torch.randn(3, dtype=torch.complex64).conj(),
            torch.empty(0, 3),
            torch.randn(4).half(),
        ]
        for tensor in tensors:
            NAMES["x"] = tensor
            want = tensor.detach().resolve_conj().numpy()
            np.testing.assert_array_equal(self.load("x"), want)

    def test_pushed_into_tensor(self):
        NAMES["t"] = torch.zeros(3, requires_grad=True)
        NAMES["p"] = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
        for name in "tp":
            old = NAMES[name]
            NAMES["a"] = np.arange(3.0)
            write(name, read("a", "npy"), "npy")
            self.assertIs(type(NAMES[name]), type(old))
            self.assertEqual(NAMES[name].requires_grad, old.requires_grad)
            self.assertEqual((NAMES[name].tolist(), NAMES[name].dtype), ([0, 1, 2], torch.float64))
        NAMES["a"] = np.arange(3, dtype=">i4")
        write("t", read("a", "npy"), "npy")
        self.assertEqual((NAMES["t"].tolist(), NAMES["t"].requires_grad), ([0, 1, 2], False))
        NAMES["a"] = np.array(["a"])
        self.refuses(EBADMSG, "torch has no", write, "t", read("a", "npy"), "npy")

    def test_refusals(self):
        NAMES.update(
            o=np.array([None, {}]),
            b=torch.zeros(2, dtype=torch.bfloat16),
            l=[1],
            s="text",
            f=torch.zeros(2).to(torch.float8_e5m2),
            big=10**30,
            sp=torch.eye(2).to_sparse(),
            meta=torch.empty(2, device="meta"),
        )
        self.refuses(EOPNOTSUPP, "o.pkl", read, "o", "npy")
        self.refuses(EOPNOTSUPP, "b.safetensors", read, "b", "npy")
        self.refuses(EOPNOTSUPP, "f.safetensors", read, "f", "npy")
        self.refuses(EOPNOTSUPP, "sp.pt", read, "sp", "npy")
        self.refuses(EOPNOTSUPP, "meta.pt", read, "meta", "npy")
        for name in ("l", "s", "big"):
            self.refuses(EOPNOTSUPP, ".pkl", read, name, "npy")
        good = io.BytesIO()
        np.save(good, np.arange(5))
        for bad in (b"", b"hello", good.getvalue()[:-1], good.getvalue() + b"x"):
            self.refuses(EBADMSG, "npy", write, "x", bad, "npy")
        out = io.BytesIO()
        np.save(out, NAMES["o"])
        self.refuses(EBADMSG, "x.pkl", write, "x", out.getvalue(), "npy")
        self.assertNotIn("x", NAMES)


class Pickles(Case):
    def same(self, a, b):
        self.assertIs(type(a), type(b))
        if isinstance(a, torch.Tensor):
            self.assertEqual(
                (a.dtype, a.shape, a.requires_grad), (b.dtype, b.shape, b.requires_grad)
            )
            self.assertTrue(
                torch.equal(a.detach().float().nan_to_num(), b.detach().float().nan_to_num())
            )
        elif isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
        else:
            self.assertEqual(a, b)

    def test_round_trips(self):
        big = np.random.default_rng(1).random((300, 400))
        things = [
            1,
            "ä",
            None,
            {"a": [1, (2, 3)]},
            {1, 2},
            b"\0\1",
            big,
            big.T,
            big[::2, ::3],
            np.array([None, "x"], dtype=object),
            torch.randn(300, 400),
            torch.randn(30, 40).T,
            torch.randn(8)[::2],
            torch.randn(3, requires_grad=True),
            torch.tensor(2.5),
            torch.nn.Parameter(torch.randn(2)),
            torch.randn(5).bfloat16(),
            torch.empty(0),
            torch.randn(5).to(torch.float8_e4m3fn),
            torch.arange(3, dtype=torch.int32),
        ]
        for view in ("pkl", "p5"):
            for thing in things:
                with self.subTest(view=view, thing=type(thing)):
                    NAMES["x"] = thing
                    write("y", read("x", view), view)
                    self.same(NAMES["y"], thing)

    def test_p5_layout(self):
        NAMES["x"] = [np.arange(1000), torch.randn(50).bfloat16(), "rest"]
        data = read("x", "p5")
        self.assertEqual(data[:8], b"ddip-p5\n")
        version, count = np.frombuffer(data, "<u4", 2, 8)
        (length,) = np.frombuffer(data, "<u8", 1, 16)
        spans = np.frombuffer(data, "<u8", 2 * count, 24).reshape(-1, 2)
        self.assertEqual((version, count), (1, 2))
        self.assertTrue((spans[:, 0] % 64 == 0).all())
        start = 24 + 16 * count
        view = memoryview(bytearray(data))
        got = pickle.loads(
            view[start : start + length], buffers=[view[o : o + n] for o, n in spans]
        )
        np.testing.assert_array_equal(got[0], NAMES["x"][0])
        self.assertTrue(torch.equal(got[1], NAMES["x"][1]))

    def test_pushed_memory_is_private(self):
        NAMES["x"] = np.zeros(10**5)
        data = read("x", "p5")
        fd = os.memfd_create("test")
        os.write(fd, data)
        for name in "yz":
            values.put(name, "p5", "", fd, len(data))
            values.commit(True)
        NAMES["y"][:] = 5
        self.assertEqual((NAMES["y"].sum(), NAMES["z"].sum()), (5e5, 0))
        self.assertEqual(os.pread(fd, len(data), 0), data)
        os.close(fd)

    def test_refusals(self):
        NAMES["x"] = {"fine": 1, "bad": [0, (i for i in ())]}
        for view in ("pkl", "p5"):
            self.refuses(EOPNOTSUPP, "x['bad'][1] cannot be pickled", read, "x", view)
            self.refuses(EBADMSG, "", write, "y", b"nonsense", view)
        self.refuses(EBADMSG, "No module named", write, "y", b"cnosuchmodule\nf\n.", "pkl")


class Others(Case):
    def test_scatter(self):
        NAMES["a"] = np.arange(10)
        data = read("a", "npy")
        state.size = 4
        try:
            parts = []
            for state.rank in range(4):
                write("x", data, "npy", "cat")
                parts.append(NAMES["x"].tolist())
            self.assertEqual(parts, [p.tolist() for p in np.array_split(np.arange(10), 4)])
            write("x", "[[1], 'b', None, 4]", "", "gather")
            self.assertEqual(NAMES["x"], 4)
            self.refuses(EINVAL, "2 items for 4", write, "x", "[1, 2]", "", "gather")
        finally:
            state.rank, state.size = 0, 1

    def test_blank(self):
        """Of what has only a size, there is a view if that is a head and then its bytes."""
        for kind, view, dtype in (
            ("array", "npy", "float32"),
            ("tensor", "npy", "float32"),
            ("tensor", "safetensors", "bfloat16"),
            ("array", "npy", "[('a', '<i4'), ('b', '|S3')]"),
            ("array", "npy", "'<U5'"),
        ):
            n = 100_000
            width = {"float32": 4, "bfloat16": 2, "'<U5'": 20}.get(dtype, 7)
            line = f"gather {kind} {width} {n} {dtype}"
            made = values.get("x", view, f"blank {n * width} {line}")
            self.assertTrue(made.blank and made.fd == -1 and made.keep is None)
            self.assertEqual(made.size, len(made.head) + n * width)
            fd = os.memfd_create("whole")
            os.ftruncate(fd, n * width)
            whole = values.get("x", view, line, fd)
            self.assertEqual((whole.head, whole.size, whole.fd), (made.head, made.size, fd))
            os.close(fd)
        for view, size in ("npy", 1000), ("json", 400_000), ("", 400_000):
            made = values.get("x", view, f"blank {size} gather array 4 {size // 4} float32")
            self.assertFalse(made.blank or made.head or made.size, view)
        wide = "blank 400000 mean tensor 2 200000 bfloat16"
        self.refuses(EOPNOTSUPP, "read x.mean.safetensors", values.get, "x", "npy", wide)
        vast = values.get("x", "npy", f"blank {1 << 46} mean tensor 8 {1 << 43} float64")
        self.assertEqual(vast.size - len(vast.head), 1 << 46)
        beyond = values.get("x", "npy", f"blank {1 << 60} mean tensor 8 {1 << 57} float64")
        self.assertFalse(beyond.blank or beyond.size)  # there are no addresses for it

    def test_png(self):
        for value in (
            np.zeros((4, 5)),
            np.zeros((4, 5, 3), "u1"),
            torch.rand(3, 8, 9),
            torch.rand(4, 8, 9),
            np.ones((2, 2), bool),
            torch.rand(1, 4, 4).bfloat16(),
        ):
            NAMES["x"] = value
            data = read("x", "png")
            self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        try:
            from PIL import Image
        except ImportError:
            return
        NAMES["x"] = image = np.random.default_rng(0).integers(0, 256, (6, 7, 3), dtype="u1")
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(read("x", "png")))), image)
        NAMES["x"] = np.zeros(3)
        self.refuses(EOPNOTSUPP, "want a figure", read, "x", "png")

    def test_csv_and_dir(self):
        NAMES.update(a=np.array([[1, 2], [3, 4]]), o=types.SimpleNamespace(field=1))
        self.assertEqual(read("a", "csv"), b"1,2\n3,4\n")
        self.assertIn(b"field\n", read("o", "dir"))
        self.refuses(EOPNOTSUPP, "only be read", write, "a", "x", "csv")

    def test_delete_and_move(self):
        NAMES.update(a=1, b=2)
        values.move("a", "b")
        values.commit(False)
        self.assertIn("a", state.main.__dict__)
        values.move("a", "b")
        values.commit(True)
        self.assertEqual(dict(NAMES), {"b": 1})
        values.delete("b")
        self.refuses(ENOENT, "no variable", values.delete, "b")
        self.refuses(EINVAL, "not a valid variable name", values.move, "a", "1x")

    def test_commit_forgets(self):
        fd = os.memfd_create("test")
        os.write(fd, b"5")
        values.put("x", "", "", fd, 1)
        values.commit(False)
        self.assertNotIn("x", NAMES)
        self.refuses(EINVAL, "nothing was pushed", values.commit, True)
        self.refuses(EBADMSG, "2 bytes were announced", values.put, "x", "", "", fd, 2)
        os.close(fd)


if __name__ == "__main__":
    unittest.main()
