#!/usr/bin/env bash
# ddip run --hosts: a program on several hosts in one line. Its daemon ends with it, however it ends, and what is
# mounted elsewhere is left alone; what lies beside the program travels within bounds.
. "$(dirname "$0")/../lib.sh"

export XDG_CACHE_HOME=$T/cache TMPDIR=$T/tmp
mkdir "$TMPDIR" "$T/src" "$T/there"
cd "$T/src" || exit
unset DDIP_MOUNT DDIP_GROUP

# go HOST COMMAND: $T/src is empty on b
cat >"$T/go" <<END
#!/bin/sh
cd /
[ \$1 = b ] && [ -w / ] || exec sh -c "\$2"
exec unshare -m sh -c 'mount -t tmpfs none $T/src && exec sh -c "\$1"' sh "\$2"
END
chmod +x "$T/go"
options=(-o "launcher=$T/go {host}" -o backend=none -o "python=$PLAIN_PYTHON" -o linger=2)
# run OPTION… FILE ARG…: on two hosts
run() {
	guarded "$BUILD/ddip" run --hosts a:1,b:1 "${options[@]}" "$@" >"$T/out" 2>&1
	status=$? out=$(cat "$T/out")
}
has_no_others() {
	[ -z "$(others)" ]
}
# nothing_left WHAT
nothing_left() {
	until_true has_no_others || bad "$1: processes are left: $(others | xargs -r ps -o args= -p)"
	is "$1: files are left" "$(find "$TMPDIR" "$T" -maxdepth 1 -name 'ddip-run.*' -o -maxdepth 1 -name 'ddipfs-far.*')" ''
}

cat >prog.py <<'END'
import os
import sys

import helper

print(os.environ["RANK"], os.environ["GROUP_RANK"], helper.x, sys.argv[1:], sys.stdin.readline())
sys.exit(int(os.environ.get("ENDS", 0)))
END
echo 'x = 5' >helper.py
run -a -o "cwd=$T/there" prog.py one 't,wo' <<<line
is 'status' $status 0
is 'both ranks' "$(grep '^[01]: [01]' "$T/out" | sort | xargs)" "0: 0 0 5 [one, t,wo] line 1: 1 1 5 [one, t,wo]"
nothing_left 'it ends'
ENDS=3 run -o "cwd=$T/there" prog.py
is 'it fails: status' $status 1
nothing_left 'it fails'
guarded "$BUILD/ddip" run --hosts a:1 "${options[@]}" -o "python=$T/none" prog.py 2>"$T/said"
is 'it cannot start: status' $? 6
like 'the host' "$(cat "$T/said")" "host a: .*there is no Python at '$T/none'"
nothing_left 'it cannot start'

# what lies beside it
echo 'import big, helper' >many.py
mkdir big
touch big/m{0..1000}.py
run -o "cwd=$T/there" many.py
like 'too many files do not go, and this is told' "$out" 'big: not sent to the hosts, because over 1000 files or 8 MiB'
if [ "$(id -u)" = 0 ]; then
	is 'where they are missing it fails' $status 1
	like 'on which host' "$out" "No module named 'big'"
fi
rm -r big

# what it is refused with
while IFS='|' read -r words text; do
	# shellcheck disable=SC2086 # words
	said=$(guarded "$BUILD/ddip" run $words 2>&1)
	like "refused: $words" "$? $said" "^2 ddip: .*$text"
done <<END
--hosts a:1 -k prog.py|--hosts and -k exclude each other
--hosts a:1 -d prog.py|--hosts and -d exclude each other
--hosts a:1 --nnodes 2 prog.py|the group is on 1 host
--hosts a:1,b:1 --standalone prog.py|--standalone: the group is on 2 hosts
-o size=1 prog.py|-o goes with --hosts
--hosts a:1 -o size prog.py|want SETTING=VALUE, not 'size'
--hosts a:1 -o allow_other=1 prog.py|there is no setting 'allow_other'
--hosts slurm prog.py|this is no Slurm allocation
END
like 'a program that there is not' "$(guarded "$BUILD/ddip" run --hosts a:1 nothing.py 2>&1)" 'nothing.py: no such file'
nothing_left 'it is refused'

# signals, and other calls meanwhile
cat >waits.py <<'END'
import time

import ddip

try:
    print("waits", flush=True)
    time.sleep(1000)
except ddip.Preempted:
    print("saved")
END
other_waits() { [ "$(guarded "$BUILD/ddip" -m "$T/job.sock" cat group/rank1/stdout)" = waits ]; }
# start OPTION…: $program waits on both ranks; $job is its pid
program=waits.py
start() {
	: >"$T/out"
	"$PLAIN_PYTHON" -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])' \
		"$BUILD/ddip" -m "$T/job.sock" run --hosts a:1,b:1 "${options[@]}" -o "cwd=$T/there" "$@" "$program" >"$T/out" 2>&1 &
	job=$!
	until_true grep -q '^waits' "$T/out"
	until_true other_waits
}
for signal in INT TERM HUP; do
	start
	is 'others look in' "$(guarded "$BUILD/ddip" -m "$T/job.sock" cat group/rank1/stdout)" waits
	kill -$signal $job
	wait $job
	is "SIG$signal: status" $? 130
	like "SIG$signal" "$(cat "$T/out")" 'KeyboardInterrupt'
	nothing_left "SIG$signal"
done
: >"$T/out"
"$BUILD/ddip" run --hosts a:1,b:1 "${options[@]}" -o "cwd=$T/there" waits.py >"$T/out" 2>&1 & # which ignores SIGINT
until_true grep -q '^waits' "$T/out"
kill -TERM $!
wait $!
is "a shell's background job: status" $? 130
nothing_left "a shell's background job"
# timeout(1) sends its signal twice: the handler in the program is not interrupted
cat >counts.py <<'END'
import time

caught, end = 0, time.monotonic() + 1000
while time.monotonic() < end:
    try:
        print("waits", flush=True)
        while time.monotonic() < end:
            time.sleep(0.01)
    except KeyboardInterrupt:
        caught, end = caught + 1, time.monotonic() + 1
print("caught", caught)
END
program=counts.py
start
kill -TERM $job
kill -HUP $job
wait $job
is 'two that end it are one interrupt' "$(tail -n 1 "$T/out")" 'caught 1'
program=waits.py
nothing_left 'two signals'
for save in '' " save '$T/there/ck' 5"; do
	start -o "on_preempt=TERM$save" -o grace=0.3
	kill -TERM $job
	wait $job
	is "a preemption$save: status, output" "$? $(xargs <"$T/out")" '0 waits saved'
	nothing_left 'a preemption'
done
start -o on_preempt=TERM
kill -KILL $job
wait $job 2>/dev/null
until_true has_no_others || bad "SIGKILL: processes are left: $(others | xargs -r ps -o args= -p)"
