#!/usr/bin/env bash
# Steers, watches, saves, loads and looks at a slow rank are in a group over two hosts, each behind a relay, what they are
# on one machine.
. "$(dirname "$0")/../lib.sh"

export DDIP_TEST_HOSTS='sh -c' XDG_CACHE_HOME=$T/cache
for name in watch save_running straggler; do
	status=0
	"$ROOT/tests/cells/$name.sh" || status=$? # its own commands are guarded
	[ $status -ne 77 ] || skip "$name was skipped"
	[ $status -eq 0 ] || bad "$name over hosts: status $status"
done
KINDS=sharded COUNT=5 "$ROOT/tests/cells/steer_programs.sh" || bad 'programs over hosts'
