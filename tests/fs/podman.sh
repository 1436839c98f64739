#!/usr/bin/env bash
# Ranks in a real podman container work: what they need is brought along, and nothing is left after the unmount.
. "$(dirname "$0")/../lib.sh"

command -v podman >/dev/null || skip 'there is no podman (apt-get install podman runc)'
[ "$(id -u)" = 0 ] || skip 'a container that is this machine is for root'
podman="podman --root $T/podman --runroot $T/podman-run --cgroup-manager=cgroupfs"
! command -v runc >/dev/null || podman="$podman --runtime runc"
files=$(ulimit -Hn)
mkdir "$T/state"
# this machine's files with a layer on top
# shellcheck disable=SC2086 # words
$podman run -d --name box --network=host --uts=host --ulimit "nofile=$files:$files" --ulimit nproc=4096:4096 \
	-e "DDIP_TEST=${DDIP_TEST:-}" -e DDIP_STATE=/run -e XDG_CACHE_HOME=/run --rootfs /:O sleep infinity \
	>"$T/said" 2>&1 || skip "podman runs no container here: $(tail -n 1 "$T/said")"
# Cleanup after a container's end runs in parallel to podman rm, and while it lasts it mounts podman's storage again.
is_put_away() {
	! pgrep -f "^[^ ]*(podman|conmon) .*$T/podman" && { ! mountpoint -q "$T/podman/overlay" || umount "$T/podman/overlay"; }
}
finish() {
	# shellcheck disable=SC2086 # words
	$podman rm -f -t 0 box
	until_true is_put_away
} >/dev/null 2>&1

mount_plain -o cwd=/ -o hosts=box:2 -o "launcher=$podman" -o linger=5
ok cell 'import os
x = rank + 1
print(os.path.exists("/run/.containerenv"))'
is 'ranks run in the container' "$(cat "$G"/rank?/stdout | xargs)" 'True True'
is 'objects of both' "$(cat "$G/vars/x.gather.json")" '[1, 2]'
is 'a push' "$(echo 7 >"$G/vars/y" && cat "$G"/rank?/vars/y | xargs)" '7 7'
submit 'print("on")
import time; time.sleep(1000)'
until_true grep -q on "$G/cells/$n/rank1/stdout"
is 'an interrupt' "$(errno write "$G/ctl" $'interrupt\n')" 0
like 'ends the cell' "$(wait_cell "$n")" 'EINTR'
unmount
nothing_left() {
	local all
	# shellcheck disable=SC2086 # words
	all=$($podman exec box sh -c 'cat /proc/[0-9]*/stat' 2>/dev/null) # some end meanwhile
	# this container's init does not reap anything
	[ "$all" ] && ! grep -q '(ddip[^)]*) [^ZX]' <<<"$all"
}
until_true nothing_left || bad 'processes are left in the container'
