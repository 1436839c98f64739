# Shared by the tests on the CUDA build of torch, on a fake CUDA runtime and a fake NCCL (tests/fake/cuda). This is no GPU:
# tests/gpu/RESULTS.md lists what it cannot prove. Each test sources it in the place of ../lib.sh.
# shellcheck shell=bash disable=SC1091

BUILD=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && realpath "${BUILD:-build}")
if [ ! -e "$BUILD/cuda/copy" ] || [ -e "$BUILD/cuda/why-not" ]; then
	echo "$(cat "$BUILD/cuda/why-not" 2>/dev/null || echo 'the fakes are not built'): make check-cuda PYTHON=/path/to/python"
	exit 77
fi
export BUILD PYTHON=$BUILD/cuda/env/bin/python
export DDIP_NVML=$BUILD/fake/libnvidia-ml.so.1 FAKE_NVML='gpus=2' FAKE_CUDA='gpus=2'
unset DDIP_CUDART DDIP_NCCL
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
export FAKE_NCCL_DIR=$T # what the meetings of killed ranks leave goes with it
