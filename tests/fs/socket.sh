#!/usr/bin/env bash
# A daemon that serves a socket keeps its way in: what removes the socket, or its directory, leaves no group that nobody
# reaches.
. "$(dirname "$0")/../lib.sh"

export PATH=$BUILD:$PATH
mkdir "$T/run"
"$BUILD/ddipfs" -s "$T/run/socket" -o "size=2,backend=none,python=$PLAIN_PYTHON" &
export DDIP_MOUNT=$T/run/socket
until_true test -S "$DDIP_MOUNT"
ddip exec 'x = 1'
rm -r "$T/run"
fails ddip exec 'x'
mkdir "$T/run"
until_true test -S "$DDIP_MOUNT"
is 'the group is the same' "$(ddip exec -r 1 'x')" 1
is 'for its user alone' "$(stat -c %a "$DDIP_MOUNT")" 600

ddip umount || bad umount
