#!/usr/bin/env bash
# Another user of this machine, who connects to whatever starts to listen and says that he is a rank, is not taken for one:
# collectives are right, and nothing is sent to him. DDIP_TEST_RESTARTS: how many groups he tries it on. In a network
# namespace of its own: he does it to everyone.
[ "${1:-}" = alone ] || ! unshare -n ip link set lo up 2>/dev/null ||
	exec unshare -n bash -c 'ip link set lo up && exec "$0" alone' "$0"
. "$(dirname "$0")/../lib.sh"

[ "$(id -u)" = 0 ] || skip 'there is no second user: only root can act as one'
[ "${1:-}" = alone ] || skip 'there is no network namespace for a stranger, who would disturb everyone else'
restarts=${DDIP_TEST_RESTARTS:-20}
user=ddip-test-$$
if useradd --system --no-create-home "$user" 2>"$T/useradd"; then
	uid=$(id -u "$user")
else
	uid=64$((RANDOM % 900 + 100)) user=
	echo "no account ($(cat "$T/useradd")): the other user is the number $uid"
fi
finish() {
	[ -z "${stranger:-}" ] || kill "$stranger" 2>/dev/null
	[ -z "$user" ] || userdel "$user"
}

# He sends sequence numbers, then whatever he was sent, and counts it. When the file STOP exists, he prints the sums.
cat >"$T/stranger.py" <<-'END'
	import os, select, socket, struct, sys
	stop, me = sys.argv[1], os.getuid()
	known, mine, tried, got = {}, {}, 0, 0

	def listeners():
	    with open("/proc/net/tcp") as f:
	        rows = [line.split() for line in f][1:]
	    return {(r[1], r[9]) for r in rows if r[3] == "0A" and int(r[7]) != me}

	known = listeners()
	print("ready", flush=True)
	while not os.path.exists(stop):
	    for where, inode in listeners() - known:
	        known.add((where, inode))
	        host = socket.inet_ntoa(struct.pack("=I", int(where.split(":")[0], 16)))
	        for number in range(4):
	            s = socket.socket()
	            s.settimeout(1)
	            try:
	                s.connect((host, int(where.split(":")[1], 16)))
	                s.send(struct.pack("<Q", number))
	            except OSError:
	                continue
	            s.setblocking(False)
	            tried += 1
	            mine[s.fileno()] = s
	    for fd in select.select(list(mine), [], [], 0)[0]:
	        try:
	            data = mine[fd].recv(1 << 20)
	            got += len(data)
	            if data:
	                mine[fd].send(data)
	                continue
	        except BlockingIOError:
	            continue
	        except OSError:
	            pass
	        mine.pop(fd).close()
	print(tried, got, flush=True)
END
chmod 755 "$TMPDIR" "$T"
chmod 644 "$T/stranger.py"

mount_torch -o size=2,gpus=none,timeout=30
exec 5<"$G/events" # from here on
cat <&5 >"$T/events" &
exec 5<&-
coproc setpriv --reuid "$uid" --regid "$uid" --clear-groups "$PLAIN_PYTHON" "$T/stranger.py" "$T/stop"
stranger=$COPROC_PID
# shellcheck disable=SC2153
exec 5<&"${COPROC[0]}"
is 'he has begun' "$(await 5 ready)" ready
# told PROCESS: it is told once for each group
told() {
	[ "$(grep -c "stranger $1 refused uid=$uid$" "$T/events")" = $i ]
}
for ((i = 1; i <= restarts; i++)); do
	ok cell 'import torch, torch.distributed as dist
t = torch.ones(1000) * (rank + 1); dist.all_reduce(t); t = t[0].item()
all = [None] * 2; dist.all_gather_object(all, {"rank": rank})
more = dist.new_group(); u = torch.ones(1); dist.all_reduce(u, group=more)'
	is "group $i: what is reduced" "$(cat "$G"/rank?/vars/t | xargs)" '3.0 3.0'
	is "group $i: what is gathered" "$(cat "$G/vars/all.same.json")" '[{"rank": 0}, {"rank": 1}]'
	until_true told rank=0
	until_true told store
	[ "$i" = "$restarts" ] || is "group $i: restarted" "$(errno fsync "$G/ctl" $'restart\n')" 0
done
is 'the guard' "$(key "$G/status" zygote_gloo_accept_guard)" 1
touch "$T/stop"
read -r tried got <<<"$(await 5 '^[0-9]+ [0-9]+$')"
exec 5<&-
[ "$tried" -ge $((restarts * 4)) ] || bad "he has connected $tried times in $restarts groups"
is 'what he was sent' "$got" 0
like 'the log' "$(cat "$(key "$G/status" spool)/../ddipfs.log")" "store: a connection was refused: uid=$uid"
