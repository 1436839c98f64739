#!/usr/bin/env bash
# The shell tool does what it should: every verb, exit codes, -x, help, finding the mount.
. "$(dirname "$0")/../lib.sh"
needs_mount

ddip=$BUILD/ddip
mkdir "$M"
unset DDIP_MOUNT DDIP_GROUP

# run COMMAND…: sets $status, and $out to its output
run() {
	"$@" >"$T/out" 2>&1
	status=$?
	out=$(cat "$T/out")
}

run "$ddip" help
is 'help' $status 0
like 'all verbs' "$out" 'mount.*umount.*start.*stop.*restart.*status.*run.*exec.*push.*pull.*tail.*wait.*interrupt.*demo'
for verb in mount umount start stop restart status run exec steer push pull tail wait interrupt stack selftest attach shell demo; do
	run "$ddip" "$verb" --help
	is "$verb --help" $status 0
	like "$verb --help" "$out" "^usage: ddip $verb"
done
for option in -V --version; do
	run "$ddip" "$option"
	is "$option" "$status $out" "0 $("$BUILD/ddipfs" --version)"
done
run "$ddip" nonsense
is 'no such verb' $status 2
run "$ddip" help ''
like 'help on an empty word' "$status $out" "^2 ddip: no help on ''"
run env -u HOME "$ddip" mount
like 'mount without a place' "$status $out" '^2 ddip: HOME is not set: [^:]*$'
: >"$T/file"
run "$ddip" mount "$T/file/dir"
like 'it says why the directory cannot be made' "$status $out" '^4 mkdir: .*: Not a directory'

run "$ddip" -m "$M" status
is 'not mounted' $status 3
like 'it says so' "$out" "$M"
run "$ddip" mount -o "python=$PLAIN_PYTHON,size=2" "${SERVE[@]}" "$M"
is "mount ($out)" $status 0
export DDIP_MOUNT=$PLACE
mkdir "$T/other"
run "$ddip" mount -o size=x "$T/other"
is 'mount that fails' $status 4
run "$ddip" mount -osize=x -- "$T/other"
is 'its options, joined with their values' $status 4
run "$ddip" push onlyone
is 'usage' $status 2
like 'how to' "$out" 'usage: ddip push'
run "$ddip" mount "$T/one" "$T/two"
is 'two places for one mount' $status 2
is 'none of them is mounted' "$(ls -d "$T/one" "$T/two" 2>/dev/null)" ''
run "$ddip" start
is "start ($out)" $status 0
run "$ddip" status
like 'status' "$out" 'state idle.*0 state=.*1 state='
run "$ddip" -x stop
like '-x' "$out" "\\+ echo stop > $PLACE/group/ctl"
run "$ddip" restart
is 'restart' $status 0
run "$ddip" -g nowhere status
is 'no such group' $status 3
mkdir "$M/second"
DDIP_GROUP=second run "$ddip" status
like 'DDIP_GROUP' "$out" 'state new'

# what is imported for it: python -S and 20 ms are the limit of its time
imports=$(PYTHONDONTWRITEBYTECODE=1 "$PLAIN_PYTHON" -I -S -X importtime "$BUILD/ddip_tool" "$M" group '' status 2>&1 >"$T/out" |
	sed -n 's/^import time:.*| *//p')
like 'status is shown' "$(cat "$T/out")" 'state idle'
is 'of ours' "$(grep '^ddip' <<<"$imports" | grep -v 'engine\|interrupts' | sort | xargs)" \
	'ddip ddip.errors ddip.groups ddip.mounts ddip.mounts.files ddip.mounts.opened ddip.mounts.p9 ddip.mounts.p9_file ddip.mounts.where ddip.tool ddip.tool.call ddip.tool.status ddip.tool.verbs'
is 'of what takes long' "$(grep -xE 're|json|socket|subprocess|shutil|tempfile|threading|glob|argparse|site' <<<"$imports")" ''

# cells
is 'exec' "$("$ddip" exec '6 * 7')" 42
run "$ddip" exec 'print("out"); raise ValueError("this one")'
is 'it raised' $status 1
like 'output, then traceback' "$out" 'out.*ValueError: this one'
run "$ddip" exec 'def'
is 'syntax error' $status 1
is 'all ranks, labelled' "$("$ddip" exec -a 'print("I am", rank)' | sort | xargs)" '0: I am 0 1: I am 1'
is 'one rank' "$("$ddip" exec -r 1 'rank')" 1
is 'quiet' "$("$ddip" exec -q 'print(1)')" ''
run "$ddip" exec -r 7 '1'
is 'a rank that is not there is refused' $status 3
like 'why' "$out" 'rank 7: the group has ranks 0..1'
is 'options joined, with a value' "$("$ddip" exec -ar1 'rank')" '1: 1'
is 'options behind the code' "$("$ddip" exec 'rank' -a -r 1)" '1: 1'
run "$ddip" exec -- -1 -a
is 'and -- ends them' $status 2
is 'code that looks like one' "$("$ddip" exec -- -1)" '-1'
is 'the value apart' "$("$ddip" exec -qr 1 -- -rank)" ''
is '-- ends the options' "$("$ddip" exec -r0 -- -5)" -5
for words in 'exec -az 1' 'exec -r' 'tail -z' 'tail -nx' 'wait -z' 'ls -z' 'interrupt -r 0 1'; do
	# shellcheck disable=SC2086
	run "$ddip" $words
	is "wrong options: $words" $status 2
done
for list in x 1-0 ',' ''; do
	run "$ddip" exec -r "$list" '1'
	is "no list of ranks: '$list'" $status 2
done
for words in "2 pull x '' : the file's name is empty" "3 pull '' : no variable " "3 push x '' : '': No such file" \
	"3 wait '' : no cell '' in " '3 wait ../ : no cell ../ in ' "2 tail -n '' 0 : usage: " "3 -g '' status : no group '' in " \
	"4 cat group : $PLACE/group: Is a directory"; do
	eval "run \"\$ddip\" $(sed 's/^. //; s/ : .*//' <<<"$words")"
	like "careless words: $words" "$status $out" "^${words%% *} (ddip: )?${words#* : }"
done
"$ddip" exec 'kept = 1'
run "$ddip" run -f -r 0,7 /dev/null
is 'run on a rank that is not there' $status 3
is 'it is refused before the group is restarted' "$("$ddip" exec 'kept')" 1
is 'stderr apart' "$("$ddip" exec 'import sys; print("o"); print("e", file=sys.stderr)' 2>/dev/null)" o
printf 'import sys\nprint(sys.argv[1:], __file__)\nassert len(sys.argv) < 4, "too many"\n' >"$T/p.py"
is 'run' "$("$ddip" run -f "$T/p.py" a "b c")" "['a', 'b c'] $T/p.py"
run "$ddip" run -f "$T/p.py" 1 2 3
is 'run: raised' $status 1
like 'its line' "$out" "p.py\", line 3"
is 'run -' "$(echo 'print("from stdin")' | "$ddip" run -f -)" 'from stdin'
run "$ddip" run "$T/nothing.py"
is 'no such file' $status 3
n=$("$ddip" exec -d 'import time; print("begins", flush=True); time.sleep(100)')
like 'detached: a number' "$n" '^[0-9]+$'
guarded grep -m1 -q begins "$G/cells/$n/stream"
run "$ddip" interrupt "$n"
is 'interrupt' $status 0
is 'interrupt returns when the cell has ended' "$(state "$n")" interrupted
run "$ddip" interrupt "$n"
is 'interrupt: of what has ended' $status 0
run "$ddip" wait "$n"
is 'wait: interrupted' $status 130
run "$ddip" wait
is 'wait: the last one' $status 130
submit 'import time; time.sleep(1000)'
long=$n
submit 'never = 1'
(
	"$ddip" wait >"$T/waited" 2>&1
	echo $? >>"$T/waited"
) &
waiter=$!
echo cancel >"$G/ctl"
wait $waiter
is 'wait: for what was cancelled in the queue' "$(cat "$T/waited")" \
	"ddip: cell $n never ran: dropped from the queue by cancel
5"
run "$ddip" wait
is 'wait: afterwards' $status 5
submit 'never = 1'
"$ddip" interrupt "$n"
is 'wait: for what was interrupted there' "$("$ddip" wait 2>&1)" \
	"ddip: cell $n never ran: interrupted while it was queued"
run "$ddip" interrupt -r 0
is 'interrupt: of what runs on a rank' "$status $(state "$long")" '0 interrupted'
run "$ddip" interrupt
is 'interrupt: when nothing runs' "$status $out" '0 '
echo 'grace 0.1' >"$G/ctl"
mkfifo "$T/gate"
submit "try:
    print('waits', flush=True)
    __import__('time').sleep(1000)
finally:
    open('$T/gate').read()" "$G/rank0/cell"
prints "$G/cells/$n/stream" waits
run "$ddip" interrupt
is 'interrupt: of a cell whose handlers take long' $status 124
like 'interrupt: which cell it is' "$out" "^ddip: cell $n has not ended yet: .*ddip wait $n waits"
: >"$T/gate"
like 'it ends by itself' "$(wait_cell "$n")" 'state interrupted'
echo 'grace 5' >"$G/ctl"
run "$ddip" wait 999
is 'wait: no such cell' $status 3
run "$ddip" exec -r 0 'import os; os._exit(3)'
is 'a rank died' $status 6
is 'it is said once' "$(grep -o 'died' <<<"$out" | wc -l)" 1

# a cell without the tool, in any shell: the exit status is that of the cell
for shell in bash dash 'busybox sh' mksh ksh93 zsh fish yash; do
	command -v "${shell%% *}" >/dev/null || continue
	# fish has no here-documents
	[ "$shell" = fish ] && give="printf '%s\n' \$argv[1] | cp /dev/stdin '$G/cell'" ||
		give="cp /dev/stdin '$G/cell' <<END"$'\n''$1'$'\n''END'
	words=(-c "$give")
	[ "$shell" = fish ] || words+=("$shell")
	# shellcheck disable=SC2086 # busybox and its applet
	ok $shell "${words[@]}" 'shell = 1'
	# shellcheck disable=SC2086
	fails $shell "${words[@]}" 'raise ValueError'
done

# output that cannot be written, and no group to run it
run sh -c '"$0" exec "print(1)" >/dev/full' "$ddip"
is 'a full standard output is a failure' $status 4
like 'it says where the output is' "$out" "No space left on device; all of it is in $PLACE/group/cells/[0-9]+/rank0/stdout"
# shellcheck disable=SC2016
for code in '1 "$0" exec 1/0 2>&-' '1 "$0" exec 1/0 2>/dev/full' '3 "$0" wait 99999 2>/dev/full' '4 "$0" top >&-'; do
	run sh -c "${code#* }" "$ddip"
	is "the status where a message cannot be written: $code" $status "${code%% *}"
	[[ $out != *Traceback* ]] || bad "$code: $out"
done
mkdir "$T/bin"
for program in bash dirname readlink cat awk id; do
	ln -s "$(command -v $program)" "$T/bin/$program"
done
PATH=$T/bin run "$ddip" exec 1
is 'without python3 exec is refused' $status 4
like 'it says that python3 is missing' "$out" 'needs python3'
is 'escapes of the stream are the characters that they stand for' \
	"$("$ddip" exec 'print("\\ \" \t \u00e4 \U0001f600")')" $'\\ " \t \303\244 \360\237\230\200'

# a cell that is queued behind another one reports that; those of other ranks do not matter
mkfifo "$T/gate" "$T/other"
"$ddip" exec -d -r 1 "open('$T/other').close()" >/dev/null
n=$("$ddip" exec -d -r 0 "open('$T/gate').close()")
"$ddip" exec -q -r 0 pass 2>"$T/said" &
second=$!
until grep -q . "$T/said"; do
	kill -0 $second || give_up 'the second cell did not wait'
done
like 'what it waits for is named' "$(tail -n 1 "$T/said")" "^ddip: cell $((n + 1)) waits for cell $n of ddip \(pid [0-9]+\)\$"
is 'nothing else is' "$(wc -l <"$T/said")" 1
: >"$T/gate"
: >"$T/other"
wait $second || bad "the cell that waited: status $?"

# output appears while the cell runs, Ctrl-C interrupts
"$PLAIN_PYTHON" - "$ddip" <<'END' || bad 'live output and Ctrl-C'
import os, signal, subprocess, sys
tool = subprocess.Popen([sys.argv[1], "exec", "import time\nprint('first', flush=True)\ntime.sleep(100)"],
                        stdout=subprocess.PIPE, start_new_session=True,
                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
assert tool.stdout.readline() == b"first\n"
os.killpg(tool.pid, signal.SIGINT)
assert tool.wait(timeout=float(os.environ["HANG_LIMIT_S"])) == 130, tool.returncode
END
is 'the next one works' "$("$ddip" exec '1')" 1
# so do these, also in a shell's background job, where SIGINT is ignored; the cell has ended before ddip
sleeps='import time; print("first", flush=True); time.sleep(1000)'
echo "$sleeps" >"$T/sleeps.py"
mkfifo "$T/lines"
for signal in TERM HUP QUIT; do
	for how in exec run shell; do
		rm -f "$T/told"
		case $how in
		exec) env --default-signal=QUIT "$ddip" exec "$sleeps" >"$T/told" & ;;
		run) env --default-signal=QUIT "$ddip" run -f "$T/sleeps.py" >"$T/told" & ;;
		shell) env --default-signal=QUIT "$ddip" shell <"$T/lines" >"$T/told" & ;;
		esac
		pid=$!
		[ $how != shell ] || {
			exec 7>"$T/lines"
			echo "$sleeps" >&7
		}
		until_true grep -qs first "$T/told"
		kill -$signal $pid
		wait $pid
		is "SIG$signal of $how: status" $? $((128 + $(kill -l $signal)))
		exec 7>&-
		is "SIG$signal of $how: the cell" "$(state)" interrupted
	done
done
rm "$T/told"
# timeout(1) sends its signal twice, a terminal that closes SIGHUP twice: the handler in the cell is not interrupted
"$ddip" exec 'import time
caught, end = 0, time.monotonic() + 1000
while time.monotonic() < end:
    try:
        print("first", flush=True)
        while time.monotonic() < end: time.sleep(0.01)
    except KeyboardInterrupt:
        caught, end = caught + 1, time.monotonic() + 1' >"$T/told" &
pid=$!
until_true grep -qs first "$T/told"
kill -HUP $pid
kill -TERM $pid
wait $pid
like 'two that end it: the status is that of one' $? '^(129|143)$' # the kernel may give them to two threads
is 'two that end it are one interrupt' "$("$ddip" exec caught)" 1
rm "$T/told"
# who has sent it answers no more
exec 7<>"$T/lines"
"$ddip" exec 'import time
try:
    print("first", flush=True)
    time.sleep(1000)
finally:
    input()' <&7 >"$T/told" 2>&1 &
pid=$!
until_true grep -qs first "$T/told"
kill -TERM $pid
wait $pid
is 'a cell that asks after it: status' $? 143
is 'has ended' "$(state)" interrupted
exec 7>&-
rm "$T/told"
(
	trap '' HUP
	exec "$ddip" exec "$sleeps" >"$T/told" 2>&1
) &
pid=$!
until_true grep -qs first "$T/told"
kill -HUP $pid
is 'under nohup it goes on' "$(state)" running
kill -TERM $pid
wait $pid
is 'but not after SIGTERM' "$(state)" interrupted
# the signal arrives while the main thread waits but interrupts no system call, as if it had arrived just before
PYTHONPATH=$ROOT/magics "$PLAIN_PYTHON" - "$PLACE/group" <<'END' || bad 'an interrupt that ends no system call'
import os, signal, sys, threading
from ddip.cells import cell as cells
from ddip.groups import Group

group = Group(sys.argv[1])
shown = threading.Event()
threading.Thread(target=lambda: (shown.wait(), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
with cells.Interrupts() as interrupts:
    cell = cells.submit(group, "import time\nprint('first', flush=True)\ntime.sleep(100)")
    end = cells.follow(cell, lambda messages: shown.set(), interrupts=interrupts)
assert end["interrupts"] == 1, end
assert end["state"] == "interrupted", end
END

# objects
echo '[1, 2, 3]' >"$T/o.json"
run "$ddip" push o "$T/o.json"
is "push ($out)" $status 0
is 'on all' "$("$ddip" exec -r 1 'sum(o)')" 6
is 'pull' "$("$ddip" pull o)" '[1, 2, 3]'
ok "$ddip" pull o "$T/back.json"
is 'pull into a file' "$(tr -d ' \n' <"$T/back.json")" '[1,2,3]'
run "$ddip" pull o "$T/o.txt"
is 'text that may be cut is not saved' $status 2
like 'a view is asked for' "$out" 'the text of o .list. is for people.*ddip pull o.pkl'
[ ! -e "$T/o.txt" ] || bad 'a file was made for text that may be cut'
"$ddip" pull o >"$T/o.txt" 2>/dev/null
is 'nor by the shell' "$? $(wc -c <"$T/o.txt")" '2 0'
echo 5 | "$ddip" push number -
ok "$ddip" pull number "$T/number"
ok "$ddip" pull number.sum "$T/sum"
is 'numbers are all there in their text' "$(cat "$T/number" "$T/sum" | xargs)" '5 10'
ok "$ddip" exec -q 'held = {"a.b": [1, {"c": 2}]}'
ok "$ddip" pull held.d/a.b "$T/inner.json"
is 'what is in an object' "$("$ddip" pull held.d/a.b.d/1.d/c) $(tr -d ' \n' <"$T/inner.json")" '2 [1,{"c":2}]'
run "$ddip" pull held.d/a.b "$T/o.text"
like 'its text' "$status $out" '2 .*the text of held.d/a.b .in an object. is for people.*ddip pull held.d/a.b.pkl'
ok "$ddip" push held.d/a.b "$T/inner.json"
is 'it is set' "$("$ddip" exec -r 1 held)" "{'a.b': [1, {'c': 2}]}"
echo 3 | "$ddip" push held.d/a.b.d/1.d/c -
is 'and what is in that' "$("$ddip" exec -r 1 held)" "{'a.b': [1, {'c': 3}]}"
echo 5 | "$ddip" push -r 1 o -
is 'push to one' "$("$ddip" pull o; "$ddip" pull -r1 -- o)" $'[1, 2, 3]\n5'
for name in ../ctl ../../x "$T/mine"; do
	run "$ddip" push "$name" "$T/o.json"
	is "no variable: $name" "$status $out" "2 ddip: $name is not the name of a variable"
done
run "$ddip" pull ../status
is 'nor to be read' $status 2
run "$ddip" pull nothing "$T/nothing"
is 'no such variable' $status 3
[ ! -e "$T/nothing" ] || bad 'a file was made for it'
echo 'broken' >"$T/bad.json"
run "$ddip" push o "$T/bad.json"
is 'push of a broken file' $status 4
like 'why' "$out" 'EBADMSG|json|JSON'

# files by their paths
is 'write runs a cell, cat reads' "$(echo 'w = rank + 1; print("written")' | "$ddip" write group/cell; "$ddip" cat group/rank1/vars/w)" 2
echo '1 / 0' >"$T/fails.py"
run "$ddip" cp "$T/fails.py" :group/cell
is "the exit status of cp is the cell's" $status 1
like 'with what it raised' "$out" 'ZeroDivisionError'
ok "$ddip" cp "$T/o.json" :group/vars/copied.json
ok "$ddip" cp :group/vars/copied.json "$T/copied.json"
is 'cp takes objects in and out' "$(tr -d ' \n' <"$T/copied.json")" '[1,2,3]'
like 'ls lists' "$("$ddip" ls group/vars | xargs)" 'copied.*o.* w$'
run "$ddip" ls group/nothing
is 'ls of nothing' $status 3
run "$ddip" rm group/vars/nothing
is 'rm of nothing' $status 3
run "$ddip" pull o.pkl /dev/full
is 'a full disk' $status 4
like 'which file' "$out" '/dev/full: No space left'
like 'ls -l tells modes' "$("$ddip" ls -l group)" '-rw------- +[0-9]+ cell'
ok "$ddip" rm group/vars/copied
fails "$ddip" cat group/vars/copied
run "$ddip" cp "$T/o.json" "$T/back.json"
is 'cp between other files is refused' $status 2
: >"$G/error" # nothing is remembered: what failed has only its own reason
for words in 'write nope' 'cp :version /nonexistent/x'; do
	# shellcheck disable=SC2086
	run "$ddip" $words </dev/null
	like "$words: status and one line" "$status $out" "^[34] ddip: [^"$'\n'"]*\$"
done
ok "$ddip" mkdir third
like 'mkdir makes a group' "$("$ddip" ls | xargs)" 'group.*third'
ok "$ddip" rm -d third

# tail, stack
"$ddip" exec -q 'for i in range(20): print("line", i)'
is 'tail' "$("$ddip" tail -n 2 1)" $'line 18\nline 19'
is 'tail -n2' "$("$ddip" tail -n2 -- 1)" $'line 18\nline 19'
is 'tail of stderr' "$("$ddip" exec -q 'import sys; print("red", file=sys.stderr)'; "$ddip" tail -en1 1)" red
"$ddip" exec -q 'import sys; print("begin", *range(20), "end\x0cpage", sep="\r", file=sys.stderr)'
is 'tail: a progress bar is one line' "$("$ddip" tail -en2 1 | tr '\r\f' '~^')" \
	"red"$'\n'"begin$(printf '~%s' {0..19})~end^page"
for words in 'status --' 'wait --' 'stack -- 0' 'cat -- group/status' 'ls -l -- group' 'interrupt -r0,1'; do
	# shellcheck disable=SC2086
	ok "$ddip" $words >/dev/null
done
like 'stack' "$("$ddip" stack 0)" 'no code of the user'
like 'stack -a' "$("$ddip" stack -a 0)" 'File.*ddip_engine'
is 'tail of no rank' "$("$ddip" tail 9 >/dev/null 2>&1; echo $?)" 3
"$PLAIN_PYTHON" - "$ddip" <<'END' || bad 'tail -f'
import os, socket, subprocess, sys
tail = subprocess.Popen([sys.argv[1], "tail", "-f", "-n", "1", "0"], stdout=subprocess.PIPE)
assert tail.stdout.readline() == b"line 19\n"
subprocess.run([sys.argv[1], "exec", "-q", "print('new')"], check=True)
assert tail.stdout.readline() == b"new\n"
tail.terminate()
tail.wait()
for what in ["-n0", "0"], ["-e", "-n0", "0"], []:  # it ends with its reader, also while nothing is printed
    for reader, output in (os.pipe(), [each.detach() for each in socket.socketpair()]):
        tail = subprocess.Popen([sys.argv[1], "tail", "-f", *what], stdout=output)
        os.close(output)
        os.close(reader)
        tail.wait(int(os.environ["HANG_LIMIT_S"]))
END

# the only mount is found without being named
unset DDIP_MOUNT
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
	is 'found' "$(alone "$ddip" exec 1)" 1
fi
# of several, the one that the working directory is in, else the only one below it
if [ "$PLACE" = "$M" ] && mkdir -p "$T/work/second" "$T/empty" && "$BUILD/ddipfs" "$T/work/second"; then
	for place in "$T" "$T/empty"; do
		status=0 out=$(cd "$place" && "$ddip" status 2>&1) || status=$?
		like "several mounts, from $place" "$status $out" '^3 ddip: several mounts, choose one'
	done
	is 'the one around' "$(cd "$M/group/vars" && "$ddip" exec 1)" 1
	like 'the only one below' "$(cd "$T/work" && "$ddip" -x status 2>&1)" "$T/work/second/group/status"
	is 'the word for it' "$("$ddip" help unmount)" "$("$ddip" help umount)"
	"$ddip" unmount "$T/work/second" || bad 'the second mount stays'
fi
pids=$(others)
run "$ddip" umount "$PLACE"
is "umount ($out)" $status 0
# shellcheck disable=SC2086
gone $pids
run "$ddip" umount "$PLACE"
is 'umount of what is no mount' "$status" 3

# the ranks of the first cell cannot be started: nothing has raised, and it is said all the same
(ulimit -n 64 && exec "$ddip" mount -o "python=$PLAIN_PYTHON,backend=none,size=20" "${SERVE[@]}" "$M") || give_up 'no mount'
run "$ddip" -m "$PLACE" exec 1
like 'too few descriptors' "$status $out" '^[1-9] .*Too many open files'
run "$ddip" umount "$PLACE"
is 'umount after that' "$status" 0

# On another host, a rank's pid is the number of some other process here, for which umount does not wait.
if [ "$(id -u)" = 0 ] && unshare --pid --fork sh -c 'echo 100 >/proc/sys/kernel/ns_last_pid' 2>/dev/null; then
	here=()
	for _ in {1..100}; do
		sleep 1000 &
		here+=($!)
	done
	printf '%s\n' '#!/bin/sh' "echo ${here[30]} >/proc/sys/kernel/ns_last_pid" 'exec sh -c "$1"' >"$T/far"
	chmod +x "$T/far"
	mount_plain -o size=1 -o hosts=far:1 -o "launcher=unshare --pid --fork --kill-child $T/far" -o linger=0
	is_one_of_ours() {
		ok "$ddip" -m "$M" restart
		pid=$(sed -n 's/.* pid=\([0-9]*\).*/\1/p' "$G/ranks")
		[[ " ${here[*]} " = *" $pid "* ]]
	}
	until_true is_one_of_ours
	run "$ddip" umount "$M"
	is "umount of a group on another host ($out)" $status 0
	kill "${here[@]}"
fi
