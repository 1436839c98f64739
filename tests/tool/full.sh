#!/usr/bin/env bash
# Output that is not complete is a failure: where it cannot be written, and where the mount did not keep all of it.
. "$(dirname "$0")/../lib.sh"
needs_mount

export DDIP_MOUNT=$PLACE PATH=$BUILD:$PATH
mkdir "$M"

# run COMMAND…: sets $status, and $out to its output
run() {
	"$@" >"$T/out" 2>&1
	status=$?
	out=$(cat "$T/out")
}

# full COMMAND…: as run, but its standard output has no room
full() {
	"$@" >/dev/full 2>"$T/out"
	status=$?
	out=$(cat "$T/out")
}

ended() {
	[ "$(state "$1" 2>/dev/null)" = ok ]
}

# ---- nothing more can be written

ok ddip mount -o "python=$PLAIN_PYTHON,backend=none,size=2" "${SERVE[@]}" "$M"
ok ddip exec -q 'v = "text"; print("line")'
echo 'print("text")' >"$T/prints.py"
for words in status stack ls 'ls -l group' 'exec 1' 'exec -a 1' 'exec -d 1' 'run -f prints.py' 'cat version' 'tail 0' \
	'pull v' 'pull v.json' 'top -n 1' help 'help exec' 'help exit' 'exec --help'; do
	[ "$words" != 'pull v' ] || ok ddip exec -q 'v = "text"'
	# shellcheck disable=SC2086
	full "$BASH" -c 'cd "$0" && exec ddip "$@"' "$T" $words
	is "$words: status" $status 4
	like "$words: one line" "$out" "^[^"$'\n'"]*No space left on device[^"$'\n'"]*\$"
	[[ $words == *help* ]] || like "$words: what has no room" "$out" '^ddip: standard output: '
done
full sh -c 'ddip exec "import sys; print(1, file=sys.stderr)" 2>&1'
is 'standard error of a cell has no room, either' $status 4
# shellcheck disable=SC2016
run sh -c 'ulimit -f 8; ddip exec "print(\"x\" * 100000)" >"$0"' "$T/limited"
like 'a file that becomes too large' "$status $out" '^4 ddip: standard output: File too large'
run ddip pull v.json /dev/full
like 'pull into a file' "$status $out" '^4 ddip: /dev/full: No space left on device$'
full ddip tail -f -n 1 0
like 'tail -f' "$status $out" '^4 ddip: standard output: No space left on device$'
rewrite() {
	ddip exec '"{"' >"$G/vars/w.json"
}
run rewrite
like 'an error that only close(2) reports' "$status $out" \
	'^4 ddipfs: w\.json: not JSON: .*'$'\n''ddip: standard output: Bad message'

# shellcheck disable=SC2016
for closed in '>' '<'; do
	run sh -c "ddip shell $closed&-"
	like "a shell with $closed&-" "$status $out" '^4 ddip: a shell needs [a-z ]*$'
done

full ddip shell <<<'print(1)'
like 'a shell' "$status $out" '^4 ddip: standard output: No space left on device$'

# ---- the mount did not keep all of it

# the output of both ranks waits in the pipe's writer until it is no longer kept
echo 'spool 1000' >"$G/ctl"
mkfifo "$T/pipe"
for flag in '' -a; do
	n=$(($(key "$G/status" cell) + 1))
	# shellcheck disable=SC2086
	ddip exec $flag 'for i in range(100000): print(i)' >"$T/pipe" 2>"$T/said" &
	exec 3<"$T/pipe"
	until_true ended "$n"
	cat <&3 >"$T/rest"
	exec 3<&-
	wait $!
	like "exec $flag: output that \`spool\` has dropped" "$? $(cat "$T/said")" \
		"^4 ddip: [0-9]+ bytes of the ranks' output are missing: [^"$'\n'"]*\$"
	like 'the end is there' "$(tail -n 1 "$T/rest")" '99999$'
done
unmount

# a limit on file sizes loses output, as a full disk does
(ulimit -f 2048 && exec ddip mount -o "python=$PLAIN_PYTHON,backend=none,size=2" "${SERVE[@]}" "$M") || give_up 'no mount'
run ddip exec -q 'if rank == 0: print("x" * 3000000)'
like 'exec -q, whose output nobody can look at later' "$status $out" '^4 ddip: output of rank 0 is lost: [^'$'\n'']*$'
run ddip exec 'x = 5'
is 'a cell without output loses none' "$status $out" '0 '
run ddip exec 'print("more")'
like 'exec' "$status $out" '^4 ddip: output of rank 0 is lost: no room in [^'$'\n'']*$'
run ddip exec -a 'print("more")'
like 'exec -a' "$status $out" $'^4 1: more\nddip: output of rank 0 is lost: no room in [^\n]*$'
is 'a rank with room' "$(ddip exec -r 1 'print("more")')" more
run ddip exec 'print("more"); 1 / 0'
like 'what raised has its own status' "$status $out" '^1 .*ZeroDivisionError'
run ddip run -f "$T/prints.py"
like 'run' "$status $out" '^4 ddip: output of rank 0 is lost: no room in [^'$'\n'']*$'
run ddip shell <<<$'print("more")\nx = 7\n'
is 'a shell goes on' "$status $(cat "$G/vars/x") $(grep -c 'is lost' "$T/out")" '0 7 1'
