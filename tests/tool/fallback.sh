#!/usr/bin/env bash
# Where nothing can be mounted, `ddip mount` serves a socket and says so, and the tool finds it.
. "$(dirname "$0")/../lib.sh"

ddip=$BUILD/ddip
unset DDIP_MOUNT DDIP_GROUP XDG_RUNTIME_DIR
options=(-o "python=$PLAIN_PYTHON,size=2,backend=none")
if [ -z "${DDIP_TEST_NO_MOUNT:-}" ] && { [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; }; then
	skip 'only root can hide /dev/fuse from a program'
fi

# without COMMAND…: runs it in a mount namespace whose /dev has no fuse
without() {
	[ -z "${DDIP_TEST_NO_MOUNT:-}" ] || { "$@"; return; }
	# shellcheck disable=SC2016
	unshare -m "$BASH" -c '
		mkdir -p "$0"
		mount -t tmpfs none "$0"
		for name in null zero full random urandom; do
			: >"$0/$name"
			mount --bind "/dev/$name" "$0/$name"
		done
		mount --rbind "$0" /dev
		exec "$@"' "$T/dev" "$@"
}

# broken COMMAND…: runs it with a /dev/fuse that can be opened but not mounted
broken() {
	[ -z "${DDIP_TEST_NO_MOUNT:-}" ] || { "$@"; return; }
	# shellcheck disable=SC2016
	unshare -m "$BASH" -c 'mount --bind /dev/null /dev/fuse && exec "$@"' - "$@"
}

# ended MOUNT: unmounts it and waits until everything that ran there has exited
ended() {
	local pids
	pids=$(others)
	ok "$ddip" umount "$1"
	# shellcheck disable=SC2086 # a list
	gone $pids
}

mkdir "$M"
said=$(without "$BUILD/ddipfs" "${options[@]}" "$M" 2>&1)
is 'ddipfs alone ends with a status of its own' $? 3
like 'it names the other way' "$said" 'ddipfs -s SOCKET'
said=$(without "$ddip" mount "${options[@]}" "$M" 2>&1) || bad "ddip mount: $said"
like 'ddip mount says where it serves' "$said" "served at $M/ddip.sock"
is 'it says so once' "$(grep -c 'nothing can be mounted here' <<<"$said")" 1
is 'the directory that was named finds the socket' "$("$ddip" -m "$M" exec -a rank | sort | xargs)" '0: 0 1: 1'
is 'so does the variable that names it' "$(DDIP_MOUNT=$M "$ddip" exec '6 * 7')" 42
said=$(broken "$ddip" mount "${options[@]}" "$M" 2>&1) && bad 'a directory was served twice'
like 'a second mount says why not' "$said" "$M/ddip.sock is served by a ddipfs already"
daemon=$(pgrep -f -- "-s $M/ddip.sock")
kill -KILL "$daemon"
gone "$daemon"
ok broken "$ddip" mount "${options[@]}" "$M" 2>"$T/said"
is 'the socket of a killed daemon is replaced' "$(DDIP_MOUNT=$M "$ddip" exec '6 * 7')" 42
ended "$M"
is 'the socket goes with its daemon' "$(ls "$M")" ''

said=$(HOME=$T broken "$ddip" mount "${options[@]}" 2>&1) || bad "ddip mount: $said"
place=$DDIP_STATE/ddipfs-$(id -u)/ddip.sock
like 'without a place the socket is in the state directory' "$said" "served at $place"
hidden=(alone) # from the mounts of other tests
unshare -m true 2>/dev/null || hidden=()
is 'where the tool looks for it' "$("${hidden[@]}" "$ddip" exec '6 * 7')" 42
ended "$place"

# if another user has taken that directory, one of another name holds the socket, and is found
rm -rf "$DDIP_STATE/ddipfs-$(id -u)"
mkdir -m 777 "$DDIP_STATE/ddipfs-$(id -u)"
chown 65534 "$DDIP_STATE/ddipfs-$(id -u)"
said=$(HOME=$T broken "$ddip" mount "${options[@]}" 2>&1) || bad "ddip mount: $said"
like 'another directory holds the socket' "$said" "served at $DDIP_STATE/ddipfs-$(id -u)[.][^./]+/ddip.sock"
is 'the tool looks there' "$(alone "$ddip" exec '6 * 7')" 42
is 'nothing is in the other' "$(ls -A "$DDIP_STATE/ddipfs-$(id -u)")" ''
ended "$(echo "$DDIP_STATE/ddipfs-$(id -u)".*/ddip.sock)"
