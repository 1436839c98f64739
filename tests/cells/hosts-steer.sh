#!/usr/bin/env bash
# Steers, watches, saves, loads and looks at a slow rank are in a group over two hosts, each behind a relay, what they are
# on one machine.
export DDIP_TEST_HOSTS='sh -c'
. "$(dirname "$0")/../lib.sh"

export XDG_CACHE_HOME=$T/cache
options=size=2,gpus=none,on_preempt=USR1
mount_torch -o "$options"
# here NAME: this test, in new ranks of this mount
here() {
	DDIP_TEST_MOUNT=$M DDIP_TEST_OPTIONS=$options "$ROOT/tests/cells/$1.sh"
}
for name in save_running watch straggler; do
	status=0
	here $name || status=$? # its own commands are guarded
	[ $status -ne 77 ] || skip "$name was skipped"
	[ $status -eq 0 ] || bad "$name over hosts: status $status"
done
KINDS=sharded COUNT=5 here steer_programs || bad 'programs over hosts'
