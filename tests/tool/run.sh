#!/usr/bin/env bash
# ddip run gives a program new processes and what its caller has: arguments, directory, environment, standard input;
# with -k it uses the existing processes.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
export DDIP_MOUNT=$PLACE PATH=$BUILD:$PATH
mkdir "$T/src" "$T/here"
cd "$T/here" || exit

# run COMMAND…: sets $status, and $out to its output
run() {
	"$@" >"$T/out" 2>&1
	status=$?
	out=$(cat "$T/out")
}

# ---- what it is given

cat >"$T/src/given.py" <<'END'
import json
import os
import sys
if os.environ["RANK"] == "0":
    print(json.dumps([sys.argv, __file__, os.getcwd(), [os.environ.get(k) for k in ("FOO", "BAR", "LC_ALL", "A b")]]))
END
unset LC_ALL
is 'arguments, directory and environment are the caller'\''s; -e is on top' \
	"$(FOO=1 BAR=$'two\nlines' ddip run -e FOO=3 -e 'A b=x=y' ../src/given.py --x 'two words' -r '' </dev/null)" \
	"[[\"../src/given.py\", \"--x\", \"two words\", \"-r\", \"\"], \"$T/here/../src/given.py\", \"$T/here\", [\"3\", \"two\\nlines\", null, \"x=y\"]]"
is 'LC_ALL is the caller'\''s too' "$(LC_ALL=C.UTF-8 ddip run ../src/given.py </dev/null | grep -c 'C.UTF-8')" 1
export LC_ALL=C
mkdir pack
echo 'import sys; print(sys.argv[1:], __package__, __spec__.name)' >pack/__main__.py
is 'a module' "$(ddip run -m pack -r 5 --all </dev/null)" "['-r', '5', '--all'] pack pack.__main__"
is 'a program from standard input' "$(echo 'import sys; print(sys.argv, sys.stdin.read() == "")' | ddip run - a)" "['-', 'a'] True"
run sh -c 'mkdir gone && cd gone && rmdir ../gone && exec ddip run "$0"' "$T/src/given.py"
like 'a directory that is gone' "$status $out" '^3 .*ddip: the current directory is gone: No such file or directory$'
run ddip run nothing.py
is 'a file that is not there: status' $status 3
like 'a directory: status and message' "$(ddip run pack 2>&1; echo $?)" 'pack: is a directory.* --no-python python pack.*3$'
"$PLAIN_PYTHON" -m zipapp pack -o pack.pyz
like 'an archive: status and message' "$(ddip run pack.pyz 2>&1; echo $?)" 'pack.pyz: is an archive.* python pack.pyz.*3$'
for flag in -f -k; do
	ddip exec 'untouched = 1'
	run ddip run $flag ''
	like "$flag and an empty name: status and message" "$status $out" "^3 .*'': no such file"
	is "$flag and an empty name: nothing is done" "$(cat "$G/vars/untouched")" 1
done
ddip restart
run ddip run -e nonsense ../src/given.py
is 'a wrong -e: status' $status 2
run ddip run
is 'no program: status' $status 2
run ddip run -m
is 'no module: status' $status 2

# ---- standard input

cat >"$T/src/reads.py" <<'END'
import os, sys
print(os.environ["RANK"], sys.stdin.read().split(), sys.stdin.read())
END
is 'standard input is rank 0'\''s, the others are at its end' \
	"$(printf 'one\ntwo\n' | ddip run -a "$T/src/reads.py" | sort)" $'0: 0 [\'one\', \'two\'] \n1: 1 [] '
is 'with -r it is the first of these ranks'\''' \
	"$(echo one | ddip run -r 1 "$T/src/reads.py" 2>/dev/null)" "1 ['one'] "
is 'nothing to read is the end' "$(ddip run "$T/src/reads.py" </dev/null)" '0 [] '
is 'so is a closed input' "$(ddip run "$T/src/reads.py" <&-)" '0 [] '
head -c 3000000 /dev/zero | tr '\0' 'x' >"$T/big"
echo 'import sys; print(len(sys.stdin.buffer.read()))' >"$T/src/counts.py"
is 'three megabytes arrive' "$(ddip run "$T/src/counts.py" <"$T/big")" 3000000
cat >"$T/src/copies.py" <<'END'
import sys
print(sys.stdin.errors, sys.stdout.errors, sys.stderr.errors)
text = sys.stdin.readline() + sys.stdin.read(1) + sys.stdin.read(2)
sys.stdout.write(text + sys.stdin.read())
END
printf 'a\377b\n\303\251\342\202x\303\303\251.' >"$T/bytes"
{
	echo surrogateescape surrogateescape backslashreplace
	cat "$T/bytes"
} >"$T/copy"
ok cmp "$T/copy" <(ddip run "$T/src/copies.py" <"$T/bytes")
cat >"$T/src/child.py" <<'END'
import os, select, subprocess, sys
waits = os.environ["RANK"] == "0" and select.select([sys.stdin], [], [], 300)[0] == [sys.stdin]
print(os.environ["RANK"], waits, subprocess.check_output(["cat"]), select.select([0], [], [], 0)[0])
END
is 'so does what a child reads; it is not at its end before' \
	"$(printf 'one\ntwo\n' | ddip run -a "$T/src/child.py" | sort)" $'0: 0 True b\'one\\ntwo\\n\' [0]\n1: 1 False b\'\' [0]'
is 'nor is it read for a program that asks for none' \
	"$(printf 'one\ntwo\n' | { ddip run <(echo 'print(1)') && cat; })" $'1\none\ntwo'
is 'characters are counted, not bytes' "$(printf '\303\251\342\202\254!' |
	ddip run <(echo 'import sys; print(ascii([sys.stdin.read(1), sys.stdin.read(1), sys.stdin.read()]))'))" \
	"['\\xe9', '\\u20ac', '!']"
is 'lines are passed on as they come' "$(
	cat >"$T/src/echo.py" <<-'END'
		import sys
		for line in sys.stdin:
		    print("got", line, end="", flush=True)
	END
	mkfifo "$T/in" "$T/answers"
	ddip run "$T/src/echo.py" <"$T/in" >"$T/answers" &
	exec 3>"$T/in" 4<"$T/answers"
	for word in a b; do
		echo "$word" >&3
		read -r -t "$HANG_LIMIT_S" answer <&4
		echo "$answer"
	done
	exec 3>&-
	wait $! || echo "status $?"
)" $'got a\ngot b'
ddip start
is 'exec passes it on, too, when the code asks' "$(echo Ada | ddip exec -r 0 'print("hi", input())')" 'hi Ada'

# ---- new processes

run ddip run -f "$T/src/given.py"
is '-f where cells have run' $status 0
cat >"$T/src/leaves.py" <<'END'
import atexit, os, sys, threading, time
assert "left" not in os.environ and not hasattr(sys, "left")
os.environ["left"] = sys.left = "behind"
made = os.getpid()
atexit.register(print, "at exit")
ended = threading.Event()
threading.Thread(target=lambda: (ended.wait(), time.sleep(0.2), print("thread"))).start()
print("end")
ended.set()
END
is 'a program ends when its process would' "$(ddip run "$T/src/leaves.py")" $'end\nthread\nat exit'
like 'what it left can be looked at' "$(cat "$G/vars/made")" '^[0-9]+$'
first=$(cat "$G/rank0/vars/made")
is 'the next one meets nothing of it' "$(ddip run "$T/src/leaves.py")" $'end\nthread\nat exit'
[ "$(cat "$G/rank0/vars/made")" != "$first" ] || bad 'the second program ran in the first one'\''s process'
is 'the number of a program that is left alone' "$(ddip run -d "$T/src/leaves.py")" \
	"$(key "$G/status" cell)"
ddip wait

ddip restart
ddip exec 'import os'
is 'a cell that has left no variable is no reason to ask' "$(ddip run "$T/src/leaves.py")" $'end\nthread\nat exit'
ddip exec 'precious = 7'
before=$(cat "$G/ranks")
run ddip run "$T/src/leaves.py" 'two words'
is 'variables of cells are not lost without a word' $status 2
like 'it says what to type' "$out" "ddip run -f $T/src/leaves.py 'two words' .*ddip run -k $T/src/leaves.py 'two words' "
is 'the variable is there' "$(cat "$G/vars/precious")" 7
echo 'precious += 1; print("added")' >"$T/src/adds.py"
is '-k runs it where the variables are' "$(ddip run -k "$T/src/adds.py")" added
is 'the variable has its new value' "$(cat "$G/vars/precious")" 8
is 'the processes are the same' "$(cut -d ' ' -f 3 "$G/ranks")" "$(cut -d ' ' -f 3 <<<"$before")"
run ddip run -f -k "$T/src/adds.py"
is '-f and -k exclude each other' $status 2
run ddip run -f "$T/src/adds.py"
is '-f gives new processes' "$status $(grep -c NameError "$T/out")" '1 1'
run ddip run -r 1 "$T/src/given.py"
like 'it says which ranks run it' "$out" 'only these ranks run the program: 1'

# ---- next to other work

mkfifo "$T/gate"
echo "import os
if os.environ['RANK'] == '0': open('$T/gate').close()
print('through')" >"$T/src/gate.py"
n=$(ddip run -d "$T/src/gate.py")
for k in 1 2; do
	ddip run "$T/src/leaves.py" >"$T/out$k" 2>"$T/said$k" &
done
for k in 1 2; do
	until grep -q . "$T/said$k"; do
		[[ $(jobs -r) == *leaves* ]] || give_up 'a program did not wait for the one that runs'
	done
done
like 'one says that it waits for what runs, the other that it comes after that' "$(cat "$T"/said? | sort | xargs)" \
	"^ddip: another ddip run waits for this group: .* ddip: the group is busy .cell $n.: the program comes then\$"
: >"$T/gate"
wait
is 'both ran' "$(cat "$T"/out? | sort | uniq -c | xargs)" '2 at exit 2 end 2 thread'
is 'what they waited for was left alone' "$(state "$n")" ok

# ---- failures

run ddip run --nonsense "$T/src/given.py"
like 'another option is just unknown' "$out" 'no option --nonsense'
echo 'print("text")' >"$T/src/prints.py"
run sh -c 'ddip run "$1" >/dev/full' - "$T/src/prints.py"
is 'a full standard output is a failure' $status 4
cat >"$T/src/binary.py" <<'END'
import os, random
random.seed(3)
data = random.randbytes(100000) + "\u00e9\ufffd".encode() + b"\xe6\xbc"
open("binary", "wb").write(data)
while data:  # in the middle of characters, too
    end = random.randrange(1, 4000)
    os.write(1, data[:end])
    os.write(2, b"\xff\xfe|")
    data = data[end:]
END
(cd "$T" && ddip run src/binary.py >binary.out 2>binary.err)
ok cmp "$T/binary.out" "$T/binary" # what is no UTF-8 comes out as it is
ok cmp "$T/binary.err" "$G/cells/last/rank0/stderr"
printf '%s\n' 'import os; os.write(1, b"\xff\n")' >"$T/src/byte.py"
is 'labelled, too' "$(ddip run -a "$T/src/byte.py" | LC_ALL=C sort | od -An -tx1 | xargs)" \
	'30 3a 20 ff 0a 31 3a 20 ff 0a'
# buffers end within lines, so the pieces of both ranks arrive mixed
echo 'for i in range(20000): print("line", i)' >"$T/src/lines.py"
ddip run -a "$T/src/lines.py" >"$T/lines"
# a line that comes in two pieces, more than a second apart, is two labelled lines
for k in 0 1; do
	is "labelled, no line has text of two ranks: $k" \
		"$(sed -n "s/^$k: //p" "$T/lines" | tr -d '\n' | cmp - <(seq -f 'line %.0f' 0 19999 | tr -d '\n') && echo same)" same
done
is 'each line has a label' "$(grep -vc '^[01]: ' "$T/lines")" 0
printf '%s\n' 'import os, sys' 'sys.stdout.write("a\nend" + os.environ["RANK"])' >"$T/src/part.py"
is 'labelled, nothing of an incomplete line is lost' \
	"$(ddip run -a "$T/src/part.py" | sort | xargs)" '0: a 0: end0 1: a 1: end1'
echo 'while True: print("more")' >"$T/src/forever.py"
is 'a program whose output nobody reads any more is interrupted' \
	"$({ guarded ddip run "$T/src/forever.py" 2>"$T/said"; echo $? >"$T/status"; } | head -n 2)" $'more\nmore'
like 'its status, and what is said' \
	"$(cat "$T/status" "$T/said" | xargs)" '^130 ddip: cell [0-9]+ was interrupted: [^:]*$'
is 'so is its cell' "$(state)" interrupted
echo 'import sys; sys.exit(3)' >"$T/src/fails.py"
run ddip run "$T/src/fails.py"
is 'a program that fails: status' $status 1
printf '\nx = = 1\n' >"$T/src/wrong.py"
run ddip run "$T/src/wrong.py"
is 'a program that is no Python: status' $status 1
like 'its line' "$out" 'wrong.py", line 2'
run ddip exec "import subprocess; print(subprocess.run(['$BUILD/ddip', '-m', '$PLACE', 'exec', '1'], capture_output=True, text=True))"
like 'a rank that would wait for itself is refused' "$out" 'returncode=4.*deadlock'

# ---- the directory in which the group started is gone

mkdir "$T/gone"
printf 'stop\ncwd %s\nstart\n' "$T/gone" >"$G/ctl"
rmdir "$T/gone"
echo 'import os; print(os.getcwd() == os.environ["PWD"])' >"$T/src/cwd.py"
run ddip run -f ../src/cwd.py
is 'a program runs in its caller'\''s directory where that of the group was removed' "$status $out" '0 True'
