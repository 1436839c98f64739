#!/usr/bin/env python3
"""Objects on a GPU are copied to the host right: torch's CPU tensors stand in for a GPU's, whose
memory is copied piece by piece."""

import concurrent.futures
import ctypes
import threading
import types
import unittest
from unittest import mock

from in_process import NAMES, gpu, gpu_text, np, read, state, torch


def copy(memory, offset, host, size, into=False):
    assert host, "no memory of the host"
    Gpu.device = memory.device  # orders the copy
    Gpu.copies += 1
    Gpu.copied += size
    ctypes.memmove(host, memory.address + offset, size)


class Gpu(unittest.TestCase):
    copies = copied = 0
    device = None

    def setUp(self):
        names = {"copy": copy, "opens": lambda: True, "_on_cuda": lambda tensor: True}
        names |= {"_owner": lambda address, near: 0, "_order": lambda device, stream: None}
        for name, function in names.items():
            patch = mock.patch.object(gpu, name, function)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(NAMES.clear)
        Gpu.copies = Gpu.copied = 0

    def check_text(self, value):
        self.assertEqual(gpu_text.text(value), f"{value}")

    def test_text_is_what_print_shows(self):
        for value in (
            torch.tensor(5.0),
            torch.arange(6.0).reshape(2, 3),
            torch.arange(30000).reshape(100, -1),
            torch.randn(3000, 30),
            torch.randn(3000, 30).T,
            torch.randn(40, 40, 40).permute(2, 0, 1)[1:, ::2],
            torch.randn(5000).expand(7, 5000),
            torch.zeros(0, 4),
        ):
            self.check_text(value)

    def test_a_parameter_says_that_it_is_one(self):
        for source in (torch.tensor(5.0), torch.ones(3), torch.randn(3000, 30)):
            self.check_text(torch.nn.Parameter(source))

    def test_a_raised_threshold_is_heeded(self):
        torch.set_printoptions(threshold=100000)
        self.addCleanup(torch.set_printoptions, profile="default")
        self.check_text(torch.arange(1, 5001.0))

    def test_the_text_of_a_transposed_array_costs_its_edges(self):
        gpu_text.text(torch.randn(3000, 2000).T)
        self.assertLess(Gpu.copied, 10000)

    def test_columns_are_not_copied_element_by_element(self):
        value = torch.randn(20000, 64)
        self.assertTrue(torch.equal(gpu.host(value[:, :1]), value[:, :1]))
        self.assertEqual(Gpu.copies, 1)

    def test_few_pieces_far_apart_are_copied_alone(self):
        value = torch.randn(4, 1 << 20)
        self.assertTrue(torch.equal(gpu.host(value[:, 5:9]), value[:, 5:9]))
        self.assertEqual(Gpu.copied, 4 * 16)

    def test_what_is_too_much_for_one_copy_is_copied_in_parts(self):
        base = torch.randn(40, 50, 60)
        with mock.patch.object(gpu, "_SPAN_BYTES", 5000):
            for value in (base[:, ::3, ::2], base.permute(2, 0, 1), base[1:].transpose(0, 2)[3:]):
                self.assertTrue(torch.equal(gpu.host(value), value))
        array = np.arange(40 * 50 * 60).reshape(40, 50, 60)[::-1, ::2, ::-3]
        facts = {"shape": array.shape, "typestr": array.dtype.str, "strides": array.strides}
        facts["data"] = (array.__array_interface__["data"][0], False)
        other = types.new_class("Other")()
        type(other).__cuda_array_interface__ = facts
        with mock.patch.object(gpu, "_SPAN_BYTES", 5000):
            self.assertTrue(np.array_equal(gpu.host(other), array))

    def test_conjugates_and_negatives_are_computed_on_the_host(self):
        source = torch.randn(4, 6, dtype=torch.complex64)
        values = {"conj": source.conj(), "neg": source.conj().imag, "both": source.conj().T.conj()}
        values["part"] = torch._neg_view(source.conj()[1:, ::2])
        for name, value in values.items():
            NAMES[name] = value
            for view in ("npy", "safetensors"):
                with mock.patch.multiple(torch.Tensor, resolve_conj=refuse, resolve_neg=refuse):
                    got = read(name, view)
                want = value.resolve_conj().resolve_neg().contiguous().numpy().tobytes()
                if view == "npy" and not value.is_contiguous():
                    want = value.resolve_conj().resolve_neg().numpy().tobytes("A")
                self.assertTrue(got.endswith(want), (name, view))

    def test_what_is_no_plain_memory_is_left_to_its_library(self):
        from torch.testing._internal.two_tensor import TwoTensor

        class Raises:
            @property
            def __cuda_array_interface__(self):
                raise RuntimeError("only for buffers of a GPU")

        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        for value in (TwoTensor(torch.ones(3), torch.ones(3)), nested, Raises()):
            self.assertIsNone(gpu.memory_of(value))
            self.assertIsNone(gpu_text.text(value))

    def test_an_interface_without_a_stream_is_waited_for_by_dlpack(self):
        array = np.arange(6.0)
        facts = {"shape": (6,), "typestr": "<f8", "data": (array.ctypes.data, True)}

        class Jax:
            version = 2

            @property
            def __cuda_array_interface__(self):
                return facts | {"version": self.version}

            def __dlpack_device__(self):
                return 2, 0

            def __dlpack__(self, stream):
                self.stream = stream
                return array.__dlpack__()

        class Cupy(Jax):
            version = 3

        for kind, stream in ((Jax, 1), (Cupy, None)):
            value = kind()
            self.assertEqual(gpu.memory_of(value).nbytes, array.nbytes)
            self.assertFalse(hasattr(value, "stream"), "only to read it")
            self.assertTrue(np.array_equal(gpu.host(value), array))
            self.assertEqual(getattr(value, "stream", None), stream)

    def test_a_default_device_does_not_get_the_copy(self):
        value = torch.arange(6.0)
        NAMES["x"] = torch.arange(6.0)
        with torch.device("meta"):
            self.assertTrue(torch.equal(gpu.host(value), value))
            self.assertTrue(read("x", "npy").endswith(value.numpy().tobytes()))

    def test_without_a_library_torch_itself_copies(self):
        value = torch.arange(20000.0)
        with mock.patch.object(gpu, "opens", lambda: False):
            self.assertTrue(torch.equal(gpu.host(value), value))
            self.assertIsNone(gpu.live(value))
            self.check_text(value)
        self.assertEqual(Gpu.copies, 0)


def refuse(tensor):
    """Stands in for a kernel, which would run behind what the program has queued."""
    if tensor.is_conj() or tensor.is_neg():
        raise AssertionError("resolved on the device")
    return tensor


class Marks(unittest.TestCase):
    def mark(self, cupy, is_open, error=None):
        module = mock.Mock()
        module.device_mark.side_effect = error
        module.device_is_open.return_value = is_open
        with (
            mock.patch.dict("sys.modules", _ddip=module, cupy=cupy),
            mock.patch.object(gpu, "_devices", set()),
            mock.patch.object(gpu, "_current", None),
        ):
            gpu.mark()
        return module

    def test_a_library_that_fails_costs_no_cell(self):
        cupy = types.SimpleNamespace(cuda=mock.Mock())
        cupy.cuda.get_current_stream.side_effect = RuntimeError("cudaErrorNoDevice")
        self.mark(cupy, True).device_mark.assert_not_called()

    def test_all_gpus_of_a_torch_program_are_marked(self):
        torch = mock.Mock(spec=["cuda", "optim", "_C"])
        torch.cuda.is_initialized.return_value = True
        torch.cuda.device_count.return_value = 3
        torch.cuda.current_stream = lambda device: mock.Mock(cuda_stream=100 + device)
        torch._C._cuda_hasPrimaryContext = lambda device: device != 1
        with mock.patch.dict("sys.modules", torch=torch):
            for error in (None, OSError(12, "GPU 0: out of memory")):
                module = self.mark(None, True, error)
                marked = [call.args for call in module.device_mark.call_args_list]
                self.assertEqual(marked, [(0, 0), (0, 100), (2, 0), (2, 102)])

    def test_a_context_that_is_lost_is_marked_where_torch_only_says_so(self):
        torch = mock.Mock(spec=["cuda", "optim", "_C"])
        torch.cuda.is_initialized.return_value = True
        torch.cuda.device_count.return_value = 1
        torch.cuda.current_stream.return_value.cuda_stream = 0
        torch._C._cuda_hasPrimaryContext.side_effect = RuntimeError("device-side assert triggered")
        with mock.patch.dict("sys.modules", torch=torch):
            module = self.mark(None, True)
        module.device_mark.assert_called_once_with(0, 0)

    def test_a_context_that_is_lost_is_marked_where_torch_raises_for_it(self):
        error = RuntimeError("device-side assert triggered")
        for call in ("current_device", "current_stream"):
            torch = mock.Mock(spec=["cuda", "optim", "_C"])
            torch.cuda.is_initialized.return_value = True
            torch.cuda.device_count.return_value = 2
            torch.cuda.current_stream.return_value.cuda_stream = 0
            getattr(torch.cuda, call).side_effect = error
            torch._C._cuda_hasPrimaryContext.side_effect = lambda device: device == 1
            with (
                mock.patch.dict("sys.modules", torch=torch),
                mock.patch.object(state, "local_rank", 1),
            ):
                module = self.mark(None, True)
            module.device_mark.assert_any_call(1, 0)

    def test_to_import_cupy_makes_no_context(self):
        cupy = types.SimpleNamespace(cuda=mock.Mock())
        cupy.cuda.get_current_stream.return_value.ptr = 0
        self.mark(cupy, False).device_open.assert_not_called()


class OutOfMemory(unittest.TestCase):
    def handle(self, function, autogc=True):
        """What out_of_memory reports for the error that a function raises, and its locals."""
        module = mock.Mock(**{"device_is_open.return_value": False})
        with (
            mock.patch.dict("sys.modules", _ddip=module),
            mock.patch.object(state, "autogc", autogc),
        ):
            from ddip_engine.data import gpu_report, out_of_memory

            with (
                mock.patch.object(out_of_memory, "_ddip", module),
                mock.patch.object(gpu_report, "_ddip", module),
            ):
                try:
                    function()
                except Exception as e:
                    e.__traceback__ = e.__traceback__.tb_next
                    out_of_memory.handle(5, e)
                    told = module.notify.call_args
                    return told and told.args[2], e.__traceback__.tb_frame.f_locals

    def test_all_ways_to_say_it_are_known(self):
        def torchs():
            held = torch.ones(1000)
            torch.empty(1 << 58, dtype=torch.uint8)
            return held

        def cause():
            held = torch.ones(1000)
            try:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            except RuntimeError as e:
                raise ValueError(f"a step failed {held.shape}") from e

        def cublas():
            held = np.ones(1000)
            raise RuntimeError(f"CUDA error: CUBLAS_STATUS_ALLOC_FAILED {len(held)}")

        NAMES["kept"] = np.ones(9000)
        self.addCleanup(NAMES.clear)
        kept = "kept:72000"
        for function, want in (
            (torchs, f"of=host largest={kept},torchs.held:4000"),
            (cause, "of=gpu largest=-"),
            (cublas, "of=gpu largest=-"),
        ):
            self.assertEqual(self.handle(function), (want, {}))

    def test_what_an_allocator_does_not_tell_is_left_out(self):
        cuda = mock.Mock(**{"is_initialized.return_value": True, "device_count.return_value": 1})
        fake = mock.Mock(optim=None, cuda=cuda)
        module = mock.Mock(**{"device_is_open.return_value": False})
        with mock.patch.dict("sys.modules", _ddip=module, torch=fake):
            from ddip_engine.data import gpu_report

            with mock.patch.object(gpu_report, "_ddip", module):
                cuda.memory_allocated.return_value = cuda.memory_reserved.return_value = 7
                cuda.memory_snapshot.side_effect = RuntimeError("backend:cudaMallocAsync")
                told = [("allocated_bytes", 7), ("reserved_bytes", 7)]
                self.assertEqual(gpu_report.device_bytes(), told)
                cuda.memory_allocated.side_effect = RuntimeError("CUDAPluggableAllocator")
                cuda.memory_reserved.side_effect = RuntimeError("CUDAPluggableAllocator")
                self.assertEqual(gpu_report.device_bytes(), [])
                with mock.patch.object(gpu_report, "_cupy_pool", lambda: None):
                    self.assertEqual(gpu_report.measured_caches(), [])

    def test_what_torch_has_no_more_is_left_out(self):
        names = {"is_initialized.return_value": True, "memory_allocated.return_value": 7}
        cuda = mock.Mock(spec=["is_initialized", "memory_allocated"], **names)
        module = mock.Mock(**{"device_is_open.return_value": False})
        with mock.patch.dict("sys.modules", _ddip=module, torch=mock.Mock(optim=None, cuda=cuda)):
            from ddip_engine.data import gpu_report

            with mock.patch.object(gpu_report, "_ddip", module):
                self.assertEqual(gpu_report.device_bytes(), [("allocated_bytes", 7)])
                self.assertIsNone(gpu_report.peak_bytes())
                self.assertEqual(gpu_report.measured_caches(), [])

    def test_what_another_thread_reports_is_of_the_gpu_that_cells_use(self):
        def current_device():
            return 1 if threading.current_thread() is threading.main_thread() else 0

        def segment(device, size):
            return {"device": device, "blocks": [{"state": "inactive", "size": size}]}

        facts = {"is_initialized.return_value": True, "device_count.return_value": 2}
        cuda = mock.Mock(**facts, current_device=current_device)
        cuda.memory_allocated = cuda.memory_reserved = lambda device: 10 + device
        cuda.memory_snapshot.return_value = [segment(0, 99), segment(1, 5)]
        module = mock.Mock(**{"device_memory.return_value": (3, 4)})
        fake = mock.Mock(optim=None, cuda=cuda)
        keys = "allocated_bytes reserved_bytes largest_free_block_bytes".split()
        keys += ["device_free_bytes", "device_total_bytes"]
        with mock.patch.dict("sys.modules", _ddip=module, torch=fake):
            from ddip_engine.data import gpu_report

            with (
                mock.patch.object(gpu_report, "_ddip", module),
                mock.patch.object(state, "local_rank", 1),
                mock.patch.object(gpu, "_current", None),
                concurrent.futures.ThreadPoolExecutor(1) as pool,
            ):
                told = pool.submit(gpu_report.device_bytes).result()
                self.assertEqual(told, list(zip(keys, (11, 11, 5, 3, 4), strict=True)))
                module.device_memory.assert_called_once_with(1)

    def test_where_there_is_no_driver_nothing_is_cached(self):
        cupy = mock.Mock()
        cupy.get_default_memory_pool().total_bytes.side_effect = RuntimeError("no driver")
        with mock.patch.dict("sys.modules", _ddip=mock.Mock(), cupy=cupy):
            from ddip_engine.data import gpu_report

            self.assertFalse(gpu_report.has_caches())
            self.assertEqual(gpu_report.measured_caches(), [])

    def test_other_errors_and_autogc_off_leave_the_frames(self):
        def other():
            held = 5
            raise RuntimeError(f"no {held}")

        def host():
            held = 5
            raise MemoryError(held)

        self.assertEqual(self.handle(other), (None, {"held": 5}))
        self.assertEqual(self.handle(host, autogc=False)[1], {"held": 5})


class _Nccl:
    """A backend like torch's ProcessGroupNCCL; `done` lists the calls to all of them, in order."""

    done = []

    def __init__(self, name):
        self._name = name

    def _group_start(self):
        self.done.append("start")

    def _group_end(self):
        self.done.append("end")

    def abort(self):
        self.done.append(self._name)
        if self._name == "broken":
            raise RuntimeError("its communicator is lost")


class Aborts(unittest.TestCase):
    def abort(self, size, **groups):
        """The calls that dist.abort() makes; groups: name of a group -> its backends."""
        module, c10d = mock.Mock(), mock.Mock(ProcessGroupNCCL=_Nccl)
        made = {mock.Mock(): name for name in groups}
        for group, name in made.items():
            nccl = "cuda:nccl" in groups[name]
            group._get_backend.return_value = _Nccl(name) if nccl else mock.Mock()
        c10d._world.pg_map = made
        c10d.get_backend_config = lambda group: groups[made[group]]
        c10d.GroupMember.WORLD.size.return_value = size
        c10d.Backend = str

        def config(text):
            found = dict(each.split(":") for each in text.split(","))
            return mock.Mock(**{"get_device_backend_map.return_value": found})

        c10d.BackendConfig = config
        _Nccl.done.clear()
        modules = {"_ddip": module, "torch.distributed.distributed_c10d": c10d}
        with mock.patch.dict("sys.modules", modules):
            from ddip_engine.groups import dist, revocable

            known = {"_c10d": c10d, "_served": dist._nccl_groups, "_ddip": module}
            with (
                mock.patch.object(dist, "c10d", c10d),
                mock.patch.multiple(revocable, **known),
            ):
                dist.abort()
        return list(_Nccl.done)

    def test_all_communicators_are_aborted_as_one_group_of_calls_the_newest_first(self):
        both, gloo = "cpu:gloo,cuda:nccl", "cpu:gloo"
        self.assertEqual(
            self.abort(2, world=both, sub=gloo, own="cuda:nccl"), ["start", "own", "world", "end"]
        )
        self.assertEqual(self.abort(2, world=gloo), [])
        self.assertEqual(self.abort(1, world=both), [])

    def test_a_communicator_that_fails_keeps_no_other_from_being_aborted(self):
        with self.assertRaises(RuntimeError):
            self.abort(2, world="cuda:nccl", broken="cuda:nccl")
        self.assertEqual(_Nccl.done, ["start", "broken", "world", "end"])


if __name__ == "__main__":
    unittest.main()
