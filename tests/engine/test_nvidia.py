#!/usr/bin/env python3
"""The engine's declarations of CUDA and NCCL agree with NVIDIA's headers, and its libraries load.

The headers and libraries come from NVIDIA's Python packages, which are kept in the build directory.
"""

import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD") or "build")
PYTHON = os.environ.get("PYTHON") or os.path.join(ROOT, ".venv", "bin", "python")
PACKAGES = ("nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-nccl-cu13")
CUDA, NCCL = "nvidia/cu13", "nvidia/nccl"  # in a folder of packages
FILES = (
    f"{CUDA}/include/cuda_runtime_api.h",
    f"{CUDA}/include/crt/host_defines.h",
    f"{CUDA}/lib/libcudart.so.13",
    f"{NCCL}/include/nccl.h",
    f"{NCCL}/lib/libnccl.so.2",
)


def skip(why):
    print(why)
    sys.exit(77)


def packages():
    """The folder that contains them."""
    if os.path.basename(BUILD) != "build":  # a sanitizer build: as the plain one
        own = os.path.join(os.path.dirname(BUILD), "nvidia")
    else:
        own = os.path.join(BUILD, "nvidia")
    if not all(os.path.exists(os.path.join(own, name)) for name in FILES):
        install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        install += ["--no-deps", "--upgrade", "--target", own, *PACKAGES]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode != 0:
            skip(f"pip can't bring {' '.join(PACKAGES)}: {done.stderr.strip().splitlines()[-1:]}")
    missing = [name for name in FILES if not os.path.exists(os.path.join(own, name))]
    if missing:
        skip(f"{' '.join(PACKAGES)} do not have {' '.join(missing)}")
    return own


def compiles(folder, declarations=os.path.join(ROOT, "engine")):
    """What the compiler says about tests/gpu/headers.c; "": it agrees."""
    # nccl.h wants number types from another package's headers, which none of our calls uses
    flags = ["-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", f"-I{declarations}"]
    flags += ["-D__CUDA_FP16_H__", "-D__CUDA_BF16_H__"]
    flags += [f"-I{folder}/{CUDA}/include", f"-I{folder}/{NCCL}/include"]
    command = ["gcc", *flags, os.path.join(ROOT, "tests", "gpu", "headers.c")]
    return subprocess.run(command, capture_output=True, text=True).stderr


def check_headers(folder):
    said = compiles(folder)
    assert said == "", said


def check_differences(folder):
    """A different value, prototype or size is noticed."""
    for name, old, new in (
        ("cuda_api.h", "cudaErrorNoDevice, 100", "cudaErrorNoDevice, 101"),
        ("cuda_api.h", "(int device)", "(long device)"),
        ("cuda_api.h", "int device;", "long device;"),
        ("nccl_api.h", "NCCL_ID_BYTES = 128", "NCCL_ID_BYTES = 64"),
        ("nccl_api.h", "ncclFloat32, 7", "ncclFloat32, 8"),
        ("nccl_api.h", "int root, struct", "long root, struct"),
        ("nccl_api.h", "int blocking;", "long blocking;"),
    ):
        with tempfile.TemporaryDirectory() as copies:
            shutil.copytree(os.path.join(ROOT, "engine", "rank"), os.path.join(copies, "rank"))
            path = os.path.join(copies, "rank", name)
            with open(path, encoding="utf-8") as f:
                text = f.read()
            assert old in text, old
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace(old, new))
            assert "error" in compiles(folder, copies), new


def check_libraries(folder):
    names = {"DDIP_TEST_CUDART": FILES[2], "DDIP_TEST_NCCL": FILES[4]}
    env = {key: os.path.join(folder, name) for key, name in names.items()}
    program = os.path.join(BUILD, "unit", "cuda")
    done = subprocess.run([program], env={**os.environ, **env}, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.returncode


if __name__ == "__main__":
    found = packages()
    check_headers(found)
    check_differences(found)
    check_libraries(found)
