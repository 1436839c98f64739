#!/usr/bin/env bash
# Torch works over two hosts with networks of their own, reached by ssh: rank 0's host is found by its name in `hosts`,
# and gloo uses the interface that leads there.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/steering.sh"

SSHD=$(PATH=$PATH:/usr/sbin command -v sshd) || skip 'there is no sshd'
NET=10.213.78 ID=dd$$
has_module torch || skip "no torch in $TORCH_PYTHON"
# what a run that was killed has left would take the way to these addresses
for left in $(ip -br link show type bridge 2>/dev/null | grep -o '^dd[0-9]*'); do
	[ -d "/proc/${left#dd}" ] || { ip netns del "${left}a"; ip netns del "${left}b"; ip link del "$left"; }
done
ip link add "$ID" type bridge 2>/dev/null || skip 'no network can be made here'
sshds=()
take_down() {
	[ ${#sshds[@]} -eq 0 ] || kill "${sshds[@]}"
	wait "${sshds[@]}"
	ip netns del "${ID}a"
	ip netns del "${ID}b"
	ip link del "$ID"
}
finish() {
	if mountpoint -q "$M"; then
		unmount
	fi
	take_down 2>/dev/null
}
ip addr add "$NET.254/24" dev "$ID" && ip link set "$ID" up || skip 'no network can be made here'
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$T/key"
ssh-keygen -q -t ed25519 -N '' -f "$T/hostkey"
echo "* $(cut -d ' ' -f 1,2 "$T/hostkey.pub")" >"$T/known"
for host in a b; do
	[ $host = a ] && address=$NET.1 || address=$NET.2
	ip netns add "$ID$host" || skip 'no network name spaces can be made here'
	ip link add "$ID$host" type veth peer name e0 netns "$ID$host"
	ip link set "$ID$host" master "$ID" up
	ip -n "$ID$host" addr add "$address/24" dev e0
	ip -n "$ID$host" link set e0 up
	ip -n "$ID$host" link set lo up
	printf '%s\n' "HostKey $T/hostkey" "ListenAddress $address" 'Port 2222' "AuthorizedKeysFile $T/key.pub" \
		'StrictModes no' 'UsePAM no' 'PermitRootLogin yes' 'PidFile none' \
		"SetEnv XDG_CACHE_HOME=$T/cache-$host DDIP_STATE=$T DDIP_TEST=${DDIP_TEST:-} DDIP_EAGER=${DDIP_EAGER:-0}" >"$T/sshd-$host"
	ip netns exec "$ID$host" "$SSHD" -D -e -f "$T/sshd-$host" 2>/dev/null &
	sshds+=($!)
done
ssh="ssh -p 2222 -i $T/key -o IdentitiesOnly=yes -o UserKnownHostsFile=$T/known"
# shellcheck disable=SC2086 # words
for host in 1 2; do until_true $ssh -o BatchMode=yes "root@$NET.$host" true 2>/dev/null; done

mount_torch -o "hosts=root@$NET.1:1 root@$NET.2:2" -o "launcher=$ssh" -o timeout=600 -o linger=2 -o grace=0
cell 'import os, torch, torch.distributed as dist
t = torch.full((3,), 1.0 + rank); dist.all_reduce(t); t = t.tolist()
where = os.environ["MASTER_ADDR"] + " " + os.environ["GLOO_SOCKET_IFNAME"]' || cat "$G/error"
is 'a collective over both' "$(cat "$G"/rank?/vars/t.json | xargs)" '[6.0, 6.0, 6.0] [6.0, 6.0, 6.0] [6.0, 6.0, 6.0]'
is 'where they meet' "$(cat "$G"/rank?/vars/where | sort -u)" "$NET.1 e0"
is 'a push to all hosts' "$(echo '[1, 2]' >"$G/vars/l.json" && cat "$G"/rank?/vars/l.json | xargs)" '[1, 2] [1, 2] [1, 2]'
like 'ranks name their hosts' "$(cat "$G/ranks")" "2 state=idle pid=[0-9]+ host=root@$NET.2 .*rss_bytes=-"

# who is on neither host is no rank, and no client of the store: his connection is closed
cat >"$T/stranger.py" <<-'END'
	import socket, struct, sys
	for host, port in zip(sys.argv[1::2], sys.argv[2::2]):
	    with socket.create_connection((host, int(port)), timeout=60) as s:
	        try:
	            s.sendall(struct.pack("<Q", 1))
	            print(s.recv(100))
	        except ConnectionResetError:
	            print(b"")
END
exec 5<"$G/events" # from here on
cat <&5 >"$T/events" &
reader=$!
exec 5<&-
port=$(value 'int(os.environ["MASTER_PORT"])')
gloo=$(ip netns exec "${ID}b" sed -n "s/.* $(printf %02X%02X%02X%02X 2 78 213 10):\([0-9A-F]*\) 00000000:0000 0A .*/0x\1/p" /proc/net/tcp |
	while read -r found; do [ $((found)) = 2222 ] || echo $((found)); done)
[ "$(wc -w <<<"$gloo")" = 2 ] || bad "gloo listens at $gloo"
# shellcheck disable=SC2046,SC2086 # words
is 'he is not taken' "$("$PLAIN_PYTHON" "$T/stranger.py" "$NET.1" "$port" $(printf "$NET.2 %s " $gloo) | xargs)" 'b b b'
until_true grep -q "stranger store refused address=$NET.254$" "$T/events"
until_true grep -q "stranger rank=1 refused address=$NET.254$" "$T/events"
kill "$reader"

for host in a b; do
	[ $host = a ] && number=1 || number=2
	ip -n "$ID$host" -6 addr add "fd77::$number/64" dev e0 nodad
done
is 'the interface by IPv6' "$(PYTHONPATH=$ROOT/magics ip netns exec "${ID}a" "$PLAIN_PYTHON" -c '
from ddip import interface
print(interface.towards(["no.such.host", "::1", "fd77::2"]))')" e0

# a rank that waits for one of another host is unblocked, and keeps its variables
rank_pids >"$T/pids"
cell 'kept = 100 + rank'
submit 'if rank: dist.all_reduce(torch.ones(1))
else: raise ValueError("one of them")'
like 'an error on one host ends the cell' "$(wait_cell "$n")" 'errno EREMOTEIO'
for wait in 'dist.barrier()' 'dist.new_group()' 'dist.distributed_c10d._get_default_store().get("nothing")'; do
	until_true grep -q '^state idle' "$G/status"
	submit "print('on')
if rank: $wait"
	until_true grep -q on "$G/cells/$n/rank2/stdout"
	echo interrupt >"$G/cells/$n/ctl"
	like "$wait is interrupted" "$(wait_cell "$n")" 'errno EINTR'
done
is 'the ranks are the same' "$(rank_pids)" "$(cat "$T/pids")"
is 'their variables stay' "$(cat "$G"/rank?/vars/kept.json | xargs)" '100 101 102'
ok cell 's = torch.ones(1); dist.all_reduce(s); s = s.item()'
is 'the next collective' "$(cat "$G"/rank?/vars/s | xargs)" '3.0 3.0 3.0'

# a source at one step of both hosts, and a stop there
echo 'grace 60' >"$G/ctl"
submit 'opt, step, go = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1), 0, True
while go:
    step += 1
    dist.all_reduce(torch.ones(1))
    opt.step()'
until_true steps 3
for _ in 1 2 3; do
	is 'a steer' "$(steer 'step')" 0
	is 'at one step' "$(cat "$G"/cells/last/rank?/result | sort -u | wc -l)" 1
done
is 'a watch' "$(errno write "$G/watch" 'rank == 2 and step % 10 == 0')" 0
like 'stops all' "$(sed -n 2p "$G/watch")" '^rank 2 step [0-9]*0: rank == 2 .*; all ranks wait$'
is 'there' "$(cat "$G"/rank?/vars/step | sort -u | wc -l)" 1
is 'it ends' "$(steer 'go = False')$(errno write "$G/ctl" "cancel $(head -n 1 "$G/watch" | cut -d ' ' -f 1)")" 00
is 'the cell, too' "$(key <(wait_cell "$n") state)" ok
echo 'grace 0' >"$G/ctl"

# a host that dies
submit "print('on')
while True: dist.all_reduce(torch.ones(1))"
for k in 0 1 2; do until_true grep -q on "$G/cells/$n/rank$k/stdout"; done
ip netns pids "${ID}b" | xargs kill -KILL
like 'the cell ends when linger is over' "$(wait_cell "$n")" 'EHOSTDOWN'
until_true grep -q '^state lacking' "$G/status"
like 'the host is named' "$(cat "$G/error")" "EHOSTDOWN .*$NET.2"
is 'the other one has its variables' "$(cat "$G/rank0/vars/t.json")" '[6.0, 6.0, 6.0]'
is 'its rank gets the place of both' "$(errno write "$G/ctl" "hosts root@$NET.1:3"$'\n')" 0
ok cell 'import torch, torch.distributed as dist
t = torch.full((3,), 1.0 + rank); dist.all_reduce(t); t = t.tolist()'
is 'a collective there' "$(cat "$G"/rank?/vars/t.json | xargs)" '[6.0, 6.0, 6.0] [6.0, 6.0, 6.0] [6.0, 6.0, 6.0]'
