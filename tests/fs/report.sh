#!/usr/bin/env bash
# The report of a cell, whatever it did: short, the same as text and as JSON, and it names the cause. What was lost with
# a rank is said once, to who writes the next cell.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=3 -o history=300 -o grace=0.2 -o killafter=2
cell pass || bad 'a first cell'
ok guarded "$PLAIN_PYTHON" "$ROOT/tests/fs/report.py" "$G" 200
echo 'timeout off' >"$G/ctl"

# a report is the same whenever it is read, and its owner may have gone
cell 'a = 1; b = 2; print("hello"); a + b' || bad 'a cell that goes well'
n=$(cat "$G/cell")
like 'a cell that goes well' "$(cat "$G/cells/$n/report")" 'state ok.*output 0-2 stdout: hello.*result 0-2: 3.*set 0-2: a b'
cell 'del a' || bad 'a name that goes'
like 'a name that is gone' "$(cat "$G/cells/last/report")" 'gone 0-2: a'

# what was lost with a rank is said in the next report, and in its stream, once
echo 'import os
if rank == 2: os._exit(3)' >"$G/cell" 2>/dev/null
cell 'print("again")' || bad 'a cell after a death'
n=$(cat "$G/cell")
notice="rank 2 is new since cell $((n - 1)) and has none of its [0-9]+ variables"
like 'the notice' "$(head -n 1 "$G/cells/$n/report")" "^notice $notice$"
like 'and as JSON' "$(cat "$G/cells/$n/report.json")" "^\{\"notice\":\"$notice\","
like 'and in the stream' "$(head -n 1 "$G/cells/$n/stream")" "^\{\"type\":\"notice\",\"text\":\"$notice\"\}$"
like 'and again' "$(head -n 1 "$G/cells/$n/report")" "^notice $notice$"
cell pass || bad 'one more'
is 'but only in that one' "$(grep -c notice "$G/cells/last/report")" 0
echo 'import os
if rank == 1: os._exit(3)' >"$G/cell" 2>/dev/null
export DDIP_MOUNT=$PLACE
like 'ddip says it first' "$("$BUILD/ddip" exec 'print("again")' 2>&1 | head -n 1)" "^ddip: rank 1 is new since cell [0-9]+ and has none"
echo restart >"$G/ctl"
cell pass || bad 'after a restart'
is 'a restart is what was asked for' "$(grep -c notice "$G/cells/last/report")" 0

# one that runs, and one that waits
submit 'import time; print("begun", flush=True); time.sleep(1000)'
first=$n
submit pass
until_true grep -q 'output 0-2 stdout: begun' "$G/cells/$first/report"
like 'one that runs' "$(cat "$G/cells/$first/report")" 'state running.*see stall'
like 'one that waits' "$(cat "$G/cells/$n/report")" 'state queued'
echo interrupt >"$G/cells/$n/ctl"
like 'one that never ran' "$(cat "$G/cells/$n/report")" 'state interrupted.*errno EINTR.*error interrupted while it was queued'
echo interrupt >"$G/cells/$first/ctl"
wait_cell "$first" >/dev/null
like 'one that was interrupted' "$(cat "$G/cells/$first/report")" 'state interrupted.*error KeyboardInterrupt.*at <cell [0-9]+>:1 <module>'

# a rank that somebody has had killed, and one that the kernel or a stranger has
submit 'import time; print("begun", flush=True); time.sleep(1000)' "$G/rank1/cell"
prints "$G/cells/$n/stream" begun
echo kill >"$G/rank1/ctl"
wait_cell "$n" >/dev/null
like 'one that ddipfs has killed' "$(cat "$G/cells/$n/report")" 'error died: signal 9 .Killed., sent by ddipfs'
echo 'import os; os.kill(os.getpid(), 9)' >"$G/rank1/cell" 2>/dev/null
is 'one that it has not' "$(grep '^error' "$G/cells/last/report")" 'error died: signal 9 (Killed)'

# many ranks
mkdir "$M/many"
printf 'size 64\nstart\n' >"$M/many/ctl" || bad 'many ranks'
ok guarded "$PLAIN_PYTHON" "$ROOT/tests/fs/report.py" "$M/many" 40
echo 'x = rank; print("of", rank); raise ValueError(rank)' >"$M/many/cell" 2>/dev/null
[ "$(stat -c %s "$M/many/cells/last/report")" -le 2048 ] || bad 'the report of many ranks is long'
like 'each rank in its own way' "$(cat "$M/many/cells/last/report")" 'other [0-9]+: ValueError: .*left_out other of [0-9]+ and [0-9]+ more: cells/[0-9]+/error.left_out output of [0-9]+ and [0-9]+ more: cells/[0-9]+/rank[0-9]+/stdout'
