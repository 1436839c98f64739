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

if ! exec 4<"$G/rank0/stdout"; then
	echo "watch.sh: no rank at $G: DDIP_MOUNT and DDIP_GROUP name another group" >&2
	exit 3
fi
exec 3< <(exec inotifywait -m -e modify -e close_write --format '%w' "$G/rank0/stdout" \
	"$G/status" 2>&1)
inotify=$!
trap 'kill $inotify 2>/dev/null' EXIT
trap 'exit 130' INT

# From this line on nothing is missed; what came before it is seen by looking once.
until read -r line <&3 && [[ $line == *established* ]]; do
	case $line in
	Setting*) ;;
	*)
		echo "watch.sh: inotifywait: ${line:-it has ended}" >&2
		exit 1
		;;
	esac
done
tail -n 5 <&4
values "$@"
# At each event what has come since the last one: the descriptor remembers the place.
while grep -qx 'state busy' "$G/status" && read -r _ <&3; do
	new=$(cat <&4)
	if [ -n "$new" ]; then
		printf '%s\n' "$new"
		values "$@"
	fi
done
cat <&4
