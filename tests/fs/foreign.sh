#!/usr/bin/env bash
# Other 9P clients work on the socket: diod's and the kernel's v9fs.
. "$(dirname "$0")/../lib.sh"

tried=
socket=$T/socket
mkdir "$M"
"$BUILD/ddipfs" -o "python=$PLAIN_PYTHON,backend=none,size=2" -s "$socket" || give_up "ddipfs -s: status $?"
is 'a cell through the socket' "$("$BUILD/ddip" -m "$socket" exec 'x = rank + 40; x')" 40

if command -v diodcat >/dev/null && command -v diodls >/dev/null; then
	tried+=' diod'
	is 'diodcat reads a file' "$(guarded diodcat -s "$socket" -a / version)" "$("$BUILD/ddipfs" -V)"
	is 'diodcat reads a variable' "$(guarded diodcat -s "$socket" -a / group/rank1/vars/x)" 41
	like 'diodls lists' "$(guarded diodls -s "$socket" -a / group | xargs)" 'ctl cell steer watch stream status .* vars locals rank0 rank1$'
else
	echo 'not tried: diodcat and diodls (apt: diod)'
fi

if [ "$(id -u)" = 0 ] && { grep -qw 9p /proc/filesystems || modprobe -q 9p 2>/dev/null; }; then
	tried+=' v9fs'
	ok mount -t 9p -o trans=unix,version=9p2000.L,msize=1048576,cache=none "$socket" "$M"
	is 'a mount by the kernel runs cells' "$(cell 'y = x + 1' 2>&1)" ''
	is 'it reads variables' "$(cat "$G/rank1/vars/y")" 42
	fails cp /dev/stdin "$G/cell" <<<'1 / 0'
	is 'it lists' "$(cd "$G/vars" && echo *)" 'x y'
	ok umount "$M"
else
	echo 'not tried: mount -t 9p (needs root, and a kernel with 9p)'
fi

pids=$(others)
ok "$BUILD/ddip" -m "$socket" umount
# shellcheck disable=SC2086 # a list
gone $pids
[ -n "$tried" ] || skip 'no client of others is there: diodcat (apt: diod), a kernel with 9p'
