#!/usr/bin/env bash
# Which place the tool uses if none is named, whatever other users put there.
. "$(dirname "$0")/../lib.sh"

ddip=$BUILD/ddip
unset DDIP_MOUNT DDIP_GROUP XDG_RUNTIME_DIR
[ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip 'only root can act as another user'

# listen SOCKET: listens there as another user, and adds to $T/heard how many bytes each client sends
listen() {
	rm -f "$T/listens"
	"$PLAIN_PYTHON" - "$1" "$T/heard" "$T/listens" <<-'END' &
		import os, socket, sys
		path, heard, listens = sys.argv[1:]
		log = open(heard, "w", buffering=1)
		ready = open(listens, "w")
		server = socket.socket(socket.AF_UNIX)
		server.bind(path)
		os.chmod(path, 0o777)
		os.setuid(65534)  # who calls listen(2) is the peer of those who connect
		server.listen()
		ready.write("yes")
		ready.close()
		while True:
		    client = server.accept()[0]
		    print(len(client.recv(1 << 16)), file=log)
		    client.close()
	END
	listener=$!
	until_true test -s "$T/listens" || give_up 'nobody listens'
}

# heard SOCKET: prints how many bytes all clients together have sent until now
heard() {
	"$PLAIN_PYTHON" -c 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(b"end")' "$1"
	until_true grep -qx 3 "$T/heard"
	awk '{ n += $1 } END { print n - 3 }' "$T/heard"
}

# another user's socket where the daemon's own would be
place=$DDIP_STATE/ddipfs-$(id -u)/ddip.sock
mkdir -m 700 "${place%/*}"
listen "$place"
said=$(alone "$ddip" exec 1 2>&1)
is "another user's socket is not found" $? 3
like 'it says that there is nothing' "$said" 'nothing is mounted'
said=$(guarded "$ddip" -m "$place" exec 1 2>&1)
is "another user's socket is refused" $? 3
like 'it says whose it is' "$said" "$place: .* another user: nobody"
said=$(DDIP_MOUNT=${place%/*} guarded "$ddip" exec 1 2>&1)
is "the directory of another user's socket is refused" $? 3
like 'so says the variable' "$said" "$place: .* another user: nobody"
guarded "$ddip" umount "$place" 2>/dev/null && bad 'it is ended'
is 'nothing was sent there' "$(heard "$place")" 0
kill "$listener"
wait "$listener" 2>/dev/null
rm "$place"

# nor does one hold the tool up that accepts no connection
"$PLAIN_PYTHON" - "$place" "$ddip" <<-'END' || bad "another user's listener that is full"
	import os, socket, subprocess, sys
	place, ddip = sys.argv[1:]
	server = socket.socket(socket.AF_UNIX)
	server.bind(place)
	os.chown(place, 65534, 65534)
	server.listen(0)
	waiting = []
	while True:
	    waiting.append(socket.socket(socket.AF_UNIX))
	    waiting[-1].setblocking(False)
	    try:
	        waiting[-1].connect(place)
	    except BlockingIOError:
	        break
	tool = subprocess.run([ddip, "-m", place, "exec", "1"], capture_output=True, text=True, timeout=60)
	assert tool.returncode == 3 and "another user: nobody" in tool.stderr, tool
END
rm "$place"

# nor plain files of another user, who sees what is written there
mkdir -p "$place/group"
touch "$place/version" "$place/group/status" "$place/group/cell"
said=$(alone "$ddip" exec 1 2>&1)
is 'a directory in place of the socket is not found' $? 3
like 'it says that there is nothing' "$said" 'nothing is mounted'
is 'nothing was written there' "$(cat "$place/group/cell")" ''
rm -r "$place"

# a mount is found even if the directory for other places cannot be used
mount_plain -o size=1
mkdir "$T/tmp"
is 'a mount is found' "$(TMPDIR=$T/tmp alone "$ddip" exec '6 * 7')" 42
is 'no directory was made for that' "$(ls -A "$T/tmp")" ''
touch "$T/tmp/ddip-$(id -u)"
is 'a mount is found though a file is in the way' "$(TMPDIR=$T/tmp alone "$ddip" exec '6 * 7')" 42
rm "$T/tmp/ddip-$(id -u)"
mkdir "$T/tmp/ddip-$(id -u)"
chown 65534 "$T/tmp/ddip-$(id -u)"
is "a mount is found though another user's directory is in the way" "$(TMPDIR=$T/tmp alone "$ddip" exec '6 * 7')" 42
unmount
said=$(TMPDIR=$T/tmp alone "$ddip" exec 1 2>&1)
is "another user's directory holds no place" $? 3
like 'it says that there is nothing' "$said" 'nothing is mounted'
# what others have put in the place of the directory for new mounts is left alone: another name serves, every time
private_path() {
	TMPDIR=$T/tmp "$PLAIN_PYTHON" -c 'import sys
sys.path.insert(0, sys.argv[1])
from ddip.mounts import mount
print(mount.private_path())' "$ROOT/magics" 2>"$T/said"
}
mkdir "$T/own"
for kind in directory file link; do
	rm -rf "$T/tmp"
	mkdir "$T/tmp"
	taken=$T/tmp/ddip-$(id -u)
	case $kind in
	directory) mkdir "$taken" ;;
	file) touch "$taken" ;;
	link) ln -s "$T/own" "$taken" ;;
	esac
	chown -h 65534 "$taken"
	path=$(private_path)
	like "another user's $kind: the place" "$path" "^${taken}[.][^./]+/ddip$"
	like "another user's $kind: it is said" "$(cat "$T/said")" "^ddip: $taken is not a directory of yours: ${path%/ddip} serves$"
	is "another user's $kind: the mode" "$(stat -c '%u %a' "${path%/ddip}")" "$(id -u) 700"
	is "another user's $kind: the next time" "$(private_path)$(cat "$T/said")" "$path"
done
is 'nothing was written there' "$(ls -A "$T/own")" ''
