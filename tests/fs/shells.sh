#!/usr/bin/env bash
# Shells that write a cell by a redirection make exactly one cell, go on when it has ended, and exit with the status
# in the table of ddipfs(4).
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=1
cell 'import time'
printf 'time.sleep(0.1)\n1 / 0\n' >"$T/fails.py"

# Is cat the only process with the cell file open? The shell has closed its own copies by then.
only_cat() {
	local holders
	holders=$(find /proc/[0-9]*/fd -lname "$G/cell" 2>/dev/null | cut -d / -f 3 | uniq)
	[[ $holders =~ ^[0-9]+$ && $(cat "/proc/$holders/comm" 2>/dev/null) =~ ^(cat|busybox)$ ]]
}

# feed WANT: writes the code to the FIFO; if the shell should see the failure, only when cat alone has the file
mkfifo "$T/fifo"
feed() {
	exec 9>"$T/fifo"
	[ "$1" != 1 ] || until_true only_cat
	cat "$T/fails.py" >&9
}

# try SHELL WANT LINE: WANT is whether the shell sees that the cell has failed; 1: its status is not 0; 0: it is 0;
# -: it is 0, and it does not even wait (its process ends with this close). The user is told once: by a message of the
# program, or by a line of ddipfs.
try() {
	local shell=$1 want=$2 line=$3 n status now
	n=$(($(readlink "$G/cells/last") + 1))
	[[ $line != *fifo* ]] || feed "$want" &
	# shellcheck disable=SC2086 # `busybox sh` is two words
	$shell -c "$line" 2>"$T/said"
	status=$?
	[ "$want" = - ] || is "$shell has waited for: $line" "$(state $n)" error
	[ "$want" = 1 ] && [ $status -eq 0 ] && bad "$shell does not see the failure of: $line"
	[ "$want" != 1 ] && [ $status -ne 0 ] && bad "$shell sees the failure of: $line (correct the manual)"
	# a shell that does not wait: its cell is queued, at the latest, when its last copy is closed
	while now=$(readlink "$G/cells/last") && [ "$now" -lt "$n" ]; do :; done
	wait_cell "$n" >/dev/null
	until_true [ -s "$T/said" ]
	is "$shell tells once that this failed: $line" "$(grep -c '' "$T/said"): $(cat "$T/said")" "1: $(cat "$T/said")"
	is "$shell makes one cell by: $line" "$(readlink "$G/cells/last")" "$n"
}

# Each row: the shell, then what WANT is after
#   echo CODE > cell, cat FILE > cell, cat FILE | cat > cell, { cat FILE; cat FILE; } > cell, cp FILE cell
# if that is the last command of `sh -c`, and, behind a slash where it differs, if another command follows.
tried=0
while read -r shell echo cat pipe group cp; do
	command -v "$shell" >/dev/null || continue
	tried=$((tried + 1))
	next='exit $?'
	[ "$shell" != fish ] || next='exit $status'
	[ "$shell" != busybox ] || shell='busybox sh'
	for row in "$echo echo 'time.sleep(0.1); 1 / 0' >'$G/cell'" \
		"$cat cat '$T/fifo' >'$G/cell'" \
		"$pipe cat '$T/fifo' | cat >'$G/cell'" \
		"$group { cat '$T/fails.py'; cat '$T/fails.py'; } >'$G/cell'" \
		"$cp cp '$T/fails.py' '$G/cell'"; do
		wants=${row%% *} line=${row#* }
		[ "$shell" != fish ] || line=${line//\{/begin;} line=${line//\}/end}
		try "$shell" "${wants%/*}" "$line"
		try "$shell" "${wants#*/}" "$line; $next"
	done
done <<'END'
bash    0   1   1 0   1
dash    0   0   1 0   1
busybox 0   1/0 1 0   1
mksh    0   0   1 0   1
ksh93   -/0 1/0 1 1/0 1
zsh     0   1   1 1/0 1
fish    0   1   1 0   1
yash    0   0   0 0   1
END
[ $tried -gt 0 ] || bad 'no shell was there to be tried'

# writes of one program before and after a child are one cell, also if the opener's own copies are closed
n=$(readlink "$G/cells/last")
exec 3>"$G/cell"
echo 'a = 1' >&3
echo 'b = a + 1' >&3
is 'a builtin closes a copy: nothing is submitted yet' "$(readlink "$G/cells/last")" "$n"
exec 3>&-
is 'the last close submits all of it' "$(cat "$G/cells/last/source")" $'a = 1\nb = a + 1'
is 'and waited for it' "$(state)" ok

# the opener exits before the writers do: the last writer submits
n=$(readlink "$G/cells/last")
mkfifo "$T/wrote" "$T/both" "$T/first" "$T/second"
sh -c "exec >'$G/cell'
{ echo 'c = 1'; echo >'$T/wrote'; read x <'$T/first'; } &
{ read x <'$T/wrote'; echo 'd = 2'; echo >'$T/both'; read x <'$T/second'; } &"
read -r _ <"$T/both"
is 'writers are left: nothing is submitted' "$(readlink "$G/cells/last")" "$n"
echo >"$T/first"
echo >"$T/second"
while now=$(readlink "$G/cells/last") && [ "$now" -le "$n" ]; do :; done
wait_cell "$(readlink "$G/cells/last")" >/dev/null
is 'one cell of both' "$(cat "$G/cells/last/source")" $'c = 1\nd = 2'
is 'that ran' "$(value 'c + d')" 3

# a writer moves its copy back and forth, as a shell does for redirections, while others close theirs
n=$(readlink "$G/cells/last")
"$PLAIN_PYTHON" - "$G/cell" "$T/end" <<'END'
import os, sys
cell, null, begun = os.open(sys.argv[1], os.O_WRONLY), os.open("/dev/null", os.O_WRONLY), os.pipe()
if not os.fork():
    os.dup2(cell, 1)
    os.close(cell)
    os.write(1, b"e = 3\n")
    os.close(begun[1])
    while not os.path.exists(sys.argv[2]):
        os.dup2(1, 10)
        os.dup2(null, 1)
        os.dup2(10, 1)
        os.close(10)
    os.write(1, b"f = 4\n")
    os._exit(0)
os.close(begun[1])
os.read(begun[0], 1)
if os.fork():
    os._exit(0)
for _ in range(800):
    if not os.fork():
        os._exit(0)
    os.wait()
open(sys.argv[2], "w").close()
END
while now=$(readlink "$G/cells/last") && [ "$now" -le "$n" ]; do :; done
wait_cell "$(readlink "$G/cells/last")" >/dev/null
is 'none is overlooked' "$(cat "$G/cells/last/source")" $'e = 3\nf = 4'

# the same on a terminal
printf 'print("quiet")' >"$T/good.py"
if command -v script >/dev/null; then
	for shell in bash dash; do
		guarded script -qec "$shell -c 'echo \"1 / 0\" >$G/cell; cat $T/good.py >$G/cell; echo said'" \
			/dev/null </dev/null >"$T/said" || bad "script: $?"
		n=$(($(readlink "$G/cells/last") - 1))
		is "what a terminal shows with $shell" "$(tr -d '\r' <"$T/said")" \
			"ddipfs: cell $n failed on rank 0: ZeroDivisionError: division by zero (cells/$n/traceback)
said"
	done
fi
