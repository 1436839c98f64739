#!/usr/bin/env bash
# ddip run takes torchrun's flags: it does what has a meaning here, and says what to write instead of the others.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
export DDIP_MOUNT=$PLACE PATH=$BUILD:$PATH
mkdir -p "$T/src" "$T/here/pack"
cd "$T/here" || exit
echo 'import sys; print(sys.argv[1:], __package__, __spec__.name)' >pack/__main__.py

# run COMMAND…: sets $status, and $out to its output
run() {
	"$@" >"$T/out" 2>&1
	status=$?
	out=$(cat "$T/out")
}

# ---- torchrun's flags: the number of ranks

cat >"$T/src/tells.py" <<'END'
import os
print(*(os.environ[k] for k in ("RANK", "WORLD_SIZE", "ROLE_NAME", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS")))
END
is 'as many as there are' "$(ddip run --standalone --nproc-per-node=2 -a "$T/src/tells.py" 2>&1 | sort)" \
	$'0: 0 2 default 0 0\n1: 1 2 default 0 0'
is 'other ranks' "$(ddip run --nproc_per_node 3 -a "$T/src/tells.py" 2>&1 | sort)" \
	$'0: 0 3 default 0 0\n1: 1 3 default 0 0\n2: 2 3 default 0 0\nddip: the group has 3 ranks now; it had 2'
is 'they stay' "$(key "$G/status" size)" 3
is 'and nothing is said of it again' "$(ddip run --nproc_per_node 3 "$T/src/tells.py" 2>&1 | sort -u | xargs)" '0 3 default 0 0'
is 'as many as there are processors' "$(taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" \
	"$BUILD/ddip" run --nproc cpu "$T/src/tells.py" 2>/dev/null)" '0 1 default 0 0'
run ddip run --nproc-per-node gpu "$T/src/tells.py"
if grep -q '^[^#]' "$G/gpus"; then
	is 'as many as there are GPUs: status' $status 0
else
	like 'no GPU' "$status $out" '^4 ddip: --nproc-per-node gpu: .*gpus has no GPU$'
fi
for wrong in 0 -1 xpu two ''; do
	run ddip run --nproc-per-node "$wrong" "$T/src/tells.py"
	like "'$wrong' ranks" "$status $out" "^2 ddip: --nproc-per-node: want a number, auto, gpu or cpu, not '$wrong'"
done
ddip exec 'precious = 7'
run ddip run --nproc-per-node 2 "$T/src/tells.py"
like 'variables are not lost without a word' "$status $out" '^2 .*ddip run -f --nproc-per-node 2 '
run ddip run -k --nproc-per-node 2 "$T/src/tells.py"
like '-k keeps the ranks' "$status $out" '^2 ddip: --nproc-per-node 2: the group has 1 ranks, and -k keeps them'
is '-k with as many ranks' "$(ddip run -k --nproc-per-node 1 "$T/src/tells.py")" '0 1 default 0 0'
run ddip run -f -r 0 --nproc-per-node 2 "$T/src/tells.py"
like 'some ranks' "$status $out" '^2 ddip: --nproc-per-node and -r exclude each other'
run ddip run -f --nproc-per-node 99999999 "$T/src/tells.py"
like 'too many' "$status $out" '^4 ddip: size 99999999: '
is 'too many: the size is what it was' "$(key "$G/status" size)" 1
run ddip run -f --nproc-per-node 2 "$T/src/tells.py"
is 'the variables may be lost' "$status $(key "$G/status" size)" '0 2'
run ddip run --nnodes 1:4 --node-rank 0 "$T/src/tells.py"
like 'the number of a host' "$status $out" "^2 ddip: --node-rank is a flag of torchrun: --hosts a:2,b:2, or echo 'hosts a:2 b:2'"
needless=(--rdzv-backend c10d --rdzv_endpoint a:29500 --rdzv-id 5 --rdzv-conf a=b --master-addr a --master_port 1
	--local-addr b --monitor-interval 5 --start-method fork)
run ddip run --nnodes=1:4 "${needless[@]}" --run-path --no-python "$T/src/tells.py"
is 'one host; what changes nothing is named' "$status $out" '0 ddip: not needed, as the ranks of a group know each other: '`
	`'--rdzv-backend, --rdzv-endpoint, --rdzv-id, --rdzv-conf, --master-addr, --master-port, --local-addr, '`
	`$'--monitor-interval, --start-method\n0 2 default 0 0'
is '-q: not named' "$(ddip run -q "${needless[@]}" "$T/src/tells.py" 2>&1)" ''
run ddip run --nnodes 2 "$T/src/tells.py"
like 'two hosts' "$status $out" "^2 ddip: --nnodes 2: the group is on 1 host; --hosts a:2,b:2, or echo 'hosts a:2 b:2' > G/ctl"
run ddip run --nnodes many "$T/src/tells.py"
like 'no number of hosts' "$status $out" "^2 ddip: --nnodes: want a number, or MIN:MAX, not 'many'"

# ---- torchrun's flags: starting again

cat >"$T/src/third.py" <<'END'
import os, sys
count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print(count, os.environ["TORCHELASTIC_MAX_RESTARTS"], os.environ["ROLE_NAME"], "left" in globals())
left = 1
if count == 0:
    sys.exit(3)
if count == 1 and os.environ["RANK"] == "1":
    os._exit(3)
END
run ddip run --max-restarts 3 --role trainer "$T/src/third.py"
is 'it starts again until it ends well' "$status $(grep -E "^([0-9]|ddip: attempt)" "$T/out" | xargs)" \
	'0 0 3 trainer False ddip: attempt 1 of 4 failed: the program starts again 1 3 trainer False ddip: attempt 2 of 4 failed: the program starts again 2 3 trainer False'
run ddip run --max-restarts 1 "$T/src/third.py"
is 'the last attempt says how it ended' "$status $(grep -c 'starts again' "$T/out")" '6 1'
for other in -k -d; do
	run ddip run $other --max-restarts 1 "$T/src/third.py"
	like "not with $other" "$status $out" "^2 ddip: --max-restarts and $other exclude each other"
done
run ddip run --max-restarts x "$T/src/third.py"
like 'no number of attempts' "$status $out" "^2 ddip: --max-restarts: want a number, not 'x'"

# ---- torchrun's flags: programs and modules

run ddip restart
is 'a program that is no Python' "$(ddip run --no-python -a sh -c 'echo "$RANK $0 $*"' zero --one | sort)" $'0: 0 zero --one\n1: 1 zero --one'
run ddip run --no_python sh -c 'exit 3'
is 'how it ends' $status 6
run ddip run --no-python nothing-of-that-name
like 'no such program' "$status $out" '^1 .*FileNotFoundError.*nothing-of-that-name'
is '-m is a flag' "$(ddip run -m --standalone pack -r 5 2>&1)" "['-r', '5'] pack pack.__main__"
is '--module, too' "$(ddip run --module --nnodes 1 pack --all)" "['--all'] pack pack.__main__"
run ddip run -m --no-python pack
is 'both: status' $status 2

# ---- torchrun's flags: what is shown and kept

echo 'import os, sys; print("out", os.environ["RANK"]); print("err", os.environ["RANK"], file=sys.stderr)' >"$T/src/both.py"
for flag in '--tee 3' '-t 3' '--tee=0:3,1:1' '-t3'; do
	# shellcheck disable=SC2086 # two words
	is "$flag" "$(ddip run $flag "$T/src/both.py" 2>&1 | sort | xargs)" '0: err 0 0: out 0 1: err 1 1: out 1'
done
is '--log-dir without a directory: no files' "$(ddip run --log-dir= "$T/src/both.py" 2>/dev/null; ls)" $'out 0\npack'
is '--tee 0' "$(ddip run --tee 0 "$T/src/both.py" 2>/dev/null)" 'out 0'
is '--redirects 3' "$(ddip run --redirects 3 "$T/src/both.py" 2>&1)" ''
is '--redirects 3 --tee 3' "$(ddip run --redirects 3 --tee 3 "$T/src/both.py" 2>/dev/null | sort | xargs)" '0: out 0 1: out 1'
run ddip run --redirects 1 "$T/src/both.py"
like '--redirects 1' "$status $out" '^2 ddip: --redirects 1: 3 shows nothing; G/rankK/stdout and stderr'
run ddip run -r 0:1,1:2 "$T/src/both.py"
like "torchrun's -r" "$status $out" "^2 ddip: -r: want ranks, as in 0,2-3; torchrun's -r is --redirects here"
run ddip run --tee 4 "$T/src/both.py"
is 'no streams: status' $status 2
is '--local-ranks-filter' "$(ddip run --local-ranks-filter 1 "$T/src/both.py" 2>/dev/null)" 'out 1'
is 'of several, each line is labelled' "$(ddip run --local_ranks_filter=0,1 "$T/src/both.py" 2>/dev/null | sort | xargs)" '0: out 0 1: out 1'
run ddip run --local-ranks-filter x "$T/src/both.py"
is 'no ranks: status' $status 2
rm -rf "$T/logs"
run ddip run --log-dir "$T/logs" --max-restarts 2 "$T/src/third.py"
is 'a log of each attempt and rank' "$(cd "$T/logs" && grep -r . | sed 's/^group-[0-9]*/group-N/' | grep stdout | sort)" \
	"$(for n in 0 1 2; do
		for k in 0 1; do
			echo "group-N/attempt_$n/$k/stdout.log:$n 2 default False"
		done
	done)"
run ddip run --log-dir /dev/null/logs "$T/src/both.py"
like 'no directory for them' "$status $out" '^4 .*ddip: --log-dir: /dev/null/.*: Not a directory'

# ---- torchrun's other flags

while read -r flag text; do
	for option in "$flag" "$flag=1" "${flag//-/_}"; do
		run ddip run "${option/__/--}" "$T/src/tells.py"
		like "$option: it says what to write instead" "$status $out" "^2 ddip: ${flag//-/[-_]} is a flag of torchrun: .*$text"
		[[ $out != *$'\n'* ]] || bad "$option: more than one line: $out"
	done
done <<'END'
--node-rank hosts
--log-line-prefix-template -a
--duplicate-stdout-filters grep
--duplicate-stderr-filters grep
--event-log-handler events
--logs-specs --log-dir
--numa-binding sched_setaffinity
--signals-to-handle signal
--shutdown-timeout killafter
--virtual-local-rank cuda:LOCAL_RANK
--print-completion completion
END
run ddip run --rdzv 1 "$T/src/tells.py"
like 'what may mean several is unknown, too' "$out" 'no option --rdzv'
if has_module torch; then
	is 'the flags of the torchrun that is installed' "$("$TORCH_PYTHON" "$ROOT/tests/tool/torchrun_flags.py" "$ROOT" 2>&1)" ''
fi
