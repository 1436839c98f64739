#!/usr/bin/env bash
# What a running program holds in its functions can be read, over the ranks too, also while it waits in a collective;
# after a failure, what the frames of the traceback hold.
. "$(dirname "$0")/../lib.sh"

! signals_wait || skip 'ThreadSanitizer delivers no signal to a loop: its stack can not be read'
mount_torch -o size=2
cat >"$T/train.py" <<'END'
import torch
import torch.distributed as dist

def main():
    model = torch.nn.Linear(2, 1)
    weights = torch.full((3,), float(rank))
    for step in range(1000):
        if rank == 1 and step == 7:
            input()
        update(model, weights * step)

def update(model, change):
    dist.all_reduce(change)
    if change[0] == 5:
        print("five", flush=True)

dist.init_process_group()
rank = dist.get_rank()
main()
END
exec 5<"$G/log"
DDIP_MOUNT=$M "$BUILD/ddip" run -d "$T/train.py" >/dev/null || give_up 'ddip run'
n=$(readlink "$G/cells/last")
# rank 0 is in update() with the eighth all_reduce, which rank 1 does not enter
until_true grep -q "^1	$T/train.py:10	main	model step weights$" "$G/rank0/frames"
is_seventh() {
	[ "$(cat "$G/rank0/locals.1/step" 2>/dev/null)" = 7 ]
}
until_true is_seventh
is 'a name of the innermost frame' "$(cat "$G/rank0/locals/change")" 'tensor([0., 0., 0.])'
is 'of a frame below' "$(cat "$G/rank0/locals.1/step") $(errno read "$G/rank0/locals.0/step")" '7 ENOENT'
like 'its help' "$(cat "$G/rank0/locals/model.doc")" 'Linear'
is 'over the ranks' "$(cat "$G/locals/weights.sum")" 'tensor([1., 1., 1.])'
is 'a view' "$(cat "$G/rank1/locals/weights.npy" | wc -c)" 140
is 'all names' "$(ls "$G/rank0/locals" | xargs)" 'change main model step update weights'
is 'those of a frame' "$(ls "$G/rank0/locals.1" | xargs)" 'model step weights'
is 'a name that is no global' "$(errno read "$G/vars/step")" ENOENT
like 'where it is' "$(tail -n 1 "$G/error")" \
	"ENOENT group/vars/step: no global 'step'; main\(\) at train.py:10 has a local 'step': rank0/locals/step"
is 'nothing is written' "$(errno write "$G/rank0/locals/step" 3) $(errno create "$G/rank0/locals/new" 3)" 'EACCES EACCES'
is 'ddip pull' "$(DDIP_MOUNT=$M "$BUILD/ddip" pull -r 1 locals/weights.json)" '[1.0, 1.0, 1.0]'
echo interrupt >"$G/cells/$n/ctl"
wait_cell "$n" >/dev/null
is 'between cells there are none' "$(ls "$G/rank0/locals" "$G/locals"; cat "$G/rank0/frames")" "$G/locals:

$G/rank0/locals:"

fails cell 'def f(a):
    b = [a]
    a.missing
f(rank)'
n=$(readlink "$G/cells/last")
is 'what failed had' "$(cat "$G/cells/$n/rank1/locals/b" "$G/cells/$n/rank0/locals/a" | xargs)" '[1] 0'
like 'its names' "$(ls "$G/cells/$n/rank1/locals" | xargs)" '^a b f '
# cells run there, which keep it, whatever becomes of them
in_frame() {
	DDIP_MOUNT=$M "$BUILD/ddip" exec "$@" 2>"$T/err"
}
is 'in the frame that failed' "$(in_frame -ar 0,1 -F 'b *= 2; c = a + 1; b, c' | sort)" '0: ([0, 0], 1)
1: ([1, 1], 2)'
is 'of another rank, and a new name' "$(in_frame -r 1 -F 'b, c')" '([1, 1], 2)'
is 'a variable is set' "$(in_frame -r 1 -F 'a = 7')$(in_frame -r 1 -F 'a, rank')" '(7, 1)'
is 'an exit' "$(in_frame -r 1 -F 'raise SystemExit') $(cat "$T/err")" ' '
is 'a frame further out' "$(in_frame -r 1 --frame=1 '"a" in locals(), f.__name__')" "(False, 'f')"
is 'the last of two counts' "$(in_frame -r 1 -F --frame=1 '"a" in locals()') $(in_frame -r 1 --frame=1 -F 'a')" 'False 7'
fails in_frame -r 1 -F 'b + None'
like 'what fails there' "$(cat "$T/err")" 'line 1, in <module>.*TypeError'
fails in_frame -r 1 -F 'b +'
like 'what is no Python' "$(cat "$T/err")" 'SyntaxError'
fails in_frame -r 1 --frame=2 'b'
like 'no such frame' "$(cat "$T/err")" 'the failure of rank 1 has no frame 2: want 0 to 1'
fails in_frame --frame=x 'b'
like 'no number' "$(cat "$T/err")" "want a number of a frame, 0 the innermost, not 'x'"
is 'it is still kept' "$(cat "$G/cells/$n/rank1/locals/b")" '[1, 1]'
printf '# ddip frame: 0\nprint(b)\n' >"$G/rank1/cell"
is 'by its file' "$(cat "$G/cells/last/rank1/stdout")" '[1, 1]'
printf '\357\273\277# ddip frame: 0\nprint(b, 2)\n' >"$G/rank1/cell"
is 'of an editor that marks UTF-8' "$(cat "$G/cells/last/rank1/stdout")" '[1, 1] 2'
# without a number it is no cell, and what failed is kept
for word in '' ' ' x -1 12345; do
	is "the frame '$word'" "$(errno write "$G/rank1/cell" "# ddip frame:$word
print('it runs')")" ENOEXEC
	like "what it says of '$word'" "$(tail -n 1 "$G/error")" \
		"first line: want '# ddip frame: N', the number of a frame of the last failure, 0 the innermost: "
done
like 'what was wrong' "$(tail -n 1 "$G/error")" "innermost: not '12345'"
printf '# ddip frame:0\nprint(b, 3)\n' >"$G/rank1/cell"
is 'a number is enough' "$(cat "$G/cells/last/rank1/stdout")" '[1, 1] 3'
fails cell 'def g(a):
    return [8][a]
g(rank)'
n=$(readlink "$G/cells/last")
is 'on the rank that failed first' "$(in_frame -F 'a, rank')" '(1, 1)'
fails in_frame -r 0 -F '1 / 0'
is 'what fails there is not looked at' "$(in_frame -F 'rank')" 1
# what a steer raises is not the program's failure
submit 'import time, torch, torch.distributed as dist
stop = False
while True:
    dist.all_reduce(torch.ones(1)); time.sleep(0.01)
    if stop and rank: raise ValueError'
until_true grep -q ' clock=' "$G/status"
is 'a frame is no steer' "$(errno write "$G/steer" '# ddip frame: 0
1')" ENOEXEC
is 'a steer fails' "$(errno write "$G/steer" 'None if rank else missing')" EREMOTEIO
is 'the cell goes on' "$(errno write "$G/steer" 'stop = True')" 0
wait_cell "$n" >/dev/null
is 'and fails' "$(in_frame -F 'rank, stop')" '(1, True)'
fails cell 'def h(a):
    raise MemoryError
h(rank)'
n=$(readlink "$G/cells/last")
fails in_frame -r 1 -F 'a'
like 'memory' "$(cat "$T/err")" 'the failure of rank 1 has lost its variables: memory ran out'
cell 'pass'
is 'it is kept until the next cell' "$(ls "$G/cells/$n/rank1/locals") $(errno read "$G/cells/$n/rank1/locals/b")" ' ENOENT'
like 'which is said' "$(tail -n 1 "$G/error")" "rank 1 does not keep what cell $n has left"

# one that is larger than the machine's memory: parts of it are read, and nobody copies it
submit 'import mmap, numpy, os, torch
def huge():
    size, noreserve = 1 << 37, 0x4000
    held = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve)
    array = numpy.frombuffer(held, numpy.float32)
    tensor = torch.from_numpy(array)
    both = {"one": tensor, "two": [array]}
    print("held", flush=True)
    while not os.path.exists("'"$T"'/enough"): pass
huge()' "$G/rank0/cell"
prints "$G/cells/$n/stream" held
L=$G/rank0/locals
is 'its text' "$(head -c 12 "$L/array") $(head -c 17 "$L/tensor")" '[0. 0. 0. .. tensor([0., 0., 0'
is 'its parts' "$(head -c 128 "$L/tensor.npy" | wc -c) $(tail -c 16 "$L/array.npy" | wc -c) $(head -c 9 "$L/tensor.safetensors" | wc -c)" '128 16 9'
for view in array.pkl array.p5 tensor.pkl tensor.p5 tensor.pt both.pkl both.pt; do
	is "a copy of it: $view" "$(errno read "$L/$view")" EFBIG
done
like 'what to read instead' "$(tail -n 1 "$G/error")" 'both.pt would be a copy that takes [0-9]+ MiB.*read .npy or .safetensors'
is 'as a text' "$(errno read "$L/array.json")" EFBIG
like 'with its attributes' "$(head -c 2 "$L/tensor.dir")$(head -n 1 "$L/array.doc")" 'H.*ndarray'
touch "$T/enough"
like 'nothing has happened to the program' "$(wait_cell "$n")" 'state ok'
