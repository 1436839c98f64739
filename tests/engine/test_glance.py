#!/usr/bin/env python3
"""What a report shows of the names of frames: few words, odd ones first, no code of the user's."""

import sys
import unittest

from in_process import Case, np, torch

from ddip_engine.data import glance  # isort: skip (in_process makes it importable)


class Hostile:
    """Code of the user's must not run."""

    def __getattr__(self, name):
        raise AssertionError(name)

    def __repr__(self):
        raise AssertionError("__repr__")


class Bad(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args, **kwargs):
        raise AssertionError("__torch_function__")


def of(**names):
    """{name: text} of these local variables, in the order of the lines."""
    code = f"def f({', '.join(names)}):\n    return frame()\n"
    space = {"frame": lambda: sys._getframe(1)}
    exec(code, space)
    frame = space["f"](**names)
    found = list(glance.lines([(frame, 1)]))
    assert found[0] == ("where", "f() at <string>:1"), found[0]
    return dict(text.split("\t") for _, text in found[1:])


class Glance(Case):
    def test_values(self):
        cases = {
            "3": 3,
            "True": True,
            "0.001": 1e-3,
            "1.235": 1.23456,
            "'adam'": "adam",
            "inf": float("inf"),
            "2.5": torch.tensor(2.5, requires_grad=True),
            "7": torch.tensor([[7]]),
            "float32[2,3]": torch.zeros(2, 3),
            "int64[5]": torch.zeros(5, dtype=torch.int64),
            "float32[3] 1 nan": torch.tensor([1.0, float("nan"), 2.0]),
            "bfloat16[2] 2 inf": torch.full((2,), float("-inf"), dtype=torch.bfloat16),
            "float32[2,2]": torch.nn.Parameter(torch.ones(2, 2)),
            "float32[2] meta": torch.zeros(2, device="meta"),
            "float64[4]": np.zeros(4),
            "float64[2] 1 nan": np.array([np.nan, 1]),
            "0.5": np.float32(0.5),
            "complex64[2]": torch.zeros(2, dtype=torch.complex64),
            "float32[20000]": torch.full((20000,), float("nan")),  # too many to look at
        }
        for text, value in cases.items():
            self.assertEqual(of(x=value), {"x": text}, text)

    def test_what_is_not_shown(self):
        hidden = [Hostile(), torch.zeros(2).as_subclass(Bad), None, [1], {}, len, "long" * 9]
        hidden += [1 << 100, torch.zeros(0).to_sparse(), np.complex64(1), np.array(["a"]).dtype]
        for value in hidden[:8]:
            self.assertEqual(of(x=value), {}, type(value))
        for value in hidden[8:]:
            of(x=value)

    def test_a_learning_rate(self):
        optimizer = torch.optim.SGD([torch.ones(1)], lr=0.1)
        self.assertEqual(of(optimizer=optimizer), {"optimizer.lr": "0.1"})

    def test_odd_ones_come_first_and_there_is_a_limit(self):
        names = {f"n{i:03}": i for i in range(100)} | {"z": float("nan"), "_x": 1}
        found = of(**names)
        self.assertEqual(list(found)[:3], ["z", "n000", "n001"])
        self.assertEqual(len(found), 24)
        found = of(**{"v" * 60 + str(i): i for i in range(30)})
        self.assertLess(sum(map(len, found)), 1000)

    def test_names_of_a_module_are_those_that_its_code_uses(self):
        space = {"frame": lambda: sys._getframe(1), "other": 1, "used": 2}
        exec("used += 1\nfound = frame()", space)
        found = dict(glance.lines([(space["found"], 1)]))
        self.assertEqual(found["local"], "used\t3")


if __name__ == "__main__":
    unittest.main()
