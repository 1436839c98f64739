#!/usr/bin/env bash
# Tests of tests/cells pass where tensors are made on GPUs and groups are over NCCL, too.
. "$(dirname "$0")/lib.sh"

export FAKE_CUDA=gpus=4 FAKE_NVML=gpus=4 FAKE_CUDA_DEFAULT=1
for test in ddp ddp_repair objects views; do
	"$ROOT/tests/cells/$test.sh" || bad "tests/cells/$test: status $?"
done
