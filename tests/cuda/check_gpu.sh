#!/usr/bin/env bash
# The tests for machines with GPUs pass on the CUDA build of torch on the fakes.
. "$(dirname "$0")/lib.sh"

# 1, 2 and 4 ranks: each on a GPU of its own
export FAKE_CUDA=gpus=4 FAKE_NVML=gpus=4
OUT=$BUILD/cuda "$ROOT/tests/gpu/run" check-gpu "$@" || bad "tests/gpu/run check-gpu: status $?"
