#!/usr/bin/env bash
# Objects on GPUs can be read, written and listed, on a fake CUDA runtime whose memory the host cannot read.
. "$(dirname "$0")/../lib.sh"

export DDIP_CUDART=$BUILD/fake/libcudart.so.13 PYTHONPATH=$ROOT/tests/fake FAKE_CUDA='gpus=2' DDIP_NCCL=/nonexistent/libnccl.so
[ -e "$DDIP_CUDART" ] || skip "$DDIP_CUDART is not built (make check)"
"$TORCH_PYTHON" -c 'import numpy' 2>/dev/null || skip "no NumPy in $TORCH_PYTHON"
mount_with "$TORCH_PYTHON" -o backend=none,preload=numpy

# same FILE CODE: the file's bytes equal those of a cell's expression on rank 0
same() {
	cell "with open('$T/want', 'wb') as f: f.write($2)" "$G/rank0/cell"
	cmp "$1" "$T/want" || bad "$1 is not $2"
}

npy() {
	echo "(lambda b: (np.save(b, $1), b.getvalue())[1])(__import__('io').BytesIO())"
}

copied() {
	value 'cupy.runtime.fake_cuda_copied()'
}

# live_is N: is N the number of device allocations on rank 0?
live_is() {
	[ "$(value 'cupy.runtime.fake_cuda_live()')" = "$1" ]
}

cell 'import cupy, numpy as np
cupy.runtime.cudaSetDevice(rank)
def on_device(number, source):
    with cupy.cuda.Device(number):
        return cupy.array(source)
big = on_device(rank, np.arange(3 << 20, dtype="i4").reshape(3, -1) + rank)
small = on_device(rank, np.arange(6.0).reshape(2, 3) + rank)
odd = on_device(rank, np.arange(5 * 70001, dtype="u1").reshape(5, -1))
columns = on_device(rank, np.asfortranarray(np.arange(400 * 300.0).reshape(400, 300)))
gaps, turned, thin = big[:, ::3], big[:, ::-1], big[:, :1]
empty = on_device(rank, np.zeros((0, 4)))
record = on_device(rank, np.array([(1, 2.5)] * 20000, dtype="i4,f8"))
both = {"a": small, "b": [odd[:, :5000]]}'

# npy: the header and the device's bytes, in any memory order
for name in big small odd columns gaps turned thin empty record; do
	same "$G/vars/$name.npy" "$(npy "$name.numpy()")"
done
is 'each rank gives its own' "$(cat "$G/rank1/vars/big.npy" | tail -c 4 | od -An -t d4 | xargs)" 3145728

is 'names tells of them' "$(grep '^big ' "$G/names")" \
	'big type=ndarray dtype=int32 shape=3,1048576 bytes=12582912 device=cuda:0'

# reading a part costs only that part
before=$(copied)
is 'one page in the middle' "$(dd if="$G/vars/big.npy" bs=4096 skip=1000 count=1 iflag=direct status=none | wc -c)" 4096
is 'has cost one page' "$(($(copied) - before))" 4096
is 'a row is read by mmap' "$("$TORCH_PYTHON" -c "import numpy as np
print(np.load('$G/vars/big.npy', mmap_mode='r')[2, 5])")" 2097157

# the bytes are those of the object that was opened, live
exec 3<"$G/vars/big.npy"
cell 'big.numpy()[:] = 7; old, big = big, None; del gaps, turned, thin, old'
is 'an object that changes in place shows it' "$(dd bs=4096 skip=1 count=1 iflag=direct status=none <&3 | tail -c 4 | od -An -t d4 | xargs)" 7
is 'is kept while its file is open' "$(value 'cupy.runtime.fake_cuda_live()')" 6
exec 3<&-
until_true live_is 5

# views for people and for other programs
is 'text is what print shows' "$(cat "$G/vars/small")" "$(value 'print(small.numpy(), flush=True)' >/dev/null; cat "$G/cells/last/rank0/stdout")"
is 'json has the elements' "$(cat "$G/vars/small.json")" '[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]'
is 'mean over ranks' "$(cat "$G/vars/small.mean.json")" '[[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]'
is 'sum over ranks' "$(cat "$G/vars/small.sum.json")" '[[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]'
is 'cat over ranks' "$(cat "$G/vars/small.cat.json")" "$(value 'print(np.concatenate([small.numpy(), small.numpy() + 1]).tolist())' >/dev/null; cat "$G/cells/last/rank0/stdout")"
is 'ranks that differ are noticed' "$(errno read "$G/vars/small.same.npy")" ENOTUNIQ
ok cmp "$G/vars/odd.same.npy" "$G/vars/odd.npy"
cell 'wide = on_device(rank, np.arange(1 << 22, dtype="f4").reshape(2, 2, -1))'
before=$(copied)
is 'a long array is elided' "$(cat "$G/vars/wide")" "$(value 'print(wide.numpy(), flush=True)' >/dev/null; cat "$G/cells/last/rank0/stdout")"
ok test $(($(copied) - before)) -lt 1000
"$TORCH_PYTHON" - "$ROOT/magics/ddip" "$G/vars/both.p5" <<-'END' || bad 'p5 brings arrays of the host'
	import pickle, sys
	sys.path.insert(0, sys.argv[1])
	import numpy as np, p5
	with open(sys.argv[2], "rb", buffering=0) as f:
	    pickled, buffers = p5.read(f)
	got = pickle.loads(pickled, buffers=buffers)
	assert type(got["a"]) is np.ndarray and got["a"].tolist() == [[0, 1, 2], [3, 4, 5]], got
END

# while a kernel of a running cell blocks its stream, objects of finished cells can be read
mkfifo "$T/fifo"
cell 'stream = cupy.cuda.Stream().use()'
submit "stream.hold(); print('on', flush=True); open('$T/fifo').close(); cupy.release()" "$G/rank0/cell"
until_true grep -q on "$G/cells/$n/rank0/stdout"
is 'npy is read while a kernel of the cell runs' "$(guarded cat "$G/vars/wide.npy" | wc -c)" $(((1 << 24) + 128))
is 'text, too' "$(guarded head -c 2 "$G/vars/small")" '[['
is 'a mean over ranks, too' "$(guarded cat "$G/vars/small.mean.json" | head -c 2)" '[['
: >"$T/fifo"
is 'and the cell ends well' "$(wait_cell "$n" | key /dev/stdin state)" ok

# work that a cell has queued comes first, also in a stream of its own; a reader that leaves is released
cell 'stream.hold()' "$G/rank0/cell"
: >"$T/late"
cat "$G/vars/odd.npy" >"$T/late" &
reader=$!
is 'rank 1 is not held up' "$(guarded cat "$G/rank1/vars/odd.npy" | wc -c)" $((5 * 70001 + 128))
kill $reader
wait $reader
is 'an interrupted reader has nothing' "$(wc -c <"$T/late")" 0
cell 'cupy.release()' "$G/rank0/cell"
is 'then it is read' "$(guarded cat "$G/vars/odd.npy" | wc -c)" $((5 * 70001 + 128))

# an object whose descriptor cannot be sent is not kept
cell 'import os, errno
once = on_device(rank, np.arange(99999))
real = os.dup
def dup(fd):
    os.dup = real
    raise OSError(errno.EMFILE, "Too many open files")
os.dup = dup'
before=$(value 'cupy.runtime.fake_cuda_live()')
fails cat "$G/rank0/vars/once.npy" >/dev/null 2>&1
cell 'del once'
is 'a failed read keeps no object' "$(value 'cupy.runtime.fake_cuda_live()')" $((before - 1))
cell 'os.dup = real'

# a graph capture in progress is not disturbed
cell 'cupy.runtime.fake_cuda_capture(stream.ptr, 1, 1)'
is 'an object is read during a capture' "$(guarded cat "$G/vars/odd.npy" | wc -c)" $((5 * 70001 + 128))
is 'no capture is broken' "$(value 'cupy.runtime.fake_cuda_broken_captures()')" 0
cell 'cupy.runtime.fake_cuda_capture(stream.ptr, 0, 0)'
is 'all copies are by registered memory' "$(value 'cupy.runtime.fake_cuda_pageable()')" 0
is 'no context on the device of another' "$(value 'cupy.runtime.fake_cuda_contexts()' 1)" 2

# objects that report their location by dlpack only
cell 'packed = cupy.Packed(on_device(rank, np.arange(70000.0).reshape(7, -1))[1:, ::2])
wide_lanes = cupy.Packed(odd, lanes=4)'
cell "import io; b = io.BytesIO(); np.save(b, np.ascontiguousarray(np.arange(70000.0).reshape(7, -1)[1:, ::2]))
with open('$T/want', 'wb') as f: f.write(b.getvalue())" "$G/rank0/cell"
ok cmp "$G/vars/packed.npy" "$T/want"
is 'its mean over ranks' "$(head -c 14 "$G/vars/packed.mean.json")" '[[10000.0, 100'
like 'its text' "$(cat "$G/vars/packed")" '^\[\[10000'
like 'rankK/gpu counts it' "$(cat "$G/rank0/gpu")" 'object packed 240000'
is 'a type that NumPy has not is refused' "$(errno read "$G/vars/wide_lanes.npy")" EOPNOTSUPP
like 'error names it' "$(tail -n 1 "$G/error")" 'no type for its elements \(dlpack: code 1, 8 bits, 4 lanes\)'
cell 'del packed, wide_lanes'

# a failure is reported, and the rank goes on
cell 'cupy.runtime.fake_cuda_fail(b"cudaMemcpyAsync", 2, 0, 1)' "$G/rank0/cell"
is 'a copy for which CUDA has no memory fails' "$(errno read "$G/vars/odd.npy")" ENOMEM
like 'error has the call and the text of CUDA' "$(tail -n 1 "$G/error")" 'cudaMemcpyAsync: out of memory \(cudaErrorMemoryAllocation\)'
is 'it goes on' "$(guarded cat "$G/vars/odd.npy" | wc -c)" $((5 * 70001 + 128))
is 'an array with a mask has no npy' "$(cell 'class Masked:
    __cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (1, False), "version": 3, "mask": small}
masked = Masked()'; errno read "$G/vars/masked.npy")" EOPNOTSUPP
is 'an interface that tells memory of the host is refused' "$(cell 'class Host:
    __cuda_array_interface__ = {"shape": (99999,), "typestr": "<f4", "data": (id(small), False), "version": 3}
host = Host()'; errno read "$G/vars/host.npy")" EINVAL
like 'error says what it is not' "$(tail -n 1 "$G/error")" 'is not memory of a GPU'

# push FILE EXPRESSION: writes it there as NumPy's file; prints the errno
push() {
	cell "with open('$T/push.npy', 'wb') as f: np.save(f, $2)" "$G/rank0/cell"
	"$TORCH_PYTHON" -c "import errno
try:
    with open('$T/push.npy', 'rb') as f, open('$1', 'wb') as to: to.write(f.read())
    print(0)
except OSError as e: print(errno.errorcode[e.errno])"
}

where() { # EXPRESSION: its device and its last element, on each rank
	echo "$(value "f'{$1.device.id}:{$1.numpy().flat[-1]}'" 0) $(value "f'{$1.device.id}:{$1.numpy().flat[-1]}'" 1)"
}

# a push lands on the GPU that the name's old value was on, on each rank its own; with OP cuda on the rank's
is 'onto the GPUs' "$(push "$G/vars/small.npy" 'np.arange(1 << 20)')" 0
is 'both have it' "$(where small)" "'0:1048575' '1:1048575'"
is 'a new name is on the CPU' "$(push "$G/vars/fresh.npy" 'np.ones(3)') $(value 'type(fresh).__module__')" "0 'numpy'"
is 'but with cuda' "$(push "$G/vars/fresh.cuda.npy" 'np.ones((3, 4)).T') $(where fresh)" "0 '0:1.0' '1:1.0'"
is 'a list with cuda' "$(echo '[1, 2]' >"$G/vars/fresh.cuda.json"; push "$G/rank0/vars/fresh.npy" 'np.zeros(2)')" 0
like 'has nothing for a GPU' "$(tail -n 1 "$G/error")" 'EBADMSG .*an int is no array'
is 'cuda is only written' "$(errno read "$G/vars/small.cuda.npy")" EOPNOTSUPP
cell 'cupy.runtime.fake_cuda_fail(b"cudaMemcpyAsync", 2, 0, 1)' "$G/rank1/cell"
is 'where one rank has no memory' "$(push "$G/vars/small.npy" 'np.zeros(5)')" ENOMEM
is 'none has the new one' "$(where small)" "'0:1048575' '1:1048575'"
cell 'class Other:
    __cuda_array_interface__ = odd.__cuda_array_interface__
other = Other()'
is 'an object of an unknown library is not replaced' "$(push "$G/vars/other.npy" 'np.zeros(5)')" EBADMSG
like 'error says what to do' "$(tail -n 1 "$G/error")" 'it holds an Other on GPU [01], which is made in a cell only'

# it comes after what the program's stream still does with that memory
mkfifo "$T/release"
cell "import threading
threading.Thread(target=lambda: (open('$T/release').close(), cupy.release())).start()
stream.use(); stream.hold()" "$G/rank0/cell"
push "$G/vars/small.npy" 'np.full(9, 5)' >"$T/pushed" &
pusher=$!
until_true grep -q '^state busy$' "$G/rank0/status"
: >"$T/release"
wait $pusher
is 'the push is done on both' "$(cat "$T/pushed") $(where small)" "0 '0:5' '1:5'"

# a push to a GPU that is stuck can be interrupted: no rank gets it, and none is killed for it
held=$(value 'cupy.runtime.fake_cuda_live()')
cell 'stream.hold()' "$G/rank0/cell"
cell "with open('$T/push.npy', 'wb') as f: np.save(f, np.zeros(1 << 18))" "$G/rank1/cell"
for how in its-writer interrupt; do
	"$TORCH_PYTHON" -c "import errno, signal, sys
signal.signal(signal.SIGINT, lambda *_: None)
try:
    with open('$G/vars/small.npy', 'wb') as to: to.write(open('$T/push.npy', 'rb').read())
    print(0)
except OSError as e: print(errno.errorcode[e.errno])" >"$T/pushed" &
	pusher=$!
	until_true grep -q '^state busy$' "$G/rank0/status"
	[ $how = interrupt ] && echo interrupt >"$G/ctl" || kill -INT $pusher
	wait $pusher
	is "a push that is stopped by $how" "$(cat "$T/pushed")" EINTR
done
is 'no rank has it' "$(where small)" "'0:5' '1:5'"
cell 'cupy.release()' "$G/rank0/cell"
until_true live_is "$held"
is 'the next push arrives' "$(push "$G/vars/small.npy" 'np.full(9, 5)') $(where small)" "0 '0:5' '1:5'"
is 'all by registered memory' "$(value 'cupy.runtime.fake_cuda_pageable()')" 0

# what uses a GPU's memory, by name; for a stuck rank as much as is known without it
cell 'pair = {"a": wide, "b": [odd, odd]}; number = 5'
like 'rankK/gpu lists the largest objects' "$(cat "$G/rank0/gpu")" $'^gpu -\ncuda_library CUDA 13.0, libcudart.so.13\nnccl_error NCCL: /nonexistent.*: cannot open[^\n]*\ndevice_free_bytes [0-9]+\ndevice_total_bytes 1073741824
object pair 17127221\nobject wide 16777216\nobject columns 960000\nobject host 399996\nobject other 350005\nobject odd 350005\nobject record 240000'
mkfifo "$T/stuck"
submit "import ctypes; ctypes.PyDLL(None).system(b'read x <$T/stuck')" "$G/rank0/cell"
until_true guarded grep -q '^error the rank is stuck' "$G/rank0/gpu" # it is not waited for
like 'the other one answers' "$(guarded cat "$G/rank1/gpu")" 'object wide 16777216'
: >"$T/stuck"
wait_cell "$n" >/dev/null

# a cell that runs out of memory leaves a rank that has everything but what the cell itself held
exec 5<"$G/events"
before=$(value 'cupy.runtime.fake_cuda_live()')
fails cell 'def train(size):
    activations = [cupy.empty(size, "u1") for _ in range(2)]
    return more(activations)
def more(held):
    mine = cupy.empty(200 << 20, "u1")
    return cupy.empty(1 << 40, "u1")
train(300 << 20)' "$G/rank0/cell"
n=$(readlink "$G/cells/last")
is 'the cell failed for memory' "$(state)" error
like 'events say what was in use, by name' "$(await 5 out-of-memory)" \
	"out-of-memory rank=0 cell=$n of=gpu device_free_bytes=[0-9]+ device_total_bytes=1073741824 largest=train.activations:629145600,more.mine:209715200,pair:[0-9]+,wide:16777216"
is 'what the functions held is free again' "$(value 'cupy.runtime.fake_cuda_live()')" "$before"
fails cell 'train(300 << 20)' "$G/rank0/cell"
is 'also before the next cell' "$(cell 'import sys; live, e = cupy.runtime.fake_cuda_live(), sys.last_value' "$G/rank0/cell"; value 'live')" "$before"
fails cell 'train(300 << 20)' "$G/rank0/cell"
is 'post_mortem() still shows the frames' "$(value 'import sys, traceback; [f.name for f in traceback.extract_tb(sys.last_value.__traceback__)][1:]')" "['train', 'more', 'empty', '__init__']"
cell 'del e' "$G/rank0/cell"
echo 'autogc off' >"$G/ctl"
fails cell 'train(300 << 20)' "$G/rank0/cell"
is 'with autogc off the frames keep their variables' "$(value 'import sys; sys.last_value.__traceback__.tb_next.tb_frame.f_locals["size"]')" 314572800
cell 'cupy.pool.kept = 4096' "$G/rank0/cell"
echo free >"$G/ctl"
like 'free says what libraries kept without use' "$(await 5 'freed rank=0')" "freed rank=0 [0-9]+ objects, 4096 bytes of cupy's pool"
echo 'autogc on' >"$G/ctl"
fails cell 'blob = bytes(1 << 20); bytearray(1 << 60)' "$G/rank0/cell"
like 'of memory of the host, too' "$(await 5 'out-of-memory .*of=host')" 'of=host largest=.*blob:1048576'
exec 5<&-

# a rank whose context is lost is replaced, with the reason and the place reported; the other rank keeps everything
for code in 'raise RuntimeError("kernel")' pass; do
	[ "$code" = pass ] && lost=710 text='device-side assert triggered \(cudaErrorAssert\)' ||
		lost=700 text='an illegal memory access was encountered \(cudaErrorIllegalAddress\)'
	pid=$(key "$G/rank0/status" pid)
	cell 'import cupy, numpy as np; used = cupy.array(np.ones(3))' "$G/rank0/cell"
	ok cat "$G/rank0/vars/used.npy" >/dev/null
	errno write "$G/rank0/cell" "import cupy
cupy.runtime.fake_cuda_lose($lost)
$code" >/dev/null
	n=$(readlink "$G/cells/last")
	is 'the cell ends as it would' "$(state)" "$([ "$code" = pass ] && echo ok || echo error)"
	gone "$pid"
	until_true grep -q 'rank 0: the CUDA context is lost' "$G/error"
	like 'error says which GPU it was, and by what its context was lost' "$(cat "$G/error")" "\(GPU 0: cuda[A-Za-z]*: $text"
	[ "$code" = pass ] || like 'error says at which line' "$(cat "$G/error")" "at line 3 of cell $n; all variables of this rank are lost"
	is 'a new process works' "$(value '6 * 7')" 42
	: >"$G/error"
done
pid=$(key "$G/rank0/status" pid)
mkfifo "$T/lost"
cell "import cupy, threading, numpy as np; used = cupy.array(np.ones(3))
threading.Thread(target=lambda: (open('$T/release').close(), cupy.runtime.fake_cuda_lose(719), open('$T/lost').close())).start()" "$G/rank0/cell"
: >"$T/release"
: >"$T/lost" # somebody reads from it now
is 'a read that finds it lost between two cells says so' "$(errno read "$G/rank0/vars/used.npy")" EHOSTDOWN
gone "$pid"
until_true grep -q 'cudaErrorLaunchFailure.* between two cells' "$G/error"
is 'a new process works without a cell in between' "$(value '6 * 7')" 42
is 'the other rank has its objects' "$(value 'int(small.numpy()[0])' 1)" 5

# held FILE: not readable before the work that an ended cell has queued; readable once that ends
held() {
	is "$2" "$(timeout 1 cat "$1" | wc -c)" 0
	cell 'cupy.release()' "$G/rank0/cell"
	ok test "$(guarded cat "$1" | wc -c)" -gt 0
}

cell 'import cupy, numpy as np
first = cupy.array(np.ones(3))
with cupy.cuda.Device(1):
    second = cupy.array(np.ones(3))
cupy.runtime.fake_cuda_hold(None)' "$G/rank0/cell"
held "$G/rank0/vars/first.npy" 'the first object that is read comes behind the default stream'
ok cat "$G/rank0/vars/second.npy" >/dev/null
cell 'cupy.runtime.fake_cuda_hold(None)' "$G/rank0/cell"
held "$G/rank0/vars/second.npy" 'one on another GPU than the current one, too'
cell 'one, two = cupy.cuda.Stream(), cupy.cuda.Stream()
one.use().hold()' "$G/rank0/cell"
cell 'two.use()' "$G/rank0/cell"
held "$G/rank0/vars/first.npy" 'one stream does not make another one forgotten'
