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
rmdir "$M/a" || bad rmdir
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
