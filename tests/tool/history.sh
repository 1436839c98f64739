#!/usr/bin/env bash
# ddip history: the cells as a list, and as a program that does what they did.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
export DDIP_MOUNT=$PLACE PATH=$BUILD:$PATH
ddip exec $'total = 0\ndef add(n):\n    global total\n    total += n'
ddip exec 'add(rank + 40)' || bad 'a cell'
ddip exec 'total / 0' 2>/dev/null
ddip exec -r 1 'text = """of
one"""'
ddip exec 'add(1); print(rank, world_size, total, globals().get("text", "").split())' >/dev/null
printf '# ddip run: {"argv": ["train.py"], "keep": true}\nx = 1\n' >"$G/cell"

list=$(ddip history)
is 'a line for each cell' "$(wc -l <<<"$list")" 6
like 'one that went well' "$(sed -n 2p <<<"$list")" '^ +2 ok +[0-9.]+ s +add\(rank \+ 40\) +by ddip$'
like 'one that failed' "$(sed -n 3p <<<"$list")" '^ +3 error +[0-9.]+ s +total / 0 +rank [01]: ZeroDivisionError: division by zero$'
is 'the last ones' "$(ddip history -n 2)" "$(tail -n 2 <<<"$list")"
is 'more than there are' "$(ddip history -n 100)" "$list"
fails ddip history -n many
fails ddip history word

ddip history --script >"$T/script.py"
like 'what is left out is said' "$(cat "$T/script.py")" '# cell 3, left out: ZeroDivisionError.*# cell 6, left out: a program of its own'
for rank in 0 1; do
	RANK=$rank WORLD_SIZE=2 "$PLAIN_PYTHON" "$T/script.py" || bad 'the program fails'
done >"$T/out"
is 'the program does what the cells did' "$(cat "$T/out")" "0 2 41 []
1 2 42 ['of', 'one']"
