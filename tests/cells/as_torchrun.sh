#!/usr/bin/env bash
# Collectives, and the lines that warnings name which are raised within them, are those under torchrun.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
mkdir "$T/plain" "$T/ours"
program=$ROOT/tests/matrix/collectives.py
port=$(free_ports 1)
guarded "$TORCH_PYTHON" -m torch.distributed.run --nproc-per-node 2 --master-addr 127.0.0.1 --master-port "$port" \
	"$program" "$T/plain" >"$T/torchrun" 2>&1 || give_up "torchrun: $(tail -n 20 "$T/torchrun")"
DDIP_MOUNT=$M guarded "$BUILD/ddip" run -f "$program" "$T/ours" >"$T/out" 2>&1 || bad "ddip run: $(tail -n 20 "$T/out")"
is 'what is printed' "$(cat "$T/out")" ''
diff -r "$T/plain" "$T/ours" || bad 'they differ (< plain, > ours)'
for what in all_reduce async all_gather DDP; do
	grep -q "^$what: level 7: warned.py:" "$T/plain/0.warned" || bad "$what: no warning reaches the caller"
done

# the program has destroyed the group, so that torch makes another one
cell "import sys, torch.distributed as dist
sys.path.append('$ROOT/tests/matrix')
import warned
warned.of('init', lambda: dist.init_process_group('gloo'))
said = chr(10).join(warned.LINES)" || bad "init: $(cat "$G/traceback")"
like 'init' "$(cat "$G/rank0/vars/said")" 'init: level 6: warned.py:'
[[ $(cat "$G/rank0/vars/said") != *ddip_engine* ]] || bad "init: $(cat "$G/rank0/vars/said")"
