#!/usr/bin/env bash
# The examples for one rank work: single.py, data_parallel.py, and sweep.sh, which runs one on each rank.
. "$(dirname "$0")/../lib.sh"

[ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || skip 'no Fashion-MNIST here'
mount_torch -o size=2,gpus=none
export DDIP_MOUNT=$M PATH=$BUILD:$PATH
examples=$ROOT/scripts/examples
few=(--epochs 1 --images 3000)

out=$(ddip run -r 0 "$examples/single.py" "${few[@]}") || bad "single.py: status $?"
like 'single.py' "$out" 'epoch 1  loss [0-9.]+  accuracy [0-9.]+%'
alone=$(cat "$G/rank0/vars/accuracy")
awk "BEGIN { exit !($alone > 0.5) }" || bad "it learns nothing: accuracy $alone"
like 'only there' "$(errno read "$G/rank1/vars/accuracy")" ENOENT

out=$(ddip run -r 1 "$examples/data_parallel.py" "${few[@]}") || bad "data_parallel.py: status $?"
like 'data_parallel.py' "$out" 'split over 1 x cpu.*accuracy'
is 'the same as without, on one device' "$(cat "$G/rank1/vars/accuracy")" "$alone"

"$examples/sweep.sh" --lr 0.00001,0.001,1 "$examples/single.py" "${few[@]}" >"$T/out" || bad "sweep.sh: $?"
is 'three values' "$(wc -l <"$T/out")" 3
like 'the best is last' "$(tail -n 1 "$T/out")" '^--lr 0.001  accuracy'
like 'both ranks worked' "$(cat "$G"/cells/*/status | grep '^ranks' | sort -u | xargs)" 'ranks 0 ranks 1'
fails "$examples/sweep.sh" --lr 0.001,x "$examples/single.py" "${few[@]}" >/dev/null
fails "$examples/sweep.sh" --lr
