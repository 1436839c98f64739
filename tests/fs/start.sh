#!/usr/bin/env bash
# Whatever descriptors, signals and limits the caller leaves: a mount works, and ends. Meaningless options are refused
# in one line.
. "$(dirname "$0")/../lib.sh"
needs_mount

plain=(-o "python=$PLAIN_PYTHON" -o backend=none)
mkdir "$M"

# meaningless options
said=$("$BUILD/ddipfs" "${plain[@]}" -o ro,size "$M" 2>&1)
is 'a setting without a value' "$? $said" $'2 ddipfs: a setting has a value, as in -o size=4, which is missing behind size\nTry: ddipfs --help'
said=$("$BUILD/ddipfs" "${plain[@]}" -o nosuch "$M" 2>&1)
like 'an unknown option' "$? $said" '^1 [^'$'\n'']*unknown option\(s\): `-o nosuch'"'"$'\n''[^'$'\n'']*FUSE does not take these options: nosuch$'

# closed standard descriptors do no harm
for closed in '0<&-' '1>&-' '2>&-' '0<&- 1>&- 2>&-'; do
	ok "$BASH" -c "exec \"\$@\" $closed" - "$BUILD/ddipfs" "${plain[@]}" "$M"
	is "$closed: a cell" "$(errno write "$G/cell" 'x = rank')" 0
	is "$closed: its value" "$(cat "$G/rank1/vars/x")" 1
	unmount
done

# SIGCHLD works though it was ignored
if env --ignore-signal=CHLD true 2>/dev/null; then
	ok env --ignore-signal=CHLD "$BUILD/ddipfs" "${plain[@]}" "$M"
	watchdog() {
		pgrep -P "$(daemon_pid)" -x ddipfs-watchdog
	}
	until_true watchdog >"$T/first"
	first=$(cat "$T/first")
	kill -KILL "$first"
	another() {
		[ "$(watchdog || echo "$first")" != "$first" ]
	}
	ok until_true another
	is 'SIGCHLD ignored: a cell' "$(errno write "$G/cell" 'x = rank')" 0
	unmount
fi

# a small stack is enough for a daemon with many ranks
(ulimit -s 256 && exec "$BUILD/ddipfs" "${plain[@]}" "$M") || bad 'with a small stack'
is 'a small stack: a cell' "$(errno write "$G/cell" 'x = rank')" 0
is 'an object' "$(cat "$G/rank1/vars/x")" 1
is 'one over all ranks' "$(cat "$G/vars/x.sum")" 1
echo 7 >"$T/seven"
is 'a push' "$(errno copy "$G/vars/y" "$T/seven")" 0
is 'settings' "$(grep '^backend ' "$G/ctl")" 'backend none'
unmount

# a limit on file sizes loses output, as a full disk does, and nothing else
(ulimit -f 2048 && exec "$BUILD/ddipfs" "${plain[@]}" "$M") || bad 'with a limit of file sizes'
is 'more output than a file may have' "$(errno write "$G/cell" 'for _ in range(3000): print("x" * 1000)
y = 5')" 0
like 'it says so' "$(cat "$G/error")" 'ENOSPC .*output of rank [01] is lost'
is 'the namespace stays' "$(cat "$G/rank1/vars/y")" 5
head -c 4000000 /dev/zero | tr '\0' 1 >"$T/large"
is 'an object that is larger' "$(errno copy "$G/vars/z" "$T/large")" EFBIG
is 'is not there, and no part of it' "$(errno read "$G/vars/z")" ENOENT
"$PLAIN_PYTHON" - "$G/vars/z" <<'END' || bad 'it is written anew from its beginning'
import errno, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
def refused(what, *args):
    try:
        what(*args)
    except OSError as e:
        assert e.errno == errno.EFBIG, e
    else:
        raise SystemExit(f"{what} went well")
refused(lambda: [os.write(fd, b"1" * 100000) for _ in range(40)])
refused(os.write, fd, b"1")
refused(os.fsync, fd)
os.ftruncate(fd, 0)
os.lseek(fd, 0, os.SEEK_SET)
os.write(fd, b"small")
os.close(fd)
text = open(sys.argv[1]).read()
assert text == "small\n", text[:100]
END
is 'the next cell' "$(errno write "$G/cell" 'y = 6')" 0
unmount
