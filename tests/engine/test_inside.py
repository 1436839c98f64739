#!/usr/bin/env python3
"""Objects are looked into by names that files can have, and none of their own code runs."""

import argparse
import collections
import dataclasses
import os
import sys
import time
import types
import unittest
from errno import EINVAL, ENOENT, EOPNOTSUPP

from in_process import NAMES, Case, np, read, state, torch, values

from ddip_engine.data import arrays, inside  # isort: skip (in_process makes it importable)


def listing(path):
    """What the directory of an object has: what is not listed, the files, and the directories."""
    export = values.names_inside(f"{path}/")
    data = os.pread(export.fd, export.size, 0) if export.fd >= 0 else export.head
    if export.fd >= 0:
        os.close(export.fd)
    head, _, files = data.decode().partition("\n\n")
    notice, *folders = head.split("\n")
    return [notice] * bool(notice) + files.split("\n")[:-1] + folders


class Inside(Case):
    def inside(self, value, path="x"):
        NAMES["x"] = value
        return listing(path)

    def found(self, path):
        return read(path).decode().rstrip("\n")

    def lacks(self, path, text=""):
        found, why = values.has_inside(path)
        self.assertFalse(found, path)
        self.assertIn(text, why)

    def test_a_dict_by_its_keys(self):
        value = {"a": 1, 2: "two", -3: 3, True: 4, None: 5, (1, "b"): 6, 1.5: 7, b"c": 8}
        names = self.inside(value)
        self.assertEqual(names, ["a", "2", "-3", "True", "None", "(1, 'b')", "1.5", "b'c'"])
        for name, entry in zip(names, value.values(), strict=True):
            self.assertEqual(self.found(f"x/{name}"), str(entry))
            self.assertEqual(values.has_inside(f"x/{name}"), (True, ""))
        self.lacks("x/b", "no 'b' in x.d, a dict")
        self.lacks("x/-2")
        self.lacks("y/a", "no variable y")

    def test_subclasses_of_dict_are_not_asked(self):
        def refuse(*args):
            raise AssertionError("the object's own code ran")

        names = "__getitem__ __iter__ __len__ __missing__ __contains__ keys items values get copy"
        hostile = dict.fromkeys([*names.split(), "__getattr__", "__getattribute__"], refuse)
        kind = type("Hostile", (dict,), hostile)
        value = kind(a=1)
        dict.__setitem__(value, "b", kind(c=2))
        self.assertEqual(self.inside(value), ["a", "b", "b.d"])
        self.assertEqual(self.found("x/b/c"), "2")
        self.lacks("x/d")
        self.lacks("x/1")
        self.assertEqual(self.inside(collections.OrderedDict(a=1)), ["a"])
        default = collections.defaultdict(list)
        self.assertEqual(self.inside(default), [])
        self.lacks("x/a")
        self.assertEqual(len(default), 0)
        names = "__getitem__ __iter__ __len__ __getattr__ __getattribute__ __index__".split()
        for base in (list, tuple):
            kind = type("Hostile", (base,), dict.fromkeys(names, refuse))
            self.assertEqual(self.inside(kind([5, 6])), ["0", "1"])
            self.assertEqual(self.found("x/1"), "6")

    def test_attributes_run_no_code(self):
        class Hostile:
            __slots__ = ("__dict__", "slot", "unset")

            def __getattr__(self, name):
                raise AssertionError(name)

            __getattribute__ = __getattr__

            @property
            def computed(self):
                raise AssertionError

            def __dir__(self):
                raise AssertionError

            __class__ = computed

        value = Hostile()
        object.__setattr__(value, "slot", [1])
        object.__setattr__(value, "_last_lr", 0.1)
        self.assertEqual(self.inside(value), ["_last_lr", "slot", "slot.d"])
        self.assertEqual((self.found("x/_last_lr"), self.found("x/slot/0")), ("0.1", "1"))
        self.lacks("x/computed")
        self.lacks("x/__class__")

        class Disguised:
            __dict__ = property(lambda self: 1 / 0)

        NAMES["x"] = Disguised()
        self.lacks("x/", "nothing inside")
        self.assertEqual(self.inside([Disguised(), value]), ["0", "1"])
        self.assertEqual(listing("x/1"), ["_last_lr", "slot", "slot.d"])  # all can be looked into

    def test_keys_run_no_code(self):
        class Key:
            def __repr__(self):
                raise AssertionError

            def __hash__(self):
                return 1

        value = {Key(): 1, "a": 2, (1, Key()): 3}
        names = self.inside(value)
        self.assertIn("not listed: 2 of what is in x.d", names[0])
        self.assertEqual(names[1:], ["a"])
        self.lacks("x/b")

    def test_keys_that_look_alike(self):
        names = self.inside({"1": "text", 1: "number", "None": 1, None: 2})
        self.assertIn("not listed: 2 of what is in x.d", names[0])
        self.assertEqual(names[1:], ["1", "None"])
        self.assertEqual((self.found("x/1"), self.found("x/None")), ("text", "1"))

    def test_any_text_is_a_name(self):
        keys = ["", ".", "..", "a/b", "%", "%41", "a\nb", "\0", "é", "\ud800", "...", ".d", "a."]
        keys += [" ", "\x7f", "\u2028", ":", "a:b", "\\", "w.d", "w.npy", "w.mean", "w.mean.npy"]
        keys += ["d", "-"]
        names = self.inside({key: i for i, key in enumerate(keys)})
        self.assertEqual(len(set(names)), len(keys))
        for i, name in enumerate(names):
            self.assertEqual(self.found(f"x/{name}"), str(i))
            self.assertEqual(inside.unescape(name), keys[i])
            self.assertNotRegex(name, r"[/\0\n]|^\.\.?$|.\.(d|npy|mean)$")
            name.encode()
        self.assertEqual(names[:4], ["%", "%2E", "%2E%2E", "a%2Fb"])
        self.assertIn("w.mean%2Enpy", names)
        self.lacks("x/%ED")
        self.lacks("x/\udcff")

    def test_long_names_are_counted(self):
        long = {"a" * 255: 1, "é" * 128: 2, "b" * 254: [], "c" * 300: 3, "d" * 253: []}
        names = self.inside(long)
        self.assertIn("not listed: 3 of what is in x.d", names[0])
        self.assertEqual(names[1:], ["a" * 255, "b" * 254, "d" * 253, "d" * 253 + ".d"])

    def test_sequences(self):
        self.assertEqual(self.inside([1, (2,), ()]), ["0", "1", "2", "1.d", "2.d"])
        self.assertEqual((self.found("x/1/0"), self.found("x/-1")), ("2", "()"))
        for name in ("3", "-4", "01", "1_0", "a", "-0", "9" * 30):
            self.lacks(f"x/{name}")
        self.assertEqual(self.inside(collections.namedtuple("N", "a b")(1, 2)), ["0", "1"])

    def test_what_has_nothing_inside(self):
        for value in (1, "a", b"", None, 1.5, torch.zeros(2), np.zeros(2), len, int, types, {1}):
            NAMES["x"] = value
            self.lacks("x/", "x is a")
            self.refuses(ENOENT, "nothing inside", values.names_inside, "x/")
            self.refuses(ENOENT, "nothing inside", values.get, "x/a", "")

    def test_endless_objects_are_listed_to_their_end(self):
        value = {"a": []}
        value["self"] = value
        value["a"].append(value)
        self.assertEqual(self.inside(value), ["a", "self", "a.d"])
        self.assertEqual(listing("x/a"), ["0"])
        self.assertEqual(self.found("x/self/self/a/0/self/a"), "[{'a': [...], 'self': {...}}]")

    def test_modules(self):
        norm = torch.nn.BatchNorm1d(3, dtype=torch.bfloat16)
        part = torch.nn.Sequential(torch.nn.Linear(2, 3), norm)
        model = torch.nn.Sequential(collections.OrderedDict(body=part, odd=torch.nn.ReLU()))
        model.register_buffer("gone", None)
        names = self.inside(model)
        views = dict(name.rsplit(".", 1) for name in names)
        self.assertEqual(list(views), list(model.state_dict()))
        self.assertEqual((views["body.0.weight"], views["body.1.bias"]), ("npy", "safetensors"))
        for name, view in views.items():
            read(f"x/{name}", view)
        self.assertEqual(self.found("x/training"), "True")
        self.assertEqual(listing("x/body.0"), ["weight.npy", "bias.npy"])
        self.assertEqual(read("x/body.0", "safetensors"), read("x/body/0", "safetensors"))
        for name in ("body.2.weight", "gone", "body.0.forward", "a.b.c"):
            self.lacks(f"x/{name}")
        model.body[0].weight.mean = 1
        model.register_parameter("mean", torch.nn.Parameter(torch.zeros(())))
        part.register_buffer("max", torch.zeros(1, device="meta"))
        self.assertEqual(set(self.inside(model)) - set(names), {"mean.npy", "body%2Emax"})

    def test_optimizers(self):
        model = torch.nn.Linear(2, 1)
        groups = [{"params": [model.bias]}, {"params": [model.weight], "lr": 0.5}]
        optimizer = torch.optim.Adam(groups)
        names = self.inside(optimizer)
        self.assertEqual(names, ["param_groups", "state", "param_groups.d", "state.d"])
        self.assertEqual(listing("x/state"), [])
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        self.assertEqual(listing("x/state"), ["0", "1", "0.d", "1.d"])
        self.assertEqual(listing("x/state/1"), ["step.npy", "exp_avg.npy", "exp_avg_sq.npy"])
        state = optimizer.state_dict()["state"]
        self.assertEqual(self.found("x/state/1/exp_avg"), str(state[1]["exp_avg"]))
        self.assertEqual(self.found("x/param_groups/1/lr"), "0.5")
        self.assertEqual(listing("x/param_groups/0/params"), ["0.npy"])
        self.assertEqual(listing("x/defaults")[0], "lr")
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        self.assertIn("_last_lr.d", self.inside(schedule))
        self.assertEqual(self.found("x/_last_lr/0"), "0.001")

    def test_dataclasses_and_namespaces(self):
        @dataclasses.dataclass
        class Config:
            lr: float = 0.1
            sizes: list = dataclasses.field(default_factory=lambda: [1])

        class Plain:
            def __init__(self):
                self.a = 1

        names, space = argparse.Namespace(b=1), types.SimpleNamespace()
        spaces = {"c": Config(), "a": names, "s": space, "p": Plain()}
        self.assertEqual(self.inside(spaces), ["c", "a", "s", "p", "c.d", "a.d", "s.d"])
        self.assertEqual(listing("x/c"), ["lr", "sizes", "sizes.d"])
        self.assertEqual(self.found("x/p/a"), "1")

    def test_data_frames(self):
        try:
            import pandas
        except ImportError:
            self.skipTest("no pandas")
        frame = pandas.DataFrame({"a": [1, 2], 3: [0.5, 1]})
        self.assertEqual(self.inside({"f": frame}), ["f", "f.d"])
        self.assertEqual(listing("x/f"), ["a.csv", "3.csv"])
        self.assertEqual(read("x/f/3", "csv"), b"3\n0.5\n1.0\n")
        self.lacks("x/f/b")
        self.lacks("x/f/a/")

        class Hostile(pandas.DataFrame):
            def refuse(self, *args):
                raise AssertionError

            __getitem__ = __iter__ = __len__ = __getattr__ = keys = items = refuse
            columns = _constructor = _constructor_sliced = property(refuse)

        before = frame.copy()
        NAMES["x"]["f"].__class__ = Hostile
        self.assertEqual(listing("x/f"), ["a.csv", "3.csv"])
        self.assertEqual(read("x/f/a", "csv"), b"a\n1\n2\n")
        NAMES["x"]["f"].__class__ = pandas.DataFrame
        self.assertTrue(frame.equals(before))
        twice = self.inside(pandas.DataFrame([[1, 2, 3]], columns=["a", "a", "b"]))
        self.assertIn("not listed: 2 of", twice[0])
        self.assertEqual(twice[1:], ["b.csv"])

    def test_views_that_show_all(self):
        odd = [np.array([{}]), np.array(["a"]), torch.zeros(1).to_sparse()]
        odd.append(torch.zeros(1, dtype=torch.float8_e5m2))
        self.assertEqual(self.inside(odd), ["0", "1.npy", "2", "3.safetensors"])
        for kind in ("float64", "bfloat16", "bool", "uint16", "complex64"):
            value = torch.zeros(1, dtype=getattr(torch, kind))
            NAMES["x"] = [value]
            view = arrays.whole_view(value)
            self.assertTrue(not view or read("x/0", view), kind)

    def test_many(self):
        begin = time.process_time()
        self.assertEqual(len(self.inside(dict.fromkeys(map(str, range(10_000)), 0.0))), 10_000)
        self.assertLess(time.process_time() - begin, 0.5)
        names = self.inside(list(range(300_000)))
        self.assertEqual((len(names), names[-1]), (300_000, "299999"))

    def test_nothing_is_kept(self):
        NAMES["x"] = {"a": [object()]}
        count = sys.getrefcount(NAMES["x"]["a"])
        listing("x/a")
        self.found("x/a/0")
        self.assertEqual(sys.getrefcount(NAMES["x"]["a"]), count)


class Set(Case):
    """What is pushed into an object; tests/fs/object_dirs.sh has the kinds of objects."""

    def put(self, path, text, call=values._call):
        fd = os.memfd_create("pushed")
        os.write(fd, text.encode())
        values.put(path, "json", "", fd, len(text), call)

    def test_nothing_stays_of_what_is_not_committed(self):
        held = NAMES["x"] = {"a": [1], 2: None, "layer": torch.nn.Linear(1, 1, bias=False)}
        before = held["layer"].weight.item()
        for path, text in ("a/0", "5"), ("2", "6"), ("new", "7"), ("layer/weight", "[[8]]"):
            for ends in values.commit, self.put_other:
                self.put(f"x/{path}", text)
                self.assertEqual(str(values._lookup(f"x/{path}")).count(text.strip("[]")), 1)
                ends(False)
                self.assertEqual([held["a"], held[2], "new" in held], [[1], None, False])
                self.assertEqual(held["layer"].weight.item(), before)

    def put_other(self, _):
        self.put("x/layer/training", "true")
        values.commit(False)

    def test_an_interrupt_undoes_it(self):
        def interrupted(function, *args):
            result = function(*args)
            if function is not values._decode:
                raise state.Cancelled
            return result

        NAMES["x"] = {"a": 1}
        for name in "a", "new":
            with self.assertRaises(state.Cancelled):
                self.put(f"x/{name}", "5", interrupted)
        self.assertEqual(NAMES["x"], {"a": 1})

    def test_a_class_that_sets_and_then_refuses(self):
        class Late(dict):
            def __setitem__(self, key, value):
                super().__setitem__(key, value)
                if value == 5:
                    raise ValueError("too late")

        NAMES["x"] = Late(a=1)
        for name in "a", "new":
            self.refuses(EOPNOTSUPP, "too late", self.put, f"x/{name}", "5")
            self.assertEqual(NAMES["x"], {"a": 1})

    def test_it_stays_what_it_was(self):
        model = NAMES["x"] = torch.nn.Linear(2, 1, dtype=torch.float16)
        weight = model.weight
        self.put("x/weight", "[[1, 2]]")
        values.commit(True)
        self.assertIs(model.weight, weight)
        self.assertEqual((weight.dtype, weight.tolist()), (torch.float16, [[1.0, 2.0]]))
        self.refuses(EINVAL, "shape (1, 2), not (2,)", self.put, "x/weight", "[1, 2]")
        self.refuses(EINVAL, "x.d/weight", self.put, "x/weight", '"words"')
        self.refuses(ENOENT, "no variable y", self.put, "y/weight", "1")


if __name__ == "__main__":
    unittest.main()
