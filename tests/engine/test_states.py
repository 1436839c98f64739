#!/usr/bin/env python3
"""Tensors by name, modules and optimizers: a state dict is loaded whole or not at all."""

import os
import pickle
import unittest
from errno import EBADMSG

from in_process import DTYPES, NAMES, Case, np, read, torch, values, write


class States(Case):
    def test_safetensors(self):
        for tensor in (
            torch.randn(3, 4),
            torch.randn(300, 400).bfloat16(),
            torch.tensor(1),
            torch.empty(0),
            torch.randn(4, 4).T,
            torch.arange(3, dtype=torch.uint8),
            torch.tensor([True]),
        ):
            NAMES["x"] = tensor
            data = read("x", "safetensors")
            NAMES.pop("x")
            write("x", data, "safetensors")
            self.assertTrue(torch.equal(NAMES["x"], tensor))
        NAMES["d"] = {"a": torch.randn(3), "b": torch.arange(600000)}
        write("e", read("d", "safetensors"), "safetensors")
        self.assertEqual(sorted(NAMES["e"]), ["a", "b"])
        self.assertTrue(torch.equal(NAMES["e"]["b"], NAMES["d"]["b"]))
        self.refuses(EBADMSG, "not safetensors", write, "x", b"\xff" * 20, "safetensors")
        self.refuses(
            EBADMSG, "not safetensors", write, "x", read("d", "safetensors")[:-1], "safetensors"
        )

    def test_against_library(self):
        try:
            from safetensors.torch import load, save
        except ImportError:
            self.skipTest("no safetensors here")
        tensors = {"a": torch.randn(3, 5), "b": torch.randn(7).half(), "c": torch.tensor([1, 2])}
        NAMES["x"] = tensors
        for key, tensor in load(read("x", "safetensors")).items():
            self.assertTrue(torch.equal(tensor, tensors[key]))
        write("y", save(tensors), "safetensors")
        for key, tensor in NAMES["y"].items():
            self.assertTrue(torch.equal(tensor, tensors[key]))

    def trained(self, kind):
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = kind(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).pow(2).sum().backward()
            optimizer.step()
        return model, optimizer

    def test_modules_and_optimizers(self):
        kinds = (torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop)
        for view in ("safetensors", "pt"):
            for kind in kinds:
                NAMES["m"], NAMES["o"] = self.trained(kind)
                model, optimizer = read("m", view), read("o", view)
                saved = {k: v.clone() for k, v in NAMES["m"].state_dict().items()}
                want = self.plain(NAMES["o"])
                NAMES["m"], NAMES["o"] = self.trained(kind)
                held = NAMES["m"]
                write("m", model, view)
                write("o", optimizer, view)
                self.assertIs(NAMES["m"], held)
                for key, tensor in NAMES["m"].state_dict().items():
                    self.assertTrue(torch.equal(tensor, saved[key]))
                self.assertEqual(self.plain(NAMES["o"]), want)

    def plain(self, optimizer):
        state_dict = optimizer.state_dict()
        fields = {k: {n: repr(t) for n, t in v.items()} for k, v in state_dict["state"].items()}
        return fields, state_dict["param_groups"]

    def test_all_or_nothing(self):
        NAMES["m"] = torch.nn.Linear(2, 2)
        before = NAMES["m"].weight.detach().clone()
        for wrong in (
            {"weight": torch.ones(2, 2)},
            {"weight": torch.ones(2, 3), "bias": torch.ones(2)},
        ):
            NAMES["d"] = wrong
            for view in ("safetensors", "pt"):
                self.refuses(EBADMSG, "not the state of m", write, "m", read("d", view), view)
        self.assertTrue(torch.equal(NAMES["m"].weight, before))

    def test_a_failing_load_changes_nothing(self):
        class Late(torch.nn.Linear):
            seen = None

            def set_extra_state(self, extra):
                self.seen = extra
                self.added = torch.nn.Parameter(torch.ones(1))
                self.bias.data = torch.ones(7)
                raise self.error

            def get_extra_state(self):
                return 5

        for error in (ValueError("late"), SystemExit(1), KeyboardInterrupt()):
            model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), Late(2, 2))
            model[2].error = error
            NAMES["m"] = model
            before = {
                key: torch.as_tensor(value).clone() for key, value in model.state_dict().items()
            }
            held = {key: id(value) for key, value in model.named_parameters()}
            NAMES["d"] = {
                k: v + 1 if torch.is_tensor(v) else v for k, v in model.state_dict().items()
            }
            self.refuses(EBADMSG, type(error).__name__, write, "m", read("d", "pt"), "pt")
            self.assertEqual({key: id(value) for key, value in model.named_parameters()}, held)
            self.assertIsNone(model[2].seen)
            for key, value in model.state_dict().items():
                self.assertTrue(torch.equal(torch.as_tensor(value), before[key]), key)

    def test_a_failing_optimizer_changes_nothing(self):
        class Late(torch.optim.Adam):
            def load_state_dict(self, state_dict):
                for fields in self.state.values():
                    fields["exp_avg"].add_(1)
                super().load_state_dict(state_dict)
                self.param_groups[0]["lr"] = 7
                raise ValueError("late")

        _, NAMES["o"] = self.trained(Late)
        want, groups = self.plain(NAMES["o"]), NAMES["o"].param_groups
        _, NAMES["other"] = self.trained(torch.optim.Adam)
        for view_name in ("pt", "safetensors"):
            self.refuses(EBADMSG, "late", write, "o", read("other", view_name), view_name)
            self.assertEqual(self.plain(NAMES["o"]), want)
            self.assertIs(NAMES["o"].param_groups, groups)

    def test_another_rank_refuses(self):
        for kind, view_name in ((torch.optim.Adam, "pt"), (torch.optim.SGD, "safetensors")):
            NAMES["m"], NAMES["o"] = self.trained(kind)
            pushed = {"m": read("m", view_name), "o": read("o", view_name)}
            NAMES["m"], NAMES["o"] = self.trained(kind)
            tensors = {key: value.clone() for key, value in NAMES["m"].state_dict().items()}
            fields = self.plain(NAMES["o"])
            for name, data in pushed.items():
                fd = os.memfd_create("test")
                os.write(fd, data)
                values.put(name, view_name, "", fd, len(data))
                values.commit(False)
                os.close(fd)
            for key, value in NAMES["m"].state_dict().items():
                self.assertTrue(torch.equal(value, tensors[key]), key)
            self.assertEqual(self.plain(NAMES["o"]), fields)

    def test_shared_and_expanded_tensors(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        model[1].weight = model[0].weight
        model.register_buffer("wide", torch.zeros(1).expand(3))  # cannot be written to
        NAMES["m"] = model
        NAMES["d"] = {key: value + 1 for key, value in model.state_dict().items()}
        before = model[0].weight.detach().clone()
        self.refuses(EBADMSG, "m.load_state_dict", write, "m", read("d", "pt"), "pt")
        self.assertTrue(torch.equal(model[0].weight, before))
        self.assertIs(model[0].weight, model[1].weight)

    def test_arrays_as_pt(self):
        if not hasattr(torch.serialization, "safe_globals"):
            self.skipTest("this torch reads no arrays")
        for dtype in DTYPES:
            NAMES["x"] = np.arange(6).astype("i8").astype(dtype).reshape(2, 3)
            write("y", read("x", "pt"), "pt")
            self.assertIs(type(NAMES["y"]), np.ndarray)
            self.assertEqual(NAMES["y"].dtype, NAMES["x"].dtype.newbyteorder("="))
            np.testing.assert_array_equal(NAMES["y"], NAMES["x"])
        NAMES["x"] = {"a": np.ones(2), "n": [np.float32(2.5), np.int64(3)], "t": torch.ones(1)}
        write("y", read("x", "pt"), "pt")
        self.assertEqual((NAMES["y"]["a"].tolist(), NAMES["y"]["n"]), ([1, 1], [2.5, 3]))
        self.refuses(EBADMSG, "weights_only", write, "y", pickle.dumps(os.system), "pt")

    def test_pt(self):
        NAMES["x"] = {"a": torch.randn(3), "n": 1, "l": [1, "b"]}
        write("y", read("x", "pt"), "pt")
        self.assertEqual(NAMES["y"]["l"], [1, "b"])
        self.refuses(EBADMSG, "weights_only", write, "y", pickle.dumps(os.system), "pt")


if __name__ == "__main__":
    unittest.main()
