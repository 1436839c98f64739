#!/usr/bin/env bash
# The watchdog touches what it is told to below the mount, and nothing else; a killed one is replaced, and the new one
# knows what the old one knew.
. "$(dirname "$0")/../lib.sh"

# on its own, over a plain directory that it takes for the mount
mkdir -p "$T/root/dir" "$T/else"
touch -d 2001-01-01 "$T/root/dir/kept" "$T/root/top" "$T/else/kept"
touch "$T/root/dir/old"
ln -s ../../else "$T/root/dir/link"
ln -s ../../else/kept "$T/root/dir/file"
mkdir "$T/root/proc"
told() {
	printf '%s\0' "dev $((0x$(stat -c %D "$T/root") >> 8)):$((0x$(stat -c %D "$T/root") & 255))" "$@" |
		"$BUILD/ddipfs" --watchdog "$T/root"
}
told 'c dir/new' 'd dir/old' 'm top' $'c dir/two\nlines' 'm dir/kept'
is 'it makes and removes what it is told' "$(ls "$T/root/dir" | tr '\n' ' ')" 'file kept link new two lines '
is 'it touches what it is told, at the top too' "$(find "$T/root" -name kept -newermt 2002-01-01 -o -name top -newermt 2002-01-01 | wc -l)" 2
before=$(find "$T/else" "$T/root" -printf '%p %T@ %s\n' | sort)
told 'd ../else/kept' 'c ../else/new' 'm ../else/kept' "d $T/else/kept" "c $T/else/new" 'd dir/../../else/kept' \
	'd dir/link/kept' 'c dir/link/new' 'm dir/link/kept' 'm dir/..' 'c dir/' 'd .' 'c ..' 'c ' 'm' '' 'w dir/file' \
	'c ../../../../../../../../../../../../../../../../../../../tmp/new' 'z dir/kept' 'm dir/nothing/at/all' 'm dir/file/'
is 'what is no plain path below the mount is left alone' "$(find "$T/else" "$T/root" -printf '%p %T@ %s\n' | sort)" "$before"

finds_watchdog() { # it takes its name after its start
	watchdog=$(pgrep -P "$daemon" -x ddipfs-watchdog)
}

# a late watchdog leaves a mount alone that has replaced its daemon's mount with the same device number
mount_plain
daemon=$(daemon_pid) || give_up 'no daemon'
until_true finds_watchdog || give_up 'there is no watchdog'
kill -STOP "$watchdog"
kill -KILL "$daemon"
gone "$daemon"
mount_plain
kill -CONT "$watchdog"
gone "$watchdog"
is 'a new mount over a dead one stays' "$(errno write "$G/cell" 'x = 1')" 0
unmount

# a client whose pid the daemon cannot see is not taken for the watchdog, even while there is none: one that dies soon
# after its start is replaced a second later
if [ "$(id -u)" = 0 ] && unshare -p -f true; then
	mkfifo "$T/end"
	# shellcheck disable=SC2016 # its own words
	unshare -p -f "$BASH" -c '"$@"; read -r _ <"$0"' "$T/end" \
		"$BUILD/ddipfs" -o "python=$PLAIN_PYTHON,backend=none,size=1" "$M" &
	namespace=$!
	until_true mountpoint -q "$M"
	cell 'x = 1'
	daemon=$(daemon_pid) || give_up 'no daemon'
	while watchdog=$(pgrep -P "$daemon" -x ddipfs-watchdog); do
		kill -KILL "$watchdog" 2>/dev/null
	done
	is 'it writes' "$(errno write "$G/cell" 'y = 2')" 0
	ok rm "$G/vars/x"
	unmount
	echo >"$T/end"
	wait "$namespace"
fi

# killed: a new one wakes watchers and cleans up after the daemon
command -v inotifywait >/dev/null || skip 'there is no inotifywait'
mount_plain
cell 'x = 1'
daemon=$(daemon_pid) || give_up 'no daemon'
agent=$(pgrep -P "$daemon" -x ddip-agent)
another() { # than the pid $watchdog
	new=$(pgrep -P "$daemon" -x ddipfs-watchdog) && [ "$new" != "$watchdog" ]
}
for i in 1 2; do
	until_true finds_watchdog || give_up 'there is no watchdog'
	kill -KILL "$watchdog"
	until_true another || give_up "no watchdog takes the place of the $i. one that is killed"
done
is 'the daemon goes on' "$(errno write "$G/cell" 'y = 2')" 0
inotifywait -q -m -e create --format '%f' "$G/vars" >"$T/seen" 2>"$T/watch.err" &
watcher=$!
established() {
	[ "$(cat /proc/$watcher/fdinfo/* 2>/dev/null | grep -c '^inotify wd')" = 1 ]
}
until_true established
cell 'from_a_cell = 3'
until_true grep -q from_a_cell "$T/seen" || bad 'watchers are not woken by the new watchdog'
kill $watcher
wait $watcher 2>/dev/null
kill -STOP "$agent" # it cannot end by itself
kill -KILL "$daemon"
gone "$daemon" "$agent" "$new"
unmounted() {
	! grep -qF " $M " /proc/self/mountinfo
}
until_true unmounted || bad 'the new watchdog did not unmount'
