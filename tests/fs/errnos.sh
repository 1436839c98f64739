#!/usr/bin/env bash
# Whatever number an engine refuses with, its reader gets an errno that the kernel takes for one of this request alone:
# ENOSYS would switch an operation off for the life of the mount, and an answer with one of the kernel's own is dropped.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=1
daemon=$(daemon_pid)
cell 'import _ddip
text, number = "no array", 0
refuse = _ddip.error
def error(tag, no, *rest):
    global number
    number += 1
    refuse(tag, number - 1, *rest)
_ddip.error = error'

# The n-th request is refused with the number n, up to beyond what an errno may be. Some errnos make the kernel or Python
# ask again.
"$PLAIN_PYTHON" - "$G/vars/text.npy" >"$T/got" <<'END'
import errno
import os
import sys

seen = set()
for _ in range(4200):
    try:
        os.close(os.open(sys.argv[1], os.O_RDONLY))
        print("it was opened")
    except OSError as e:
        seen.add(e.errno)
print(*(no for no in seen if no == errno.ENOSYS or not 0 < no < 512))
print("too few" if len(seen) < 500 else "many")
END
is 'what the reader got' "$(cat "$T/got")" $'\nmany'
ok test "$(value number)" -ge 4200
log=$(cat "$(readlink -f "/proc/$daemon/fd/2")")
like 'the log' "$log" 'ENOSYS.* EIO'
like 'the log' "$log" '4100.* EIO'

# all operations are still there
for what in open flush create fsync; do
	case $what in
	open) is "$what" "$(cat "$G/rank0/vars/text")" 'no array' ;;
	flush) fails cell 'raise SystemExit(3)' ;;
	create) ok sh -c 'echo 5 >"$1"' sh "$G/vars/five" ;;
	fsync) is "$what" "$(errno fsync "$G/cell" 'six = 6')" 0 ;;
	esac
done
is 'what was created' "$(value 'five + six')" 11
is 'the daemon' "$(daemon_pid)" "$daemon"
unmount
