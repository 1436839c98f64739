#!/usr/bin/env bash
# ddip doctor says what is there, and what helps where something is missing: in any environment, and in a limited time
# even if something does not answer. Starts that fail lead to it.
. "$(dirname "$0")/../lib.sh"

ddip=$BUILD/ddip
unset DDIP_MOUNT DDIP_GROUP VIRTUAL_ENV XDG_RUNTIME_DIR
export PYTHONDONTWRITEBYTECODE=1 # a module that is written again has the same time
mkdir "$T/bin" "$M"

# A torch for tests: torch VERSION CUDA NCCL, as Python expressions
torch() {
	mkdir -p "$T/torch/torch"
	cat >"$T/torch/torch/__init__.py" <<-END
		import types
		__version__ = $1
		version = types.SimpleNamespace(cuda=$2, hip=None)
		cuda = types.SimpleNamespace(is_available=lambda: False, device_count=lambda: 0,
		                             nccl=types.SimpleNamespace(version=lambda: $3))
		distributed = types.SimpleNamespace(is_available=lambda: True)
		print("what is imported prints")
	END
}

# doctor WORD…: sets $status and $out; with_torch VERSION CUDA NCCL does so with such a torch
doctor() {
	guarded "$ddip" doctor "$@" >"$T/out" 2>&1
	status=$?
	out=$(cat "$T/out")
	few_lines "doctor $*"
}

# few_lines WHAT: the last report has all, in at most twenty lines
few_lines() {
	local lines
	lines=$(wc -l <"$T/out")
	[ "$status" -gt 1 ] || { [ "$lines" -ge 14 ] && [ "$lines" -le 20 ]; } || bad "$1: $lines lines: $(cat "$T/out")"
}

with_torch() {
	torch "$@"
	PYTHONPATH=$T/torch doctor "$PLAIN_PYTHON"
}

# says WHAT PATTERN: a line of the last report, with the help below it
says() {
	like "$1" "$(tr '\n' ' ' <"$T/out" | sed 's/  *-> / -> /g; s/  */ /g')" "$2"
}

# ---- all is there

with_torch '"2.13.0+cpu"' None None
is 'all is there: status' $status 0
is 'the last line' "$(tail -n 1 "$T/out")" 'all that is needed is there'
says 'Python' "ok Python 3\.[0-9.]+, $PLAIN_PYTHON "
says 'torch' 'ok torch 2\.13\.0\+cpu \(no CUDA\) - NCCL none'
for name in ddipfs kernel mounting Python IPython NumPy torch NCCL driver GPUs gloo 'open files' processes \
	'locked memory' stack /dev/shm spools 'memory reads' mounts; do
	is "a line on $name" "$(grep -cE "^(ok|warn|bad|-) +$name  *" "$T/out")" 1
done
names() {
	"$PLAIN_PYTHON" -c 'import json, sys
report = json.load(sys.stdin)
print(report["ok"], *(each["name"] for each in report["findings"]), sep="\n")'
}
is '--json is the same' "$(PYTHONPATH=$T/torch "$ddip" doctor --json "$PLAIN_PYTHON" | names)" \
	"$(echo True; sed '$d' "$T/out" | cut -c 6-18 | sed 's/ *$//')"
out=$(env -i DDIP_TEST="$DDIP_TEST" PYTHONPATH="$T/torch" "$ddip" doctor "$PLAIN_PYTHON") ||
	bad "without any environment: $out"
is 'nobody reads it' "$({ guarded "$ddip" doctor 2>"$T/said"; echo $? >"$T/status"; } | true; cat "$T/status" "$T/said")" 0

# ---- Pythons and torches that do not do

doctor "$PLAIN_PYTHON"
if "$PLAIN_PYTHON" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is not None)'; then
	is 'no torch: status' $status 1
	says 'no torch' "bad torch none: .* -> $PLAIN_PYTHON -m pip install torch"
	says 'no torch: the last line' 'missing or bad: torch $'
fi
doctor /nowhere/python
says 'no such Python' 'bad Python /nowhere/python: No such file or directory -> another Python: ddip doctor PYTHON'
doctor "$(command -v false)"
says 'no Python at all' 'bad Python .*false does not run: it says nothing'
doctor a b
is 'two Pythons: status' $status 2
doctor -t nonsense
is 'no number: status' $status 2
with_torch '"2.5.1"' None None
says 'an old torch' 'bad torch 2\.5\.1 \(no CUDA\): 2\.6 or newer is needed -> .* install -U torch'
is 'an old torch: status' $status 1
with_torch '"2.9.0+cu130"' '"13.0"' '(2, 28, 3)'
says 'an NCCL that hangs' 'warn NCCL known to fail: NCCL 2\.28\.3: some jobs hang; fixed in 2\.28\.9 -> .* install -U torch'
with_torch '"2.9.1+cu130"' '"13.0"' '(2, 28, 9)'
says 'an NCCL that is right' 'ok torch 2\.9\.1\+cu130 \(CUDA 13\.0\) ok NCCL 2\.28\.9 '
with_torch '"2.7.0"' None None
says 'a torch that hangs' 'warn torch 2\.7\.0 \(no CUDA\); known to fail: torch 2\.7\.0: .*TORCH_NCCL_USE_COMM_NONBLOCKING=0'
is 'what may fail is not missing: status' $status 0
with_torch '1 / 0' None None
says 'a torch that is broken' 'ok Python .* bad torch cannot be imported: ZeroDivisionError: division by zero -> .* --force-reinstall torch'
mkfifo "$T/gate"
torch "open('$T/gate')" None None
PYTHONPATH=$T/torch doctor -t 3 "$PLAIN_PYTHON"
is 'an import that never ends: status' $status 1
says 'an import that never ends' 'ok Python .* bad Python no answer within 3 s -> .*importtime .* mounts '
: >"$T/gate" & # for an import that would still be there
writer=$!
mkdir -p "$T/v/bin"
ln -s "$PLAIN_PYTHON" "$T/v/bin/python"
VIRTUAL_ENV=$T/v DDIP_MOUNT=$T/none doctor # else a mount of another test would name its Python
says 'the Python that ddipfs would choose' "ok Python [0-9.]+, $T/v/bin/python"
for name in dirname readlink; do
	ln -s "$(command -v $name)" "$T/bin"
done
is 'no python3 in PATH' "$(PATH=$T/bin "$BASH" "$ddip" doctor 2>&1)" \
	'ddip: ddip doctor needs python3 (3.10 or newer) in PATH'

# ---- GPUs

export DDIP_NVML=$BUILD/fake/libnvidia-ml.so.1
if [ -e "$DDIP_NVML" ]; then
	FAKE_NVML=gpus=3 doctor
	says 'GPUs' 'ok driver NVIDIA 580\.95\.05, for CUDA up to 13\.0 ok GPUs 3 x NVIDIA Fake 80GB; [0-9.]+ GB of [0-9.]+ GB free'
	FAKE_NVML='gpus=2 fail=nvmlDeviceGetMemoryInfo:3' doctor
	says 'GPUs that do not tell their memory' 'ok GPUs 2 x NVIDIA Fake 80GB ok gloo'
	FAKE_NVML='fail=nvmlInit_v2:9' doctor
	says 'a driver that does not answer' "warn driver NVIDIA's does not answer .* -> nvidia-smi"
	FAKE_NVML=slow=1000000 doctor -t 3 "$PLAIN_PYTHON"
	says 'a driver that hangs' 'bad GPUs no answer within 3 s -> nvidia-smi.* ok gloo'
	DDIP_NVML=$BUILD/fake/libnvidia-ml-old.so.1 FAKE_NVML=gpus=1 doctor
	says 'an old driver' 'ok GPUs 1 x NVIDIA Fake 80GB'
fi
export DDIP_NVML=/nowhere/library
doctor
says 'no driver' '(-|warn) (driver|GPUs) none'
unset DDIP_NVML

# ---- limits and room

(
	ulimit -Sn 1000 -Hn 1000
	doctor
	says 'few files' 'warn open files 1000, at most 1000 -> nofile in /etc/security/limits.conf'
)
(
	ulimit -s 500
	doctor
	says 'a small stack' 'warn stack 0\.?5?[0-9]* MB -> ulimit -s 8192|warn stack 1 MB -> ulimit -s 8192'
)
DDIP_STATE=$T/nowhere doctor
says 'no place for spools' "bad spools $T/nowhere: No such file or directory -> export DDIP_STATE=DIR"
is 'no place for spools: status' $status 1
mkdir -p "$T/state/ddipfs-$(id -u)"
chmod 777 "$T/state/ddipfs-$(id -u)"
DDIP_STATE=$T/state doctor
says 'a place that others may use' "bad spools $T/state/ddipfs-[0-9]+ is not a directory of yours with mode 0700"

if [ "$(id -u)" = 0 ] && unshare -m -n true 2>/dev/null; then
	# inside COMMANDS: runs them as root in namespaces of its own, and ddip doctor after them
	inside() {
		unshare -m -n "$BASH" -c 'ip link set lo up 2>/dev/null || ifconfig lo up; '"$1"'; shift; exec "$@"' - "$1" \
			"${@:2}" timeout "$HANG_LIMIT_S" "$ddip" doctor "$PLAIN_PYTHON" >"$T/out" 2>&1
		status=$?
		few_lines "$*"
	}
	inside 'mount -t tmpfs -o size=64m none /dev/shm'
	says 'a small /dev/shm' 'warn /dev/shm 67 MB of 67 MB free: .* -> mount -o remount,size=8G /dev/shm; docker run --shm-size'
	inside 'ip link set lo down 2>/dev/null || ifconfig lo down'
	says 'no loopback' 'bad gloo 127\.0\.0\.1 does not work: .* -> ip link set lo up'
	is 'no loopback: status' $status 1
	inside true
	says 'no other network' 'ok gloo lo; there is no way to other hosts'

	# ---- who may mount
	# shellcheck disable=SC2016
	without_fuse='mkdir -p '$T'/dev; mount -t tmpfs none '$T'/dev
		for name in null zero full random urandom; do : >'$T'/dev/$name; mount --bind /dev/$name '$T'/dev/$name; done
		mount --rbind '$T'/dev /dev'
	inside "$without_fuse"
	says 'no /dev/fuse' 'warn mounting there is no /dev/fuse: ddip mount serves a socket .9P. instead -> modprobe fuse; .*--device /dev/fuse'
	# user MODE COMMANDS: with a /dev/fuse of this mode
	user() {
		inside "mkdir -p $T/node; mount -t tmpfs none $T/node; mknod -m $1 $T/node/fuse c 10 229
			mount --bind $T/node/fuse /dev/fuse; $2" setpriv --reuid 12345 --regid 12345 --clear-groups "${@:3}"
	}
	mkdir /var/tmp/ddip-doctor.$$
	chmod 1777 /var/tmp/ddip-doctor.$$
	DDIP_STATE=/var/tmp/ddip-doctor.$$ user 666 true
	rmdir /var/tmp/ddip-doctor.$$
	if [ -u "$(command -v fusermount3)" ]; then
		says 'an ordinary user' "ok mounting /dev/fuse, .*/fusermount3"
	fi
	says "an ordinary user's spools" "ok spools .*/ddipfs-12345"
	user 600 true
	says "a /dev/fuse of root's" 'warn mounting /dev/fuse: Permission denied: .* -> chmod 666 /dev/fuse'
	user 666 true --no-new-privs
	says 'one who gains no privileges' 'warn mounting this process may not gain privileges: .*no-new-privileges'
	PATH=/mnt:$PATH user 666 'mount -t tmpfs none /mnt; echo "#!/bin/sh" >/mnt/fusermount3; chmod 755 /mnt/fusermount3'
	says 'a fusermount3 without its mode' 'warn mounting /mnt/fusermount3 is not setuid root: .* -> as root: chown root /mnt/fusermount3; chmod u\+s'
fi

# ---- mounts

kill $writer 2>/dev/null
mount_plain -o size=1
lists_the_mount() { # not while a mount of another test is dead: then that one is told
	doctor
	grep -qE "^ok +mounts +(.*, )?$M(,|\$)" "$T/out"
}
until_true lists_the_mount
"$ddip" -m "$M" doctor >"$T/out"
says "the Python is the group's" "ok Python [0-9.]+, $PLAIN_PYTHON "
daemon=$(daemon_pid)
kill -STOP "$daemon"
guarded "$ddip" -m "$M" doctor "$PLAIN_PYTHON" >"$T/out"
says 'a mount that hangs' "warn mounts $M: it does not answer(;.*)? -> fusermount3 -u -z $M"
few_lines 'a mount that hangs'
guarded "$ddip" -m "$M" doctor >"$T/out"
says 'its group is not asked for the Python' 'ok Python .* warn mounts '
kill -CONT "$daemon"
unmount
"$ddip" -m "$T/nothing" doctor >"$T/out"
says 'what is not mounted yet' "warn mounts $T/nothing: nothing is served there(;.*)? -> ddip mount $T/nothing"

# ---- starts that fail lead to it

hint='ddip: ddip doctor shows what is there and what is missing'
is 'a mount that fails' "$("$ddip" mount -o python=/nowhere/python "$M" 2>&1 | tail -n 1)" "$hint"
ok "$BUILD/ddipfs" -o python="$(command -v false)",size=1 "$M"
said=$("$ddip" -m "$M" start 2>&1)
is 'a start that fails: status' $? 6
like 'a start that fails' "$said" $'ended before it was ready\n'"$hint\$"
said=$("$ddip" -m "$M" run - </dev/null 2>&1)
like 'a run that cannot start' "$said" $'ended before it was ready[^\n]*\n'"$hint\$"
unmount
mount_with "$PLAIN_PYTHON" -o backend=gloo,size=1
if ! "$PLAIN_PYTHON" -c 'import torch' 2>/dev/null; then
	like 'a start without torch' "$("$ddip" -m "$M" start 2>&1)" $'has no torch.distributed.*\n'"$hint\$"
fi
like 'other refusals do not' "$("$ddip" -m "$M" pull nothing 2>&1 | grep -c doctor)" 0
unmount

# ---- versions that are known to fail are told at the start, in events, too

export DDIP_ENGINE=$BUILD/fake/engine DDIP_FAKE=knownbad
if [ -x "$DDIP_ENGINE" ]; then
	mount_plain -o size=2
	exec 5<"$G/events"
	said=$("$ddip" -m "$M" start 2>&1) || bad "ddip start: $said"
	is 'ddip start' "$said" 'ddip: known to fail: NCCL 2.28.5: some jobs hang'
	like 'the event' "$(await 5 known-bad)" 'known-bad rank=0 NCCL 2\.28\.5: some jobs hang$'
	exec 5<&-
fi
