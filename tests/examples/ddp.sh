#!/usr/bin/env bash
# ddp.py works, and so do the scripts that use its run: watch.sh, early-stop.sh, checkpoint.sh.
. "$(dirname "$0")/../lib.sh"

[ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || skip 'no Fashion-MNIST here'
command -v inotifywait >/dev/null || skip 'no inotifywait'
mount_torch -o size=2,gpus=none
export DDIP_MOUNT=$M PATH=$BUILD:$PATH
examples=$ROOT/scripts/examples

# watch.sh
ddip start
n=$(ddip run -d "$examples/ddp.py" --epochs 3 --images 3000)
guarded "$examples/watch.sh" step_loss >"$T/out" || bad "watch.sh: status $?"
for epoch in 1 2 3; do
	like "epoch $epoch is seen" "$(cat "$T/out")" "epoch $epoch  loss of this rank's share"
done
like 'the variable is seen' "$(cat "$T/out")" 'step_loss [0-9.]+'
like 'the run has ended' "$(wait_cell "$n")" 'state ok'

# checkpoint.sh: during training, and when nothing is new
n=$(ddip run -d "$examples/ddp.py" --epochs 1000 --images 2000)
grep -m1 -q epoch "$G/cells/$n/stream"
ok "$examples/checkpoint.sh" "$T/saved" >"$T/out"
file=$(cat "$T/out")
echo interrupt >"$G/cells/$n/ctl"
like 'interrupted' "$(wait_cell "$n")" 'state interrupted'
cell "from safetensors.torch import load_file
saved = load_file('$file')
assert saved['0.weight'].shape == (16, 1, 5, 5), saved.keys()" || bad "$file does not load"
ok "$examples/checkpoint.sh" "$T/saved" >/dev/null
like 'nothing new' "$("$examples/checkpoint.sh" "$T/saved")" '^nothing new'
for i in 1 2 3; do
	ddip exec -q 'with torch.no_grad(): model[0].bias += 1'
	KEEP=2 "$examples/checkpoint.sh" "$T/saved" >/dev/null || bad "checkpoint $i"
done
is 'old ones go' "$(find "$T/saved" -type f | wc -l)" 2
cell "import glob
a, b = (load_file(f)['0.bias'] for f in sorted(glob.glob('$T/saved/*.safetensors')))
assert ((b - a) == 1).all() or abs(b - a - 1).max() < 1e-5" || bad 'not the last two'
fails "$examples/checkpoint.sh" "$T/saved" nothing
is 'nothing is left of that' "$(find "$T/saved" -type f | wc -l)" 2

ok ddip restart # a program asks before it takes the place of variables

# early-stop.sh: with 500 images it soon stops improving
guarded "$examples/early-stop.sh" "$examples/ddp.py" --epochs 1000 --images 500 --lr 0.01 >"$T/out" ||
	bad "early-stop.sh: status $?"
like 'losses' "$(head -n 1 "$T/out")" 'loss, mean over ranks: [0-9.]+'
like 'stopped' "$(tail -n 1 "$T/out")" 'no better than [0-9.]+ for 2 epochs: stopped'
like 'the model is still there' "$(cat "$G/vars/model")" '^Sequential'
is 'the ranks go on' "$(ddip exec 'import torch.distributed as d
d.init_process_group() if not d.is_initialized() else None
t = torch.ones(1); d.all_reduce(t); t.item()')" 2.0
fails "$examples/early-stop.sh" "$examples/ddp.py" --epochs x >/dev/null
