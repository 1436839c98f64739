#!/usr/bin/env bash
# Watches a run without touching it: what rank 0 prints, as it comes, and after each piece the values
# of variables. Ends when the group has nothing to do. Needs inotifywait.
#
#   ddip run -d ddp.py --epochs 5; watch.sh step_loss
set -u -o pipefail
G=${DDIP_MOUNT:-$HOME/ddip}/${DDIP_GROUP:-group}

# The variables named, now, on one line; a rank that has not got that far has none of them.
values() {
	local name value
	for name; do
		value=$(cat "$G/vars/$name" 2>/dev/null) || value=-
		printf '    %s %s' "$name" "$value"
	done
	[ $# -eq 0 ] || echo
}

nothing_runs() {
	! grep -qx 'state busy' "$G/status"
}

if [ ! -f "$G/status" ]; then
	echo "watch.sh: no group at $G: DDIP_MOUNT and DDIP_GROUP name another" >&2
	exit 3
fi
tail -n 5 -f "$G/rank0/stdout" &
tail=$!
exec 3< <(exec inotifywait -m -e modify -e close_write --format '%w' "$G/rank0/stdout" \
	"$G/status" 2>&1)
inotify=$!
trap 'kill $tail $inotify 2>/dev/null' EXIT
trap 'exit 130' INT

# From this line on nothing is missed; what ended before it is seen by looking once.
until read -r line <&3 && [[ $line == *established* ]]; do
	case $line in
	[Ss]etting*) ;;
	*)
		echo "watch.sh: inotifywait: $line" >&2
		exit 1
		;;
	esac
done
while ! nothing_runs && read -r file <&3; do
	case $file in
	*/stdout) values "$@" ;;
	esac
done
