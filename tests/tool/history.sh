#!/usr/bin/env bash
# ddip history: the cells as a list, and as a program that does what they did. ddip report: what the one that runs does,
# else how the last one ended.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
export DDIP_MOUNT=$PLACE PATH=$BUILD:$PATH
status=0 said=$(ddip report 2>&1) || status=$?
is 'no report before the first cell' "$status $said" "3 ddip: no cell yet in $PLACE/group"
ddip exec $'total = 0\ndef add(n):\n    global total\n    total += n'
ddip exec 'add(rank + 40)' || bad 'a cell'
ddip exec 'total / 0' 2>/dev/null
ddip exec -r 1 'text = """of
one"""'
ddip exec 'add(1); print(rank, world_size, total, globals().get("text", "").split())' >/dev/null
ddip exec 'def wrong():
    total = 1
    raise ValueError
wrong()' 2>/dev/null
ddip exec -F 'total = 1000' || bad 'in a frame'
printf '# ddip run: {"argv": ["train.py"], "keep": true}\nx = 1\n' >"$G/cell"

list=$(ddip history)
is 'a line for each cell' "$(wc -l <<<"$list")" 8
like 'one that went well' "$(sed -n 2p <<<"$list")" '^ +2 ok +[0-9.]+ s +add\(rank \+ 40\) +by ddip$'
like 'one that failed' "$(sed -n 3p <<<"$list")" '^ +3 error +[0-9.]+ s +total / 0 +rank [01]: ZeroDivisionError: division by zero$'
is 'the last ones' "$(ddip history -n 2)" "$(tail -n 2 <<<"$list")"
is 'more than there are' "$(ddip history -n 100)" "$list"
fails ddip history -n many
fails ddip history word

ddip history --script >"$T/script.py"
like 'what is left out is said' "$(cat "$T/script.py")" '# cell 3, left out: ZeroDivisionError.*# cell 7, left out: it ran in a frame.*total = 1000.*# cell 8, left out: a program of its own'
for rank in 0 1; do
	RANK=$rank WORLD_SIZE=2 "$PLAIN_PYTHON" "$T/script.py" || bad 'the program fails'
done >"$T/out"
is 'the program does what the cells did' "$(cat "$T/out")" "0 2 41 []
1 2 42 ['of', 'one']"

# the report of the last cell, of a named one, of the one that runs although others are queued behind it
is 'of the last one' "$(ddip report)" "$(ddip cat group/cells/last/report)"
like 'of a named one' "$(ddip report 3)" '^cell 3.*error ZeroDivisionError'
fails ddip report 1000
fails ddip report 1 2
fails ddip report rank
cell=$(ddip exec -d 'while True: pass')
next=$(ddip exec -d '1')
like 'of what runs' "$(ddip report)" "^cell $cell.state running"
ddip cancel "$next"
ddip interrupt "$cell"
like 'and when it has ended' "$(ddip report "$cell")" 'state interrupted'
