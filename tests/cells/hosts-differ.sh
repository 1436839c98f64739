#!/usr/bin/env bash
# Hosts that are not copies of each other: ranks that cannot form a group are refused at the start, in a table of who
# has what; what differs without harm is told; a missing directory is named; modules travel. Behind plain commands, and
# behind sshds in mount namespaces of their own. DDIP_TEST_OTHER_PYTHON: a Python with another minor version of torch.
. "$(dirname "$0")/../lib.sh"

has_module torch || skip "no torch in $TORCH_PYTHON"
! "$PLAIN_PYTHON" -c 'import torch' 2>/dev/null || skip "torch is in $PLAIN_PYTHON, too"
export XDG_CACHE_HOME=$T/cache

# An image is a directory with a program `python`. $T/image is the one that a host has.
mkdir "$T/image" "$T/torch" "$T/plain" "$T/other"
image() {
	printf '#!/bin/sh\nexec %s "$@"\n' "$2" >"$T/$1/python"
	chmod +x "$T/$1/python"
}
image torch "$TORCH_PYTHON"
image plain "$PLAIN_PYTHON"
# version PYTHON: prints torch's version there, as a pattern
version() {
	"$1" -c 'from importlib.metadata import version; print(version("torch").replace("+", "[+]"))'
}

# ---- behind a command: the name of a host is IMAGE or IMAGE-N

cat >"$T/go" <<END
#!/bin/sh
cd /
PATH=$T/\${1%%-*}:\$PATH
exec sh -c "\$2"
END
chmod +x "$T/go"
set_() {
	errno write "$G/ctl" "$*"$'\n'
}
mount_with python -o master_addr=127.0.0.1 -o "launcher=$T/go {host}" -o 'hosts=torch:1 plain:1' -o linger=2 -o grace=0
exec 5<"$G/events"
is 'no torch on one' "$(guarded "$BUILD/ddip" -m "$M" start 2>&1 | head -n 1)" \
	'ddip: start: torch is not everywhere: install it there, set `python` to one that has it, or write `backend none` to ctl'
is 'its errno' "$(set_ start)" EPROTO
like 'the table' "$(tail -n 2 "$G/error")" \
	"  torch: python=3[.0-9]+ torch=$(version "$TORCH_PYTHON") .* engine=[0-9.]+"$'\n\t'"  plain: python=3[.0-9]+ torch=- "
like 'the columns' "$(cat "$G/hosts")" \
	"plain state=[a-z]+ .* python=3[^ ]+ executable=$PLAIN_PYTHON torch=- cuda=- nccl=- gpus=- engine=[0-9.]+ cwd=$PWD"
is 'nothing runs' "$(rank_pids)" ''
is 'backend none asks for no torch' "$(set_ $'backend none\nstart')" 0
like 'what differs is told' "$(await 5 ' hosts-differ ')" 'hosts-differ .*torch=(-,[^ ,]+|[^ ,]+,-)'
exec 5<&-
is 'cells run on both' "$(errno write "$G/cell" pass)" 0

# a spare host that does not fit is not taken, and the other rank keeps its variables
is 'a group and a spare host' "$(set_ $'stop\nsize 2\nbackend auto\nhosts torch-1:1 torch-2:1 plain:1\nstart')" 0
cell 'kept = 7 + rank'
kill -KILL "$(awk '/^PPid:/ { print $2 }' "/proc/$(sed -n 's/^1 .* pid=\([0-9]*\).*/\1/p' "$G/ranks")/status")"
until_true grep -q '^state lacking' "$G/status"
like 'why not' "$(cat "$G/error")" 'EPROTO hosts: torch is not everywhere'
like 'it is lost to the group' "$(cat "$G/hosts")" 'plain state=lost '
is 'the other rank' "$(cat "$G/rank0/vars/kept")" 7
is 'a host that fits' "$(set_ 'hosts torch-1:1 torch-3:1')" 0
is 'is taken' "$(errno write "$G/cell" 'import torch, torch.distributed as dist
t = torch.ones(1); dist.all_reduce(t)')" 0
is 'with it the group works' "$(cat "$G/rank1/vars/t.json" "$G/rank0/vars/kept" | xargs)" '[2.0] 7'

if [ -x "${DDIP_TEST_OTHER_PYTHON:-}" ]; then
	image other "$DDIP_TEST_OTHER_PYTHON"
	is 'another torch' "$(set_ $'stop\nhosts torch:1 other:1\nstart')" EPROTO
	like 'both are named' "$(tail -n 3 "$G/error")" \
		"torch must have the same minor version.* torch=$(version "$TORCH_PYTHON").* torch=$(version "$DDIP_TEST_OTHER_PYTHON") "
else
	echo 'not tested: DDIP_TEST_OTHER_PYTHON names no Python with another torch'
fi
is 'no Python' "$(set_ "stop
backend none
hosts plain-1:1 plain-2:1
python $T/nowhere
start")" EHOSTDOWN
like 'the host is named' "$(tail -n 2 "$G/error")" "host plain-[12]: .*there is no Python at '$T/nowhere'"
unmount

# ---- behind ssh: each host has its own mounts

SSHD=$(PATH=$PATH:/usr/sbin command -v sshd) || SSHD=
if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null || [ ! "$SSHD" ]; then
	echo 'not tested: sshd in mount namespaces'
	exit
fi
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$T/key"
ssh-keygen -q -t ed25519 -N '' -f "$T/hostkey"
sshds=()
finish() {
	kill "${sshds[@]}"
	wait "${sshds[@]}"
} 2>/dev/null
mkdir -p "$T/src/lib" "$T/here"
# host NAME PORT IMAGE: $T/image is this image there, and $T/src is empty
host() {
	printf '%s\n' "HostKey $T/hostkey" 'ListenAddress 127.0.0.1' "Port $2" "AuthorizedKeysFile $T/key.pub" 'StrictModes no' \
		'UsePAM no' 'PermitRootLogin yes' 'PidFile none' \
		"SetEnv XDG_CACHE_HOME=$T/cache-$1 DDIP_STATE=$T DDIP_TEST=${DDIP_TEST:-}" >"$T/sshd-$1"
	printf '%s\n' "Host $1" 'HostName 127.0.0.1' "HostKeyAlias $1" "Port $2" >>"$T/config"
	echo "$1 $(cut -d ' ' -f 1,2 "$T/hostkey.pub")" >>"$T/known"
	unshare -m sh -c "mount --bind $T/$3 $T/image && mount -t tmpfs none $T/src && exec $SSHD -D -e -f $T/sshd-$1" \
		2>/dev/null &
	sshds+=($!)
}
read -r one two three < <(free_ports 3)
host a "$one" torch
host b "$two" torch
host c "$three" plain
printf '%s\n' 'Host *' 'User root' "IdentityFile $T/key" 'IdentitiesOnly yes' "UserKnownHostsFile $T/known" >>"$T/config"
for name in a b c; do until_true ssh -F "$T/config" -o BatchMode=yes $name true 2>/dev/null; done
cat >"$T/src/train.py" <<'END'
import os
import sys

import lib.model
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
t = torch.full((1,), lib.model.ONE)
dist.all_reduce(t)
print(dist.get_rank(), t.item(), os.getcwd(), sys.argv[1:], os.path.exists(__file__))
END
echo 'ONE = 1.5' >"$T/src/lib/model.py"
run() {
	guarded "$BUILD/ddip" run --hosts "$1" -o "launcher=ssh -F $T/config" -o master_addr=127.0.0.1 \
		-o "python=$T/image/python" -o linger=2 "${@:2}" >"$T/out" 2>&1
	status=$? out=$(cat "$T/out")
}
cd "$T/src" || exit
run a:1,b:1 -o "cwd=$T/here" -a train.py x 'y z'
is 'a program and its modules: status' $status 0
is 'both ranks run it' "$(grep '^[01]:' "$T/out" | sort)" "0: 0 3.0 $T/here ['x', 'y z'] True
1: 1 3.0 $T/here ['x', 'y z'] True"
like 'what goes with it is told' "$out" 'ddip: 1 file beside the program goes with it to the hosts'
run a:1,c:1 -o "cwd=$T/here" train.py
is 'no torch on one, behind ssh: status' $status 4
like 'the table' "$out" 'torch is not everywhere.*  a: python=.* torch=[0-9].*  c: python=.* torch=- '
cd "$T/src/lib" || exit
run a:1,b:1 ../train.py
is 'the directory of the caller is missing there' $status 6
like 'it is named, with its host' "$out" "start: host [ab]: the directory $T/src/lib: No such file or directory: set cwd"
echo 'import importlib; importlib.import_module("nothing_there")' >"$T/src/dynamic.py"
run a:1,b:1 -o "cwd=$T/here" -o backend=none -o "env=PYTHONPATH=$ROOT/tests/fake/no_torch" ../dynamic.py
is 'a module that cannot be found' $status 1
! "$TORCH_PYTHON" -c 'BaseException.add_note' 2>/dev/null || like 'on which host' "$out" 'It is not on host [ab]'
cd "$ROOT" || exit
