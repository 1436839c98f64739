#!/usr/bin/env bash
# selftest through NCCL itself, on all GPUs that there are: with torch, and without it.
. "$(dirname "$0")/../lib.sh"

"$TORCH_PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
	skip "no GPU that torch of $TORCH_PYTHON can use"

check() { # WHAT
	like "$1: it is NCCL" "$(cat "$G/selftest")" '^# selftest [-0-9: ]+: [0-9]+ ranks?, NCCL 2\.[0-9.]+, float32 on cuda'
	like "$1: all is right" "$(cat "$G/selftest")" $'\nerrors 0\n'
	cat "$G/selftest"
}

for where in "" "$ROOT/tests/fake/no_torch"; do
	! mountpoint -q "$M" || unmount
	PYTHONPATH=$where mount_with "$TORCH_PYTHON" -o backend=nccl
	ok cell 'x = 1'
	for again in 1 2; do
		is 'selftest' "$(errno fsync "$G/ctl" $'selftest 4 4K 16M\n')" 0
		check "${where:+without torch} $again"
	done
	ok cell 'x = 2'
done
