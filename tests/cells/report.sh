#!/usr/bin/env bash
# What the report of a cell says of torch, IPython and figures: tensors changed in place, a stall, ranks that were freed,
# figures as files.
. "$(dirname "$0")/../lib.sh"
HANG_LIMIT_S=60

mount_torch -o size=2 -o grace=0.5 -o stall=0.3
cell 'import torch, torch.distributed as dist
w, same = torch.ones(3), torch.zeros(2)
model = torch.nn.Linear(2, 2)' || give_up 'the first cell'
like 'what a cell has set' "$(cat "$G/cells/last/report")" 'set 0,1: model same w'
cell 'w.add_(1); same.sum();' || bad 'a change in place'
is 'only what was changed in place' "$(grep ^set "$G/cells/last/report")" 'set 0,1: w'
cell 'with torch.inference_mode(): still = torch.ones(1)' || bad 'a tensor without a version'
cell 'pass' || bad 'after it'

# the cause comes first, what it freed after it
echo 'def main():
    if rank == 1:
        raise ValueError("bad batch")
    dist.all_reduce(torch.ones(2))
main()' >"$G/cell" 2>/dev/null
like 'a failure beside a collective' "$(cat "$G/cells/last/report")" \
	'rank 1.error ValueError: bad batch.*at <cell [0-9]+>:3 main: raise ValueError.*other 0: .*PeerFailed'

if signals_wait; then
	echo 'no verdicts: ThreadSanitizer delivers no signal to a loop'
else
	submit 'import time
def main():
    if rank == 0:
        dist.all_reduce(torch.ones(2))
    else:
        while True: pass
main()'
	until_true grep -q "stall cell=$n .*rank 1 is in no .*; rank 0 waits for it" "$G/events.last"
	echo interrupt >"$G/cells/$n/ctl"
	wait_cell "$n" >/dev/null
	like 'a stall' "$(cat "$G/cells/$n/report")" 'stall rank 1 is in no collective \(<cell [0-9]+>:6\); rank 0 waits for it in all_reduce'
fi

# a stall that was over is not named, nor is what has become of a worker only in the traceback
signals_wait || {
	submit "import time
def late():
    while not os.path.exists('$T/gate'): pass
def main():
    if rank: late()
    dist.all_reduce(torch.ones(2))
    print('together', flush=True)
    while not os.path.exists('$T/end'): time.sleep(0.01)
    raise ValueError('later')
import os
main()"
	until_true grep -q "stall cell=$n " "$G/events.last"
	touch "$T/gate"
	for rank in 0 1; do
		prints "$G/cells/$n/stream" "together.*\"rank\":$rank"
	done
	# the next look has seen that
	is_over() { [[ $(guarded head -n 1 "$G/cells/$n/wait.stalled,quiet=0.1") == quiet* ]]; }
	until_true is_over
	touch "$T/end"
	wait_cell "$n" >/dev/null
	like 'an error after a stall' "$(cat "$G/cells/$n/report")" 'error ValueError: later'
	is 'a stall that was over' "$(grep '^stall' "$G/cells/$n/report")" ''
}
# while it runs: where the ranks are, what their frames hold alike, and what differs; nan first
submit 'def main(epoch, optimizer):
    loss = torch.tensor(float("nan") if rank else 0.25)
    x = torch.zeros(2, 3)
    if rank: time.sleep(1000)
    dist.all_reduce(x)
import time
main(3, torch.optim.SGD(model.parameters(), 0.1))'
reports() {
	[[ $(cat "$G/cells/$n/report") =~ $1 ]]
}
until_true reports "where 0: main\(\) at <cell $n>:5.*where 1: main\(\) at <cell $n>:4.*differs loss: nan on 1, 0[.]25 on 0.*locals 0,1: epoch=3 optimizer[.]lr=0[.]1 x=float32\\[2,3\\]" ||
	bad "of a cell that runs: $(cat "$G/cells/$n/report")"
[ "$(wc -c <"$G/cells/$n/report")" -lt 1000 ] || bad 'it is long'
# a rank that does not answer soon is left out
data() {
	"$PLAIN_PYTHON" - "$G/cells/$n/report.json" <<-'END'
		import json, sys
		report = json.load(open(sys.argv[1]))
		sys.exit(not (
		    {"name": "loss", "text": "nan on 1, 0.25 on 0"} in report.get("differs", [])
		    and report["locals"][0]["text"].startswith("epoch=3 ")
		    and [each["ranks"] for each in report["where"]] == ["0", "1"]
		))
	END
}
until_true data || bad "report.json of a cell that runs: $(cat "$G/cells/$n/report.json")"
signals_wait || until_true reports 'stall rank 1 is in no collective .*rank 0 waits for it in all_reduce'
echo interrupt >"$G/cells/$n/ctl"
wait_cell "$n" >/dev/null
like 'after it' "$(cat "$G/cells/$n/report")" 'differs loss: nan on 1, 0.25 on 0.*locals 0,1: epoch=3'

echo 'from torch.utils.data import DataLoader
class Samples:
    def __len__(self): return 4
    def __getitem__(self, i):
        if i == 2: raise ValueError(f"bad sample {i}")
        return torch.ones(1)
def main():
    for batch in DataLoader(Samples(), num_workers=1): pass
main()' >"$G/cell" 2>/dev/null
like 'a worker of a DataLoader' "$(cat "$G/cells/last/report")" \
	'error ValueError: Caught.*from ValueError: bad sample 2 \(<cell [0-9]+>:5\).*:8 main: for batch'

"$TORCH_PYTHON" -c 'import IPython, matplotlib, matplotlib_inline' 2>/dev/null || skip 'no IPython or matplotlib'
cell 'import matplotlib.pyplot as plt
from IPython.display import Image, display
plt.plot([1, 2, rank]); plt.show()
plt.figure(figsize=(2, 1)); plt.plot([3, 1]); plt.show()
print("no figure"); display("text")' || bad 'a cell with figures'
n=$(cat "$G/cell")
is 'figures of the first rank' "$(grep ^figure "$G/cells/$n/report")" "figure cells/$n/rank0/figure1.png
figure cells/$n/rank0/figure2.png"
is 'they are listed' "$(cd "$G/cells/$n/rank1" && echo fig*)" 'figure1.png figure2.png'
for file in "$G/cells/$n"/rank?/figure?.png; do
	cp "$file" "$T/figure.png"
	"$TORCH_PYTHON" -c 'import sys, matplotlib.image as i; print(i.imread(sys.argv[1]).shape[2])' "$T/figure.png"
done >"$T/shapes"
is 'each is an image' "$(tr -d '\n' <"$T/shapes")" 4444
"$TORCH_PYTHON" - "$G/cells/$n" <<'EOF' || bad 'the bytes are those of the stream'
import base64, json, sys
cell = sys.argv[1]
shown = [[], []]
for line in open(cell + "/stream"):
    message = json.loads(line)
    if "image/png" in message.get("data", {}):
        shown[message["rank"]].append(base64.b64decode(message["data"]["image/png"]))
for rank, figures in enumerate(shown):
    for number, data in enumerate(figures, 1):
        assert open(f"{cell}/rank{rank}/figure{number}.png", "rb").read() == data, (rank, number)
assert [len(figures) for figures in shown] == [2, 2], shown
EOF
for name in figure0.png figure3.png figure01.png figure1.jpg figure.png; do
	[ ! -e "$G/cells/$n/rank0/$name" ] || bad "there is $name"
done
cell 'pass' || bad 'a cell without figures'
is 'the next one has none' "$(ls "$G/cells/last/rank0" | grep -c figure)" 0
