#!/usr/bin/env bash
# Torch works over several hosts, whose agents all run here: collectives, DDP, programs, and a process group that moves
# with its store when rank 0's host is lost. DDIP_TEST_LAUNCHER: how the agents are started.
. "$(dirname "$0")/../lib.sh"

launcher=${DDIP_TEST_LAUNCHER:-here}
export XDG_CACHE_HOME=$T/cache
addresses='auto 127.0.0.1'
[ "$launcher" = here ] || addresses=127.0.0.1 # the hosts' names are known here only

set_() {
	errno write "$G/ctl" "$*"$'\n'
}
# lose RANK: its host is lost, and the daemon has noticed
lose() {
	local host pid
	host=$(key "$G/rank$1/status" host)
	pid=$(key "$G/rank$1/status" pid)
	kill -KILL "$(awk '/^PPid:/ { print $2 }' "/proc/$pid/status")"
	until_true grep -q "^$host state=lost" "$G/hosts"
}
sum='import torch, torch.distributed as dist
t = torch.full((3,), 1.0 + rank); dist.all_reduce(t); t = t.tolist()'
wrap='model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
x = rank + 100'
step='loss = model(torch.ones(2, 4) * (rank + 1)).sum(); model.zero_grad(); loss.backward()
g = [float(p.grad.sum()) for p in model.parameters()]'

# over all hosts, with the store behind a private socket and behind an address
mount_torch -o size=3 -o 'hosts=a:2 b:1 c:2' -o "launcher=$launcher" -o grace=0 -o timeout=600
for address in $addresses; do
	is "$address: the settings" "$(set_ stop)$(set_ hosts a:2 b:1 c:2)$(set_ master_addr "$address")$(set_ start)" 0000
	ok cell "$sum"
	is "$address: a collective over the hosts" "$(cat "$G"/rank?/vars/t.json | xargs)" \
		'[6.0, 6.0, 6.0] [6.0, 6.0, 6.0] [6.0, 6.0, 6.0]'
	ok cell "$wrap"
	is "$address: OPs over them" "$(cat "$G/vars/x.gather.json")" '[100, 101, 102]'
	ok cell 'm = torch.arange(4.0) * (rank + 1)'
	is "$address: numbers over them" "$(cat "$G"/vars/m.{mean,sum,min,max}.json | xargs -n 4)" \
		"[0.0, 2.0, 4.0, 6.0]
[0.0, 6.0, 12.0, 18.0]
[0.0, 1.0, 2.0, 3.0]
[0.0, 3.0, 6.0, 9.0]"
	ok cell 'large = torch.arange(100_000.0) * (rank + 1)'
	is "$address: large ones" "$("$TORCH_PYTHON" -c "import numpy as np
total, each = (np.load('$G/vars/large.' + op + '.npy', mmap_mode='r') for op in ('sum', 'gather'))
print(total[[0, 7, -1]].tolist(), each[1:, -1].tolist())")" '[0.0, 42.0, 599994.0] [199998.0, 299997.0]'
	like "$address: what differs is told by rank" "$(cat "$G/vars/x.same.json" 2>&1; tail -n 1 "$G/error")" \
		'ENOTUNIQ .*rank 1 has another value than rank 0'
	ok cell "$step"
	is "$address: the gradients are the same everywhere" "$(cat "$G/vars/g.same.json")" "$(cat "$G/rank2/vars/g.json")"

	# ranks are in a collective when the host of rank 0, and of the store, is lost
	submit "print('on')
while True: dist.all_reduce(torch.ones(1))"
	for k in 0 1 2; do until_true grep -q on "$G/cells/$n/rank$k/stdout"; done
	lose 0
	like "$address: the cell ends" "$(wait_cell "$n")" 'EHOSTDOWN'
	ok cell "$sum"
	is "$address: a collective with the spare" "$(cat "$G"/rank?/vars/t.json | xargs)" \
		'[6.0, 6.0, 6.0] [6.0, 6.0, 6.0] [6.0, 6.0, 6.0]'
	is "$address: where they are" "$(sed -n 's/.* host=\([^ ]*\).*/\1/p' "$G/ranks" | xargs)" 'c c b'
	is "$address: what lives has its variables" "$(value x 2) $(value '"x" in globals()' 0)" '102 False'
	ok cell "$wrap"
	ok cell "$step"
	is "$address: and a model over them" "$(cat "$G/vars/g.same.json")" "$(cat "$G/rank2/vars/g.json")"
	ok cell 'dist.destroy_process_group(); dist.init_process_group("gloo"); dist.barrier()'
done
is 'an address that nobody knows' "$(set_ stop)$(set_ master_addr a..b)$(set_ start)" 00EHOSTUNREACH
like 'is named' "$(grep start: "$G/error" | tail -n 1)" 'MASTER_ADDR a..b.* is not known on .* set master_addr'
