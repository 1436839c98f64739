#!/usr/bin/env bash
# Links between hosts may break at any moment, be away for a while, or be far or slow: cells, output, objects and the
# numbers of a training run are the same as over a perfect link. SEED: the moments.
. "$(dirname "$0")/../lib.sh"

export XDG_CACHE_HOME=$T/cache
for host in a b; do mkdir "$T/$host"; done
carrier="$PLAIN_PYTHON $ROOT/tests/engine/carrier.py $T/{host}"
# cut HOST: breaks its connection
cut_link() {
	kill -KILL "$(cat "$T/$1/pid")" 2>/dev/null
}

# ---- at least 200 cells while links break; each prints and has a result

CUTS=10 # at least
mount_plain -o size=4 -o 'hosts=a:2 b:2' -o "launcher=$carrier" -o linger=600
cell pass
cat >"$T/cutter" <<'END'
import contextlib, os, random, signal, sys, time
directory, seed, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
moments = random.Random(seed)

def read(host, name):
    with open(f"{directory}/{host}/{name}") as f:
        return int(f.read() or 0)

cuts = 0
while not os.path.exists(directory + "/enough"):
    host, more = moments.choice("ab"), moments.randrange(1, 15000)  # bytes that it carries until then
    pid, end = read(host, "pid"), read(host, "from") + more
    while not os.path.exists(directory + "/enough") and read(host, "from") < end:
        time.sleep(0.001)
    if read(host, "pid") == pid:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(pid, signal.SIGKILL)
            cuts += 1
    if cuts == wanted:
        open(directory + "/cut", "w").close()
    while not os.path.exists(directory + "/enough") and read(host, "pid") == pid:
        time.sleep(0.001)
END
cat >"$T/cells" <<'END'
import os, sys
group, least, cut = sys.argv[1], int(sys.argv[2]), sys.argv[3]
wrong = count = 0
while count < least or not os.path.exists(cut):
    i, count = count, count + 1
    fd = os.open(group + "/cell", os.O_RDWR)
    os.write(fd, b"for line in range(20): print(%d, line, rank)\n%d * 10 + rank" % (i, i))
    os.fsync(fd)
    number = int(os.read(fd, 64))
    os.close(fd)
    for rank in range(4):
        part = f"{group}/cells/{number}/rank{rank}/"
        if open(part + "result").read().strip() != str(i * 10 + rank):
            wrong += 1
        if open(part + "stdout").read() != "".join(f"{i} {line} {rank}\n" for line in range(20)):
            wrong += 1
for rank in range(4):
    want = "".join(f"{i} {line} {rank}\n" for i in range(count) for line in range(20))
    wrong += open(f"{group}/rank{rank}/stdout").read() != want
print(wrong)
END
"$PLAIN_PYTHON" "$T/cutter" "$T" "${SEED:-1}" $CUTS &
cutter=$!
is 'cells: each result and each line is there, and none twice' \
	"$(guarded "$PLAIN_PYTHON" "$T/cells" "$G" 200 "$T/cut")" 0
touch "$T/enough"
ok wait $cutter
is 'nobody was lost' "$(cat "$G/error")" ''
unmount

# ---- a million lines from each of 4 ranks

mount_plain -o size=4 -o 'hosts=a:2 b:2' -o "launcher=$carrier"
ok cell 'for i in range(1_000_000): print(i)'
want=$(seq 0 999999 | md5sum)
for k in 0 1 2 3; do
	is "no byte of rank $k's lines is lost" "$(md5sum <"$G/rank$k/stdout")" "$want"
done
unmount

# ---- a link that is away while a model is trained

mount_torch -o size=2 -o 'hosts=a:1 b:1' -o "launcher=$carrier" -o linger=600 -o master_addr=127.0.0.1 -o stall=off
train='import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
torch.manual_seed(rank)
losses, steps, goes_on = [], 0, True
while goes_on:
    loss = model(torch.randn(16, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if len(losses) < 100: losses.append(loss.item())
    if steps % 10 == 0:
        print(steps, flush=True)
        open(f"'$T'/steps.{rank}", "w").write(str(steps))
        ends = torch.tensor([float(steps >= 100 and os.path.exists(until))])
        dist.all_reduce(ends)
        goes_on = not ends.item()'
trained() {
	[ "$(cat "$T/steps.0")" -gt "$1" ] && [ "$(cat "$T/steps.1")" -gt "$1" ]
}
ok cell "until = '/'
$train"
is "a model is trained" "$(cat "$T/steps.0") $(cat "$T/steps.1")" "100 100"
cp "$G/rank0/vars/losses.json" "$T/losses.0"
cp "$G/rank1/vars/losses.json" "$T/losses.1"
submit "until = '$T/back'
$train"
until_true grep -q '^10$' "$G/cells/$n/rank1/stdout"
touch "$T/a/down" "$T/b/down"
cut_link a
cut_link b
until_true trained $(($(cat "$T/steps.0") + 200)) || bad 'ranks wait for the link'
is 'the cell runs' "$(state "$n")" running
rm "$T/a/down" "$T/b/down"
touch "$T/back"
like 'and ends well' "$(wait_cell "$n")" 'ok'
for k in 0 1; do
	is "the numbers of rank $k are those of an uncut link" "$(cat "$G/rank$k/vars/losses.json")" "$(cat "$T/losses.$k")"
	is "no line of rank $k is lost, none is twice" \
		"$(md5sum <"$G/cells/$n/rank$k/stdout")" "$(seq 10 10 "$(cat "$T/steps.$k")" | md5sum)"
done
unmount

# ---- a link that is lost for ever while output is on its way: the cell has not ended well

mount_plain -o size=2 -o 'hosts=a:1 b:1' -o "launcher=$carrier" -o linger=1
for flag in -q -a; do
	cell pass || bad "the cell before: $(tail -n 1 "$G/error")"
	echo $(($(cat "$T/b/from") + 300000)) >"$T/b/most.from"
	"$BUILD/ddip" -m "$M" exec "$flag" -r 1 'for i in range(3000): print("x" * 1000)' >/dev/null 2>"$T/said" &
	prints "$G/rank1/follow" xxx
	touch "$T/b/down"
	cut_link b
	wait $!
	like "exec $flag: the host of its output is lost" "$? $(cat "$T/said")" '^6 rank 1:.*host b: no connection for 1 s'
	is 'the cell is lost' "$(key "$G/cells/last/status" state)" lost
	rm "$T/b/down" "$T/b/most.from"
	echo recover >"$G/ctl" || bad recover
done
unmount

# ---- distant and slow links

# an object that takes two minutes: no part of it arrives, and nobody waits for the rest
interrupt_push() {
	local begun
	head -c 120000000 /dev/zero | tr '\0' x >"$T/long"
	cp "$T/long" "$G/vars/long" 2>"$T/cp" &
	until_true grep -q '^state busy$' "$G/rank1/status"
	begun=$SECONDS
	echo interrupt >"$G/ctl"
	wait $!
	like 'a push that is interrupted on its way' "$(cat "$T/cp")" 'Interrupted system call'
	[ $((SECONDS - begun)) -lt 60 ] || bad "it took $((SECONDS - begun)) s"
	ok cell 'assert "long" not in globals() and x == y'
}

# minutes of output: what has not arrived is reported, and no host is lost because of it
stop_printing() {
	exec 3<"$G/events"
	: >"$G/error"
	submit 'while True: print("x" * 1000)' "$G/rank1/cell"
	prints "$G/rank1/follow" xxx
	is "$1: a stop while a rank prints" "$(errno write "$G/ctl" $'stop\n')" 0
	await 3 'output-unsent rank=1 bytes=' >/dev/null
	exec 3<&-
	is "$1: it is stopped" "$(key "$G/status" state)" stopped
	is "$1: nothing is told as lost" "$(grep -cE 'EHOSTDOWN|ENOSPC' "$G/error")" 0
}

for link in 'latency 0.05' 'rate 1000000'; do
	read -r what much <<<"$link"
	for host in a b; do echo "$much" >"$T/$host/$what"; done
	mount_plain -o size=2 -o 'hosts=a:1 b:1' -o "launcher=$carrier"
	ok cell 'x = b"".join(i.to_bytes(4, "little") for i in range(1 << 17))
for i in range(20000): print(i)'
	for k in 0 1; do
		is "$link: output of rank $k" "$(md5sum <"$G/rank$k/stdout")" "$(seq 0 19999 | md5sum)"
		is "$link: an object from rank $k" "$("$PLAIN_PYTHON" -c 'import pickle, sys
x = pickle.load(open(sys.argv[1], "rb"))
print(x == b"".join(i.to_bytes(4, "little") for i in range(1 << 17)))' "$G/rank$k/vars/x.pkl")" True
	done
	ok cp "$G/rank1/vars/x.pkl" "$G/vars/y.pkl"
	ok cell 'assert x == y'
	submit 'import time; time.sleep(1000)'
	is "$link: an interrupt" "$(errno write "$G/ctl" $'interrupt\n')" 0
	like "$link: ends the cell" "$(wait_cell "$n")" 'EINTR'
	[ "$what" = latency ] || interrupt_push
	[ "$what" = latency ] || stop_printing "$link"
	unmount
	rm "$T"/[ab]/"$what"
done
