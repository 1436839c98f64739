#!/usr/bin/env bash
# NCCL works without torch: the engine's own communicator, on a fake NCCL and a fake CUDA runtime.
. "$(dirname "$0")/../lib.sh"

export DDIP_CUDART=$BUILD/fake/libcudart.so.13 DDIP_NCCL=$BUILD/fake/libnccl.so.2
export PYTHONPATH=$ROOT/tests/fake/no_torch:$ROOT/tests/fake
for file in "$DDIP_CUDART" "$DDIP_NCCL"; do
	[ -e "$file" ] || skip "$file is not built (make check)"
done

# again WORDS…: mounts with this $FAKE_NCCL
again() {
	! mountpoint -q "$M" || unmount
	export FAKE_NCCL=$*
	mount_with "$TORCH_PYTHON" -o size=3,backend=nccl,grace=0.2
	ok cell 'x = 1' # the first cell starts the ranks
}

selftest() {
	errno fsync "$G/ctl" "selftest $*"$'\n'
}

export FAKE_CUDA=gpus=3
again
is 'the process group is not torch' "$(value 'import sys; "torch" in sys.modules')" False
is 'selftest goes through NCCL' "$(selftest 4K 5M)" 0
text=$(cat "$G/selftest")
like 'the table says so' "$text" '^# selftest [-0-9: ]+: 3 ranks, NCCL 2.28.9, float32 on cuda'
like 'what NCCL chose' "$text" $'\n# ring: 2 channels, NVL 20 GB/s\n#   2 x GPU/0 GPU/1 GPU/2\n#  '
is 'the environment is as before' "$(value 'import os; "NCCL_GRAPH_DUMP_FILE" in os.environ')" False
is 'each collective at each size' "$(awk '!/^#/ { print $1 }' <<<"$text" | uniq -c | xargs)" \
	'2 all_reduce 2 all_gather 2 broadcast 2 sendrecv 1 errors 1 slowest_pair'
like 'all is right' "$text" $'\nerrors 0\n'
is 'and again' "$(selftest 4K)" 0
is 'the communicators were given up' "$(value 'import ctypes, os
ctypes.CDLL(os.environ["DDIP_NCCL"]).fake_nccl_live()' 1)" 0
is 'in order' "$(value 'ctypes.CDLL(os.environ["DDIP_NCCL"]).fake_nccl_aborted()' 1)" 0
is 'the current GPU of the program is left alone' "$(value 'import cupy, ctypes
n = ctypes.c_int(9); cupy.runtime.cudaGetDevice(ctypes.byref(n)); n.value' 2)" 0
is 'and has no context' "$(value 'cupy.runtime.fake_cuda_contexts()' 2)" 4

# files, with the libraries that replace torch: each rank's array on its GPU
cell 'import numpy as np, cupy, numba
with cupy.cuda.Device(rank):
    x = cupy.array(np.arange(6.0).reshape(2, 3) * (rank + 1))
with numba.cuda.gpus[rank]:
    y = numba.cuda.to_device(np.arange(5, dtype="i4") + rank)
devices = lambda: (x.device.id, y.device.id, type(y).__name__)'
is 'what is read of cupy' "$(cat "$G/rank2/vars/x.json")" '[[0.0, 3.0, 6.0], [9.0, 12.0, 15.0]]'
is 'what is read of numba' "$(cat "$G/rank1/vars/y.json")" '[1, 2, 3, 4, 5]'
is 'sum over ranks' "$(cat "$G/vars/x.sum.json")" '[[0.0, 6.0, 12.0], [18.0, 24.0, 30.0]]'
is 'max over ranks' "$(cat "$G/vars/y.max.json")" '[2, 3, 4, 5, 6]'
cat "$G/vars/y.npy" >"$T/y.npy"
cat "$G/vars/x.mean.npy" >"$T/x.npy"
cat "$T/y.npy" >"$G/vars/y.npy" || bad 'a push to an array of numba'
cat "$T/x.npy" >"$G/vars/x.npy" || bad 'a push to an array of cupy'
is 'they stay where and what they were' "$(value 'devices()' 2)" "(2, 2, 'DeviceNDArray')"
is 'with what was pushed' "$(cat "$G/rank2/vars/x.json" "$G/rank2/vars/y.json" | xargs)" '[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]] [0, 1, 2, 3, 4]'
cat "$T/x.npy" >"$G/vars/z.cuda.npy" || bad 'a new name on the GPUs'
is 'a new name is on the GPU of each rank' "$(value 'z.device.id' 0) $(value 'z.device.id' 2)" '0 2'
cell 'import sys; cupies = sys.modules.pop("cupy"), sys.modules.pop("numba")'
cat "$T/x.npy" 2>/dev/null >"$G/vars/v.cuda.npy" && bad 'there is no library that could hold it'
like 'it says what to do' "$(tail -n 1 "$G/error")" 'import torch with CUDA, cupy or numba.cuda in a cell'
cell 'sys.modules.update(cupy=cupies[0], numba=cupies[1])'

# an interrupt while a rank does not come: all ranks are released, and the next self-test is right
cell "import os
os.mkfifo('$T/come')
from ddip_engine.groups import communicator as c
real = c.measure
def measure(*args):
    print('here', flush=True)
    if rank == 1:
        open('$T/come').close()
    return real(*args)
c.measure = measure" "$G/cell.1"
cell 'from ddip_engine.groups import communicator as c
real = c.measure
def measure(*args):
    print("here", flush=True)
    return real(*args)
c.measure = measure' "$G/cell.0,2"
echo 'selftest 4K' >"$T/line"
cat "$T/line" >"$G/ctl" &
writer=$!
for k in 0 1 2; do
	until_true grep -q here "$G/rank$k/stdout"
done
waits_in_nccl() {
	guarded grep -q '^0 state=busy .* in=all_reduce' "$G/stall"
}
until_true waits_in_nccl # stall says where the others wait
echo interrupt >"$G/ctl"
fails wait $writer
like 'it is an interrupt' "$(cat "$G/selftest")" 'EINTR: rank [012]: interrupted'
cell 'c.measure = real'
is 'its communicator was aborted' "$(value 'import ctypes, os
nccl = ctypes.CDLL(os.environ["DDIP_NCCL"]); nccl.fake_nccl_live(), nccl.fake_nccl_aborted()')" '(0, 1)'
is 'the next one has a new communicator' "$(selftest 4K)" 0
like 'which is right' "$(cat "$G/selftest")" $'\nerrors 0\n'

# a communicator with another owner, as torch's are, while its collective is waited for with the
# interpreter's lock held: C ends the collective and leaves the communicator to its owner
cell 'import _ddip, ctypes, os
from ctypes import Structure, byref, c_char, c_int, c_size_t, c_uint, c_ulong, c_void_p
from ddip_engine.data import gpu
class Id(Structure):
    _fields_ = [("bytes", c_char * 128)]
class Config(Structure):
    _fields_ = [("size", c_size_t), ("magic", c_uint), ("version", c_uint), ("blocking", c_int)]
gpu.load("nccl")
library, id, comm = ctypes.PyDLL(os.environ["DDIP_NCCL"]), Id(), c_void_p()
library.ncclGetUniqueId(byref(id))
config = Config(ctypes.sizeof(Config), 0xCAFEBEEF, 21400, 0)
library.ncclCommInitRankConfig(byref(comm), 2, id, 0, byref(config)) # nobody is rank 1
memory = cupy.array(np.zeros(10, "f4"))
_ddip.nccl_revocable(_ddip.nccl_claims(), [(comm.value, 0)])' "$G/rank0/cell"
pid=$(key "$G/rank0/status" pid)
submit 'place = c_ulong(memory.__cuda_array_interface__["data"][0])
print("in C", library.ncclAllReduce(place, place, c_size_t(10), 7, 0, comm, None), flush=True)
library.fake_nccl_wait(comm)' "$G/rank0/cell"
until_true grep -q 'in C' "$G/cells/$n/rank0/stdout"
until_true grep -q 'the rank is stuck' "$G/rank0/gpu"
echo interrupt >"$G/rank0/ctl"
is 'a rank that waits in NCCL with the lock held is interrupted' "$(wait_cell "$n" | key /dev/stdin state)" interrupted
is 'in the same process' "$(key "$G/rank0/status" pid)" "$pid"
is 'its communicator was revoked, and not freed' "$(value '_ddip.nccl_claim(), library.fake_nccl_revoked(), library.ncclCommAbort(comm)')" '(True, 1, 0)'
cell '_ddip.nccl_release(); os.unlink(id.bytes)' "$G/rank0/cell"

# a rank that dies during it
cell "c.measure = lambda *args: os.kill(os.getpid(), 9)" "$G/rank1/cell"
is 'a rank dies' "$(selftest 4K)" EHOSTDOWN
is 'its successor is met again' "$(ok cell 'y = 2'; selftest 4K)" 0

# a slow link is found, and one that corrupts data
again 'slow=0-2:30000 wrong=2-1'
is 'a link that brings something else' "$(selftest 4K)" EREMOTEIO
text=$(cat "$G/selftest")
like 'is named' "$text" $'\nwrong rank=1 from=2 size=4096 elements=2\n'
for _ in 1 2; do # a rank that the machine has held up meanwhile had a slow link, too
	[[ $text == *'slowest_pair ranks=0-2 '* ]] || text=$(selftest 4K >/dev/null; cat "$G/selftest")
done
like 'and the slow one' "$text" $'\nslowest_pair ranks=0-2 size=4096 time_us=([3-9][0-9]{4}|[0-9]{6})'

# each failure is reported in one line, and the rank goes on
again 'fail=ncclCommInitRankConfig:1:0:1'
is 'no communicator can be made' "$(selftest 4K)" EREMOTEIO
like 'it says why' "$(tail -n 1 "$G/error")" 'rank [012]: NCCL: ncclCommInitRankConfig: unhandled cuda error: ncclCommInitRankConfig was told to fail'
is 'the next one can' "$(selftest 4K)" 0
export DDIP_NCCL=/nonexistent/libnccl.so
again
is 'there is no library' "$(selftest)" EOPNOTSUPP
like 'it says which' "$(tail -n 1 "$G/error")" 'rank [012]: NCCL: /nonexistent/libnccl.so: cannot open'
is 'cells go on' "$(value '6 * 7')" 42
