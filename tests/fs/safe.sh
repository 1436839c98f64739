#!/usr/bin/env bash
# Nobody else gets in: modes, owners, no listening sockets, nothing with a predictable name to prepare for, no
# environment in files that others can read.
. "$(dirname "$0")/../lib.sh"

export SECRET_OF_THE_TEST=dont-tell-anybody-7391
mount_plain
cell 'import os; x = os.environ["SECRET_OF_THE_TEST"]'
spool=$(key "$G/status" spool)

# owners and modes of files and directories: in the mount, of the spools, and above them
is 'owners in the mount' "$(find "$M" ! -user "$(id -u)" | head)" ''
is 'modes in the mount' "$(find "$M" ! -type l -perm /077 | head)" ''
is 'modes of the spools' "$(find "$spool/.." -perm /077 | head)" ''
is 'the directory above' "$(stat -c '%a %u' "$spool/../..")" "700 $(id -u)"

# no listening TCP socket: without torch there is no rendezvous, and control never listens
for pid in $(others) $(rank_pids); do
	for fd in /proc/"$pid"/fd/*; do
		inode=$(readlink "$fd" | sed -n 's/^socket:\[\(.*\)\]$/\1/p')
		[ -z "$inode" ] || ! awk -v i="$inode" '$4 == "0A" && $10 == i { found = 1 } END { exit !found }' \
			/proc/net/tcp /proc/net/tcp6 || bad "process $pid listens on TCP"
	done
done
for pid in $(others) $(rank_pids); do
	for fd in /proc/"$pid"/fd/*; do
		inode=$(readlink "$fd" | sed -n 's/^socket:\[\(.*\)\]$/\1/p')
		[ -z "$inode" ] || is "process $pid has no named or abstract socket" \
			"$(awk -v i="$inode" '$7 == i { print $8 }' /proc/net/unix)" ''
	done
done

# only the daemon has /dev/fuse: an engine that held it would make a dead mount hang
for pid in $(rank_pids); do
	is "descriptors of rank $pid" "$(find "/proc/$pid/fd" -lname '*fuse*')" ''
done

# the environment is not in any file that others can read, nor in an argument
is 'no secret in files' "$(grep -rlsF "$SECRET_OF_THE_TEST" "$spool/.." | head)" ''
printf "%s" "$SECRET_OF_THE_TEST" >"$T/secret"
is 'no secret in arguments' "$(grep -lsF -f "$T/secret" /proc/[0-9]*/cmdline | head)" ''

# another user sees nothing
if [ "$(id -u)" = 0 ]; then
	is 'another user' "$(setpriv --reuid 65534 --clear-groups ls "$M" 2>&1 | grep -c 'Permission denied')" 1
	is 'nor the spools' "$(setpriv --reuid 65534 --clear-groups ls "$spool" 2>&1 | grep -c 'Permission denied')" 1
fi
unmount

# with allow_other: only what the modes permit, which is nothing
if [ "$(id -u)" = 0 ]; then
	chmod 755 "$T" "$TMPDIR" 2>/dev/null
	mount_plain -o allow_other
	cell 'x = 1'
	for what in "$G/status" "$G/rank0/stdout" "$G/vars/x" "$G/ctl"; do
		setpriv --reuid 65534 --clear-groups cat "$what" >"$T/seen" 2>/dev/null && bad "another user reads $what"
		is "what another user sees of $what" "$(cat "$T/seen")" ''
	done
	setpriv --reuid 65534 --clear-groups sh -c "echo 'x = 666' >'$G/cell'" 2>/dev/null &&
		bad 'another user runs a cell'
	is 'x is what it was' "$(cat "$G/vars/x")" 1
	unmount
fi

# with a umask, the group or others may do what the owner may, and no more
if [ "$(id -u)" = 0 ]; then
	somebody() { # GROUP COMMAND…
		setpriv --reuid 65534 --regid "$1" --clear-groups "${@:2}" 2>/dev/null
	}
	mount_plain -o allow_other,umask=007,gid=12345
	is 'the owner and group that the options say' "$(stat -c '%u %g %a' "$G/cell")" "$(id -u) 12345 660"
	is 'directories too' "$(stat -c '%a' "$G" "$G/vars" | xargs)" '550 770'
	is 'what the owner can only read, nobody can write' "$(stat -c '%a' "$G/status")" 440
	ok somebody 12345 sh -c "cp /dev/stdin '$G/cell' <<E
x = 'of the group'
E"
	is 'a member of the group runs cells and reads objects' "$(somebody 12345 cat "$G/vars/x")" 'of the group'
	fails somebody 54321 cat "$G/status"
	unmount
	mount_plain -o umask=022,uid=daemon,gid=video
	is 'an owner and a group by their names' "$(stat -c '%U %G' "$G/ctl")" 'daemon video'
	unmount
	mount_plain -o allow_other,umask=022,uid=65533
	is 'another owner' "$(stat -c '%u %a' "$G/ctl")" '65533 644'
	ok somebody 54321 cp "$G/status" /dev/null
	fails somebody 54321 cp /dev/null "$G/cell"
	unmount
fi
for option in umask=8 umask=1777 umask= uid=nobody-of-this-name gid=nobody-of-this-name uid= gid=-1 uid=4294967295; do
	like "refused: $option" "$("$BUILD/ddipfs" -o "$option" "$M" 2>&1)" "${option%=*}= .*not ${option#*=}"
done

# a place that others have prepared is left alone, and another name serves, also the next time: a link, an open
# directory, one of another user
lie() {
	local place
	rm -rf "$T/state"
	mkdir "$T/state"
	"$@"
	mkdir -p "$M"
	for _ in 1 2; do
		DDIP_STATE=$T/state mount_plain 2>"$T/said"
		place=$(readlink "/proc/$(daemon_pid)/fd/2")
		like "the place: $*" "$place" "^$T/state/ddipfs-$(id -u)[.]......"
		unmount
		like "said: $*" "$(cat "$T/said")" 'not a directory of yours with mode 0700.*ddipfs-[0-9]+[.]...... serves'
	done
	is "places: $*" "$(find "$T/state" -maxdepth 1 -name 'ddipfs-*.*' | wc -l)" 1
	is "nothing was written: $*" "$(find "$T/elsewhere" "$T/state/ddipfs-$(id -u)" -mindepth 1 2>/dev/null)" ''
}
mkdir -m 700 "$T/elsewhere"
lie ln -s "$T/elsewhere" "$T/state/ddipfs-$(id -u)"
lie mkdir -m 777 "$T/state/ddipfs-$(id -u)"
if [ "$(id -u)" = 0 ]; then
	theirs() {
		mkdir -m 700 "$1" && chown 65534 "$1"
	}
	lie theirs "$T/state/ddipfs-0"
fi

# a place that was exported on another machine: DDIP_STATE is made; if it cannot be, the next one serves
mkdir "$T/tmp"
while read -r state tmp place; do
	DDIP_STATE=$state TMPDIR=$tmp mount_plain
	is "the place for DDIP_STATE=$state TMPDIR=$tmp" \
		"$(readlink "/proc/$(daemon_pid)/fd/2" | grep -o "^$place/ddipfs-")" "$place/ddipfs-"
	unmount
	rm -rf "$T/made"
done <<END
$T/made $T/none $T/made
/proc/none $T/tmp $T/tmp
/proc/none $T/none /var/tmp
END

# a mount point that is a link means its target; the mount is found there, and can be ended
mkdir "$T/real"
ln -s "$T/real" "$T/link"
"$BUILD/ddipfs" -o "python=$PLAIN_PYTHON,backend=none" "$T/link" || bad "a link as mount point: $?"
mountpoint -q "$T/real" && pids=$(others) && until_true fusermount3 -q -u "$T/real"
# shellcheck disable=SC2086 # a list
gone $pids
