#!/usr/bin/env bash
# Examples in which ranks hold parts of a model: model_parallel.py both ways, fsdp.py.
. "$(dirname "$0")/../lib.sh"

[ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || skip 'no Fashion-MNIST here'
mount_torch -o size=2,gpus=none
export DDIP_MOUNT=$M PATH=$BUILD:$PATH
examples=$ROOT/scripts/examples

ok ddip run "$examples/model_parallel.py" --images 4000
cp "$G/rank1/vars/losses.json" "$T/plain"
ok ddip run "$examples/model_parallel.py" --images 4000 --pipelined
cp "$G/rank1/vars/losses.json" "$T/pipelined"
"$PLAIN_PYTHON" - "$T/plain" "$T/pipelined" <<-'END_PYTHON' || bad 'plain and pipelined differ'
	import json, sys
	plain, pipelined = (json.load(open(f)) for f in sys.argv[1:])
	assert len(plain) == len(pipelined) == 62, len(plain)
	assert plain[-1] < 0.7 * plain[0], plain
	assert all(abs(a - b) < 1e-3 * a for a, b in zip(plain, pipelined)), (plain, pipelined)
END_PYTHON
is 'each rank has its stage' "$(cat "$G"/rank[01]/vars/stage | grep -c Flatten)" 1

ddip run -a "$examples/fsdp.py" --images 2000 --epochs 1 >"$T/out" || bad "fsdp.py: status $?"
held=$(sed -n 's/.*rank [01] holds \([0-9]*\) of.*/\1/p' "$T/out" | paste -sd+)
is 'all shares are the whole' $((held)) "$(sed -n 's/.*holds.* of \([0-9]*\) .*/\1/p;T;q' "$T/out")"
like 'it learns' "$(cat "$T/out")" 'accuracy [3-9][0-9]\.'
ok cp "$G/rank0/vars/weights.safetensors" "$T/0"
ok cp "$G/rank1/vars/weights.safetensors" "$T/1"
ok cmp "$T/0" "$T/1"
