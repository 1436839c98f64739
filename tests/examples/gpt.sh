#!/usr/bin/env bash
# gpt.py learns from the generated text and from a file, and draws its loss curve.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2,gpus=none
has_module matplotlib || skip "no matplotlib in $TORCH_PYTHON"
export DDIP_MOUNT=$M PATH=$BUILD:$PATH
program=$ROOT/scripts/examples/gpt.py

out=$(ddip run "$program" --steps 100 --layers 1) || bad "status $?"
like 'progress' "$out" 'step 50  loss [0-9.]+.*step 100  loss [0-9.]+'
like 'it writes' "$out" ' and .* make'
cp "$G/vars/history.json" "$T/history"
"$PLAIN_PYTHON" - "$T/history" <<-'END_PYTHON' || bad 'it learns nothing'
	import json, sys
	losses = json.load(open(sys.argv[1]))
	assert len(losses) == 100 and losses[-1] < 0.5 * losses[0], losses
END_PYTHON
is 'the same curve on all ranks' "$(cat "$G/rank1/vars/history.json")" "$(cat "$T/history")"
ok cp "$G/vars/fig.png" "$T/fig.png"
is 'a picture' "$(head -c 4 "$T/fig.png" | tail -c 3)" PNG

out=$(ddip run "$program" --steps 5 --layers 1 --text "$ROOT/README.md") || bad "README: status $?"
is 'a sample as long as asked' "$(cat "$G/vars/written.json" | tr -cd , | wc -c)" 200
echo short >"$T/short"
fails ddip run "$program" --text "$T/short"
