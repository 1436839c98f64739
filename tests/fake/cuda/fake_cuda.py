"""torch's operators on the fake CUDA runtime, and what tests can tell the fakes to do.

torch calls load() at the end of its import. The functions are those of tests/fake/cudart.h and
tests/fake/nccl.h.
"""

import ctypes
import os


def load():
    ctypes.CDLL(os.path.join(os.path.dirname(__file__), "fake_cuda_operators.so"))
    if os.environ.get("FAKE_CUDA_DEFAULT"):  # tensors are made on the GPU, as if the test said so
        import torch

        torch.set_default_device("cuda")


def runtime():
    """The fake CUDA runtime of this process."""
    return ctypes.CDLL("libcudart.so.13")


def nccl():
    """The fake NCCL of this process."""
    return ctypes.CDLL("libnccl.so.2")
