#!/usr/bin/env bash
# Each name of the register magics/ddip/patches.py is taken away, as if torch, IPython or Python had renamed it:
# what is lost is what its row says. Names are taken away several at once, and one by one if that fails.
. "$(dirname "$0")/../lib.sh"

# getattr() in the register does not find the names in $DDIP_TEST_WITHOUT, and nothing else of the engine finds those of
# torch's modules. Torch itself still does.
mkdir "$T/site"
cat >"$T/site/sitecustomize.py" <<-'END'
	import builtins, os, sys, types
	gone, real = set(os.environ.get("DDIP_TEST_WITHOUT", "").split(",")), builtins.getattr
	hidden = {}  # module -> names
	class Hides(types.ModuleType):
	    def __getattribute__(self, name):
	        if name in hidden[self] and sys._getframe(1).f_globals.get("__name__", "").startswith("ddip_engine"):
	            raise AttributeError(name)
	        return super().__getattribute__(name)
	def getattr(owner, name, *default):
	    frame = sys._getframe(1)
	    if frame.f_globals.get("__name__") == "ddip_engine.patches":
	        row = frame.f_locals.get("self")
	        parts = row.path.split(".") if hasattr(row, "path") else []
	        for i, part in enumerate(parts, 1):
	            if part == name and f"{row.module}.{'.'.join(parts[:i])}" in gone:
	                if isinstance(owner, types.ModuleType) and owner.__name__.startswith("torch"):
	                    hidden.setdefault(owner, set()).add(name)
	                    owner.__class__ = Hides
	                if default:
	                    return default[0]
	                raise AttributeError(name)
	    return real(owner, name, *default)
	if gone != {""}:
	    builtins.getattr = getattr
END
# kind, name, what is lost; a `?` in front if not all supported versions have the name
"$PLAIN_PYTHON" - "$ROOT" >"$T/rows" <<-'END' || give_up 'the register'
	import sys
	sys.path.insert(0, sys.argv[1] + "/magics/ddip")
	import patches
	for row in patches.ROWS.values():
	    if row.kind != patches.MAGICS:
	        print(("?" if row.optional else "") + row.kind, row.name, row.lost, sep="\t")
END
mapfile -t NAMES < <(cut -f 2 "$T/rows")
[ ${#NAMES[@]} -ge 80 ] || give_up "the register has only ${#NAMES[@]} names"

cat >"$T/program.py" <<-'END'
	import atexit, concurrent.futures, logging, logging.handlers, os, sys, threading, weakref
	import torch, torch.distributed as dist

	class Kept:
	    pass

	logging.getLogger().addHandler(logging.handlers.MemoryHandler(10, target=logging.StreamHandler(sys.stdout)))
	atexit.register(lambda: None)
	kept = Kept()
	weakref.finalize(kept, lambda: None)
	pool = concurrent.futures.ThreadPoolExecutor(1)
	done = pool.submit(lambda: 5)
	threading.Thread(target=lambda: done.result()).start()
	if not dist.is_initialized() or "c10d.init_process_group" not in os.environ["DDIP_TEST_WITHOUT"]:
	    dist.init_process_group("gloo")
	total = torch.ones(1) * done.result()
	dist.all_reduce(total)
	if dist.get_rank() == 0:
	    print(f"program {int(total)}")
END

has_module torch || skip "no torch in $TORCH_PYTHON"
mount_plain -o "size=2,gpus=none,grace=0.2,env=PYTHONPATH=$T/site" # the first group is not used
export DDIP_MOUNT=$M PATH=$BUILD:$PATH

# Reports what is wrong when these names are missing.
check_without() {
	local wrong=0 told n out
	G=$M/without
	mkdir "$G" && printf '%s\n' 'backend auto' "python $TORCH_PYTHON" >"$G/ctl" &&
		(IFS=,; printf '%s\n' "env DDIP_TEST_WITHOUT=$*" "$eager" >"$G/ctl") || return
	expect() { # WHAT ACTUAL PATTERN
		[[ $2 =~ ^($3)$ ]] || {
			echo "$1: $(printf %q "$2")"
			wrong=1
		}
	}
	cell 'import torch, torch.distributed as dist, time
from torch.nn.parallel import DistributedDataParallel as DDP
total = torch.ones(2) * (rank + 1)
dist.all_reduce(total)
total = total.tolist()' || return
	expect 'a collective' "$(cat "$G/rank1/vars/total.json")" '\[3.0, 3.0\]'

	cell "if rank == 1: raise ValueError('on purpose')
dist.all_reduce(torch.ones(1))" 2>/dev/null && expect 'a failing cell' "$(state)" error
	expect 'why it failed' "$(tail -n 1 "$G/cells/last/traceback")" 'ValueError: on purpose'

	cell 'torch.manual_seed(0)
model = DDP(torch.nn.Linear(2, 1))
model(torch.ones(1, 2) * (rank + 1)).sum().backward()
weights = model.module.weight.grad.tolist()' || expect 'a step' "$(cat "$G/traceback")" ''
	expect 'a step of DDP' "$(cat "$G/rank0/vars/weights.json" "$G/rank1/vars/weights.json")" $'(\\[\\[1.5, 1.5\\]\\]\n?){2}'

	submit "if rank == 0: dist.all_reduce(torch.ones(1))
print('waits', flush=True)
while True: time.sleep(60)"
	prints "$G/cells/$n/stream" 'waits.*"rank":1'
	echo interrupt >"$G/cells/$n/ctl"
	out=$(wait_cell "$n")
	[[ $out == *'state interrupted'* ]] || expect 'an interrupt' "$out" '.*state interrupted.*'

	out=$(cd "$T" && ddip -g without run -k program.py 2>&1)
	expect 'a program' "$? $out" '0 program 10'

	[[ " $* " == *'.DistributedDataParallel.__init__ '* ]] || cell 'model.zero_grad()
model(torch.ones(1, 2) * (rank + 1)).sum().backward()
assert model.module.weight.grad.tolist() == weights' || expect 'a step after a rebuild' "$(cat "$G/traceback")" ''
	cell 'after = torch.ones(1)
dist.all_reduce(after)
after = after.tolist()' || expect 'the next cell' "$(cat "$G/traceback")" ''
	expect 'a collective at the end' "$(cat "$G/rank0/vars/after.json")" '\[2.0\]'
	expect 'what was printed' "$(cat "$G"/cells/*/rank*/stderr | grep -v '^$')" ''

	told=$(grep '^patch_' "$G/status")
	expect 'what failed' "$(grep ^patch_failed <<<"$told")" ''
	# also the parts of what is missing
	for name; do awk -F '\t' -v name="$name" 'index($2 ".", name ".") == 1 { print "patch_missing " $2 ": " $3 }' "$T/rows"; done |
		grep -xF "$told" >"$T/lines"
	cat "$T/lines" >>"$T/told"
	expect 'what is told' "$(grep -vxFf "$T/lines" <<<"$told")" ''
	echo stop >"$G/ctl" && rmdir "$G"
	return $wrong
}

# Each name alone, if they fail together.
without() {
	check_without "$@" >"$T/wrong" 2>&1 && return
	mountpoint -q "$M" || give_up "the daemon has ended: $(cat "$T/wrong")"
	if [ -d "$M/without" ]; then
		echo stop >"$M/without/ctl"
		rmdir "$M/without"
	fi
	if [ $# -eq 1 ]; then
		bad "without $1: $(cat "$T/wrong")"
		return
	fi
	cat "$T/wrong"
	bad "without $# names, from $1 on"
	for name; do without "$name"; done
}

# once with ranks that import what they need, then with those of a zygote that has
BATCHES=4
eager=
without "${NAMES[@]}"
eager='env DDIP_EAGER=1'
for ((b = 0; b < BATCHES; b++)); do
	batch=()
	for ((i = b; i < ${#NAMES[@]}; i += BATCHES)); do batch+=("${NAMES[i]}"); done
	without "${batch[@]}"
done

# What the zygote has imported is told of at the start, whether it was used or not.
sort -u "$T/told" >"$T/once"
while IFS=$'\t' read -r kind name lost; do
	case $kind:$name in
	'?'* | attribute:* | *.rpc.*) ;;
	*:torch* | *:IPython* | *:_* | *:signal* | *:importlib* | *:weakref* | *:threading* | *:atexit* | *:os.* | *:builtins.*)
		grep -qxF "patch_missing $name: $lost" "$T/once" || bad "status does not say that $name is missing"
		;;
	esac
done <"$T/rows"
