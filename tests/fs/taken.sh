#!/usr/bin/env bash
# An ordinary user mounts although another has taken the names of his directories in /var/tmp and /tmp, where he cannot
# remove them; and unmounts right after a cell.
. "$(dirname "$0")/../lib.sh"

[ "$(id -u)" = 0 ] && unshare -m true || skip 'only root can be two other users'
for user in nobody daemon; do
	id "$user" >/dev/null || skip "there is no user $user"
done
setpriv --reuid nobody --regid nogroup --clear-groups "$PLAIN_PYTHON" -c '' || skip "others cannot run $PLAIN_PYTHON"

# Calls all() where /media, /tmp and /var/tmp are new, and everybody may mount.
inside() {
	export -f all as
	export BUILD PLAIN_PYTHON
	# shellcheck disable=SC2016 # its own words
	unshare -m "$BASH" -c '
		mount -t tmpfs none /media && mount -t tmpfs none /var/tmp && mount -t tmpfs none /tmp &&
			chmod 755 /media && chmod 1777 /var/tmp /tmp && mknod /media/fuse c 10 229 && chmod 666 /media/fuse &&
			mount --bind /media/fuse /dev/fuse || exit 77
		all'
}

as() { # USER COMMAND…
	setpriv --reuid "$1" --regid nogroup --clear-groups env -i PATH="$PATH" HOME=/media "${@:2}"
}

all() {
	local uid
	uid=$(id -u nobody)
	cp "$BUILD/ddipfs" "$BUILD/ddip-engine" "$BUILD/ddip_engine.so" /media
	mkdir /media/mnt
	chown nobody /media/mnt
	as daemon mkdir -m 777 "/var/tmp/ddipfs-$uid" "/tmp/ddipfs-$uid"
	for _ in 1 2 3 4 5; do
		as nobody /media/ddipfs -o "python=$PLAIN_PYTHON,backend=none,size=1" /media/mnt 2>/media/said || break
		as nobody sh -c 'echo "for i in range(500): globals()[f\"name{i}\"] = i" | cat >/media/mnt/group/cell'
		as nobody fusermount3 -u /media/mnt || echo 'the mount is busy'
	done
	sed 's/^[^]]*]: //; s/[.][A-Za-z0-9]\{6\} serves/.XXXXXX serves/' /media/said
	(cd / && find var/tmp tmp -mindepth 1 -maxdepth 1 -printf '%p %u %m\n' | sed 's/[.][A-Za-z0-9]\{6\} /.XXXXXX /' | sort)
	find "/var/tmp/ddipfs-$uid" "/tmp/ddipfs-$uid" -mindepth 1
}

uid=$(id -u nobody)
out=$(inside 2>&1) || { [ $? != 77 ] || skip 'no device can be made'; }
is 'what was said, and is there' "$out" "/var/tmp/ddipfs-$uid is not a directory of yours with mode 0700
/var/tmp/ddipfs-$uid.XXXXXX serves
tmp/ddipfs-$uid daemon 777
var/tmp/ddipfs-$uid daemon 777
var/tmp/ddipfs-$uid.XXXXXX nobody 700"
