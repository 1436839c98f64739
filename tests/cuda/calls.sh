#!/usr/bin/env bash
# Calls of CUDA that fail, are slow, or do not return, below torch and below the engine.
. "$(dirname "$0")/lib.sh"

again() {
	! mountpoint -q "$M" || unmount
	export FAKE_CUDA="gpus=2 $*"
	mount_torch -o backend=none,size=2,grace=0.3
	cell 'import torch, fake_cuda, ctypes
fake = fake_cuda.runtime()
x = torch.arange(3 << 18, dtype=torch.float32, device="cuda") + rank'
}

size() {
	guarded cat "$1" | wc -c
}

again
bytes=$((128 + (3 << 20)))
is 'each rank has a GPU' "$(cat "$G/ranks" | grep -o 'gpu=[^ ]*' | xargs)" 'gpu=0 gpu=1'
is 'the zygote has not used CUDA' "$(value 'torch.cuda.is_initialized(), x.device.index')" '(True, 0)'
like 'the report has the peak' "$(cat "$G/cells/1/report")" 'peak_bytes [0-9]{7}$'
is 'whole' "$(size "$G/rank1/vars/x.npy")" "$bytes"

# a call that fails once
cell 'fake.fake_cuda_fail(b"cudaMemcpyAsync", 2, 0, 1)' "$G/rank0/cell"
is 'a read fails' "$(errno read "$G/rank0/vars/x.npy")" ENOMEM
is 'the next one does not' "$(size "$G/rank0/vars/x.npy")" "$bytes"
cell 'fake.fake_cuda_fail(b"cudaMalloc", 2, 0, 2)' "$G/rank0/cell"
fails cell 'y = torch.empty(1 << 26, device="cuda")' "$G/rank0/cell"
like 'torch says what' "$(tail -n 1 "$G/error")" 'OutOfMemoryError'
ok cell 'y = torch.empty(1 << 26, device="cuda"); del y; torch.cuda.empty_cache()'

# a driver that does not answer: reads that need it wait, and can be left; what needs no device goes on
cell 'fake.fake_cuda_stall(1)' "$G/rank0/cell"
cat "$G/rank0/vars/x.npy" >"$T/x" &
reader=$!
stalled() {
	[ "$(value 'fake.fake_cuda_stalled() > 0')" = True ]
}
until_true stalled
is 'rank 1 is not held up' "$(size "$G/rank1/vars/x.npy")" "$bytes"
kill $reader
wait $reader
is 'cells go on' "$(value '6 * 7')" 42
cell 'fake.fake_cuda_stall(0)' "$G/rank0/cell"
is 'and it is read' "$(size "$G/rank0/vars/x.npy")" "$bytes"

# copies that take longer than the engine waits at a time
again delay=90000
is 'npy' "$(size "$G/rank0/vars/x.npy")" "$bytes"
like 'text' "$(guarded cat "$G/rank0/vars/x")" '^tensor\(\[0\.0+e\+00, .*7\.8643e\+05\]'
is 'an OP' "$(guarded head -c 11 "$G/vars/x.sum.json")" '[1.0, 3.0, '
cat "$G/vars/x.npy" >"$T/x.npy"
cell 'x.zero_()'
ok cp "$T/x.npy" "$G/vars/x.npy"
is 'a push' "$(value 'x[-1].item()' 1)" 786431.0

# a device that is lost between cells: a read that finds it has the rank replaced, and the other one keeps its variables
again
pid=$(key "$G/rank0/status" pid)
replaced() {
	[[ $(key "$G/rank0/status" pid) != @($pid|-|) ]]
}
is_lost() {
	cat "$G/rank0/vars/x.npy" >"$T/x" 2>"$T/why" || return 0
	return 1
}
cell 'import threading; threading.Timer(0.5, fake.fake_cuda_lose, (214,)).start()' "$G/rank0/cell"
until_true is_lost
like 'the read says so' "$(grep -v ' rank: ' "$G/error")" 'uncorrectable ECC error encountered \(cudaErrorECCUncorrectable\)'
until_true replaced
like 'error has the reason' "$(cat "$G/error")" 'the CUDA context is lost \(GPU 0: .*uncorrectable ECC error.*between two cells; all variables'
is 'the other one has all' "$(value 'x[-1].item()' 1)" 786432.0
ok cell 'import torch; x = torch.ones(2, device="cuda")' "$G/rank0/cell"
