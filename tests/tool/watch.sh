#!/usr/bin/env bash
# `ddip watch`: stops the running cell where an expression is true, until Ctrl-C or `ddip cancel`.
. "$(dirname "$0")/../lib.sh"
ddip=$BUILD/ddip
export DDIP_MOUNT=$PLACE

steps() {
	[ "$(key "$G/status" step | cut -d ' ' -f 1)" -ge "$1" ] 2>/dev/null
}
# watch WORD…: in the background, as a shell's foreground job has its SIGINT
watch() {
	"$PLAIN_PYTHON" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execv(sys.argv[1], sys.argv[1:])' "$ddip" watch "$@" >"$T/out" 2>&1 &
	watcher=$!
}
stopped() {
	grep -q 'stopped at step' "$G/status"
}
unwatched() {
	! grep -q '^watch' "$G/status"
}

mount_torch -o size=2
mkdir "$T/work"
cd "$T/work" || give_up 'a directory'
is 'wrong usage' "$(guarded "$ddip" watch 2>&1 | head -n 1 | cut -c 1-17)" 'usage: ddip watch'
guarded "$ddip" watch 1 >"$T/out" 2>&1
like 'no cell runs' "$? $(cat "$T/out")" '^[1-9][0-9]* ddip: .*watch: no cell runs'
"$ddip" run -f "$ROOT/tests/cells/steer.py" >"$T/program" 2>&1 &
program=$!
until_true steps 3
guarded "$ddip" watch 'x = (' >"$T/out" 2>&1
like 'a syntax error' "$? $(cat "$T/out")" "^1 cell [0-9]+: SyntaxError: '\(' was never closed|^1 SyntaxError: '\(' was never closed"

watch 'step % 10 == 5 and rank == 1'
until_true grep -q '^look: ' "$T/out"
like 'where' "$(head -n 1 "$T/out")" '^rank 1 step [0-9]*6: step % 10 == 5 and rank == 1 \(steer.py:[0-9]+\); all ranks wait$'
like 'what now' "$(tail -n 1 "$T/out")" '; go on: Ctrl-C$'
like 'the frames' "$(guarded "$ddip" stack 0)" 'steer.py", line [0-9]+ in train'
like 'a local' "$(cat "$G/rank0/locals/step")" '5$'
is 'a steer' "$(guarded "$ddip" steer -a 'step % 10' | xargs)" '0: 5 1: 5'
kill -INT $watcher
wait $watcher
is 'Ctrl-C' $? 0
until_true unwatched

# -k; the recipe of ddip(1) for the first NaN
line=$(grep '^ddip watch' "$ROOT/scripts/ddip.1" | grep loss | sed 's/ *#.*//; s/^ddip //')
[ "$line" ] || give_up 'no recipe'
eval "guarded '$ddip' ${line/watch/watch -k}" >"$T/out" 2>&1 &
watcher=$!
until_true grep -q '^watch .*armed' "$G/status"
guarded "$ddip" steer 'if rank: model.module.weight.data.fill_(float("nan"))' || bad 'a NaN'
wait $watcher
is 'it leaves' $? 0
like 'a NaN' "$(cat "$T/out")" '^rank(s 0,1| [01]) step [0-9]+: loss != loss .*all ranks wait
look: .*; go on: ddip cancel [0-9]+$'
stopped || bad 'it has gone on'
guarded "$ddip" steer -q 'model.module.weight.data.fill_(0.5); 0' || bad 'repaired'
guarded "$ddip" cancel "$(sed -n 's/.*ddip cancel //p' "$T/out")" || bad 'it cannot be cancelled'
until_true unwatched

# Ctrl-C before; the program ends before
watch False
until_true grep -q '^watch .*armed' "$G/status"
kill -INT $watcher
wait $watcher
is 'Ctrl-C before' $? 130
until_true unwatched
watch False
until_true grep -q '^watch .*armed' "$G/status"
guarded "$ddip" steer 'last = step + 3'
wait $watcher
is 'never true' $? 1
like 'its text' "$(cat "$T/out")" '^cell [0-9]+ has ended: the expression was true at none of its steps$'
wait $program || bad "the program: $(tail "$T/program")"
