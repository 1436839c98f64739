#!/usr/bin/env bash
# Groups over several hosts, whose agents all run here: ranks are placed as the settings say, everything works on each
# of them, and the loss of one leaves the rest working. DDIP_TEST_LAUNCHER: how agents are started.
. "$(dirname "$0")/../lib.sh"

launcher=${DDIP_TEST_LAUNCHER:-here}
export XDG_CACHE_HOME=$T/cache

mount_plain -o size=4 -o 'hosts=a:2 b:2' -o "launcher=$launcher" -o grace=0
set_() {
	errno write "$G/ctl" "$*"$'\n'
}
# agent RANK: prints the pid of the agent that runs the rank
agent() {
	local pid
	pid=$(sed -n "s/^$1 .* pid=\([0-9]*\).*/\1/p" "$M/${2:-group}/ranks")
	awk '/^PPid:/ { print $2 }' "/proc/$pid/status"
}
# hosts_of [GROUP]: prints the host of each rank
hosts_of() {
	sed -n 's/.* host=\([^ ]*\).*/\1/p' "$M/${1:-group}/ranks" | xargs
}
# each EXPRESSION: prints its value on each rank
each() {
	cell "$1" && cat "$G"/cells/last/rank*/result | xargs
}
# Waits until cell n runs on all ranks.
begun() {
	local k
	for k in 0 1 2 3; do
		until_true grep -q '^on' "$G/cells/$n/rank$k/stdout"
	done
}
# lose RANK: its host is lost, and the daemon has noticed
lose() {
	local host
	host=$(key "$G/rank$1/status" host)
	kill -KILL "$(agent "$1")"
	until_true grep -q "^$host state=lost" "$G/hosts"
}

is 'the hosts are set' "$(grep -E '^(hosts|launcher|linger)' "$G/ctl" | xargs)" "hosts a:2 b:2 launcher $launcher linger 30"
like 'before the start the agents are there' "$(cat "$G/hosts")" \
	'^a state=[a-z]+ hostname=.* slots=2 ranks=0-1 connection=[a-z-]+ queued_bytes=.*b state=.* slots=2 ranks=2-3'
is 'RANK' "$(each 'import os; int(os.environ["RANK"])')" '0 1 2 3'
is 'ranks are numbered through the hosts' "$(hosts_of)" 'a a b b'
is 'LOCAL_RANK' "$(each 'int(os.environ["LOCAL_RANK"])')" '0 1 0 1'
is 'LOCAL_WORLD_SIZE' "$(each 'int(os.environ["LOCAL_WORLD_SIZE"])')" '2 2 2 2'
is 'GROUP_RANK' "$(each 'int(os.environ["GROUP_RANK"])')" '0 0 1 1'
is 'NODE_RANK' "$(each 'int(os.environ["NODE_RANK"])')" '0 0 1 1'
is 'GROUP_WORLD_SIZE' "$(each 'int(os.environ["GROUP_WORLD_SIZE"])')" '2 2 2 2'
is 'rankK/status names the host' "$(key "$G/rank2/status" host)" b
is 'status counts them' "$(key "$G/status" hosts) $(key "$G/status" hosts_used) $(key "$G/status" hosts_lost)" '2 2 0'
[ "$(agent 0)" != "$(agent 2)" ] || bad 'both hosts have one agent'
like 'a round trip is measured' "$(until_true grep -q '^b state=up .*round_trip_us=[0-9]' "$G/hosts" && cat "$G/hosts")" \
	'b state=up .*round_trip_us=[0-9]+ '

# every operation on a rank reaches it, on each host
cell 'import sys; print("out", rank); print("err", rank, file=sys.stderr); x = rank * 10'
is 'output of the second host' "$(tail -n 1 "$G/rank3/stdout") $(tail -n 1 "$G/rank3/stderr")" 'out 3 err 3'
exec 5<"$M/trace"
cell 'x = rank * 10 # told'
ls "$M" >/dev/null
guarded sed '/ fuse opendir /q' <&5 >"$T/trace"
exec 5<&-
is 'a cell goes once to each host' "$(grep -c "wire > Trun .*# told.* for slots=[0-9]*,[0-9]*$" "$T/trace") of $(grep -c 'wire > .*Trun' "$T/trace")" '2 of 2'
exec 5<"$M/trace"
is 'OP over all hosts, of numbers' "$(cat "$G/vars/x.sum")" 60
ls "$M" >/dev/null
guarded sed '/ fuse opendir /q' <&5 >"$T/trace"
exec 5<&-
[ "$launcher" = here ] || is 'each host is asked once for its part' "$(grep -c 'wire > Treduce' "$T/trace")" 2
is 'an object of each rank' "$(cat "$G"/rank*/vars/x | xargs)" '0 10 20 30'
is 'OP over all hosts' "$(cat "$G/vars/x.gather.json")" '[0, 10, 20, 30]'
is 'a push to all' "$(echo '{"lr": 1}' >"$G/vars/c.json" && cat "$G"/rank*/vars/c.json | xargs)" \
	'{lr: 1} {lr: 1} {lr: 1} {lr: 1}'
is 'what is in it' "$(cat "$G"/rank*/vars/c.d/lr "$G/vars/c.d/lr.sum" | xargs)" '1 1 1 1 4'
cell 'many = list(range(200000))' "$G/rank3/cell"
is 'more than fits a message' "$(ls -f "$G/rank3/vars/many.d" | wc -l) $(cat "$G/rank3/vars/many.d/-1")" '200002 199999'
is 'a push to one' "$(echo 7 >"$G/rank3/vars/one" && cat "$G/rank3/vars/one")" 7
mv "$G/vars/c" "$G/vars/d"
is 'mv' "$(ls "$G/rank0/vars" "$G/rank3/vars" | grep -c '^[cd]$')" 2
rm "$G/vars/d"
is 'rm' "$(ls "$G/rank0/vars" "$G/rank3/vars" | grep -c '^[cd]$')" 0
submit 'y = input()' "$G/rank3/cell"
echo typed >"$G/rank3/stdin"
wait_cell "$n" >/dev/null
is 'standard input' "$(cat "$G/rank3/vars/y")" typed
exec 5<"$G/events"
submit 'import time
def waits():
    print("on")
    time.sleep(1000)
waits()'
begun
like 'the stack of a rank there' "$(cat "$G/rank3/stack")" 'in waits'
like 'stall asks all of them' "$(cat "$G/stall")" '3 state=busy'
is 'an interrupt' "$(set_ interrupt)" 0
like 'ends it everywhere' "$(wait_cell "$n")" 'EINTR'
before=$(agent 3)
is 'a rank there is killed' "$(set_ kill 3)" 0
until_true grep -q '^state idle' "$G/status"
is 'another one takes its place, on its host' "$(hosts_of) $(agent 3)" "a a b b $before"
is 'reset' "$(set_ reset) $(ls "$G/rank1/vars" "$G/rank3/vars" | grep -c '^x$')" '0 0'
is 'the settings wait for a stop' "$(set_ hosts a:4)" EBUSY

# a host is lost, and no other has room for its ranks
cell 'x = rank + 100'
exec 5<"$G/events"
submit 'print("on")
import time; time.sleep(1000)'
begun
kill -KILL "$(agent 2)"
like 'the cell ends' "$(wait_cell "$n")" 'EHOSTDOWN'
like 'its report names the host' "$(cat "$G/cells/$n/report")" 'errno EHOSTDOWN.*rank [23].error .*b.*output 0-3 stdout: on'
until_true grep -q '^state lacking' "$G/status"
like 'it is told which host' "$(await 5 ' lost ')" ' host b lost '
await 5 ' hosts-lacking' >/dev/null
exec 5<&-
is 'status tells what is lacking' "$(key "$G/status" lacks)" '2 (b), 3 (b)'
like 'error too' "$(cat "$G/error")" 'EHOSTDOWN hosts: .*without a place: 2 \(b\), 3 \(b\)'
is 'the ranks of the other host keep their variables' "$(cat "$G/rank0/vars/x" "$G/rank1/vars/x" | xargs)" '100 101'
is 'a cell is refused' "$(errno write "$G/cell" 'y = 1')" EHOSTDOWN
is 'a push, too' "$(errno create "$G/vars/y" '1')" EHOSTDOWN
for verb in free reset selftest; do
	is "$verb, too" "$(set_ "$verb")" EHOSTDOWN
done
is 'a start tells it' "$(set_ start)" EHOSTDOWN
is 'the hosts of living ranks must stay' "$(set_ hosts b:2 c:2)" EINVAL
is 'with room for them' "$(set_ hosts a:1 c:2)" EINVAL
is 'other settings wait for a stop' "$(set_ launcher ssh)" EBUSY
is 'another host takes the place' "$(set_ hosts a:2 c:2)" 0
is 'of the lost one' "$(each 'globals().get("x", "none")')" '100 101 none none'
like 'which is told once' "$(cat "$G/cells"/*/report | grep '^notice')" \
	'notice rank 2 is new since cell [0-9]+ and lacks its variable; rank 3 is new since cell [0-9]+ and lacks'
is 'its ranks are there' "$(hosts_of)" 'a a c c'
is 'numbered as those before' "$(each 'import os; int(os.environ["LOCAL_RANK"])')" '0 1 0 1'

# the same host again
lose 2
until_true grep -q '^state lacking' "$G/status"
is 'recover tries the same one' "$(set_ recover)" 0
is 'and it is there' "$(hosts_of) $(each 'globals().get("x", "none")')" 'a a c c 100 101 none none'

# the lost host is named again, with less room than before
lose 2
until_true grep -q '^state lacking' "$G/status"
is 'the lost host has room for one' "$(set_ hosts a:2 c:1 d:1)" 0
is 'no host gets more ranks than it has room for' "$(hosts_of) $(each 'globals().get("x", "none")')" \
	'a a c d 100 101 none none'

# a spare host replaces a lost one, also that of rank 0
is 'stop' "$(set_ stop)" 0
is 'more room than ranks' "$(set_ hosts a b:1 c:2)$(set_ size 3)$(set_ start)" 000
is 'the last ones are spare' "$(hosts_of) $(grep -o 'c state=[a-z]*' "$G/hosts")" 'a a b c state=unused'
cell 'x = rank'
lose 0
until_true grep -q '^state idle' "$G/status"
is 'ranks go on with the spare' "$(hosts_of) $(each 'globals().get("x", "none")')" 'c c b none none 2'
is 'on a restart the lost host is passed by' "$(set_ restart) $(hosts_of)" '0 b c c'
is 'named again it is as good as any' "$(set_ stop)$(set_ hosts a b:1 c:2)$(set_ start) $(hosts_of)" '000 a a b'

# a host whose ranks are not consecutive
is 'four hosts' "$(set_ stop)$(set_ size 4)$(set_ hosts a:1 b:1 c:1 d:1)$(set_ start) $(hosts_of)" '0000 a b c d'
lose 1
until_true grep -q '^state lacking' "$G/status"
is 'one takes the rank of another' "$(set_ hosts a:1 c:1 d:2) $(hosts_of)" '0 a d c d'
is 'and tells both' "$(sed -n 's/^\([a-d]\) .*\(ranks=[^ ]*\).*/\1 \2/p' "$G/hosts" | xargs)" 'a ranks=0 c ranks=2 d ranks=1,3'
is 'numbered apart' "$(each 'import os; int(os.environ["LOCAL_RANK"])')" '0 1 0 0'
is 'three hosts again' "$(set_ stop)$(set_ size 3)$(set_ hosts a b:1 c:2)$(set_ start) $(hosts_of)" '0000 a a b'

# no host is left
lose 2
until_true grep -q '^state idle' "$G/status" || bad 'the spare of b has no place'
lose 2
until_true grep -q '^state lacking' "$G/status"
lose 0
until_true grep -q '^state stopped' "$G/status" || bad 'without a host the group does not end'
like 'and tells why' "$(cat "$G/error")" 'EHOSTDOWN start: no host is left'
is 'it starts again' "$(set_ start) $(each 'rank')" '0 0 1 2'

# wrong sizes
is 'stop' "$(set_ stop)" 0
is 'too few places' "$(set_ size 6)$(set_ start)" 0EINVAL
like 'it tells how many there are' "$(tail -n 1 "$G/error")" 'size 6, but hosts has room for 5'
is 'GPUs of hosts are counted' "$(set_ size 5)$(set_ gpus 0)$(set_ start)" 00EINVAL
like 'by their names' "$(tail -n 1 "$G/error")" 'gpus 0 names 1, but 2 ranks are on a'
is 'one for two ranks' "$(set_ size 3)$(set_ gpus 0,0)$(set_ start)" 000
is 'each sees its own' "$(each 'import os; os.environ["CUDA_VISIBLE_DEVICES"] + os.environ["LOCAL_RANK"]')" '00 00 00'

is 'a launcher in any spelling' "$(set_ stop)$(set_ launcher "'  ''ssh''  -p 22'")$(grep ^launcher "$G/ctl")" '00launcher ssh -p 22'
is 'as one word, too' "$(set_ launcher "' here '")$(grep ^launcher "$G/ctl")" '0launcher here'
is 'and back' "$(set_ launcher "$launcher")" 0

# an error on a host names the host
is 'no such Python there' "$(set_ stop)$(set_ python nosuchpython)$(set_ start | tr 0-9 -)" 00EHOSTDOWN
like 'is told with its name' "$(grep start: "$G/error" | tail -n 1)" 'host [ab]: .*nosuchpython'
is 'a good one' "$(set_ python "$PLAIN_PYTHON")" 0

# a file of hosts
printf 'x slots=1\n\n# y\nz slots=2 # two\n' >"$T/hosts"
is 'a file of hosts' "$(set_ stop)$(set_ gpus none)$(set_ hosts "$T/hosts")$(set_ start) $(hosts_of)" '0000 x z z'
is 'is kept as a list' "$(grep ^hosts "$G/ctl")" 'hosts x:1 z:2'
printf 'x slots=1\ny two\n' >"$T/hosts"
is 'a bad line' "$(set_ stop)$(set_ hosts "$T/hosts")" 0EINVAL
like 'is named' "$(tail -n 1 "$G/error")" 'hosts:2: want NAME slots=N'
mkfifo "$T/pipe"
is 'a pipe is no file' "$(set_ hosts "$T/pipe")" EINVAL

# a group's agents end with it, except those that other groups use
before=$(cat "$G/ranks" | grep -c host=)
mkdir "$M/other"
cat "$G/ctl" >"$M/other/ctl"
is 'a clone of the settings' "$(set_ start)$(errno write "$M/other/ctl" $'hosts z:2 w:2\nsize 4\nstart\n') $(hosts_of other)" \
	'00 z z w w'
is 'groups share the agent of a host' "$(agent 1)" "$(agent 0 other)"
own=$(agent 2 other) shared=$(agent 0 other)
is 'rmdir' "$(errno write "$M/other/ctl" $'stop\n')$(errno rmdir "$M/other")" 00
gone "$own"
has_ended "$shared" && bad 'an agent that the first group uses has ended'
is 'this machine alone' "$(set_ stop)$(set_ hosts local)$(set_ start)" 000
is 'nothing is left of the hosts' "$(grep '^hosts ' "$G/ctl") $(grep -c . "$G/hosts") $(hosts_of | xargs -n 1 | sort -u)" \
	"hosts local 1 $(uname -n)"
gone "$shared"

# all in one write, while the old ranks are still ending
is 'other hosts for the next start' "$(errno write "$G/ctl" $'hosts x:1 y:1\nsize 2\n')" EBUSY
is 'stop, hosts and start' "$(errno write "$G/ctl" $'stop\nhosts x:1 y:1\nsize 2\nlauncher '"$launcher"$'\nstart\n') $(hosts_of)" '0 x y'
unmount

# a host that is not connected yet has nothing to end: it is not waited for
printf '#!/bin/sh\nexec sleep 1000\n' >"$T/hangs"
chmod +x "$T/hangs"
mount_plain -o 'hosts=c:2' -o "launcher=$T/hangs"
set_ start >"$T/started" &
starting=$!
until_true grep -q '^state starting' "$G/status"
like 'it connects' "$(cat "$G/hosts")" '^c state=connecting'
is 'stop' "$(set_ stop) $(key "$G/status" state)" '0 stopped'
wait "$starting"
is 'the start is called off' "$(cat "$T/started") $(cut -d ' ' -f 3- "$G/error")" \
	'ECANCELED ECANCELED start: the group was stopped before it was ready'
unmount

# Slurm supplies the list of hosts
SLURM_JOB_NODELIST='n[1-2],m' SLURM_TASKS_PER_NODE='1(x2),2' mount_plain -o hosts=slurm -o "launcher=$launcher"
is 'an allocation' "$(grep ^hosts "$G/ctl")" 'hosts n1:1 n2:1 m:2'
cell pass
is 'gives the places' "$(hosts_of)" 'n1 n2 m m'
unmount

# the daemon is killed: no agent survives it
mount_plain -o cwd=/ -o 'hosts=a b' -o "launcher=$launcher"
cell pass
left="$(agent 0) $(agent 2) $(rank_pids | xargs)"
kill -KILL "$(daemon_pid)"
# shellcheck disable=SC2086 # a list
gone $left
