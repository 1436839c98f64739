#!/usr/bin/env bash
# Watchers are woken when output grows, cells end, and names come and go.
. "$(dirname "$0")/../lib.sh"

command -v inotifywait >/dev/null || skip 'there is no inotifywait'
mount_plain
cell 'x = 1'

# watches N: does the watcher's descriptor have this many watches, i.e. are they established?
watches() {
	[ "$(cat /proc/$watcher/fdinfo/* 2>/dev/null | grep -c '^inotify wd')" = "$1" ]
}

# watching EVENTS PATH: starts a watcher and waits until it watches
watching() {
	stdbuf -oL inotifywait -q -m -e "$1" --format '%e %f' "$2" >"$T/seen" 2>"$T/watch.err" &
	watcher=$!
	until_true watches 1 || give_up "inotifywait: $(cat "$T/watch.err")"
}

# seen PATTERN
seen() {
	guarded grep -m1 -q "$1" <(exec tail -n +1 -s 0.05 -f --pid=$watcher "$T/seen") || bad "no event like $1"
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
# what causes the events asks no rank for what a reader would be shown, such as the steps of a running cell
cell 'import time; print("on", flush=True); time.sleep(1000)' "$G/rank0/cell" 2>/dev/null &
until_true grep -qs on "$G/rank0/stdout"
exec 5<"$M/trace"
watching close_write "$G"
cell 'pass' "$G/rank1/cell"
seen 'CLOSE_WRITE.* status'
cat "$G/status" "$G/cells/no-such" >/dev/null 2>&1
guarded sed '/ fuse lookup .*no-such/q' <&5 >"$T/trace"
exec 5<&-
is 'only a reader of status asks' "$(grep -c ' wire > Tsteps ' "$T/trace")" 1
echo interrupt >"$G/ctl"
wait $!
watching modify "$G/status"
cell 'pass'
seen MODIFY
watching create "$G/vars"
cell 'brand_new = 1'
seen 'CREATE brand_new'
watching delete "$G/vars"
cell 'del brand_new'
seen 'DELETE brand_new'

# a reader that follows by polling the size
: >"$T/tail"
tail -n +1 -s 0.1 -f "$G/rank0/stdout" >"$T/tail" &
tailer=$!
cell 'print("for tail")'
guarded grep -m1 -q 'for tail' <(tail -n +1 -f --pid=$tailer "$T/tail") || bad 'tail -f'
kill $tailer
wait $tailer 2>/dev/null
like 'ls agrees' "$(ls "$G/vars" | xargs)" '^x$'

# names below vars, whoever creates them: each directory reports them
stdbuf -oL inotifywait -q -m -e create,delete --format '%e %w%f' "$G/vars" "$G/rank0/vars" "$G/rank1/vars" >"$T/names" &
watcher=$!
until_true watches 3
told() { # EVENT PATH…
	local event=$1 path
	shift
	for path; do
		guarded grep -m1 -qF "$event $G/$path" \
			<(exec tail -n +1 -s 0.05 -f --pid=$watcher "$T/names") || bad "no $event of $path"
	done
}
cell 'made = 1'
told CREATE vars/made rank0/vars/made rank1/vars/made
echo 5 >"$G/vars/pushed"
told CREATE vars/pushed rank0/vars/pushed rank1/vars/pushed
echo 5 >"$G/rank1/vars/single"
told CREATE rank1/vars/single
rm "$G/vars/pushed"
told DELETE vars/pushed rank0/vars/pushed rank1/vars/pushed
mv "$G/rank0/vars/made" "$G/rank0/vars/moved"
told DELETE vars/made
told CREATE vars/moved
mv "$G/rank1/vars/made" "$G/rank1/vars/moved" # (watchers of rank1 hear of it as of any mv)
is 'a push that fails' "$(errno create "$G/vars/failed" '[1')" EBADMSG
told DELETE vars/failed
echo '[1]' >"$G/vars/.aside" && mv "$G/vars/.aside" "$G/vars/staged.json"
told CREATE vars/staged rank1/vars/staged
echo reset >"$G/ctl"
told DELETE vars/staged rank0/vars/moved rank1/vars/single
cell 'end = 1'
echo stop >"$G/ctl"
told DELETE vars/end rank1/vars/end
is 'nothing of what never was' "$(grep -c 'rank0/vars/single' "$T/names")" 0
once() { # EVENT PATH: it is told once
	is "$1 $2 is told once" "$(grep -cxF "$1 $G/$2" "$T/names")" 1
}
once CREATE vars/pushed
once DELETE vars/pushed
once CREATE rank1/vars/single
once CREATE rank0/vars/pushed
once DELETE rank1/vars/pushed
is 'what mv(1) itself tells is not told again' "$(grep -cE '(DELETE .*/rank0/vars/made|CREATE .*/rank0/vars/moved)$' "$T/names")" 0
kill $watcher
wait $watcher 2>/dev/null
echo start >"$G/ctl"

# very many names at once: one MODIFY of the directory instead; later single names are reported again
stdbuf -oL inotifywait -q -m -e create,delete,modify --format '%e %w%f' "$G/vars" >"$T/many" &
watcher=$!
until_true watches 1
cell 'globals().update({f"many{i}": i for i in range(1001)})'
cell 'few = 1'
guarded grep -m1 -qF "CREATE $G/vars/few" <(exec tail -n +1 -s 0.05 -f --pid=$watcher "$T/many") ||
	bad 'no CREATE of the one name'
is '1001 names that come are one MODIFY' "$(grep -c many "$T/many") $(grep -c MODIFY "$T/many")" '0 1'
kill $watcher
wait $watcher 2>/dev/null

# CREATE and DELETE go on after groups and ranks whose names nobody could be told of, as they were gone before
names='globals().update({f"n{i}": 0 for i in range(RANGE)})'
for count in 999 4; do
	mkdir "$M/brief"
	printf 'size 3\nstart\n' >"$M/brief/ctl"
	watching create "$M/brief/rank2/vars"
	cell "${names/RANGE/$count}" "$M/brief/cell"
	seen "CREATE n$((count - 1))"
	echo stop >"$M/brief/ctl" && rmdir "$M/brief"
done
for _ in 1 2; do
	printf 'stop\nsize 6\nstart\n' >"$G/ctl"
	stdbuf -oL inotifywait -q -m -e create,delete --format '%e %w%f' "$G/vars" "$G"/rank?/vars >"$T/names" &
	watcher=$!
	until_true watches 7
	cell "${names/RANGE/500}"
	told CREATE vars/n499 rank{0..5}/vars/n499
	printf 'stop\nsize 1\nstart\n' >"$G/ctl"
	told DELETE vars/n499 rank0/vars/n499
	kill $watcher
	wait $watcher 2>/dev/null
done
watching create "$G/vars"
cell 'later = 1'
seen 'CREATE later'

# MODIFY events are coalesced: there is not one for each line
stdbuf -oL inotifywait -q -m -e modify --format '%e' "$G/rank0/stdout" >"$T/modified" &
watcher=$!
until_true watches 1
cell 'for i in range(100000): print(i)' "$G/rank0/cell"
guarded grep -m1 -q MODIFY <(exec tail -n +1 -s 0.05 -f --pid=$watcher "$T/modified") || bad 'no MODIFY'
[ "$(wc -l <"$T/modified")" -lt 10000 ] || bad "$(wc -l <"$T/modified") MODIFY for one cell"
kill $watcher
wait $watcher 2>/dev/null
is 'the rank works on' "$(value '1 + 1')" 2
