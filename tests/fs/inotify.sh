#!/usr/bin/env bash
# Watchers are woken: output that grows, cells that end, names that come and go.
. "$(dirname "$0")/../lib.sh"

command -v inotifywait >/dev/null || skip 'there is no inotifywait'
mount_plain
cell 'x = 1'

# watching EVENTS PATH: starts a watcher, waits until it watches
watching() {
	stdbuf -oL inotifywait -q -m -e "$1" --format '%e %f' "$2" >"$T/seen" 2>"$T/watch.err" &
	watcher=$!
	# established when the descriptor has a watch
	until grep -qs '^inotify wd' /proc/$watcher/fdinfo/*; do
		kill -0 $watcher || give_up "inotifywait: $(cat "$T/watch.err")"
	done
}

# seen PATTERN: within 5 s
seen() {
	timeout 5 grep -m1 -q "$1" <(exec tail -n +1 -s 0.05 -f --pid=$watcher "$T/seen") || bad "no event like $1"
	kill $watcher
	wait $watcher 2>/dev/null
}

watching modify "$G/rank0/stdout"
cell 'print("x")' "$G/rank0/cell"
seen MODIFY
watching modify "$G/rank1/stderr"
cell 'import sys; print("x", file=sys.stderr)'
seen MODIFY
watching close_write "$G"
cell 'pass'
seen 'CLOSE_WRITE.* status'
watching modify "$G/status"
cell 'pass'
seen MODIFY
watching create "$G/vars"
cell 'brand_new = 1'
seen 'CREATE brand_new'
watching delete "$G/vars"
cell 'del brand_new'
seen 'DELETE brand_new'

# the reader that follows by polling its size
tail -n +1 -s 0.1 -f "$G/rank0/stdout" >"$T/tail" &
tailer=$!
cell 'print("for tail")'
timeout 10 grep -m1 -q 'for tail' <(tail -n +1 -f --pid=$tailer "$T/tail") || bad 'tail -f'
kill $tailer
wait $tailer 2>/dev/null
like 'ls agrees' "$(ls "$G/vars" | xargs)" '^x$'
