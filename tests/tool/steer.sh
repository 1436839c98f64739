#!/usr/bin/env bash
# `ddip steer`: the recipes of ddip(1), on a program whose variables are those of functions.
. "$(dirname "$0")/../lib.sh"
ddip=$BUILD/ddip
export DDIP_MOUNT=$PLACE

mount_torch -o size=2
mkdir "$T/work"
cd "$T/work" || give_up 'a directory'
"$ddip" run -f "$ROOT/tests/cells/steer.py" >"$T/program" 2>&1 &
program=$!
until_true grep -q '^step.*optimizer' "$G/status"

# steer WORD…: standard output and error, and the exit status
steer() {
	guarded "$ddip" steer "$@" 2>&1
	status=$?
}

# recipe WORD: the line of the manual page that has it, without the comment, as a shell runs it
recipe() {
	local line
	line=$(grep -F "$1" "$ROOT/scripts/ddip.1" | grep '^ddip steer' | sed 's/ *#.*//; s/^ddip //')
	[ "$line" ] || give_up "no recipe has '$1'"
	(eval "guarded '$ddip' $line" 2>&1) || bad "$line: status $?"
}

is 'a value' "$(steer 'step * 0 + 5')" 5
is 'output' "$(steer 'print("hi", rank); 7' | xargs)" 'hi 0 7'
is 'of all ranks' "$(steer -a 'print("hi"); rank + 10' | sort | xargs)" '0: 10 0: hi 1: 11 1: hi'
is 'quiet' "$(steer -q 'print("hi"); 7')" ''
is 'standard input' "$(echo 'rank + 3' | steer -f -)" 3
is 'wrong usage' "$(steer 1 2 | head -n 1 | cut -c 1-17)" 'usage: ddip steer'
steer 'raise ValueError("mine")' >"$T/out"
is 'an error' "$status $(tail -n 1 "$T/out")" '1 ValueError: mine'
steer 'x = (' >"$T/out"
is 'a syntax error' "$status" 1
like 'its text' "$(cat "$T/out")" "SyntaxError: '\(' was never closed"

recipe 'opt.param_groups' >/dev/null
is 'the learning rate' "$(steer 'opt.param_groups[0]["lr"]')" 0.005
recipe 'torch.save' >/dev/null
is 'a checkpoint' "$("$TORCH_PYTHON" -c 'import torch; step, model, opt = torch.load("at.pt"); print(step > 0, len(model), len(opt))')" 'True 2 2'
recipe 'set_detect_anomaly' >/dev/null
is 'anomaly detection' "$(steer 'torch.is_anomaly_enabled()')" True
is 'and off' "$(steer 'torch.autograd.set_detect_anomaly(False)
torch.is_anomaly_enabled()')" False
like 'gradients' "$(recipe 'p.grad.norm()')" "^\{'module.weight': [0-9.e-]+, 'module.bias': [0-9.e-]+\}$"
cat >evaluate.py <<'END'
model.eval()
with torch.no_grad():
    total = model.module(torch.ones(1, 3)).sum()
dist.all_reduce(total)
model.train()
print("evaluated", total.isfinite().item())
END
is 'evaluation' "$(recipe 'evaluate.py')" 'evaluated True'
sed -n '/^prof, left = /,/^\.Ed/p' "$ROOT/scripts/ddip.1" | grep -v '^\.' >profile.py
recipe 'profile.py' >/dev/null
traced() { # RANK: prints how many steps are in its trace, once that is whole
	"$PLAIN_PYTHON" -c 'import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
print(sum(e["name"].startswith("Optimizer.step") for e in events))' "trace$1.json" 2>/dev/null
}
until_true traced 0 >"$T/out"
is 'ten steps' "$(until_true traced 1)" 10
is 'and off' "$(steer 'left, len(opt._optimizer_step_post_hooks)')" '(0, 0)'
recipe 'last = step' >/dev/null
wait $program || bad "the program: $(tail "$T/program")"
like 'it ended cleanly' "$(tail -n 1 "$T/program")" '^steered 0 lr 0.01 equal True'

is 'no cell runs' "$(steer 'rank + 1')" 1
"$ddip" exec -d 'import time; time.sleep(1000)' >"$T/number"
echo 'grace 0.3' >"$G/ctl"
until_true grep -q state=running "$G/queue"
steer '1' >"$T/out"
is 'no step' "$status" 124
like 'why' "$(cat "$T/out")" 'came to no common step within grace 0.3: rank 0 has made no step'
"$ddip" interrupt >/dev/null 2>&1 || true
