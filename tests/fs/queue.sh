#!/usr/bin/env bash
# Every rank has a queue: cells of single ranks run in parallel, group cells and pushes keep their place.
. "$(dirname "$0")/../lib.sh"

mount_plain
mkfifo "$T/ab" "$T/ba" "$T/gate"

# a send on one rank and its receive on another, started one after the other by writers that wait
cell "open('$T/ab', 'w').write('ping'); got = open('$T/ba').read()" "$G/rank0/cell" &
a=$!
cell "got = open('$T/ab').read(); open('$T/ba', 'w').write('pong')" "$G/rank1/cell" &
b=$!
wait $a $b
is 'both went on' "$(cat "$G/rank0/vars/got" "$G/rank1/vars/got" | xargs)" 'pong ping'

# the order on a rank is that of submission, across cells, group cells and pushes
cell 'order = []'
submit "open('$T/gate').read(); order.append('first')" "$G/rank0/cell"
submit "order.append('second')"
is 'a push is queued' "$(errno push "$G/vars/pushed" '42')" 0
submit "order.append(pushed)"
[ "$(key "$G/status" queued)" -ge 1 ] || bad "queued: $(key "$G/status" queued)"
echo >"$T/gate"
wait_cell "$n" >/dev/null
is 'rank 0' "$(cat "$G/rank0/vars/order")" "['first', 'second', 42]"
is 'rank 1' "$(cat "$G/rank1/vars/order")" "['second', 42]"

# a failed cell does not cancel those behind it; the verb cancel does
submit "open('$T/gate').read() if rank == 0 else None"
running=$n
submit '1 / 0'
submit 'behind = 1'
behind=$n
echo >"$T/gate"
like 'behind a failed one' "$(wait_cell "$behind")" 'state ok'

submit "open('$T/gate').read() if rank == 0 else None"
running=$n
submit 'dropped = 1'
dropped=$n
echo cancel >"$G/ctl"
like 'cancelled' "$(wait_cell "$dropped")" 'errno ECANCELED'
echo >"$T/gate"
like 'what ran goes on' "$(wait_cell "$running")" 'state ok'
is 'the dropped one never ran' "$(errno read "$G/vars/dropped")" ENOENT

# one queued cell is dropped by its own ctl
submit "open('$T/gate').read() if rank == 0 else None"
running=$n
submit 'dropped = 1'
dropped=$n
is 'interrupt of a queued one' "$(errno write "$G/cells/$dropped/ctl" $'interrupt\n')" 0
like 'it is dropped' "$(wait_cell "$dropped")" 'errno (EINTR|ECANCELED)'
echo >"$T/gate"
like 'the running one is not touched' "$(wait_cell "$running")" 'state ok'

# what is dropped does not begin in between: rank 1 is idle and would run its own cell
submit "open('$T/gate').read()" "$G/cell.0"
running=$n
submit 'pass'
submit 'ran = 1' "$G/rank1/cell"
dropped=$n
echo cancel >"$G/ctl"
like 'a cell of an idle rank, behind one of all ranks' "$(wait_cell "$dropped")" 'errno ECANCELED'
is 'it never ran' "$(errno read "$G/rank1/vars/ran")" ENOENT
echo >"$T/gate"
like 'what ran beside it goes on' "$(wait_cell "$running")" 'state ok'

# a removal that a rank has done already is done on all
for verb in rm reset; do
	cell 'x = 1'
	submit "open('$T/gate').read()" "$G/cell.0"
	running=$n
	case $verb in
	rm) rm "$G/vars/x" ;;
	reset) is 'reset is queued' "$(errno nonblock "$G/ctl" $'reset\n')" 0 ;;
	esac
	is "$verb: rank 1 has done it" "$(value "'x' in globals()" 1)" False
	echo cancel >"$G/ctl"
	echo >"$T/gate"
	like "$verb: the running cell goes on" "$(wait_cell "$running")" 'state ok'
	is "$verb: rank 0 does it after its cell" "$(value "'x' in globals()" 0)" False
done

# also if the one who waits for it is interrupted, who does not wait longer
cell 'x = 1'
submit "open('$T/gate').read()" "$G/cell.0"
running=$n
env --default-signal=INT cp /dev/stdin "$G/ctl" <<<reset 2>"$T/out" &
pid=$!
is_reset() {
	[ ! -e "$G/rank1/vars/x" ]
}
until_true is_reset
kill -INT "$pid"
wait "$pid" && bad 'the reset was not interrupted'
echo >"$T/gate"
like 'the cell that ran goes on' "$(wait_cell "$running")" 'state ok'
is 'the reset is done on rank 0, too' "$(value "'x' in globals()" 0)" False

# what is queued is withdrawn with its writer, whatever way that waits
hold() {
	submit "open(['$T/ab', '$T/ba'][rank]).read()"
	running=$n
}
go_on() {
	echo >"$T/ab"
	echo >"$T/ba"
	like 'the cell that ran goes on' "$(wait_cell "$running")" 'state ok'
}
queued_are() {
	[ "$(key "$G/status" queued)" = "$1" ]
}
exec 5<"$G/events"
hold
for how in "'$BUILD/ddip' -m '$M' exec 'ran = 1'" "exec 3<>'$G/stream'; echo 'ran = 1' >&3; cat <&3" \
	"exec cp /dev/stdin '$G/cell' <<<'ran = 1'" "echo 'ran = 1' >'$G/cell'" "exec cp /dev/stdin '$G/vars/ran' <<<1" \
	"'$BUILD/ddip' -m '$M' push ran.json - <<<1"; do
	for signal in TERM KILL; do
		# in a session of its own, as timeout(1) does with a group: all its processes get the signal
		setsid bash -c "$how" 2>/dev/null >&2 &
		until_true queued_are 1
		kill -$signal -- -$!
		wait $!
		until_true queued_are 0 || bad "SIG$signal: something is queued after: $how"
		if [[ $signal == TERM && $how == *"exec 'ran"* ]]; then # ddip does as at Ctrl-C
			is 'it is interrupted' "$(state) $(key "$G/cells/last/status" errno)" 'interrupted EINTR'
			continue
		fi
		[[ $how == *ran=* || $how == *push* || $how == *vars* ]] || {
			is "it is cancelled: $how" "$(state) $(key "$G/cells/last/status" errno)" 'cancelled ECANCELED'
			is 'the reason' "$(cat "$G/cells/last/error")" 'withdrawn: its writer ended while it was queued'
			await 5 "cell $(readlink "$G/cells/last") cancelled errno=ECANCELED" >/dev/null
		}
		tail -n 1 "$G/error" | grep -q 'ECANCELED.*withdrawn: its writer ended' || bad "error after $how: $(tail -n 1 "$G/error")"
	done
done
exec 5<&-
n=$(readlink "$G/cells/last")
is 'what an ended writer only queued' "$(errno nonblock "$G/cell" 'stays = 1')" 0
"$BUILD/ddip" -m "$M" exec -d 'stays += 1' >/dev/null || bad 'ddip exec -d'
is 'stays' "$(key "$G/status" queued)" 2
go_on
wait_cell $((n + 2)) >/dev/null
is 'and runs' "$(cat "$G/vars/stays")" 2
is 'what was withdrawn has not' "$(errno read "$G/vars/ran")" ENOENT

# a removal that has begun nowhere is dropped
cell 'x = 1'
submit "open(['$T/ab', '$T/ba'][rank]).read()"
running=$n
rm "$G/vars/x"
echo cancel >"$G/ctl"
echo >"$T/ab"
echo >"$T/ba"
like 'the cell of all ranks goes on' "$(wait_cell "$running")" 'state ok'
is 'x is kept' "$(cat "$G"/rank?/vars/x | xargs)" '1 1'

# ---- queue lists what runs and what waits, and whose it is; cancel takes it back

listed() { # lines of queue, without numbers that differ
	sed -E 's/ seconds=[0-9.]+ pid=[0-9]+ / /' "$G/queue"
}
is 'nothing' "$(cat "$G/queue"; cat "$G/queue.json")" '[]'
hold
python=$(basename "$PLAIN_PYTHON")
bash -c "echo 'ran = 1' >'$G/rank1/cell'" 2>"$T/told" &
writer=$!
until_true queued_are 1
first=$(readlink "$G/cells/last")
bash -c "echo 1 >'$G/vars/pushed'; exit 0" 2>"$T/push.told" &
pusher=$!
until_true queued_are 2
bash -c "exec dd of='$G/cell' conv=fsync 2>&1 <<<'ran = 2'" >"$T/dd" &
dd=$!
until_true queued_are 3
last=$(readlink "$G/cells/last")
like 'what runs, and what waits, in order' "$(listed)" "^$running kind=cell state=running name=- ranks=0,1 uid=$(id -u) program=$python
$first kind=cell state=queued name=- ranks=1 uid=$(id -u) program=bash
push[0-9]+ kind=push state=queued name=pushed ranks=0,1 uid=$(id -u) program=bash
$last kind=cell state=queued name=- ranks=0,1 uid=$(id -u) program=dd\$"
is 'the pids' "$(sed -n 's/.* pid=\([0-9]*\) .*/\1/p' "$G/queue" | tail -n 3 | xargs)" "$writer $pusher $dd"
push=$(sed -n 's/ kind=push .*//p' "$G/queue")
"$PLAIN_PYTHON" - "$G" "$running" "$first" "$push" "$last" "$writer" <<'END' || bad 'queue.json'
import json, os, sys
group, running, first, push, last, pid = sys.argv[1:]
with open(group + "/queue.json") as f:
    rows = json.load(f)
assert [row["id"] for row in rows] == [running, first, push, last], rows
assert [row["state"] for row in rows] == ["running"] + 3 * ["queued"], rows
assert rows[1]["seconds"] >= 0 and rows[1].pop("seconds") < 300
assert rows[1] == dict(id=first, kind="cell", state="queued", name=None, ranks=[1], pid=int(pid),
                       uid=os.getuid(), program="bash"), rows[1]
END
told() {
	printf '%s\n' "$1" | cat >"$G/ctl" 2>/dev/null && echo ok || tail -n 1 "$G/error"
}
like 'what runs is refused' "$(told "cancel $first $running")" "EBUSY.*cell $running of .*\(pid [0-9]+\) is running"
like 'what has ended' "$(told 'cancel 1')" 'EBUSY.*cell 1 has ended: ok'
like 'what is not there' "$(told "cancel $first $((last + 1))") $(told 'cancel push1')" \
	"ENOENT.*'$((last + 1))' is queued.* ENOENT.*'push1' is queued"
is 'then nothing is taken' "$(wc -l <"$G/queue")" 4
is 'one by its number, and once' "$(told "cancel $first $first")" ok
wait $writer
is 'its writer is told' "$(tail -n 1 "$T/told")" \
	"ddipfs: cell $first was cancelled: dropped from the queue by cancel (cells/$first/error)"
is 'a push, and the rest' "$(DDIP_MOUNT=$PLACE "$BUILD/ddip" cancel "$push" "$last" && wc -l <"$G/queue")" 1
wait $pusher $dd
like 'their writers are told' "$(cat "$T/push.told" "$T/dd")" "pushed was cancelled|Operation canceled"
is 'dd gets ECANCELED' "$(grep -c 'Operation canceled' "$T/dd")" 1
cancel_status() {
	DDIP_MOUNT=$PLACE "$BUILD/ddip" cancel "$@" >/dev/null 2>&1
	echo $?
}
is 'ddip cancel: wrong use' "$(cancel_status) $(cancel_status -a 1) $(cancel_status a/b) $(cancel_status '"')" '2 2 2 2'
submit 'ran = 3'
is 'all' "$(DDIP_MOUNT=$PLACE "$BUILD/ddip" cancel -a && wc -l <"$G/queue")" 1
go_on
is 'none of it ran' "$(errno read "$G/vars/ran") $(errno read "$G/vars/pushed")" 'ENOENT ENOENT'
