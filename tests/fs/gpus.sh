#!/usr/bin/env bash
# GPUs are chosen, shown to ranks and reported in files as the settings say; on a fake NVML with 8 GPUs.
. "$(dirname "$0")/../lib.sh"

fake=$BUILD/fake/libnvidia-ml.so.1
[ -e "$fake" ] || skip "$fake is not built (make check)"
export DDIP_NVML=$fake FAKE_NVML='gpus=8'
unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER

line() {
	errno write "$G/ctl" "$1"$'\n'
}

uuid() {
	printf 'GPU-000000a%d-0000-4000-8000-00000000000%d' "$1" "$1"
}

again() { # a mount with this environment
	! mountpoint -q "$M" || unmount
	mount_plain "$@"
}

seen() { # VARIABLE RANK: in the environment of a rank
	value "import os; print(os.environ.get('$1', 'unset'), flush=True)" "$2" >/dev/null
	cat "$G/cells/last/rank$2/stdout"
}

# by default: all GPUs, with a rank for each
again
is 'ranks by GPUs' "$(key "$G/status" size)" 8
is 'GPUs' "$(wc -l <"$G/gpus")" 8
like 'a line' "$(sed -n 4p "$G/gpus")" "^3 index=3 uuid=$(uuid 3) name='NVIDIA Fake 80GB' used_bytes=4194304 \
total_bytes=85899345920 util_pct=30 temp_c=43 power_mw=103000 clock_mhz=1003 pids=$"

# the user's order; unknown GPUs are refused, with a list of those that exist
is 'in this order' "$(line 'gpus 3,1')" 0
is 'printed' "$(grep '^gpus' "$G/ctl")" 'gpus 3,1'
is 'two ranks' "$(key "$G/status" size)" 2
is 'words' "$(line 'gpus 3 1')" 0
is 'printed alike' "$(grep '^gpus' "$G/ctl")" 'gpus 3,1'
for bad in 8 3,9 GPU-ffff 'cuda:0' 3,all -1 "0,$(uuid 0)"; do
	is "gpus $bad" "$(line "gpus $bad")" EINVAL
done
like 'the text' "$(tail -n 2 "$G/error")" "the same GPU.* 0,0"
line 'gpus 8' >/dev/null
like 'the list' "$(tail -n 1 "$G/error")" "no GPU '8'.* 7 $(uuid 7)"
is 'nothing changed' "$(grep '^gpus' "$G/ctl")" 'gpus 3,1'
is 'more ranks than GPUs' "$(line $'size 3\nstart')" EINVAL
like 'its text' "$(tail -n 1 "$G/error")" 'size 3, but gpus 3,1 names 2: want size 2 or less, gpus none'
is 'as many again' "$(line $'size 2\nstart')" 0
for k in 0 1; do
	is "rank $k sees" "$(seen CUDA_VISIBLE_DEVICES $k)" "$(uuid 3),$(uuid 1)"
	is "rank $k is local" "$(seen LOCAL_RANK $k)" $k
	is 'order' "$(seen CUDA_DEVICE_ORDER $k)" PCI_BUS_ID
	is 'no trick' "$(seen NCCL_HOSTID $k)" unset
done
is 'GPUs of ranks' "$(grep -o ' gpu=[^ ]*' "$G/ranks" | xargs)" 'gpu=3 gpu=1'
is 'status' "$(key "$G/rank1/status" gpu)" 1
is 'status, too' "$(key "$G/rank0/status" gpu_uuid)" "$(uuid 3)"
is 'used' "$(key "$G/rank0/status" gpu_used_bytes)" 4194304
is 'while it runs' "$(line 'gpus 0')" EBUSY

# no GPU, and one GPU for two ranks
is 'none' "$(line $'stop\ngpus none\nstart')" 0
is 'an empty list' "$(seen CUDA_VISIBLE_DEVICES 1)" ''
like 'gpus says so' "$(cat "$G/gpus")" '^# gpus none'
is 'no GPU' "$(grep -o ' gpu=[^ ]*' "$G/ranks" | xargs)" 'gpu=- gpu=-'
is 'twice' "$(line $'stop\ngpus 5,5\nstart')" 0
is 'each its own' "$(seen CUDA_VISIBLE_DEVICES 1)" "$(uuid 5)"
is 'the first device of each' "$(seen LOCAL_RANK 1) $(seen LOCAL_WORLD_SIZE 1) $(seen GROUP_RANK 1)" '0 1 1'
is 'for NCCL' "$(seen NCCL_HOSTID 1) $(seen NCCL_MULTI_RANK_GPU_ENABLE 0) $(seen NCCL_MNNVL_ENABLE 1)" 'rank1 1 0'
line 'stop' >/dev/null
is 'by UUID' "$(line "gpus $(uuid 6)")" 0
is 'one rank' "$(key "$G/status" size)" 2 # size 2 was said before
is 'too many' "$(line start)" EINVAL
is 'one' "$(line $'size 1\nstart')" 0
is 'it sees' "$(seen CUDA_VISIBLE_DEVICES 0)" "$(uuid 6)"

# one rank with several GPUs: for models that are spread over them
is 'all for one' "$(line $'stop\ngpus 2,0\nsize 1\nstart')" 0
is 'sees both' "$(seen CUDA_VISIBLE_DEVICES 0)" "$(uuid 2),$(uuid 0)"
is 'lists both' "$(wc -l <"$G/gpus")" 2

# the list that the daemon inherits
CUDA_VISIBLE_DEVICES=5,2,7 again
is 'inherited' "$(grep -o 'index=[0-9]*' "$G/gpus" | xargs)" 'index=5 index=2 index=7'
is 'relative' "$(line $'gpus 1,0\nstart')" 0
is 'of the inherited' "$(seen CUDA_VISIBLE_DEVICES 0)" "$(uuid 2),$(uuid 5)"
is 'not ours' "$(line $'stop\ngpus 3')" EINVAL
CUDA_VISIBLE_DEVICES=1,9,2 again
is 'up to the wrong one' "$(grep -v '^#' "$G/gpus" | grep -o 'index=[0-9]*' | xargs)" 'index=1'
like 'and says so' "$(cat "$G/gpus")" "^# CUDA_VISIBLE_DEVICES=1,9,2: there is no '9'"
CUDA_VISIBLE_DEVICES='' again
is 'none inherited' "$(key "$G/status" size)" 2
is 'it starts' "$(line start)" 0
is 'and sees none' "$(seen CUDA_VISIBLE_DEVICES 0)" ''

# MIG: each rank has its own instance
FAKE_NVML='gpus=2 mig=1:2' again
is 'instances' "$(grep -o 'index=[0-9:]*' "$G/gpus" | xargs)" 'index=0 index=1:0 index=1:1'
mig=MIG-000000b1-0000-5000-8000-00000000000
is 'by UUID' "$(line "gpus ${mig}1,${mig}0")" 0
is 'start' "$(line start)" 0
is 'its own' "$(seen CUDA_VISIBLE_DEVICES 0) $(seen CUDA_VISIBLE_DEVICES 1)" "${mig}1 ${mig}0"
is 'cuda:0' "$(seen LOCAL_RANK 1)" 0
is 'in ranks' "$(grep -o ' gpu=[^ ]*' "$G/ranks" | xargs)" 'gpu=1:1 gpu=1:0'
is 'the divided GPU' "$(line $'stop\ngpus 1')" EINVAL
like 'says what there is' "$(tail -n 1 "$G/error")" "GPU 1 is in MIG mode.* 1:0 \(${mig}0\) 1:1"

# processes; a call that fails; an old driver
FAKE_NVML='gpus=2 busy=0:71,72 fail=nvmlDeviceGetMemoryInfo:15:1' again
like 'processes' "$(sed -n 1p "$G/gpus")" 'pids=71,72$'
like 'a lost GPU' "$(sed -n 2p "$G/gpus")" "used_bytes=- total_bytes=- util_pct=10 temp_c=41 power_mw=101000 clock_mhz=1001 pids= \
error='NVML: nvmlDeviceGetMemoryInfo: GPU is lost'$"
DDIP_NVML=$BUILD/fake/libnvidia-ml-old.so.1 FAKE_NVML='gpus=1 busy=0:7' again
like 'an old driver' "$(cat "$G/gpus")" '^0 index=0 .* util_pct=0 temp_c=- power_mw=- clock_mhz=- pids=7$'

# a process asks NVML for the daemon, which loads none; what it said before outlives it, and NVML
asker() {
	others | xargs -I{} grep -lx ddip-gpus /proc/{}/comm 2>/dev/null | cut -d / -f 3
}
ln -s "$fake" "$T/nvml.so"
DDIP_NVML=$T/nvml.so FAKE_NVML='gpus=3' again
first=$(asker)
like 'a process asks' "$first" '^[0-9]+$'
is 'the daemon does not' "$(grep -c nvidia "/proc/$(daemon_pid)/maps")" 0
for _ in 1 2 3; do
	is 'no error' "$(grep -c error= "$G/gpus")" 0
done
is 'the same one' "$(asker)" "$first"
rm "$T/nvml.so"
kill -KILL "$first"
gone "$first"
guarded sh -c "until grep -q error= '$G/gpus'; do :; done" || bad 'a report stays fresh' # it is, for 0.2 s
like 'the GPUs stay, with the reason' "$(sed -n 3p "$G/gpus")" "^2 index=2 .* util_pct=20 .* error='no NVML: $T/nvml.so"
is 'and so do the ranks' "$(key "$G/status" size)$(line start)$(line stop)" 300
ln -s "$fake" "$T/nvml.so"
guarded sh -c "while grep -q error= '$G/gpus'; do :; done" || bad 'it does not recover'
agent=$(awk '/^PPid:/ { print $2 }' "/proc/$(asker)/status")
kill -KILL "$agent"
gone "$agent"
asked_again() {
	is 'no GPU is lost with the agent' "$(grep -c uuid= "$G/gpus")" 3
	[ "$(asker)" ]
}
until_true asked_again

# no NVML, another library in its place, one that does not initialize
i=0
while IFS='|' read -r library fake_nvml text; do
	DDIP_NVML=$library FAKE_NVML=$fake_nvml again
	like "$library" "$(cat "$G/gpus")" "^# no known GPU: .*$text"
	is 'CPU ranks' "$(key "$G/status" size)" 2
	is 'a number' "$(line 'gpus 0')" EINVAL
	like 'why' "$(tail -n 1 "$G/error")" "$text"
	is 'all and none' "$(line $'gpus none\ngpus all')" 0
	i=$((i + 1))
done <<END
/nonexistent/nvml.so||/nonexistent/nvml.so
libm.so.6||has no nvmlInit_v2
$fake|fail=nvmlInit_v2:18|version mismatch
$fake|fail=nvmlDeviceGetCount_v2:9|Driver Not Loaded
END
is 'all were tried' $i 4
is 'it starts' "$(line start)" 0
is 'untouched' "$(seen CUDA_VISIBLE_DEVICES 0)" unset

# a driver that does not respond blocks nobody: the last values are shown, and why they are old
mkfifo "$T/fifo"
FAKE_NVML="gpus=2 stuck=$T/fifo" again
cat "$G/gpus" >"$T/out" &
reader=$!
is 'others go on' "$(key "$G/status" state)" new
wait $reader
like 'it says so' "$(cat "$T/out")" "^0 index=0 .* used_bytes=- .*error='NVML does not answer"
is 'at once now' "$(wc -l <"$G/gpus")" 2
exec 5<>"$T/fifo" # both calls come back, and then nothing is overdue
guarded sh -c "while grep -q error= '$G/gpus'; do :; done" || bad 'it does not recover'
like 'it is back' "$(sed -n 2p "$G/gpus")" 'used_bytes=2097152'
exec 5>&-

# the GPUs of other hosts are those that NVML reports there
for launcher in here 'sh -c'; do
	FAKE_NVML='gpus=3 busy=1:71,72 mig=2:2' again -o 'hosts=a:2 b:1 c:1' -o size=3 -o "launcher=$launcher"
	is 'it starts' "$(line start)" 0
	is "$launcher: a line for each GPU of each host with ranks" "$(grep -o '^[0-9]* host=[^ ]* index=[^ ]*' "$G/gpus" | xargs)" \
		"$(for h in a b; do echo "0 host=$h index=0 1 host=$h index=1 2 host=$h index=2:0 3 host=$h index=2:1"; done | xargs)"
	like "$launcher: what they do" "$(sed -n 2p "$G/gpus")" "uuid=$(uuid 1) name='NVIDIA Fake 80GB' used_bytes=2097152 .* pids=71,72$"
	is "$launcher: GPUs of ranks" "$(grep -o ' host=. gpu=[^ ]*' "$G/ranks" | xargs)" 'host=a gpu=0 host=a gpu=1 host=b gpu=0'
	is "$launcher: status, too" "$(key "$G/rank1/status" gpu_used_bytes)" 2097152
	is 'others by choice' "$(line stop)$(line 'gpus 1')$(line 'gpus 1,0')$(line start)" 0000
	is "$launcher: those of the choice" "$(sed -n 's/.*index=\([^ ]*\).*/\1/p' "$G/gpus" | xargs)" '1 0 1 0'
	is 'none' "$(line stop)$(line 'gpus none')$(line start)" 000
	like "$launcher: none" "$(cat "$G/gpus")" '^# gpus none: the ranks of host a see no GPU'
done
DDIP_NVML=/nonexistent/nvml.so again -o 'hosts=a:1 b:1' -o launcher=here
is 'it starts' "$(line start)" 0
like 'a host without NVML is named, with the reason' "$(tail -n 1 "$G/gpus")" '^# no known GPU of host b: .*/nonexistent/nvml.so'
FAKE_NVML="gpus=2 stuck=$T/fifo" again -o 'hosts=a:1' -o launcher=here
is 'it starts' "$(line start)" 0
cat "$G/gpus" >"$T/out" &
reader=$!
asks() { # [NUMBER]: so many agents wait for NVML
	asking=$(others | xargs -I{} grep -lx ddip-gpus /proc/{}/comm 2>/dev/null | cut -d / -f 3)
	[ "$(wc -w <<<"$asking")" = "${1:-1}" ]
}
until_true asks || bad 'nobody asks NVML'
is 'others go on' "$(key "$G/status" state)" idle
kill -KILL "$(awk '/^PPid:/ { print $2 }' "/proc/$asking/status")"
wait $reader
like 'with the agent its answer is given up' "$(cat "$T/out")" '^# no known GPU of host a: host a is lost'
gone "$asking"

# hosts are taken out of the list while a reader waits for their GPUs: the reader gets an answer
FAKE_NVML="gpus=2 stuck=$T/fifo" again -o 'hosts=a:1 b:1' -o launcher=here
cat "$G/gpus" >"$T/out" &
until_true asks 2
is 'all at once' "$(line 'hosts local')" 0
ok wait $!
FAKE_NVML="gpus=2 stuck=$T/fifo" again -o 'hosts=a:2' -o launcher=here -o size=1
mkdir "$M/other"
ok cp /dev/stdin "$M/other/ctl" <<<$'launcher here\nhosts a:2\nsize 1\nstart\nstop'
is 'it starts' "$(line start)" 0
cat "$M/other/gpus" >"$T/out" &
until_true asks
is 'the agent goes on for another group' "$(errno write "$M/other/ctl" $'hosts local\n')" 0
exec 5<>"$T/fifo" # NVML answers now
ok wait $!
