#!/usr/bin/env bash
# A mount on a server works when sshfs mounts it again: cells, output, objects in both directions, and nothing hangs
# there. The sshd is a real one that talks through a pipe.
. "$(dirname "$0")/../lib.sh"

sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || skip 'there is no sshd'
command -v sshfs >/dev/null || skip 'there is no sshfs'
[ "$(id -u)" = 0 ] || skip 'only root can run this sshd'
mkdir -p /run/sshd # where it gives up its rights
L=$T/laptop

# far OPTION…: mounts M on the laptop
far() {
	guarded sshfs -F "$T/config" -o direct_io,dir_cache=no,attr_timeout=0,entry_timeout=0 "$@" server:"$M" "$L" ||
		give_up "sshfs: status $?"
}

near() {
	until_true fusermount3 -q -u "$L"
}

# tells WHAT FILE PATTERN: waits until the file matches
tells() {
	until_true grep -qs "$3" "$2" || bad "$1: $(guarded cat "$2")"
}

for name in host user; do
	ssh-keygen -q -t ed25519 -N '' -f "$T/$name" || give_up 'ssh-keygen'
done
cat >"$T/sshd" <<END
HostKey $T/host
AuthorizedKeysFile $T/user.pub
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
Subsystem sftp internal-sftp
END
cat >"$T/config" <<END
Host server
ProxyCommand $sshd -i -f $T/sshd
IdentityFile $T/user
UserKnownHostsFile /dev/null
StrictHostKeyChecking no
LogLevel ERROR
User root
END
guarded ssh -F "$T/config" server true || skip 'this sshd lets nobody in'
mkdir "$L"
mount_plain -o size=2
G=$L/group

# ---- one connection: requests are served in order

far
cell 'x = rank * 10; print("hello from", rank)' "$G/cell"
is 'a cell ran on each rank' "$(cat "$G/rank1/stdout")" 'hello from 1'
is 'a variable can be read' "$(cat "$G/rank1/vars/x")" 10
is 'its size is right' "$(wc -c <"$G/rank1/vars/x")" 3
is 'a new name can be made' "$(echo '[1, 2]' >"$G/vars/y.json" && cat "$G/rank1/vars/y")" '[1, 2]'
is 'it is listed' "$(ls "$G/vars" | xargs)" 'x y'
"$PLAIN_PYTHON" -c 'import os, pickle, sys; pickle.dump(os.urandom(3000000), sys.stdout.buffer)' >"$T/bytes.pkl"
ok guarded cp "$T/bytes.pkl" "$G/vars/b.pkl"
is 'many bytes go there' "$(value 'len(b)' 1)" 3000000
cp "$G/rank1/vars/b.pkl" "$T/back.pkl"
ok "$PLAIN_PYTHON" -c 'import pickle, sys; a, b = (pickle.load(open(f, "rb")) for f in sys.argv[1:]); assert a == b' \
	"$T/bytes.pkl" "$T/back.pkl"
ok guarded mv "$G/rank0/vars/y" "$G/rank0/vars/z"
ok guarded rm "$G/vars/b"
is 'what was removed and renamed is so' "$(ls "$G/rank0/vars" | xargs)" 'x z'
cell '1 / 0' "$G/cell"
like 'a failure can be read' "$(cat "$G/traceback" "$G/error")" 'ZeroDivisionError.*EREMOTEIO'
is 'fsync says that a cell failed, as SFTP can' "$(errno fsync "$G/cell" '1 / 0')" EPERM
fails guarded dd conv=fsync status=none of="$G/vars/x.json" <<<'[1'
like 'of an object, too, and the text is in error' "$(tail -n 1 "$G/error")" 'EBADMSG'
is 'a text that does not decode replaces nothing' "$(cat "$G/vars/x")" 0
ok guarded cp -r "$G/cells/1/rank1" "$T/copy"
is 'a directory can be copied' "$(cat "$T/copy/stdout")" 'hello from 1'
guarded cat "$L/trace" "$G/events" "$G/log" "$G/rank0/follow" >"$T/live" || bad "live files: status $?"
is 'what ddip exec prints comes' "$(DDIP_MOUNT=$L guarded "$BUILD/ddip" exec -a 'print("rank", rank)' | sort | xargs)" \
	'0: rank 0 1: rank 1'
is 'also of a cell that takes its time' "$(DDIP_MOUNT=$L guarded "$BUILD/ddip" exec \
	'import time; print("begun", flush=True); time.sleep(0.5); print("ended")' | xargs)" 'begun ended'
near

# ---- several: a request that waits occupies only its own

far -o max_conns=4
before=$(key "$G/status" cell)
guarded cat >"$G/cell" <<END
import threading
print("it begins", flush=True)
if rank == 0:
    print("got", input(), flush=True)
threading.Event().wait()
END
exec 3< <(exec tail -n +1 -s 0.1 -f "$G/rank0/stdout")
tail=$!
like 'tail -f follows a cell that runs' "$(await 3 'it begins')" begins
number=$((before + 1))
is 'wait says nothing until it has ended' "$(guarded cat "$G/cells/$number/wait")" ''
like 'its state can be read' "$(guarded cat "$G/cells/$number/status")" 'state running'
like 'a stream gives what is there' "$(guarded cat "$G/cells/$number/stream")" begins
exec 4< <(DDIP_MOUNT=$L exec "$BUILD/ddip" tail -f 0)
follows=$!
like 'ddip tail -f begins with what is there' "$(await 4 begins)" 'it begins'
echo later >"$M/group/rank0/stdin"
like '... and goes on' "$(await 4 'got later')" 'got later'
DDIP_MOUNT=$L guarded "$BUILD/ddip" wait "$number" &
waits=$!
is 'who asks whether it has ended is told so' "$(PYTHONPATH=$ROOT/magics "$PLAIN_PYTHON" -c "
from ddip import groups
from ddip.cells import cell
print(cell.Cell(groups.Group('$G'), $number).has_ended(200))")" False
echo interrupt >"$G/ctl"
tells 'an interrupt reaches it' "$G/cells/$number/wait" 'state interrupted'
wait "$waits"
is 'ddip wait waited, and tells of it' $? 130
is 'who asks for its end is told' "$(PYTHONPATH=$ROOT/magics "$PLAIN_PYTHON" -c "
from ddip import groups
from ddip.cells import cell
print(cell.Cell(groups.Group('$G'), $number).has_ended())")" True
kill "$tail" "$follows"
exec 3<&- 4<&-
near
