#!/usr/bin/env bash
# O_NONBLOCK submits without waiting; `wait` waits; cells can be for some ranks only.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=4
cell 'import time, os'
mkfifo "$T/gate"

# a cell that runs until something is written to the gate
GATE="open('$T/gate').read()"
is 'returns once queued' "$(errno nonblock "$G/rank0/cell" "$GATE
done = 1")" 0
n=$(readlink "$G/cells/last")
like 'it is not done' "$(state "$n")" 'queued|running'
echo >"$T/gate"
like 'wait' "$(wait_cell "$n")" 'state ok'
like 'wait of an ended cell' "$(cat "$G/cells/$n/wait")" 'state ok'
is 'it ran' "$(cat "$G/rank0/vars/done")" 1

is 'an error is not seen there' "$(errno nonblock "$G/cell" '1 / 0')" 0
like 'but by wait' "$(wait_cell last)" 'errno EREMOTEIO'

is 'some ranks' "$(errno write "$G/cell.0,2-3" 'here = rank')" 0
is 'on those only' "$(cat "$G"/rank[023]/vars/here | xargs)" '0 2 3'
is 'not on the other' "$(errno read "$G/rank1/vars/here")" ENOENT
is 'ranks in status' "$(key "$G/cells/last/status" ranks)" '0,2,3'
is 'its folders' "$(ls -d "$G"/cells/last/rank* | wc -l)" 3
is 'one rank' "$(errno write "$G/rank1/cell" 'here = rank')" 0
is 'it ran there' "$(cat "$G/rank1/vars/here")" 1
is 'the number' "$(cat "$G/rank1/cell")" "$(readlink "$G/cells/last")"
for list in 4 0-4 1-0 "," x 0-; do
	is "cell.$list" "$(errno write "$G/cell.$list" 'x = 1')" EINVAL
done

# events report its beginning and its end
exec 4<"$G/events"
echo 'y = 1' >"$G/cell"
n=$(readlink "$G/cells/last")
like 'start' "$(await 4 "cell $n start")" "^[0-9]+ [0-9.]+ cell $n start"
like 'end' "$(await 4 "cell $n ok")" "cell $n ok .*seconds="
exec 4<&-

# reading a live file without blocking
is 'O_NONBLOCK on events' "$("$PLAIN_PYTHON" -c "
import errno, os
fd = os.open('$G/events', os.O_RDONLY | os.O_NONBLOCK)
try:
    os.read(fd, 100)
except OSError as e:
    print(errno.errorcode[e.errno])")" EAGAIN
