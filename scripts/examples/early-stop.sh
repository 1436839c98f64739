#!/usr/bin/env bash
# Runs a program and stops it when it gets no better: after each line with the word "epoch" that rank 0
# prints it reads the mean of `loss` over all ranks; if that has not fallen for a while, it interrupts.
# The ranks keep their variables: the model can be pulled.
#
#   early-stop.sh [-p PATIENCE] [-v VARIABLE] PROGRAM [ARG…]      PATIENCE: 2 epochs, VARIABLE: loss
#   early-stop.sh ddp.py --epochs 100
set -u -o pipefail
G=${DDIP_MOUNT:-$HOME/ddip}/${DDIP_GROUP:-group}

patience=2 variable=loss
while getopts p:v: option; do
	case $option in
	p) patience=$OPTARG ;;
	v) variable=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
if [ $# -eq 0 ]; then
	echo 'usage: early-stop.sh [-p PATIENCE] [-v VARIABLE] PROGRAM [ARG…]' >&2
	exit 2
fi

n=$(ddip run -d "$@") || exit
trap 'echo interrupt >"$G/cells/$n/ctl"' INT
best='' bad=0 stopped=
# The stream ends with the cell.
while read -r line; do
	[[ $line == *'"rank":0'* && $line == *epoch* ]] || continue
	if [ "$stopped" ] || ! now=$(cat "$G/vars/$variable.mean.json"); then
		continue
	fi
	printf '%s, mean over ranks: %s\n' "$variable" "$now"
	if [ -z "$best" ] || awk "BEGIN { exit !($now < $best) }"; then
		best=$now bad=0
	elif [ $((bad += 1)) -ge "$patience" ]; then
		printf 'no better than %s for %s epochs: stopped\n' "$best" "$bad"
		stopped=1
		echo interrupt >"$G/cells/$n/ctl"
	fi
done <"$G/cells/$n/stream"
ddip wait "$n" 2>/dev/null
status=$?
[ -z "$stopped" ] || exit 0
[ $status -eq 0 ] || cat "$G/cells/$n/traceback" >&2
exit $status
