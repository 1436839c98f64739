#!/usr/bin/env bash
# scripts/setup where it cannot do anything: it says what is missing; where all is there: nothing, fast.
. "$(dirname "$0")/../lib.sh"

cd "$ROOT" || exit
setup=scripts/setup
is 'a wrong word' "$($setup --nonsense 2>&1 | grep -c usage)" 1
like 'no such Python' "$(PYTHON=/nonexistent $setup 2>&1)" 'PYTHON=/nonexistent'
like 'a Python without torch' "$(PYTHON=$PLAIN_PYTHON $setup 2>&1)" 'missing there: .*torch'
if [ -f .venv/.setup ]; then
	begin=$(date +%s%N)
	$setup >"$T/out" 2>&1 || bad "setup: $(cat "$T/out")"
	[ $((($(date +%s%N) - begin) / 1000000)) -lt 1000 ] || bad 'the second time takes a second'
	is 'nothing to do, nothing to say' "$(cat "$T/out")" ''
fi
