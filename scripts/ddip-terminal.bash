# Part of ddip: the verbs that talk with somebody at a terminal: shell and attach. Sourced by ddip,
# which has the group in G and the verbs that run cells.
# shellcheck shell=bash disable=SC2154,SC2034,SC2086

# What a rank prints, and lines for its input() and debugger. Ctrl-C interrupts the rank; Ctrl-D, or
# the rank's end, ends this.
verb_attach() {
	local line shower feeder
	[ $# -eq 1 ] || usage
	need_group
	need_rank "$1"
	show "tail -n 5 $G/rank$1/stdout; cat $G/rank$1/follow & cat > $G/rank$1/stdin"
	trap 'ctl "$G/rank$1/ctl" interrupt' INT
	# opened first, so that nothing is missed between the two
	exec 5<"$G/rank$1/follow" || return $NOTHING
	tail -n 5 "$G/rank$1/stdout"
	# both ignore Ctrl-C, as every background process of a script
	cat <&5 &
	shower=$!
	while IFS= read -r line; do
		printf '%s\n' "$line" | put "$G/rank$1/stdin" || break
	done <&0 &
	feeder=$!
	# shellcheck disable=SC2064 # these pids, now
	trap "kill $shower $feeder 2>/dev/null" EXIT
	while kill -0 $shower 2>/dev/null && kill -0 $feeder 2>/dev/null; do
		wait -n $shower $feeder
	done
	return 0 # Ctrl-C was for the rank
}

# Is more to come: an open bracket or string, a block, a line that is continued?
# A block ends with an empty line.
wants_more() {
	awk '
	{ source = source $0 "\n"; last = $0 }
	$0 ~ /^[ \t]*@/ { block = 1 }
	function skip(quote,   n, c) { # behind a string; false: it is open
		for (n = length(quote); i <= length(source); i++) {
			c = substr(source, i, 1)
			if (c == "\\")
				i++
			else if (substr(source, i, n) == quote)
				return i += n
			else if (n == 1 && c == "\n")
				return i # an error that Python will tell
		}
		return 0
	}
	END {
		for (i = 1; i <= length(source);) {
			c = substr(source, i, 1)
			if (c == "#") {
				while (substr(source, i, 1) != "\n")
					i++
				continue
			}
			if (c == "\"" || c == "\047") {
				three = c c c
				quote = substr(source, i, 3) == three ? three : c
				i += length(quote)
				if (!skip(quote))
					exit 0
				code = c
				continue
			}
			if (c == "\n" && code == ":" && depth == 0)
				block = 1
			if (c == "\n" && code == "\\")
				continued = i
			depth += index("([{", c) > 0
			depth -= index(")]}", c) > 0
			if (c !~ /[ \t\n]/)
				code = c
			i++
		}
		if (depth > 0 || continued == length(source))
			exit 0
		exit !(block && last !~ /^[ \t]*$/)
	}'
}

# The names that could stand at the end of this text, one a line: variables, or attributes of one.
# dd does not wait for a rank that is in C code.
remote_names() {
	local name
	if [[ $1 =~ (^|[^A-Za-z0-9_.])([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z0-9_]*)$ ]]; then
		name=${BASH_REMATCH[2]}
		dd iflag=nonblock status=none if="$G/vars/$name.dir" 2>/dev/null |
			awk -v p="${BASH_REMATCH[3]}" 'index($0, p) == 1 && (p ~ /^_/ || $0 !~ /^_/)'
	elif [[ $1 =~ (^|[^A-Za-z0-9_.])([A-Za-z_][A-Za-z0-9_]*)$ ]]; then
		find "$G/vars" -maxdepth 1 -name "${BASH_REMATCH[2]}*" -printf '%f\n' | sort
	fi
}

# The longest beginning that all of these have.
common_beginning() {
	local common=$1 word
	for word; do
		while [ "${word#"$common"}" = "$word" ] && [ -n "$common" ]; do
			common=${common%?}
		done
	done
	printf '%s' "$common"
}

# Tab in the shell.
complete_line() {
	local IFS=' ' left=${READLINE_LINE:0:READLINE_POINT} right=${READLINE_LINE:READLINE_POINT} word names add
	word=${left##*[!A-Za-z0-9_]}
	if [[ $left =~ ^[[:space:]]*$ ]]; then
		add='    '
	else
		mapfile -t names < <(remote_names "$left")
		[ ${#names[@]} -gt 0 ] || return
		add=$(common_beginning "${names[@]}")
		add=${add#"$word"}
		if [ -z "$add" ] && [ ${#names[@]} -gt 1 ]; then
			# standard output is what takes the line
			printf '%s\n' "${names[*]}" | fold -s -w "${COLUMNS:-80}" >&2
		fi
	fi
	READLINE_LINE=$left$add$right
	READLINE_POINT=$((READLINE_POINT + ${#add}))
}

# One piece of Python from the terminal into $source. False: the end of input, or Ctrl-C.
read_source() {
	local line status prompt="$group> "
	source=
	while :; do
		# a process of its own, that Ctrl-C ends: read goes on when a trap has run
		line=$(
			LC_ALL=$locale # readline must know the characters of the terminal
			IFS= read -e -r -p "$prompt" line
			status=$?
			printf '%s' "$line"
			exit $status
		)
		status=$?
		[ $status -eq 0 ] || return $status
		[ -z "$line" ] || history -s "$line"
		source+=$line$'\n'
		wants_more <<<"${source%$'\n'}" || return 0
		prompt='... '
	done
}

# A prompt. Ctrl-C drops the line, or interrupts the cell that runs.
verb_shell() {
	local status terminal
	need_group
	terminal=$(stty -g 2>/dev/null)
	results=1
	cell_options "$@"
	if [ ${#rest[@]} -gt 0 ] || [ "$quiet$detach" ]; then
		usage
	fi
	HISTFILE=${DDIP_HISTORY:-$HOME/.ddip_history}
	HISTSIZE=5000
	history -r "$HISTFILE" 2>/dev/null
	trap 'history -w "$HISTFILE"' EXIT
	set -o emacs
	bind -x '"\t": complete_line' 2>/dev/null
	while :; do
		trap : INT
		read_source
		status=$?
		if [ $status -gt 128 ]; then
			# it may have been killed within a completion
			[ -z "$terminal" ] || stty "$terminal"
			echo
			continue
		fi
		[ $status -eq 0 ] || break
		case $source in
		$'\n') continue ;;
		$'exit\n' | $'quit\n') break ;;
		esac
		before=$(cat "$G/error")
		run_cell
	done
	echo
}
