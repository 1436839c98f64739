# Part of ddip: what runs Python. Submitting a cell, following what it prints, how it ended.
# The verbs: run, exec, wait, interrupt. Sourced by ddip, which has the group in G.
# shellcheck shell=bash disable=SC2154,SC2153,SC2086

# The first column is what `status` of a cell says; the second what ddip's exit status is then.
outcome_status() {
	local word code
	while read -r word code; do
		if [ "$word" = "$1" ]; then
			return "$code"
		fi
	done <<-END
		ok $OK
		error $RAISED
		interrupted $INTERRUPTED
		timeout $TIMEOUT
		cancelled $DROPPED
		lost $DIED
	END
	return $REFUSED
}

# Waits for cell N; its exit status.
finish() {
	local state
	show "cat $G/cells/$1/wait"
	state=$(awk '$1 == "state" { print $2 }' "$G/cells/$1/wait") || return $NOTHING
	outcome_status "$state"
}

# Writes $source to a cell file on one descriptor that is then asked for the cell's number. dd makes
# the descriptor non-blocking first: fsync returns as soon as the cell is queued. Ctrl-C must not cut
# the source: it is looked at when the number is known.
submit() {
	local file=$1 message
	show "exec 3<>$file; dd oflag=nonblock conv=fsync,notrunc >&3 <<<SOURCE; read number <&3"
	if ! { exec 3<>"$file"; } 2>/dev/null; then
		message=$({ : 3<>"$file"; } 2>&1)
		explain "$file: ${message##*: }"
		return
	fi
	if ! message=$(
		trap '' INT
		printf '%s' "$source" |
			dd bs=1M iflag=fullblock oflag=nonblock conv=fsync,notrunc status=none 2>&1 >&3
	); then
		exec 3>&-
		explain "${message#dd: }"
		return
	fi
	read -r number <&3
	exec 3>&-
	[ -n "$number" ] || die $REFUSED "$file gave no number"
}

# Follows cell N to its end. mawk would wait for a full buffer.
follow() {
	local interactive=() red=
	if [[ $(awk -W version 2>&1 </dev/null) == *mawk* ]]; then
		interactive=(-W interactive)
	fi
	[ ! -t 2 ] || red=1
	# shellcheck disable=SC2002 # cat is what reads the live file
	cat "$G/cells/$1/stream" | awk "${interactive[@]}" -v ranks="$see" -v label="$label" \
		-v results="$results" -v colour="$red" -f "$(helper ddip-stream.awk)"
}

# Ctrl-C, also before the cell has a number.
on_interrupt() {
	interrupted=1
	[ -z "$number" ] || ctl "$G/cells/$number/ctl" interrupt
}

# Prints what cell $number says while it runs, then its tracebacks; its exit status.
watch_cell() {
	local pid status
	show "cat $G/cells/$number/stream"
	follow "$number" &
	pid=$!
	[ -z "$interrupted" ] || ctl "$G/cells/$number/ctl" interrupt
	# wait returns early when the trap has run
	while kill -0 $pid 2>/dev/null; do
		wait $pid
	done
	finish "$number"
	status=$?
	if [ $status -ne $OK ]; then
		show "cat $G/cells/$number/traceback"
		cat "$G/cells/$number/traceback" >&2
		[ $status -eq $RAISED ] || cat "$G/cells/$number/error" >&2
	fi
	return $status
}

# Submits $source to $cell and sees it to its end; Ctrl-C interrupts it.
run_cell() {
	local status
	number='' interrupted=''
	[ -n "$detach" ] || trap on_interrupt INT
	submit "$cell"
	status=$?
	if [ $status -eq $OK ] && [ -n "$detach" ]; then
		echo "$number"
	elif [ $status -eq $OK ]; then
		[ -z "$quiet" ] || see=none
		watch_cell
		status=$?
	fi
	trap 'exit $INTERRUPTED' INT
	return $status
}

# The options that run, exec and shell share; sets cell (the file), see, label, quiet, detach, and
# leaves the rest in rest[].
cell_options() {
	local ranks='' all=''
	quiet='' detach=''
	while [ $# -gt 0 ]; do
		case $1 in
		-r | --ranks)
			[ $# -ge 2 ] || usage
			ranks=$2
			shift
			;;
		-a | --all) all=1 ;;
		-q | --quiet) quiet=1 ;;
		-d | --detach) detach=1 ;;
		--)
			shift
			break
			;;
		-?*) usage ;;
		*) break ;;
		esac
		shift
	done
	rest=("$@")
	cell=$G/cell${ranks:+.$ranks}
	see=${ranks%%[!0-9]*}
	see=${see:-0}
	label=$all
	[ -z "$all" ] || see=all
}

# One word of a line that Python's shlex reads.
quote() {
	case $1 in
	*[!A-Za-z0-9_./:=,+@%-]* | '') printf "'%s'" "${1//\'/\'\"\'\"\'}" ;;
	*) printf '%s' "$1" ;;
	esac
}

# The line that sets sys.argv and __file__, for a program's absolute name and its arguments.
program_line() {
	local word line='# ddip:'
	for word; do
		case $word in
		*$'\n'*) die $USAGE "an argument must not contain a newline" ;;
		esac
		line+=" $(quote "$word")"
	done
	printf '%s\nx' "$line"
}

verb_run() {
	local file header=''
	need_group
	results=
	cell_options "$@"
	[ ${#rest[@]} -ge 1 ] || usage
	file=${rest[0]}
	if [ "$file" != - ]; then
		if [ ! -r "$file" ] || [ -d "$file" ]; then
			die $NOTHING "$file: no such file, or not readable"
		fi
		file=$(realpath "$file")
	fi
	if [ "$file" != - ] || [ ${#rest[@]} -gt 1 ]; then
		header=$(program_line "$file" "${rest[@]:1}") || exit
	fi
	# all of it before anything is submitted: half a program is none
	source=$(cat -- "$file" && echo x) || die $NOTHING "$file cannot be read"
	source=${header%x}${source%x}
	run_cell
}

verb_exec() {
	need_group
	results=1
	cell_options "$@"
	[ ${#rest[@]} -eq 1 ] || usage
	source=${rest[0]}$'\n'
	run_cell
}

verb_wait() {
	local n=${1:-last} status
	[ $# -le 1 ] || usage
	need_group
	[ -e "$G/cells/$n" ] || die $NOTHING "no cell $n in $G"
	n=$(basename "$(readlink -f "$G/cells/$n")")
	finish "$n"
	status=$?
	[ $status -eq $OK ] || cat "$G/cells/$n/error" >&2
	return $status
}

verb_interrupt() {
	need_group
	case ${1:-} in
	'') ctl "$G/ctl" interrupt ;;
	-r | --ranks)
		[ $# -eq 2 ] || usage
		ctl "$G/ctl" "interrupt ${2//,/ }"
		;;
	*[!0-9]*) usage ;;
	*)
		[ $# -eq 1 ] || usage
		[ -d "$G/cells/$1" ] || die $NOTHING "no cell $1 in $G"
		ctl "$G/cells/$1/ctl" interrupt
		;;
	esac
}
