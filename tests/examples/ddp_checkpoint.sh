#!/usr/bin/env bash
# ddp_checkpoint.py: a run that is cut in two ends like an uncut one, also when it was interrupted.
. "$(dirname "$0")/../lib.sh"

[ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || skip 'no Fashion-MNIST here'
mount_torch -o size=2,gpus=none
export DDIP_MOUNT=$M PATH=$BUILD:$PATH
program=$ROOT/scripts/examples/ddp_checkpoint.py
few=(--images 2000)

out=$(ddip run "$program" "${few[@]}" --epochs 3 --savefile "$T/whole.pt") || bad "whole: status $?"
like 'metrics of all ranks' "$out" 'epoch 3  loss by rank [0-9.]+ [0-9.]+  accuracy'

ddip run "$program" "${few[@]}" --epochs 1 --savefile "$T/parts.pt" >/dev/null || bad 'first part'
out=$(ddip run "$program" "${few[@]}" --epochs 3 --savefile "$T/parts.pt") || bad 'second part'
like 'it resumes' "$out" 'resumed after epoch 1.*epoch 2.*epoch 3'

# Interrupted somewhere in an epoch: that epoch is repeated.
n=$(ddip run -d "$program" "${few[@]}" --epochs 1000 --savefile "$T/cut.pt")
grep -m1 -q 'epoch 1 ' "$G/cells/$n/stream"
ok ddip interrupt "$n"
like 'interrupted' "$(wait_cell "$n")" 'state interrupted'
out=$(ddip run "$program" "${few[@]}" --epochs 3 --savefile "$T/cut.pt") || bad 'after an interrupt'
like 'it resumes after an interrupt' "$out" 'resumed after epoch'

cat >"$T/look.py" <<-'END_PYTHON'
	import sys, torch
	whole, *others = (torch.load(f, weights_only=True) for f in sys.argv[1:])
	for other in others:
	    assert other["epoch"] >= 3 and other["metrics"][:3] == whole["metrics"], other["metrics"]
	    if other["epoch"] == 3:
	        for name, weight in whole["model"].items():
	            assert torch.equal(weight, other["model"][name]), name
END_PYTHON
ddip run -f "$T/look.py" "$T/whole.pt" "$T/parts.pt" "$T/cut.pt" >"$T/said" 2>&1 || bad "they differ: $(cat "$T/said")"
