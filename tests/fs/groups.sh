#!/usr/bin/env bash
# mkdir creates a group, rmdir destroys it; groups are independent of each other.
. "$(dirname "$0")/../lib.sh"

mount_plain
mkdir "$M/a" || bad mkdir
is 'new' "$(key "$M/a/status" state)" new
is 'again' "$(errno mkdir "$M/a")" EEXIST
for name in 'a b' .x a.b "$(printf 'a%.0s' $(seq 300))"; do
	case $(errno mkdir "$M/$name") in
	EINVAL | ENAMETOOLONG) ;;
	*) bad "mkdir '$name'" ;;
	esac
done
printf 'size 1\nbackend none\n' >"$M/a/ctl"
cell 'x = "a"' "$M/a/cell"
cell 'x = "group"'
is 'their own names' "$(cat "$M/a/vars/x" "$G/vars/x" | xargs)" 'a group'
is 'their own cells' "$(readlink "$M/a/cells/last")" 1
is 'rmdir of a live one' "$(errno rmdir "$M/a")" EBUSY
exec 5<"$M/a/events" 6<"$M/a/status"
echo stop >"$M/a/ctl"
kept=$(key "$M/a/status" spool)
mkdir -p "$kept/files/copies" && ln -s "$T" "$kept/files/link" && touch "$kept/files/copies/beside.py"
rmdir "$M/a" || bad rmdir
[ ! -e "$kept" ] || bad "files stay: $(find "$kept")"
[ -d "$T" ] || bad 'a link was followed'
is 'gone' "$(errno read "$M/a/status")" ENOENT
is 'an open live file' "$("$PLAIN_PYTHON" -c "
import errno, os
try:
    while os.read(5, 4096):
        pass
    print('end')
except OSError as e:
    print(errno.errorcode[e.errno])")" ENODEV
exec 5<&- 6<&-
mkdir "$M/a" || bad 'mkdir again'
is 'new again' "$(key "$M/a/status" state)" new
is 'no cells' "$(errno read "$M/a/cells/1/status")" ENOENT
is 'the other one works' "$(cat "$G/vars/x")" group

# every group begins with the mount's options
for name in group b; do
	[ $name = group ] || mkdir "$M/$name"
	is "python of $name" "$(key "$M/$name/ctl" python)" "$PLAIN_PYTHON"
	is "backend of $name" "$(key "$M/$name/ctl" backend)" none
	is "error of $name" "$(cat "$M/$name/error")" ''
done
unmount
mkdir "$T/here"
mount_plain -o "cwd=$T/here,grace=7,env=A=b,timeout=60,quiet"
mkdir "$M/a"
is 'all of them' "$(grep -E '^(cwd|grace|env|timeout|quiet) ' "$M/a/ctl" | sort | xargs)" \
	"cwd $T/here env A=b grace 7 quiet on timeout 60"
is 'so they hold' "$(cell 'import os; [os.getcwd(), os.environ["A"]]' "$M/a/cell"; cat "$M/a/result")" "['$T/here', 'b']"
rmdir "$T/here"
mkdir "$M/c" || bad 'mkdir with an option that cannot be set any more'
like 'that is told in its error' "$(cat "$M/c/error")" "ENOENT cwd $T/here: cwd: $T/here: No such file"
is 'and the others are set' "$(key "$M/c/ctl" grace)" 7

# a group that was removed while something held a file in it takes no memory afterwards
"$PLAIN_PYTHON" - "$M" "$(daemon_pid "$M")" <<'END' || bad 'removed groups keep their memory'
import errno, os, sys

mount, daemon = sys.argv[1:]


def memory():
    """Bytes of the daemon that are of no file."""
    with open(f"/proc/{daemon}/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))


def rounds(n):
    for _ in range(n):
        os.mkdir(mount + "/x")
        held = [os.open(f"{mount}/x/{name}", os.O_PATH) for name in ("rank0/vars", "rank0/stdout", "cells", "ctl")]
        read = open(mount + "/x/status")
        os.rmdir(mount + "/x")
        for fd in held:
            try:
                os.stat(f"/proc/self/fd/{fd}")
            except OSError as e:
                assert e.errno in (errno.ENODEV, errno.ESTALE), e
            os.close(fd)
        try:
            read.close()
        except OSError as e:
            assert e.errno == errno.ENODEV, e


rounds(300)
before = memory()
rounds(1000)
grown = memory() - before
assert grown < 3 << 20, f"{grown // 1000} bytes a group"
END

# the log has a bound; its last lines stay, and who writes it goes on
log=$(key "$M/a/status" spool)/../ddipfs.log
# all in one write, as the daemon may look at any moment: what is before it is a hole
printf '\nthe last line\n' | dd of="$log" oflag=seek_bytes seek=5M conv=notrunc status=none
emptied() { [ "$(stat -c %s "$log")" -lt 5000000 ]; }
until_true emptied
is 'what it had is beside it' "$(tail -n 1 "$log.1")" 'the last line'
mkdir "$M/d"
like 'what comes after that is in it' "$(cat "$log")" 'd: ENOENT: cwd'
