# shellcheck shell=bash disable=SC2154
# What the tests of `steer` share, for those that source this after lib.sh.

# steers in a row, without a writer's message on standard error
steer() {
	errno write "$G/steer" "$1"
}

# of a cell, or the last one: a line of its status
of() {
	key "$G/cells/${2:-$(cut -d ' ' -f 1 "$G/steer")}/status" "$1"
}

steps() {
	[ "$(key "$G/status" step | cut -d ' ' -f 1)" -ge "$1" ] 2>/dev/null
}
