#!/usr/bin/env bash
# The verb `clone`: its words, its errors, and its place in the queue; without torch.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=3
mkfifo "$T/gate"

line() {
	errno write "$G/ctl" "$1"$'\n'
}

is 'no engine' "$(line 'clone 0 1')" ESRCH
cell 'def twice(x): return x * factor
x, factor = [rank], 2 + rank'
while IFS='|' read -r text error; do
	is "'$text'" "$(line "$text")" "$error"
	[ "$error" = 0 ] || is "and what is wrong with '$text'" "$(tail -n 1 "$G/error" | grep -c clone)" 1
done <<END
clone|EINVAL
clone 0|EINVAL
clone 0 0|EINVAL
clone 0 0-1|EINVAL
clone 0-1 2|EINVAL
clone 3 1|EINVAL
clone 0 3|EINVAL
clone x 1|EINVAL
clone 0 all 1|EINVAL
clone all 1|EINVAL
clone 0 -1|EINVAL
END
is 'nothing has changed' "$(cat "$G"/rank?/vars/x | xargs)" '[0] [1] [2]'
is 'to one' "$(line 'clone 2 0')" 0
is 'it has it' "$(cat "$G"/rank?/vars/x | xargs)" '[2] [1] [2]'
cell 'factor *= 10; y = twice(1), rank, world_size'
is 'functions use the variables of their rank' "$(cat "$G/rank0/vars/y")" '(40, 0, 3)'
is 'to a list' "$(line 'clone 1 0,2')" 0
is 'all have it' "$(cat "$G"/rank?/vars/x | xargs)" '[1] [1] [1]'
is 'nothing to tell' "$(: >"$G/error"; line 'clone 1 all'; cat "$G/error")" 0

# the place in the queue: behind what was submitted before it, before what comes after it
cell 'x = rank'
submit "open('$T/gate').read() if rank == 1 else None; x = rank + 5"
line 'clone 1 0' >"$T/outcome" &
writer=$!
until_true grep -q '^clone' "$G/queue"
submit 'z = x'
echo >"$T/gate"
wait "$writer"
is 'the outcome' "$(cat "$T/outcome")" 0
wait_cell "$n" >/dev/null
is 'what was copied' "$(cat "$G"/rank?/vars/z | xargs)" '6 6 7'

# dropped from the queue, and the writer's interrupt
submit "open('$T/gate').read() if rank == 1 else None"
for how in 'echo cancel >"$G/ctl"' 'kill -INT "$(cat "$T/pid")"'; do
	"$PLAIN_PYTHON" -c 'import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: None)
open(sys.argv[2], "w").write(str(os.getpid()))
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, b"clone 1 0")
try:
    os.close(fd)
except OSError as e:
    print(e.errno)' "$G/ctl" "$T/pid" >"$T/outcome" 2>"$T/told" &
	writer=$!
	until_true grep -q '^clone' "$G/queue"
	eval "$how"
	wait "$writer"
	cat "$T/outcome" >>"$T/outcomes"
	is "$how: it is gone" "$(grep -c '^clone' "$G/queue")" 0
done
is 'both are told' "$(xargs <"$T/outcomes")" '125 4'
echo >"$T/gate"
wait_cell "$n" >/dev/null

# what cannot be copied is named, and nothing but that: an error
cell 'import threading
x = rank'
echo 'lock, gen, log = threading.Lock(), iter(()), open("/dev/null")
gen = (i for i in ())' >"$G/rank0/cell"
: >"$G/error"
is 'in part' "$(line 'clone 0 1'; cat "$G/rank1/vars/x")" "0
0"
is 'the rest' "$(grep -c 'rank 1 has not: lock: .*; gen: .*; log: an open file' "$G/error")" 1
is status "$(key "$G/status" state)" idle
echo reset >"$G/ctl"
echo 'log = open("/dev/null")' >"$G/rank0/cell"
is 'nothing at all' "$(line 'clone 0 1')" EOPNOTSUPP
is 'the first of one word' "$(tail -n 1 "$G/error" | grep -c 'rank 1: nothing was copied: log: an open file')" 1
is 'an empty namespace' "$(line 'clone 2 1')" 0
