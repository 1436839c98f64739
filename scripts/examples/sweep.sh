#!/usr/bin/env bash
# Sweeps a parameter: each rank runs the program alone, with one value after the other, side by side
# with the other ranks, in processes that stay (-k). Prints each value with what came out, sorted.
#
#   sweep.sh OPTION VALUE,VALUE… PROGRAM [ARG…]           RESULT=accuracy in the environment
#   sweep.sh --lr 0.0003,0.001,0.003 single.py --epochs 1
#
# What came out is the variable that RESULT names. The program must not use collectives.
set -u -o pipefail
G=${DDIP_MOUNT:-$HOME/ddip}/${DDIP_GROUP:-group}

if [ $# -lt 3 ]; then
	echo 'usage: sweep.sh OPTION VALUE,VALUE… PROGRAM [ARG…]' >&2
	exit 2
fi
option=$1 program=("${@:3}") result=${RESULT:-accuracy}
IFS=, read -r -a values <<<"$2"

# worker K VALUE…: runs them one after the other on rank K; prints "RESULT VALUE" for each.
worker() {
	local k=$1 value out
	shift
	for value; do
		ddip run -q -k -r "$k" "${program[@]}" "$option" "$value" >&2 &&
			out=$(cat "$G/rank$k/vars/$result") || return
		printf '%s %s\n' "$out" "$value"
	done
}

ddip start || exit
size=$(awk '$1 == "size" { print $2 }' "$G/status")
results=$(mktemp) || exit
trap 'rm -f "$results"' EXIT
trap 'wait; exit 130' INT
workers=()
for ((k = 0; k < size; k++)); do
	mine=()
	for ((i = k; i < ${#values[@]}; i += size)); do
		mine+=("${values[i]}")
	done
	worker "$k" "${mine[@]}" >>"$results" &
	workers+=($!)
done
status=0
for pid in "${workers[@]}"; do
	wait "$pid" || status=$?
done
sort -g "$results" | awk -v option="$option" -v result="$result" \
	'{ printf "%s %s  %s %s\n", option, $2, result, $1 }'
exit $status
