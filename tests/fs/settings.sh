#!/usr/bin/env bash
# Settings take effect: history, spool, idle, timeout, autogc; free; clones of settings.
. "$(dirname "$0")/../lib.sh"

mount_plain
set_() {
	echo "$*" >"$G/ctl"
}

# history: the last finished cells are kept, numbers continue
for i in 1 2 3 4 5; do cell "x = $i"; done
is 'all' "$(ls "$G/cells" | xargs)" '1 2 3 4 5 last'
set_ history 2
is 'history 2' "$(ls "$G/cells" | xargs)" '4 5 last'
cell 'x = 6'
is 'the next' "$(ls "$G/cells" | xargs)" '5 6 last'
is 'an old one' "$(errno open "$G/cells/1/status")" ENOENT
exec 5<"$G/cells/5/source"
cell 'x = 7'
is 'an open one' "$(cat <&5)" 'x = 5'
exec 5<&-
# cells that run or wait do not push out those that have ended
mkfifo "$T/gate"
set_ history 1
submit "open('$T/gate').read()" "$G/cell.0"
running=$n
submit 'pass' "$G/cell.0"
is 'a failure beside a running cell and a queued one' "$(errno write "$G/rank1/cell" '1 / 0')" EREMOTEIO
like 'its traceback is kept' "$(cat "$G/traceback")" 'ZeroDivisionError'
is 'the last that ended, and what has not ended' "$(ls -v "$G/cells" | xargs)" "$running $n $((n + 1)) last"
echo >"$T/gate"
the_last_ones() {
	[ "$(ls -v "$G/cells" | xargs)" = "$n $((n + 1)) last" ]
}
until_true the_last_ones # the one that ended last, and the last cell
set_ history 200

# spool: this much of each stream is kept; dropped output is reported
: >"$G/rank0/stdout"
exec 5<"$G/events"
set_ spool 100000
cell 'for i in range(20000): print(f"line {i:05}")' "$G/rank0/cell"
n=$(readlink "$G/cells/last")
like 'it is told' "$(await 5 ' spool ')" 'spool rank=0 stream=stdout dropped=[0-9]+'
is 'the size' "$(stat -c %s "$G/rank0/stdout")" 100000
is 'the last ones' "$(tail -n 1 "$G/rank0/stdout")" 'line 19999'
is 'as much to read' "$(cat "$G/rank0/stdout" | wc -c)" 100000
is 'the cell has it too' "$(cat "$G/cells/$n/rank0/stdout" | md5sum)" "$(cat "$G/rank0/stdout" | md5sum)"
is 'its size' "$(stat -c %s "$G/cells/$n/rank0/stdout")" 100000
is 'no byte of nothing in its stream' "$(grep -c '\\u0000' "$G/cells/$n/stream")" 0
spool=$(key "$G/status" spool)
blocks=$(stat -c %b "$spool/rank0.stdout")
[ $((blocks * 512)) -lt 200000 ] || bad "the disk keeps $blocks blocks"
cell 'import os
for i in range(20000): print(f"line {i:05}")
while not os.path.exists("'"$T"'/end"): pass' "$G/rank1/cell" &
await 5 ' spool rank=1' >/dev/null
is 'output is dropped while the cell runs, too' "$(($(stat -c %s "$G/rank1/stdout") <= 150000))" 1
touch "$T/end"
wait $!
set_ spool 1000
is 'at once' "$(stat -c %s "$G/rank0/stdout")" 1000
set_ spool 0
cell 'print("x" * 5000)' "$G/rank0/cell"
is 'all again' "$(stat -c %s "$G/rank0/stdout")" 6001
exec 5<&-

# timeout: ends the cell, the rank lives on
set_ timeout 0.3
is 'too long' "$(errno write "$G/cell" 'while True: pass')" ETIMEDOUT
like 'the text' "$(tail -n 1 "$G/error")" 'ETIMEDOUT.*longer than timeout 0.3'
like 'its state' "$(cat "$G/cells/last/status")" 'ETIMEDOUT'
set_ timeout 1000
is 'a cell in time is not cut off' "$(errno write "$G/cell" 'y = 1')" 0
set_ timeout 0.3
set_ timeout off
is 'without a timeout a cell may last' "$(errno write "$G/cell" 'import time; time.sleep(0.5)')" 0

# free: events report the freed memory
cell 'a = []; a.append(a); del a; import gc; gc.disable()
b = []; b.append(b); del b'
exec 5<"$G/events"
set_ free
like 'free' "$(await 5 freed)" 'freed rank=[01] .*objects'
exec 5<&-

# autogc: settable at any time
is 'on by default' "$(grep autogc "$G/ctl")" 'autogc on'
is 'off' "$(errno write "$G/ctl" $'autogc off\n')" 0
is 'it shows' "$(grep autogc "$G/ctl")" 'autogc off'
leak='import gc, weakref; gc.disable()
class C: pass
c = C(); c.me = c; r = weakref.ref(c); del c
1 / 0'
fails cell "$leak"
is 'nothing was collected' "$(value 'r() is None')" False
set_ autogc on
fails cell "$leak"
is 'after a failed cell' "$(value 'r() is None')" True

# idle: an unused group is stopped, and a cell starts it again
exec 5<"$G/events"
set_ idle 0.2
await 5 'state stopped' >/dev/null
is 'an idle group is stopped' "$(key "$G/status" state)" stopped
is 'no engine' "$(rank_pids)" ''
set_ idle off
set_ start
is 'a cell longer than idle is taken' "$(errno nonblock "$G/cell" 'import time; time.sleep(0.4)')" 0
set_ idle 0.1
story=$(upto 5 'cell .* start'; upto 5 'cell .* ok ')
set_ idle off
[[ ! ${story##* start} =~ idle ]] || bad "a group is stopped as idle while a cell runs: $story"
exec 5<&-

# clones
printf 'stop\nsize 3\ngrace 1.5\nenv A=b\ntimeout 9\nautogc off\nspool 12345\n' >"$G/ctl" || bad 'settings'
mkdir "$M/b" || bad mkdir
cat "$G/ctl" >"$M/b/ctl" || bad 'clone'
is 'the same' "$(cat "$M/b/ctl")" "$(cat "$G/ctl")"
mkdir "$M/other" || bad mkdir
printf '%s\n' 'hosts h1:2 h2:2' 'launcher here' 'engine /x' 'master_addr 192.0.2.1' 'env C=d' 'preload json' \
	'external 1' 'linger 1' >"$M/other/ctl" || bad 'settings of another group'
cat "$G/ctl" >"$M/other/ctl" || bad 'clone'
is 'nothing of its own is left' "$(cat "$M/other/ctl")" "$(cat "$G/ctl")"
is 'its ranks' "$(cell 'import os; v = os.environ["A"], world_size' "$M/b/cell" && cat "$M/b/vars/v")" "('b', 3)"

# a path that leads into a mount in any way is refused at once: the daemon never waits for itself
mkdir "$M/outside"
ln -s "$M/group" "$T/link"
ln -s link/../group "$T/second"
for path in "$M/group" "$M" "$M/../mnt/./group/rank0" "$T/link" "$T/link/vars" "$T/second"; do
	for setting in cwd python; do
		is "$setting $path is refused" "$(errno write "$M/outside/ctl" "$setting $path")" EINVAL
	done
done
like 'error says what would be right' "$(tail -n 1 "$M/outside/error")" 'in a ddipfs mount.*want a path outside'
ln -s "$T" "$T/good"
ln -s loop "$T/loop"
is 'a link to a directory outside is taken' "$(errno write "$M/outside/ctl" "cwd $T/good/good")" 0
is 'a circle of links is ELOOP' "$(errno write "$M/outside/ctl" "cwd $T/loop")" ELOOP
is 'a directory that is not there is ENOENT' "$(errno write "$M/outside/ctl" "cwd $T/nothing/../here")" ENOENT
rm "$T"/link "$T/second" "$T/good" "$T/loop"
rmdir "$M/outside"

# what is queued before the first start does not outlive the ranks that it was for
mkdir "$M/fresh"
exec 3>"$M/fresh/vars/x" # a name that is being written can be removed
for setting in 'size 3' 'hosts local:5' 'hosts local'; do
	is "rm before the first start, and $setting" \
		"$(errno unlink "$M/fresh/vars/x") $(errno write "$M/fresh/ctl" "$setting")" '0 0'
	like 'error says that the removal was dropped' "$(tail -n 1 "$M/fresh/error")" 'ECANCELED .*the size of the group has changed'
done
exec 3>&-
echo stop >"$M/fresh/ctl"
rmdir "$M/fresh"

# mounted over the directory in which it was started: ranks work in the parent
unmount
(cd "$M" && "$BUILD/ddipfs" -o "python=$PLAIN_PYTHON,backend=none,size=1" .) || bad 'ddipfs . in the directory itself'
is 'the directory above is where they work' "$(key "$G/ctl" cwd)" "$T"
is 'and they do' "$(value 'import os; os.getcwd()')" "'$T'"
unmount

mount_plain -o 'size=1,fsname=a\,b\\c'
is 'a comma in an option of FUSE' "$(findmnt -n -o SOURCE "$M")" 'a,b\c'
