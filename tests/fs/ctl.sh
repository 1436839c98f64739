#!/usr/bin/env bash
# The verbs of ctl do what they say: settings, actions, quoting, transactions, errors.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=3

line() {
	errno write "$G/ctl" "$1"$'\n'
}

is 'the size of the mount' "$(grep '^size' "$G/ctl")" 'size 3'
is 'state' "$(key "$G/status" state)" new
is 'a setting' "$(line 'size 2')" 0
is 'is printed' "$(grep '^size' "$G/ctl")" 'size 2'
is 'comment and blanks' "$(line '   timeout   60 # seconds')" 0
is 'timeout' "$(grep '^timeout' "$G/ctl")" 'timeout 60'
is 'off' "$(line 'timeout off')" 0
is 'an empty line' "$(errno write "$G/ctl" $'\n# only a comment\n\n')" 0
is 'quotes' "$(line "env 'GREETING=it''s me'")" 0
mkdir "$T/a folder"
is 'a folder with a blank' "$(line "cwd '$T/a folder'")" 0
is 'no newline at the end' "$(errno write "$G/ctl" 'history 100')" 0
is 'it counts' "$(grep '^history' "$G/ctl")" 'history 100'

is 'a NUL byte' "$(printf 'timeout 5\0\n' | dd of="$G/ctl" status=none 2>&1 | grep -c Invalid)" 1
is 'no effect' "$(grep '^timeout' "$G/ctl")" 'timeout off'

# a bad line: an error text, and no effect
before=$(cat "$G/ctl")
while IFS='|' read -r text error; do
	is "'$text'" "$(line "$text")" "$error"
done <<END
size|EINVAL
size 0|EINVAL
size x|EINVAL
size 1 2|EINVAL
size -1|EINVAL
size 99999999999999999999|EINVAL
sise 2|EINVAL
backend mpi|EINVAL
timeout never|EINVAL
timeout -1|EINVAL
grace x|EINVAL
history -1|EINVAL
spool many|EINVAL
spool -1|EINVAL
spool 7M|EINVAL
spool 99999999999999999999|EINVAL
autogc maybe|EINVAL
clock often|EINVAL
env NAME|EINVAL
python $T/nosuch/python|ENOENT
python /|EINVAL
python ''|EINVAL
cwd $T/nosuch|ENOENT
stop now|EINVAL
gpus 17|EINVAL
env 'open|EINVAL
signal|EINVAL
signal NONE|EINVAL
signal USR1|ESRCH
hosts|EINVAL
hosts a:0|EINVAL
hosts a a|EINVAL
hosts -x|EINVAL
hosts slurm|EINVAL
hosts $T/nosuch|ENOENT
hosts /dev/null|EINVAL
hosts $M/version|EINVAL
launcher|EINVAL
launcher here now|EINVAL
launcher 'x|EINVAL
engine ddip-engine|EINVAL
master_addr a/b|EINVAL
linger never|EINVAL
linger -1|EINVAL
external x|EINVAL
END
is 'nothing changed' "$(cat "$G/ctl")" "$before"
line 'size many' >/dev/null
like 'the text' "$(tail -n 2 "$G/error")" "EINVAL size many.*want"

# each line is a transaction: lines before the bad one take effect, those behind it do not
is 'one write of three lines' "$(errno write "$G/ctl" $'history 11\nnonsense\nhistory 12\n')" EINVAL
is 'the first is done' "$(grep '^history' "$G/ctl")" 'history 11'

# close waits for the end of actions
is 'start' "$(line start)" 0
is 'ready' "$(key "$G/status" state)" idle
is 'two ranks' "$(wc -l <"$G/ranks")" 2
is 'start again' "$(line start)" 0
for setting in 'size 3' 'backend none' "python $PLAIN_PYTHON" 'cwd /' 'env A=b' 'gpus none'; do
	is "$setting while it runs" "$(line "$setting")" EBUSY
done
is 'at any time' "$(line 'grace 3')" 0
# README marks exactly those
while read -r mark verb _; do
	case $verb in
	env | preload | external) line=$verb ;;
	*) line="$verb $(key "$G/ctl" "$verb")" ;; # as it is
	esac
	[ "$mark" = '*' ] && want=EBUSY || want=0
	is "$line: $mark" "$(line "$line")" "$want"
done < <(sed -n '/^Verbs of ctl/,/^ *start /{/^[ *] [a-z]/{s/^ /-/;p}}' "$M/README" | grep -v '^- start')

is 'env' "$(value 'import os; os.environ["GREETING"]')" "\"it's me\""
is 'cwd' "$(value 'import os; os.getcwd()' 1)" "'$T/a folder'"

for verb in 'interrupt 7' 'interrupt x' 'kill 7'; do
	is "$verb" "$(line "$verb")" EINVAL
done

cell 'x = 1'
before=$(rank_pids | xargs)
is 'cells have run' "$(key "$G/status" namespace)" cells
is 'reset' "$(line reset)" 0
is 'the namespace is empty' "$(key "$G/status" namespace)" empty
echo 5 >"$G/vars/pushed"
is 'something was pushed' "$(key "$G/status" namespace)" cells
is 'reset once more' "$(line reset)" 0
is 'names are gone' "$(errno read "$G/vars/x")" ENOENT
is 'the processes stay' "$(rank_pids | xargs)" "$before"
is 'rank is defined' "$(value rank 1)" 1
cell '__mine = globals()[5] = 1; __name__ = __builtins__ = None'
is 'an exception where __name__ is no text' "$(errno write "$G/cell" '1 / 0')" EREMOTEIO
is 'reset of odd names' "$(line reset)" 0
is 'all that the user made is gone' "$(errno read "$G/vars/__mine")" ENOENT
is 'what a new process has is there again' "$(value '__name__, 5 in globals()')" "('__main__', False)"

# several actions in one write: the first failure is told, and each has its say in error
selftests() {
	awk '/EOPNOTSUPP selftest: / { n += match($0, /\([0-9]+ times/) ? substr($0, RSTART + 1) : 1 } END { print n }' "$G/error"
}
: >"$G/error"
refused='Operation not supported'
actions=$'selftest 4K\nreset\nselftest 8K\nfree\n' # a selftest needs a process group
is 'fsync tells the first failure' "$(errno fsync "$G/ctl" "$actions")" EOPNOTSUPP
is 'close, too' "$(errno write "$G/ctl" "$actions")" EOPNOTSUPP
is 'all failures are in error' "$(selftests)" 4
like 'and in selftest' "$(cat "$G/selftest")" EOPNOTSUPP
is 'what has been told is not told again' "$("$PLAIN_PYTHON" - "$G/ctl" <<-'END'
	import errno, os, sys
	def told(text):
	    os.write(fd, text)
	    try:
	        os.fsync(fd)
	    except OSError as e:
	        return os.strerror(e.errno)
	    return 0
	fd = os.open(sys.argv[1], os.O_RDWR)
	print(told(b"selftest 4K\nreset\n"), told(b"reset\nfree\n"), told(b"reset\nselftest 4K\n"), os.close(fd))
END
)" "$refused 0 $refused None"
is 'without waiting' "$(errno nonblock "$G/ctl" "$actions") $(line reset)" '0 0'
is 'all of those are told as well' "$(selftests)" 8

# signals to all ranks and to one; the end of standard input
cell 'import signal, sys, time
got = []
signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))'
is 'signal' "$(line 'signal SIGUSR1')" 0
ok guarded sh -c "echo 'while not got: time.sleep(0.01)' | cat >$G/cell"
is 'a signal to all' "$(value 'got == [signal.SIGUSR1]' 0) $(value 'got == [signal.SIGUSR1]' 1)" 'True True'
is 'signal to a rank' "$(line 'signal USR1 1')" 0
ok guarded sh -c "echo 'while len(got) < 2: time.sleep(0.01)' | cat >$G/rank1/cell"
is 'not to the other' "$(value 'len(got)' 0)" 1
is 'signal to no rank' "$(line 'signal USR1 7')" EINVAL
printf 'text' >"$G/rank0/stdin"
is 'eof' "$(errno write "$G/rank0/ctl" $'eof\n')" 0
is 'a rank reads to the end of its input' "$(value 'sys.stdin.read()')" "'text'"
# shellcheck disable=SC2086 # a list
is 'restart' "$(line restart)" 0
[ "$(rank_pids | xargs)" != "$before" ] || bad 'the processes are the same after restart'
# shellcheck disable=SC2086
gone $before
is 'kill' "$(line 'kill 1')" 0
is 'the group works' "$(errno write "$G/cell" 'y = rank')" 0
is 'stop' "$(line stop)" 0
is 'stopped' "$(key "$G/status" state)" stopped
is 'no ranks' "$(rank_pids)" ''
is 'stop again' "$(line stop)" 0
is 'interrupt when stopped' "$(line interrupt)" ESRCH
printf 'size 4\nstart\n' >"$G/ctl" || bad 'size and start'
is 'four' "$(wc -l <"$G/ranks")" 4
printf 'stop\nsize 1\nstart\n' | cat >"$G/ctl" || bad 'stop, size, start in one write'
is 'one' "$(key "$G/status" size)" 1
is 'it works' "$(value 'world_size')" 1

# O_NONBLOCK does not wait
is 'restart, not waited for' "$(errno nonblock "$G/ctl" $'restart\n')" 0
is 'the next cell waits for it' "$(errno write "$G/cell" 'z = 1')" 0

# a clone of the settings
mkdir "$M/two"
cat "$G/ctl" >"$M/two/ctl" || bad 'cat ctl > ctl'
is 'the same settings' "$(cat "$M/two/ctl")" "$(cat "$G/ctl")"

# start-up phases are reported
grep -qE '_ms |_s |seconds' "$G/status" || bad "no phases in status: $(cat "$G/status")"
