#!/usr/bin/env bash
# on_preempt: the signal that a cluster sends in advance becomes ddip.Preempted in every running cell, once, whichever
# of our processes receive it, and it ends none of them.
. "$(dirname "$0")/../lib.sh"

# A cell that saves its state when its host is about to go, and counts the notices. All output is inside the `try`,
# because the next preemption may come at once.
saving='import ddip, os, time
told = 0
while told < wanted:
    try:
        if told:
            open(f"'$T'/saved.{rank}", "w").write(str(told))
        else:
            print("on", flush=True)
        while not os.path.exists("'$T'/end"): time.sleep(0.005)
        break
    except ddip.Preempted:
        told += 1'
set_() {
	errno write "$G/ctl" "$*"$'\n'
}
# begin: runs the cell on all ranks; sets n to its number
begin() {
	local k
	rm -f "$T"/saved.* "$T/end"
	submit "wanted = 9; $saving" "$G/cell"
	for k in "$G"/rank*/; do
		until_true grep -q '^on' "$G/cells/$n/$(basename "$k")/stdout"
	done
}
# saved: waits until all ranks have saved; ends the cell and prints how many notices each rank got
saved() {
	local k
	for k in "$G"/rank*/; do
		until_true test -s "$T/saved.$(basename "$k" | tr -dc 0-9)" || bad "$(basename "$k") was not told"
	done
	touch "$T/end"
	wait_cell "$n" >/dev/null
	cat "$G"/rank*/vars/told | xargs
}
daemon_comm() {
	cat "/proc/$1/comm" 2>/dev/null
}
# Prints the pids that a cluster would find on its hosts: agents, zygotes, ranks, relays, but not the daemon's.
far_pids() {
	local pid daemon
	daemon=$(daemon_pid)
	for pid in $(others); do
		[ "$pid" = "$daemon" ] || [ "$(daemon_comm "$pid")" = ddipfs-watchdog ] || echo "$pid"
	done
}

mount_plain
is 'it is off at first' "$(grep ^on_preempt "$G/ctl")" 'on_preempt off'
for name in INT KILL nonsense ''; do
	is "no such signal: '$name'" "$(set_ on_preempt "'$name'")" EINVAL
done
like 'the text tells which there are' "$(cat "$G/error")" 'want USR1, USR2, XCPU, PWR, TERM or off'
cell 'x = 1'
is 'it is set while the group is stopped' "$(set_ on_preempt USR1)" EBUSY
kill -USR1 "$(daemon_pid)"
is 'where nobody asked for it the signal is nothing' "$(cell 'x + 1' && cat "$G/rank0/vars/x")" 1
is 'another spelling is taken' "$(set_ stop)$(set_ on_preempt SIGUSR1)$(grep ^on_preempt "$G/ctl")" '00on_preempt USR1'
is 'the group starts with it' "$(set_ start)" 0

exec 5<"$G/events"
begin
kill -USR1 "$(daemon_pid)"
is 'the daemon gets it: each rank is told once' "$(saved)" '1 1'
like 'events tell of it' "$(await 5 ' preempted ')" 'preempted signal=USR1 host=-'
exec 5<&-
begin
for pid in $(far_pids); do kill -USR1 "$pid" 2>/dev/null; done
kill -USR1 "$(daemon_pid)"
touch "$T/end"
wait_cell "$n" >/dev/null
is 'signals of one preemption are one, and end nobody' "$(cat "$G"/rank*/vars/told | xargs)" '0 0'

# uncaught, it ends the cell as an interrupt does
submit 'print("on", flush=True)
import time; time.sleep(1000)' "$G/cell"
until_true grep -q '^on' "$G/cells/$n/rank0/stdout"
until_true grep -q '^on' "$G/cells/$n/rank1/stdout"
is 'the verb does the same' "$(set_ preempt)" 0
like 'a cell that does not catch it ends' "$(wait_cell "$n")" 'EINTR'
like 'error says why' "$(cat "$G/error")" 'ddip.Preempted: the cluster is about to end this job'
is 'it is a KeyboardInterrupt' "$(value 'import ddip; ddip.Preempted.__mro__[1].__name__')" "'KeyboardInterrupt'"
is 'child processes do not die of it' \
	"$(value 'import subprocess; subprocess.run(["sh", "-c", "kill -USR1 $$; echo alive"], capture_output=True).stdout')" \
	"b'alive\\n'"
is 'with nothing to do it is an event' "$(set_ preempt) $(state)" '0 ok'
begin
is 'two requests are two' "$(set_ preempt; until_true test -s "$T/saved.0" -a -s "$T/saved.1"; set_ preempt)" $'0\n0'
until_true grep -q 2 "$T/saved.0"
until_true grep -q 2 "$T/saved.1"
is 'each is told twice' "$(saved)" '2 2'
unmount

# SIGTERM is what clusters send by default
mount_plain -o on_preempt=TERM
begin
pid=$(daemon_pid)
for each in $(far_pids) "$pid"; do kill -TERM "$each"; done
is 'SIGTERM is taken likewise' "$(saved)" '1 1'
left=$(others)
kill -TERM "$pid"
# shellcheck disable=SC2086 # a list
gone $left

# over several hosts, each behind a relay
for launcher in here 'sh -c'; do
	for signal in USR1 TERM; do
		mount_plain -o on_preempt=$signal -o 'hosts=a:1 b:2' -o "launcher=$launcher" -o linger=5
		begin
		ranks=$(rank_pids | xargs)
		for pid in $(far_pids); do kill -$signal "$pid" 2>/dev/null; done
		is "$launcher, $signal: all processes of both hosts get it, and each rank is told once" "$(saved)" '1 1 1'
		begin
		set_ preempt >/dev/null
		is "$launcher, $signal: all go on" "$(saved)" '1 1 1'
		is "$launcher, $signal: in the same processes" "$(rank_pids | xargs)" "$ranks"
		unmount
	done
done
