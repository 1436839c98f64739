"""Shared by tests of the engine's Python: a namespace without an engine, and its views as bytes.

It needs NumPy and torch, and runs the test again in the environment that has them.
"""

import array
import ctypes
import os
import sys
import types
import unittest

import engine_sources  # noqa: F401
import numpy as np  # noqa: F401
import torch
from ddip_engine import state

# what the modules below need of the engine's C; the others see that there is none
sys.modules["_ddip"] = types.ModuleType("_ddip")
sys.modules["_ddip"].current_frames = sys._current_frames
sys.modules["_ddip"].empty_copy = lambda names: (
    names.clear() if sys.getrefcount(names) <= 5 else None  # the frame's, the caller's, the calls'
)
sys.modules["_ddip"].identities = lambda items: array.array(
    "Q", [id(each) for key, value in items.items() for each in (key, value, type(value))]
).tobytes()
from ddip_engine.data import gpu, gpu_text, table, texts, values  # noqa: E402, F401
from ddip_engine.data import view as views  # noqa: E402, F401

del sys.modules["_ddip"]

state.main = types.ModuleType("__main__")
NAMES = state.main.__dict__
torch.set_num_threads(1)  # one test forks
DTYPES = """
    ? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16 >i4 >f8 S5 U3 M8[s] m8[ms]
""".split()


def read(name, view=""):
    """All bytes of a view, as a reader of the file gets them."""
    export = values.get(name, view)
    if export.fd >= 0:
        with open(export.fd, "rb") as f:
            data = export.head + f.read()
    elif export.keep is not None:
        size = export.size - len(export.head)
        data = export.head + ctypes.string_at(export.address, size)
    else:
        data = export.head
    assert len(data) == export.size, (len(data), export.size)
    return data


def write(name, data, view="", op=""):
    """Writes a view as a push does."""
    data = data.encode() if isinstance(data, str) else data
    fd = os.memfd_create("test")
    try:
        os.write(fd, data)
        values.put(name, view, op, fd, len(data))
        values.commit(True)
    finally:
        os.close(fd)


class Case(unittest.TestCase):
    def setUp(self):
        NAMES.clear()
        torch.manual_seed(1)  # the same random damage each time, so that failures are reproducible

    def refuses(self, errno, text, function, *args):
        with self.assertRaises(state.EngineError) as caught:
            function(*args)
        self.assertEqual(caught.exception.errno, errno, caught.exception)
        self.assertIn(text, str(caught.exception))
