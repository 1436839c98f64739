#!/usr/bin/env bash
# Which rank the others wait for in each step, where that is certain: by a step of the optimizer, the forward of a model
# or a collective; in its own code or in its backward. And in which lines it mostly is, also if one of them keeps Python's
# lock.
. "$(dirname "$0")/../lib.sh"

! signals_wait || skip 'ThreadSanitizer delivers no signal to a loop: its stack can not be read'
mount_torch -o size=2
cell 'import time, torch, torch.distributed as dist
torch.set_num_threads(1)
from torch.nn.parallel import DistributedDataParallel as DDP
def busy(s):
    end = time.thread_time() + s
    while time.thread_time() < end: pass
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(_, x, s):
        _.s = s
        return x.clone()
    @staticmethod
    def backward(_, grad):
        busy(_.s)
        return grad, None
def train(own, back=0.0, step=True):
    model = DDP(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    while True:
        time.sleep(own)
        Slow.apply(model(torch.ones(2, 4)), back).sum().backward()
        if step: optimizer.step()
def reduce(own):
    while True:
        time.sleep(own)
        dist.all_reduce(torch.ones(1))
        dist.barrier()
def load(n):
    words = [str(v) for v in range(n)]
    return sorted(words, key=float)
def read(n):
    while True:
        load(n)
        dist.all_reduce(torch.ones(1))' || give_up 'the first cell'

pace='^pace [0-9.]+ ms per step, of which waits [0-9.]+ ms on rank [01] to [0-9.]+ ms on rank [01], CPU time [0-9.]+ ms on rank [01] to [0-9.]+ ms on rank [01] [(]medians of [0-9]+ steps[)]$'
pace_is_known() {
	grep -E "$pace" "$G/cells/$n/report" | grep -q 'of [1-9][0-9] steps'
}
# told PATTERN CODE: while the cell runs, `stall` comes to say this; its lines are then in $T/stall, and the same as JSON
# in $T/stall.json
told() {
	submit "$2"
	until_true says "$1" || bad "$2: it is not said: $(cat "$T/stall")"
	over
}
says() {
	cat "$G/stall" >"$T/stall"
	cat "$G/stall.json" >"$T/stall.json"
	grep -Eq "$1" "$T/stall" && [[ $(<"$T/stall.json") =~ straggler || ! $1 =~ slow ]]
}
# in_full: the same as JSON; each rank has its time
in_full() {
	says "^rank 1 is slow: [0-9.]+ ms of the [0-9.]+ ms per step outside of waits, mostly at <cell [0-9]+>:20 train[(][)], [0-9]+ of [0-9]+ looks; rank 0 [0-9.]+ ms, and waits [0-9]+ ms in backward [(]medians of [0-9]+ steps[)]$" &&
		[[ $(tail -n 1 "$T/stall") =~ ' step_ms='[0-9.]+' waits_ms='[0-9.]+' cpu_ms='[0-9.]+ ]] &&
		"$PLAIN_PYTHON" - "$T/stall.json" <<-'END' 2>"$T/why"
			import json, sys
			stall = json.load(open(sys.argv[1]))
			found = stall["straggler"]
			assert found["ranks"] == [1] and found["steps"] >= 8, found
			assert 40 <= found["own_ms"] <= found["step_ms"], found
			assert found["others_ms"] < found["own_ms"] and found["waits_ms"] > 5, found
			assert found["text"].startswith("rank 1 is slow"), found
			assert found["lines"][0]["at"].endswith(">:20") and found["lines"][0]["function"] == "train", found
			assert found["looks"] >= sum(line["looks"] for line in found["lines"]) > 0, found
			for each in stall["ranks"]:
			    assert each["step_ms"] >= 40, each
			    assert each["waits_ms"] <= each["step_ms"], each
			    assert 0 <= each["cpu_ms"] <= each["step_ms"] + 1, each
		END
}
submit 'train(0.04 * rank)'
until_true in_full || bad "it is not said: $(cat "$T/stall" "$T/why")"
over
told '^rank 1 is slow: .*, mostly at <cell [0-9]+>:6 busy[(][)], .*backward' 'train(0.001, 0.04 * rank)'
told '^rank 0 is slow: .* per step ' 'train(0.04 * (1 - rank), 0, False)'
told '^rank 1 is slow: .* per collective .*all_reduce' 'reduce(0.04 * rank)'
# both_lines: each of the two lines of load() is seen, and takes about as long. Few looks may be at one of them by chance.
both_lines() {
	says 'mostly at .* load[(][)], ' && "$PLAIN_PYTHON" - "$T/stall.json" <<-'END'
		import json, sys
		found = json.load(open(sys.argv[1]))["straggler"]["lines"]
		seen = {line["at"].split(":")[-1]: line["looks"] for line in found}
		counts = [seen.get("29", 0), seen.get("30", 0)]
		sys.exit(min(counts) * 8 <= max(counts))
	END
}
submit 'read(20000 * rank)'
until_true both_lines || bad "both lines take as long: $(cat "$T/stall.json")"
over
submit 'train(0.04 + 0.002 * rank)'
until_true pace_is_known
over
grep -Eq "$pace" "$G/cells/$n/report" || bad "when it has ended: $(cat "$G/cells/$n/report")"
"$PLAIN_PYTHON" -c 'import json, sys; json.load(open(sys.argv[1]))["pace"]' "$G/cells/$n/report.json" || bad 'pace as JSON'
told ' steps=.* step_ms=' 'train(0.04)'
[[ ! $(cat "$T/stall" "$T/stall.json") =~ slow ]] || bad "all are as fast: $(cat "$T/stall")"
# a rank that uses a GPU may wait for that
cell 'torch.cuda.is_initialized = lambda: rank == 0'
submit 'train(0.04 * rank)'
until_true says ' steps=[1-9][0-9]'
[[ ! $(cat "$T/stall") =~ slow|step_ms ]] || bad "it is not known for what: $(cat "$T/stall")"
over
[[ ! $(cat "$G/cells/$n/report") =~ straggler|pace ]] || bad "nor when it has ended: $(cat "$G/cells/$n/report")"
cell 'torch.cuda.is_initialized = lambda: False'
told '^1 .*in=- number=0 at=<cell [0-9]+>:1$' 'time.sleep(1000)' # without collectives
# a program that gives all signals their default action, by which these would end it
pids=$(grep -o 'pid=[0-9]*' "$G/ranks")
cell 'import signal
for s in range(signal.SIGRTMAX - 5, signal.SIGRTMAX - 2): signal.signal(s, signal.SIG_DFL)'
submit 'train(0.04 * rank)'
until_true says 'rank 1 is slow'
cat "$G/rank1/stack" >"$T/stack"
over
is 'the ranks live' "$(grep -o 'pid=[0-9]*' "$G/ranks")" "$pids"
