#!/usr/bin/env bash
# mean, sum, min and max over ranks by NCCL, on a fake NCCL and a fake CUDA runtime, equal the host's results. The host
# computes them if NCCL cannot, and at once when the ranks have something to do.
. "$(dirname "$0")/../lib.sh"

export DDIP_CUDART=$BUILD/fake/libcudart.so.13 DDIP_NCCL=$BUILD/fake/libnccl.so.2
export PYTHONPATH=$ROOT/tests/fake/no_torch:$ROOT/tests/fake FAKE_CUDA=gpus=2
for file in "$DDIP_CUDART" "$DDIP_NCCL"; do
	[ -e "$file" ] || skip "$file is not built (make check)"
done
"$TORCH_PYTHON" -c 'import numpy' 2>/dev/null || skip "no NumPy in $TORCH_PYTHON"

# again WORDS…: mounts with this $FAKE_NCCL and creates an x large enough for NCCL
again() {
	if mountpoint -q "$M"; then
		kill "$tracer"
		wait "$tracer"
		unmount
	fi
	export FAKE_NCCL=$*
	mount_with "$TORCH_PYTHON" -o "size=2,backend=nccl,grace=0.2,preload=numpy${more:-}"
	: >"$T/trace"
	exec 6<"$M/trace" # from here on
	cat <&6 >"$T/trace" &
	tracer=$!
	exec 6<&-
	cell 'import cupy, numpy as np, ctypes, os
nccl = ctypes.CDLL(os.environ["DDIP_NCCL"])
whole = np.arange(16 << 20, dtype="f4").reshape(4, -1)
def on_own(array):
    with cupy.cuda.Device(int(os.environ["LOCAL_RANK"])):
        return cupy.array(array)
class Live:
    def __repr__(self): return str(nccl.fake_nccl_live())
live = Live()
x = on_own(whole - rank)
small = on_own(np.arange(6.0) + rank)'
}

# by WAY NAME.OP EXPRESSION: reading it uses this way (nccl; host; both: NCCL failed, then the host), and returns the
# value of the expression on rank 0
by() {
	local before after
	before=$(combined)
	cat "$G/vars/$2.npy" >"$T/got" || bad "$2 can't be read"
	cell "np.save('$T/want', $3)" "$G/rank0/cell"
	cmp "$T/got" "$T/want.npy" || bad "$2 is not $3"
	after=$(combined)
	is "$2 is made by $1" "$((after - before))" "$([ "$1" = host ] && echo 0 || echo 1)"
	is "$2: a communicator is aborted or not" "$(aborted)" "$([ "$1" = both ] && echo 1 || echo 0)"
}

# The number of communicators that rank 0 has had; that it has aborted since the last call.
combined() {
	value 'nccl.fake_nccl_made()'
}

aborted() {
	value 'seen, before = nccl.fake_nccl_aborted(), globals().get("seen", 0); seen - before'
}

# are_made: have both ranks a communicator? It is no cell, which would end that.
are_made() {
	[ "$(cat "$G"/rank?/vars/live | xargs)" = '1 1' ]
}

idle() {
	is "$1" "$(value 'nccl.fake_nccl_live()' 0) $(value 'nccl.fake_nccl_live()' 1)" '0 0'
}

again
by nccl x.sum 'whole + (whole - 1)'
by nccl x.mean '(whole + (whole - 1)) / 2'
by nccl x.min 'whole - 1'
by nccl x.max whole
like 'other views are made of it, too' "$(cat "$G/vars/x.max")" '1.6777215e\+07\]\]$'
idle 'no communicator is left'
by host small.sum 'np.arange(6.0) * 2 + 1'
cell 'y = on_own(np.arange(16 << 20, dtype="i4") + rank)'
by nccl y.max 'np.arange(16 << 20, dtype="i4") + 1'
by host y.mean 'np.arange(16 << 20, dtype="i4") + 0.5'
cell 'y = on_own((np.arange(32 << 20) % 256).astype("f2"))'
by host y.sum '((np.arange(32 << 20) % 256) * 2).astype("f2")'
cell 'y = on_own(np.asfortranarray(whole))'
by host y.sum 'whole * 2'

# results that NCCL would get wrong
cell 'y = on_own(whole * 0 + 3e38); y.numpy()[0, 0] = 1'
by both y.mean 'y.numpy()'
cell 'y.numpy()[3, 7] = np.nan if rank == 1 else 5'
by both y.min 'np.where(np.arange(whole.size).reshape(whole.shape) == whole.size // 4 * 3 + 7, np.float32(np.nan), y.numpy())'

# what is refused is refused before any rank begins
before=$(combined)
cell 'y = on_own(whole if rank else whole.T.copy())'
is 'shapes that differ' "$(errno read "$G/vars/y.sum.npy")" EOPNOTSUPP
like 'it says which' "$(tail -n 1 "$G/error")" 'rank 0 has array float32 of shape 4194304,4, rank 1 has array float32 of shape 4,4194304'
cell 'y = on_own(whole) if rank else whole'
by host y.sum 'whole * 2'
cell 'y = cupy.array(whole)' # both on one GPU
[ "$(value 'y.device.id' 0)" != "$(value 'y.device.id' 1)" ] || by host y.sum 'whole * 2'
is 'NCCL was not asked' "$(combined)" "$before"

# the host does it while a cell runs; a read in the meantime does not wait
mkfifo "$T/go"
submit "print('on', flush=True); open('$T/go').close()" "$G/rank1/cell"
until_true grep -q on "$G/cells/$n/rank1/stdout"
is 'beside a cell' "$(guarded cat "$G/vars/x.max.npy" | wc -c)" $((128 + (64 << 20)))
: >"$T/go"
wait_cell "$n" >/dev/null
is 'NCCL was not asked then' "$(combined)" "$before"

# each failure: the host takes over
cell 'cupy.runtime.fake_cuda_fail(b"cudaMalloc", 2, 0, 1)' "$G/rank0/cell"
by both x.sum 'whole + (whole - 1)'
cell 'nccl.fake_nccl_fail(b"ncclReduce", 3, 1, 1)' "$G/rank1/cell"
by both x.sum 'whole + (whole - 1)'
cell 'nccl.fake_nccl_fail(b"ncclGetUniqueId", 2, 0, 1)' "$G/rank0/cell"
by host x.sum 'whole + (whole - 1)'
idle 'failures leave no communicator'
by nccl x.sum 'whole + (whole - 1)'

# a collective that is slow for ever: a cell comes, a reader leaves, a rank dies
again 'slow=1-0:200000'
cat "$G/vars/x.sum.npy" >"$T/late" &
reader=$!
until_true are_made
cell 'x.numpy()[0, 0] = 5' # what an ended cell has changed is read
is 'its communicators were aborted when the cell came' "$(value 'nccl.fake_nccl_live(), nccl.fake_nccl_aborted()' 0)" '(0, 1)'
ok wait $reader
is 'the reader has the whole sum, by the host' "$(wc -c <"$T/late")" $((128 + (64 << 20)))
cat "$G/vars/x.sum.npy" >"$T/late" &
reader=$!
asked_again() {
	[ "$(grep -c 'Tcombine slot=1' "$T/trace")" -gt 1 ]
}
until_true asked_again
kill $reader
wait $reader
# it may have left before there was a communicator
like 'a reader that leaves lets all go' "$(value 'nccl.fake_nccl_live(), nccl.fake_nccl_aborted()' 1)" '^\(0, [12]\)$'
asked_a_third_time() {
	[ "$(grep -c 'Tcombine slot=1' "$T/trace")" -gt 2 ]
}
pid=$(key "$G/rank1/status" pid)
errno read "$G/vars/x.sum.npy" >"$T/late" &
reader=$!
until_true asked_a_third_time
kill -9 "$pid"
wait $reader
is 'a rank that dies meanwhile is the error' "$(cat "$T/late")" EHOSTDOWN
is 'the other one goes on' "$(value 'nccl.fake_nccl_live()' 0)" 0

# ranks that share a card: each sees it as its first, and NCCL accepts it
export DDIP_NVML=$BUILD/fake/libnvidia-ml.so.1 FAKE_NVML=gpus=1
more=',gpus=0\,0' again
is 'both number it alike' "$(value 'x.device.id' 0) $(value 'x.device.id' 1)" '0 0'
by nccl x.sum 'whole + (whole - 1)'
