#!/usr/bin/env bash
# What a group does with the torch, the Python, the IPython and the NumPy of $PYTHON, in a minute: tests/matrix/row
# runs it in the environment of each row, tests/run in its own where nothing can be mounted. All goes by the shell
# tool, thus also over a socket. Nothing that the user did not print may be on a rank's standard error.
. "$(dirname "$0")/../lib.sh"

ddip=$BUILD/ddip here=$ROOT/tests/matrix
unset DDIP_GROUP
has() {
	"$TORCH_PYTHON" -c "import $1" 2>/dev/null
}

torch=
! has torch || torch=1
options=python=$TORCH_PYTHON,size=2,grace=1
if [ "${DDIP_TEST_NO_MOUNT:-}" ]; then
	PLACE=$T/socket
	"$BUILD/ddipfs" -o "$options" -s "$PLACE" || give_up "ddipfs -s: status $?"
else
	mkdir "$M"
	"$BUILD/ddipfs" -o "$options" "$M" || give_up "ddipfs: status $?"
fi
export DDIP_MOUNT=$PLACE

# read_ PATH: a file of the group
read_() {
	guarded "$ddip" cat "group/$1"
}

# clean WHAT: nobody has written to a rank's standard error
clean() {
	is "$1: standard error" "$(read_ rank0/stderr; read_ rank1/stderr)" ''
}

# works WHAT: the group runs cells, and a collective is right
works() {
	if [ "$torch" ]; then
		is "$1" "$(guarded "$ddip" exec -a 't = torch.ones(3) * (rank + 1); dist.all_reduce(t); t.tolist()' | sort |
			xargs)" '0: [3.0, 3.0, 3.0] 1: [3.0, 3.0, 3.0]'
	else
		is "$1" "$(guarded "$ddip" exec -a 'rank' | sort | xargs)" '0: 0 1: 1'
	fi
}

imports='import sys, time'
[ -z "$torch" ] || imports+=', torch, torch.distributed as dist'

# ---- start

[ -z "$torch" ] || ok "$TORCH_PYTHON" -W ignore "$ROOT/scripts/check-private" --torch # without NumPy, torch warns
said=$(guarded "$ddip" start 2>&1) || give_up "start: $said"
is 'start says nothing' "$said" ''
ok guarded "$ddip" exec -q "$imports"
works 'the first collective'
clean 'start'

# ---- programs: what plain torch does is right

if [ "$torch" ]; then
	is "torchrun's flags" "$("$TORCH_PYTHON" -W ignore "$ROOT/tests/tool/torchrun_flags.py" "$ROOT" 2>&1)" ''
	mkdir "$T/plain" "$T/ours"
	port=$(free_ports 1)
	guarded "$TORCH_PYTHON" -m torch.distributed.run --nproc-per-node 2 --master-addr 127.0.0.1 --master-port "$port" \
		"$here/collectives.py" "$T/plain" >"$T/torchrun" 2>&1 || bad "torchrun: $(tail -n 5 "$T/torchrun")"
	guarded "$ddip" run -f "$here/collectives.py" "$T/ours" >"$T/out" 2>&1 || bad "collectives: $(tail -n 5 "$T/out")"
	# some versions of torch name each new group
	is 'what the collectives print' "$(sort -u "$T/out")" "$(grep '^\[Gloo\] Rank 0 ' "$T/torchrun" | sort -u)"
	diff -r "$T/plain" "$T/ours" || bad 'collectives differ from those under torchrun (< plain, > ours)'
	[ "$(grep -c Error "$T/plain/0")" -le 4 ] || bad "plain torch has few collectives: $(cat "$T/plain/0")"
	for times in 1 2; do
		said=$(guarded "$ddip" run -f -e "TIMES=$times" "$here/train.py" 2>&1) || bad "train.py: $said"
		like 'DDP trains' "$said" "^loss 0\.[0-9]+ same True times $times\$"
	done
else
	for times in 1 2; do
		said=$(echo 'import os; print("times", os.environ["TIMES"])' | guarded "$ddip" run -f -e "TIMES=$times" - 2>&1)
		is 'a program' "$said" "times $times"
	done
fi
clean 'programs'

# ---- a failure, an interrupt, a restart

ok guarded "$ddip" restart
ok guarded "$ddip" exec -q "$imports; kept = 100 + rank"
wait='time.sleep(1e6)'
[ -z "$torch" ] || wait='dist.all_reduce(torch.ones(1))'
said=$(guarded "$ddip" exec "if rank == 1: raise ValueError('the cause')
$wait" 2>&1) && bad 'a failure is none'
like 'the cause is named' "$said" 'ValueError: the cause'
works 'after a failure'
is 'what was kept' "$(guarded "$ddip" pull -r 1 kept)" 101
guarded "$ddip" exec -d 'print("begun", flush=True)
while True: time.sleep(0.01)' >/dev/null
begun() {
	guarded "$ddip" tail -n 1 0 | grep -q begun
}
until_true begun
ok guarded "$ddip" interrupt
guarded "$ddip" wait >/dev/null 2>&1 && bad 'what was interrupted went well'
like 'it was interrupted' "$(read_ cells/last/status)" 'state interrupted'
works 'after an interrupt'
if [ "$torch" ]; then
	guarded "$ddip" exec -d 'if rank == 0: dist.barrier()
else: time.sleep(1e6)' >/dev/null
	in_barrier() {
		guarded "$ddip" stack -a 0 | grep -q barrier
	}
	until_true in_barrier
	ok guarded "$ddip" interrupt
	guarded "$ddip" wait >/dev/null 2>&1 && bad 'a barrier that was interrupted went well'
	works 'after an interrupted barrier'
	loop=$(guarded "$ddip" exec -d 'def main():
    lr, step, last = 1.0, 0, None
    while step != last:
        dist.all_reduce(torch.ones(1))
        step += 1
    return lr
main()')
	ok guarded "$ddip" steer 'lr = 0.5'
	is 'steer has set a local variable' "$(guarded "$ddip" steer -a lr | sort | xargs)" '0: 0.5 1: 0.5'
	holds() { # a rank that does not answer soon is left out
		[[ $(guarded "$ddip" report) =~ where\ 0.*\ main\(\)\ .*locals\ 0,1:\ lr=0[.]5 ]]
	}
	until_true holds
	ok guarded "$ddip" save "$T/step"
	ok guarded "$ddip" steer 'last = step + 1'
	ok guarded "$ddip" wait "$loop"
	is 'with which the function went on' "$(read_ "cells/$loop/result")" 0.5
fi
[ -z "$torch" ] || ok guarded "$ddip" exec -q 'net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
opt = torch.optim.AdamW(net.parameters())
net(torch.ones(3)).sum().backward(); opt.step()
weight = net.module.weight.tolist()'
ok guarded "$ddip" save "$T/saved"
clean 'failures'
ok guarded "$ddip" restart
ok guarded "$ddip" exec -q "$imports"
works 'after a restart'
ok guarded "$ddip" load "$T/saved"
is 'what was saved' "$(guarded "$ddip" exec -a kept | sort | xargs)" '0: 100 1: 101'
if [ "$torch" ]; then
	is 'a model and its optimizer' "$(guarded "$ddip" exec 'net.module.weight.tolist() == weight, len(opt.state)')" '(True, 2)'
	ok guarded "$ddip" exec -q 'opt.zero_grad(); net(torch.ones(3) + rank).sum().backward(); opt.step()'
	ok guarded "$ddip" load "$T/step"
	is 'what main() had' "$(guarded "$ddip" exec -a lr | sort | xargs)" '0: 0.5 1: 0.5'
fi

# ---- views

ok guarded "$ddip" exec -q 'config = {"lr": 0.5, "rank": rank}; text = "words"; number = 7 + rank'
is 'text' "$(guarded "$ddip" pull text)" words
is 'json' "$(guarded "$ddip" pull -r 1 config.json)" '{"lr": 0.5, "rank": 1}'
is 'the mean' "$(guarded "$ddip" pull number.mean)" 7.5
is 'what is in it' "$(guarded "$ddip" pull config.d/rank.sum) $(read_ rank1/vars/config.d/lr)" '1 0.5'
echo '[1, 2]' | guarded "$ddip" push pushed.json - || bad 'push'
is 'what was pushed' "$(guarded "$ddip" exec -a 'sum(pushed)' | sort | xargs)" '0: 3 1: 3'
views=pkl
if [ "$torch" ]; then
	ok guarded "$ddip" exec -q 'a = torch.arange(6.0).reshape(2, 3); model = torch.nn.Linear(2, 2)'
	views+=' pt safetensors'
	like 'what is in a model' "$(guarded "$ddip" pull model.d/bias.mean.json | xargs) $(read_ vars/model.d/in_features.sum)" '^\[.*\] 4$'
	is 'a tensor' "$(guarded "$ddip" pull a.json)" '[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]'
	is 'the same on all ranks' "$(guarded "$ddip" pull a.same >/dev/null 2>&1; echo $?)" 0
elif has numpy; then
	ok guarded "$ddip" exec -q 'import numpy; a = numpy.arange(6.0).reshape(2, 3)'
else
	ok guarded "$ddip" exec -q 'a = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]'
fi
! has numpy || views+=' npy'
for view in $views; do
	guarded "$ddip" pull "a.$view" "$T/a.$view" || { bad "pull a.$view" && continue; }
	guarded "$ddip" push "b.$view" "$T/a.$view" || bad "push b.$view"
	like "$view: there and back" "$(guarded "$ddip" pull b.json 2>&1)" '\[\[0\.0, 1\.0, 2\.0\], \[3\.0, 4\.0, 5\.0\]\]'
done
if has numpy; then
	"$TORCH_PYTHON" - "$T/a.npy" <<-'END' || bad 'a.npy'
		import numpy, sys
		assert numpy.load(sys.argv[1]).tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
	END
fi
clean 'views'

# ---- a notebook

if has IPython; then
	PYTHONPATH=$ROOT/magics guarded "$TORCH_PYTHON" - >"$T/out" 2>"$T/said" <<-'END' || bad "magics: $(tail -n 3 "$T/said")"
		from IPython.core.interactiveshell import InteractiveShell

		shell = InteractiveShell.instance()
		shell.run_line_magic("load_ext", "ddip")
		shell.run_cell_magic("dip", "", "print('from', rank)\nnumber")
		shell.run_cell("%%dip\nnew = number * 2").raise_error()
		shell.run_line_magic("dipull", "new")
		print("pulled", shell.user_ns["new"])
	END
	like '%%dip' "$(cat "$T/out")" 'from 0'
	like '%dipull' "$(cat "$T/out")" 'pulled 14'
	is 'what the magics warn of' "$(cat "$T/said")" ''
	clean 'magics'
fi

pids=$(others)
ok guarded "$ddip" umount
# shellcheck disable=SC2086 # a list
gone $pids
