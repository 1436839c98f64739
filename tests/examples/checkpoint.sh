#!/usr/bin/env bash
# checkpoint.sh keeps the newest ones, also when the clocks are put back.
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/group/vars"
save() {
	echo "$2" >"$T/group/vars/model.safetensors"
	TZ=$1 KEEP=1 DDIP_MOUNT=$T DDIP_GROUP=group "$ROOT/scripts/examples/checkpoint.sh" "$T/saved" >"$T/out" ||
		bad "$1: status $?"
	is "$1: it is kept" "$(cat "$(cat "$T/out")")" "$2"
}
save CEST-2 summer
save CET-1 winter
is 'the last one, no other' "$(cat "$T/saved"/*)" winter
