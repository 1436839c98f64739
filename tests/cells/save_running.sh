#!/usr/bin/env bash
# `save DIR` and `load DIR` while a program runs: at one step, with the variables of its main(); a program that was
# killed, begun again and loaded ends with the numbers of an undisturbed run.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/steering.sh"
ddip=$BUILD/ddip
export DDIP_MOUNT=$PLACE

mkdir "$T/work"
# with the signal that is set below: another one would need another zygote
mount_torch -o "size=2,gpus=none" -o 'on_preempt=USR1'
cd "$T/work" || give_up 'a directory'

program() {
	guarded "$ddip" run -f "$ROOT/tests/cells/save.py" "$@"
}

program 150 0 >"$T/undisturbed" || give_up "the program: $(tail "$T/undisturbed")"
like 'it trains' "$(cat "$T/undisturbed")" ', 150, '

program 150 1 >"$T/killed" 2>&1 &
running=$!
until_true steps 3
n=$(key "$G/status" cell)
is 'save' "$(guarded "$ddip" save ck 2>&1)" 'ddip: ranks 0,1 have not: numbers: cannot pickle '"'generator' object"
like 'at a step' "$(cat "$G/steer")" "state=ok within=$n step=[0-9]+ clock=optimizer$"
is 'it goes on' "$(of state "$n")" running
like 'whose names' "$("$PLAIN_PYTHON" -c 'import json
said = json.load(open("ck/manifest.json"))
print(said["frame"], said["names"]["opt"], said["names"]["main"])')" \
	"^main\(\) at save.py:[0-9]+ \{'type': 'AdamW', 'ranks': \[0, 1\]\} \{'type': 'function'"
kill -9 "$(rank_pids | tail -n 1)"
fails wait $running

program 150 1 >"$T/again" 2>&1 &
running=$!
until_true steps 2
is 'load' "$(guarded "$ddip" load ck 2>&1)" 'ddip: ranks 0,1 have not: numbers: cannot pickle '"'generator' object"
is 'it is the program that goes on' "$(steer 'pause = 0; step > 2, step')$(sed 's/,.*//' "$G/result")" '0(True'
wait $running || bad "the program: $(tail "$T/again")"
is 'the numbers of an undisturbed run' "$(cat "$T/again")" "$(cat "$T/undisturbed")"

# between cells, the variables of main() are those of cells
echo restart >"$G/ctl"
guarded "$ddip" load ck 2>/dev/null || bad 'load between cells'
cell 'r = type(model.module[0]).__name__, opt.param_groups[0]["params"][0] is model.module[0].weight, plan.optimizer is opt' ||
	bad "it is not there: $(tail -n 1 "$G/error")"
is 'its objects' "$(cat "$G/rank1/vars/r")" "('Linear', True, True)"

# a cell without steps, and one that ends first
echo 'grace 0.3' >"$G/ctl"
echo 'import time, torch.distributed as dist; go = True' >"$G/cell"
submit 'while go: time.sleep(0.01)'
is 'without steps' "$(errno write "$G/ctl" "save '$T/work/none'")" ETIMEDOUT
is 'nothing is there' "$(ls "$T/work")" ck
over
echo 'grace 5' >"$G/ctl"
submit 'time.sleep(0.5); late = 1'
is 'one that ends first' "$(errno write "$G/ctl" "save '$T/work/after'")" 0
ok grep -q '"late"' after/manifest.json
submit 'while go: time.sleep(0.01)' "$G/rank1/cell"
errno write "$G/ctl" "save '$T/work/behind'" >"$T/outcome" &
until_true grep -q 'state=queued .* ranks=0,1 ' "$G/queue"
echo interrupt >"$G/rank1/ctl"
wait $!
is 'behind the cell of some ranks' "$(cat "$T/outcome")" 0

# a preemption saves first, then the program gets its exception; the last one stays where that cannot be
rm -r ck
printf '%s\n' stop "on_preempt USR1 save '$T/work/ck'" start >"$G/ctl"
is 'the setting' "$(grep ^on_preempt "$G/ctl")" "on_preempt USR1 save $T/work/ck 20"
is 'not now' "$(errno write "$G/ctl" 'on_preempt USR1')" EBUSY
program 150 1 >"$T/preempted" 2>&1 &
running=$!
until_true steps 3
kill -USR1 "$(daemon_pid)"
wait $running
is 'it is interrupted' $? 130
like 'the program is told' "$(cat "$T/preempted")" 'ddip.Preempted'
is 'it was saved before' "$(grep -o "save cell=[0-9]* ok\|cell [0-9]* preempted" "$G/events.last" | sed 's/[0-9][0-9]*/N/' | tail -n 2 | xargs)" \
	'save cell=N ok cell N preempted'
program 150 1 >"$T/again" 2>&1 &
running=$!
until_true steps 2
guarded "$ddip" load ck 2>/dev/null || bad 'load what a preemption has saved'
is 'it goes on' "$(steer 'pause = 0')" 0
wait $running || bad "the program: $(tail "$T/again")"
is 'the numbers of an undisturbed run, again' "$(cat "$T/again")" "$(cat "$T/undisturbed")"
printf '%s\n' 'grace 0.3' reset >"$G/ctl"
submit 'import time
while True: time.sleep(0.01)'
until_true grep -q busy "$G/status"
is 'without steps' "$(errno write "$G/ctl" preempt)" 0
like 'the cell is told all the same' "$(wait_cell "$n")" EINTR
like 'error says why' "$(cat "$G/error")" 'came to no common step.*ddip.Preempted'
ok grep -q '"opt"' ck/manifest.json
cell 'between = 1'
is 'between cells' "$(errno write "$G/ctl" preempt)" 0
until_true grep -q '"between"' ck/manifest.json

# a save that takes longer than there is time is ended, and the last one stays
printf '%s\n' stop 'grace 5' >"$G/ctl"
for words in 'save' 'save ck soon' 'save ck -1' 'save ck 1 2' 'load ck'; do
	is "on_preempt USR1 $words" "$(errno write "$G/ctl" "on_preempt USR1 $words")" EINVAL
done
printf '%s\n' "on_preempt USR1 save '$T/work/ck' 1" start >"$G/ctl"
is 'the setting' "$(grep ^on_preempt "$G/ctl")" "on_preempt USR1 save $T/work/ck 1"
cell 'import time, torch, ddip
class Slow:
    def __reduce__(self):
        if rank: time.sleep(1000)
        return Slow, ()
slow = Slow()'
submit 'opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
try:
    while True: opt.step(); time.sleep(0.01)
except ddip.Preempted:
    told = time.time()'
until_true steps 2
began=$(date +%s)
is 'a preemption' "$(errno write "$G/ctl" preempt)" 0
is 'the cell is told' "$(key <(wait_cell "$n") state)" ok
is 'in time' "$(($(cut -d . -f 1 "$G/vars/told") - began < 10))" 1
like 'error says why' "$(cat "$G/error")" "ETIMEDOUT on_preempt: save $T/work/ck: not complete 1 s after the signal, and ended"
only_these() {
	[ "$(ls -A "$T/work" | xargs)" = 'after behind ck' ]
}
until_true only_these # a rank that gives up does not wait for the disk longer than 2 s
ok grep -q '"between"' ck/manifest.json

# a second preemption ends neither the save of the first nor the handler that it has called
printf '%s\n' stop "on_preempt USR1 save '$T/work/ck'" start >"$G/ctl"
cell "import os, time, torch, ddip
def gate(name):
    print(name, flush=True)
    while not os.path.exists(f'$T/{name}'): time.sleep(0.005)
class Slow:
    def __reduce__(self):
        gate('saves')
        return Slow, ()
slow, told = Slow(), 0"
submit "opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
try:
    while True: opt.step(); time.sleep(0.01)
except ddip.Preempted:
    told += 1
    try: gate('handles')
    except ddip.Preempted: told += 1"
until_true steps 2
last_preemption() {
	grep -o 'preempted .*' "$G/events.last" | tail -n 1
}
# is_alone N: nothing waits for this cell any longer, as a save does for its next step
is_alone() {
	[ "$(grep -c . "$G/queue")" = 1 ] && grep -q "^$1 " "$G/queue"
}
is 'a preemption' "$(errno write "$G/ctl" preempt)" 0
for rank in 0 1; do until_true grep -q saves "$G"/cells/*/rank$rank/stdout; done
is 'another one while it saves' "$(errno write "$G/ctl" preempt)" 0
like 'it is told' "$(last_preemption)" 'signal=- host=- again=saves$'
touch "$T/saves"
echo 'grace 0.3' >"$G/ctl"
for rank in 0 1; do until_true grep -q handles "$G/cells/$n/rank$rank/stdout"; done
is 'another one while the handler works' "$(errno write "$G/ctl" preempt)" 0
like 'it is told' "$(last_preemption)" 'signal=- host=- again=told$'
until_true is_alone "$n"
touch "$T/handles"
is 'the cell ends by itself' "$(key <(wait_cell "$n") state)" ok
is 'it was told once' "$(cat "$G"/rank*/vars/told | xargs)" '1 1'
is 'and saved' "$(grep -c '"slow"' ck/manifest.json)" 1
submit 'while True: time.sleep(0.01)'
until_true grep -q busy "$G/status"
is 'the next cell' "$(errno write "$G/ctl" preempt)" 0
like 'is told, too' "$(wait_cell "$n")" EINTR
