#!/usr/bin/env python3
"""The table of variables lists the right names of a namespace, in the right form."""

import __future__

import gc
import json
import os
import unittest
from errno import EINVAL

from in_process import NAMES, Case, np, state, table, torch, write


class Table(Case):
    def rows(self):
        lines = table.text().decode().splitlines()
        return {line.split("\t")[0]: line.split("\t")[1:] for line in lines}

    def test_rows(self):
        NAMES.update(
            f=1.5, s="abc", l=[1, 2], n=np.zeros((2, 3), "f4"), z=np.array(1),
            t=torch.zeros(4).half(), m=torch.nn.Linear(2, 3), _p=1, os=os, dumps=json.dumps,
            Case=unittest.TestCase, __x__=1,
            annotations=__future__.annotations,
        )  # fmt: skip
        exec(
            "def g(): pass\nclass K: pass\nk = K()\nfrom math import sin\nfrom typing import List",
            NAMES,
        )
        NAMES["K"].__module__ = NAMES["g"].__module__ = "__main__"
        rows = self.rows()
        self.assertEqual(sorted(rows), sorted(["f", "s", "l", "n", "z", "t", "m", "g", "K", "k"]))
        self.assertEqual(rows["n"], ["ndarray", "float32", "2,3", "24", "cpu"])
        self.assertEqual(rows["t"], ["Tensor", "float16", "4", "8", "cpu"])
        self.assertEqual(rows["m"], ["Linear", "float32", "-", "36", "cpu"])
        self.assertEqual(rows["f"], ["float", "-", "-", "-", "-"])
        self.assertEqual(rows["s"], ["str", "-", "-", "3", "-"])

    def test_what_is_kept_between_two_tables(self):
        NAMES.update(a=1, b=[1], f=dict)
        self.assertEqual(self.rows()["b"][2], "1")
        NAMES["b"].append(2)
        self.assertEqual(self.rows()["b"][2], "2", "it was changed in place")
        for value, kind in ((2.5, "float"), ("x", "str"), (None, "NoneType")):
            NAMES["a"] = value
            self.assertEqual(self.rows()["a"][0], kind)
        NAMES["c"] = NAMES.pop("a")
        self.assertEqual(sorted(self.rows()), ["b", "c"], "the same object has another name")
        for _ in range(50):  # the next class, and its object, may have the ids of the last ones
            NAMES["k"] = type("K", (), {})()
            self.assertEqual(self.rows()["k"][0], "K")
            NAMES["k"] = type("Other", (dict,), {})()
            self.assertEqual(self.rows()["k"][:3], ["Other", "-", "0"])
            del NAMES["k"]
            gc.collect()
        state.put(b=NAMES["b"])
        self.assertEqual(sorted(self.rows()), ["c"], "the engine's own are not listed")
        state.take({"b": NAMES["b"]})
        state.engine_names.pop("b")

    def test_only_names_are_listed_each_on_one_line(self):
        class Text(str):
            pass

        odd = ["../../x", "a b", "a\nb", "a\tb", "", "1a", "class", "\ud800", "n" * 256, "é" * 128]
        fine = ["n" * 255, "é" * 127, "Z", "a", "ß", "𝑥", "ﬁ"]
        NAMES.update({name: 1 for name in odd + fine})
        NAMES.update({1: 2, None: 3, (4, 5): 6, b"bytes": 7, Text("text"): 8, 2.5: 9})
        NAMES["kind"] = type("K\tx\ny\u2028z", (), {})()
        lines = table.text().decode().splitlines()
        self.assertEqual([line.split("\t")[0] for line in lines], sorted([*fine, "kind"]))
        self.assertEqual({len(line.split("\t")) for line in lines}, {6})
        names = [line.split(b"\t")[0] for line in table.text().splitlines()]
        self.assertEqual(names, sorted(names), "the order is that of the bytes")
        for name in ("n" * 256, "é" * 128, "a b"):
            self.refuses(EINVAL, "not a valid variable name", write, name, "1")

    def test_no_object_breaks_the_table_or_is_asked(self):
        asked = []

        def ask(*_):
            asked.append(1)
            raise SystemExit

        class Meta(type):
            __name__ = __module__ = property(ask)
            __hash__ = __eq__ = ask

        body = {
            name: ask for name in ("__len__", "__repr__", "__getattr__", "memory_usage", "iloc")
        }
        asker = Meta("Asker", (list,), {**body, "__class__": property(ask), "shape": property(ask)})
        NAMES.update(made=asker(), Asker=asker, frame=type("F", (), body)())
        rows = self.rows()
        self.assertEqual(rows["made"], ["Asker", "-", "0", "-", "-"])
        self.assertEqual(rows["frame"], ["F", "-", "-", "-", "-"])
        self.assertEqual(asked, [])

    def test_types_that_are_gone_are_forgotten(self):
        gc.collect()
        table.text()
        known = len(table._kinds)
        for i in range(100):
            NAMES[f"v{i}"] = type(f"K{i}", (), {})()
        self.assertEqual(self.rows()["v99"][0], "K99")
        for i in range(100):
            del NAMES[f"v{i}"]
        gc.collect()
        self.assertEqual(len(table._kinds), known)

    def test_a_large_table_is_cut_at_a_line(self):
        NAMES.update({f"{'v' * 200}{i}": i for i in range(50_000)})
        data = table.text()
        self.assertTrue((8 << 20) - 300 < len(data) <= 8 << 20, len(data))
        self.assertTrue(data.endswith(b"int\t-\t-\t-\t-\n"))

    def test_own_names_are_hidden_until_changed(self):
        state.put(rank=3)
        self.assertNotIn("rank", self.rows())
        NAMES["rank"] = "mine"
        self.assertIn("rank", self.rows())


if __name__ == "__main__":
    unittest.main()
