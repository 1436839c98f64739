#!/usr/bin/env bash
# fusermount3 -u succeeds at any moment at which nobody uses the mount: what raises inotify's events holds nothing. The
# daemon ends then, although the file system is still in use for that.
. "$(dirname "$0")/../lib.sh"

ROUNDS=${COUNT:-50}
busy=0
for ((i = 0; i < ROUNDS; i++)); do
	mount_plain -o size=1
	daemon=$(daemon_pid)
	cell 'for i in range(500):
    globals()[f"name{i}"] = i
    print(i)'
	fusermount3 -u "$M" 2>"$T/why" || {
		busy=$((busy + 1))
		unmount
	}
	gone "$daemon"
done
is "unmounts of $ROUNDS that failed" "$busy" 0
[ "$busy" = 0 ] || tail -n 1 "$T/why"
