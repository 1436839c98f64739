#!/usr/bin/env bash
# Programs of several kinds have the same numbers with steering loaded as without, and with steers at
# random moments those of the same changes in their own source; each steer is at one step on all
# ranks or nowhere. COUNT: steers of each (10); KINDS: which.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/steering.sh"
export PATH=$BUILD:$PATH DDIP_MOUNT=$PLACE
program=$ROOT/tests/cells/steer_programs.py
kinds=${KINDS:-ddp compiled compiled_step hooked accumulated uneven sharded flat pipelined}
seed=${SEED:-$RANDOM}
echo "SEED=$seed"

mount_torch -o size=2
mkdir "$T/work"
cd "$T/work" || give_up 'a directory'

if [ -z "${DDIP_TEST_HOSTS:-}" ]; then # the numbers do not depend on where the ranks are
	# Two processes as torchrun makes, but of one that has imported torch. By the output, not the status: gloo may abort one
	# of them while the other one ends.
	# shellcheck disable=SC2086 # words
	guarded "$TORCH_PYTHON" - "$T/store" "$program" $kinds ddp >"$T/plain" 2>"$T/err" <<-'END'
		import os, runpy, sys
		import torch._dynamo, torch.distributed, torch.distributed.fsdp, torch.distributed.pipelining
		store, *sys.argv = sys.argv[1:]
		rank = 0 if os.fork() else 1
		init = torch.distributed.init_process_group
		torch.distributed.init_process_group = lambda name: init(name, f"file://{store}", rank=rank, world_size=2)
		try:
		    runpy.run_path(sys.argv[0], run_name="__main__")
		finally:
		    rank or os.wait()
	END
	is "the kinds without: $(cat "$T/err")" "$(cut -d ' ' -f 1 "$T/plain" | xargs)" "$kinds ddp"
	# shellcheck disable=SC2086
	"$BUILD/ddip" run -f "$program" $kinds ddp >"$T/loaded" 2>&1 || bad "with: $(tail "$T/loaded")"
	is "the same numbers" "$(grep -E " [0-9a-f]{64} [0-9a-f]{64}$" "$T/loaded")" "$(cat "$T/plain")"
fi

# many COUNT: so many steers at random moments; prints how many ran
many() {
	"$PLAIN_PYTHON" - "$G" "$seed" "$1" "$kind" <<-'END'
		import errno, os, random, sys, time
		group, seed, count, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
		random.seed(seed)
		ran = nowhere = 0
		while ran + nowhere < count:
		    value = random.randrange(-8, 9) / 64
		    steer = os.open(f"{group}/steer", os.O_RDWR)
		    os.write(steer, f"steered({value})".encode())
		    failed = 0
		    try:
		        os.fsync(steer)
		    except OSError as e:
		        failed = e.errno
		    number = os.read(steer, 100).decode().split()[0]
		    os.close(steer)
		    if failed or "within" not in open(f"{group}/cells/{number}/status").read():
		        assert kind == "uneven", (failed, number)
		        nowhere += 1
		        if failed != errno.ETIMEDOUT:  # the program has ended
		            break
		        continue
		    results = {open(f"{group}/cells/{number}/rank{rank}/result").read() for rank in (0, 1)}
		    assert len(results) == 1, (number, results)
		    ran += 1
		    time.sleep(random.choice((0, 0, random.random() / 100)))
		print(ran)
	END
}

for kind in $kinds; do
	"$BUILD/ddip" run -f "$program" "$kind" >"$T/program" 2>&1 &
	running=$!
	until_true steps 3
	echo "$kind: clock $(key "$G/status" step)"
	[ "$kind" = uneven ] && echo 'grace 0.5' >"$G/ctl"
	ran=$(many "${COUNT:-10}")
	[ "$kind" = uneven ] && more='60 * dist.get_rank()' || more=0
	is "$kind: the end" "$(steer "now.last = now.step + 1 + $more")" 0
	[ "$kind" != uneven ] || ran=$((ran + $(many 3)))
	wait $running || bad "$kind: $(tail "$T/program")"
	is "$kind: as in its own source" "$(tail -n 1 "$T/program")" "steered $ran equal True True"
	echo 'grace 5' >"$G/ctl"
done
