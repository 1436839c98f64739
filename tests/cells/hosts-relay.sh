#!/usr/bin/env bash
# Torch over several hosts, as in hosts.sh, each behind a relay.
"${BUILD:-build}/ddip-engine" --help 2>&1 | grep -q relay || {
	echo 'this ddip-engine has no relay'
	exit 77
}
DDIP_TEST_LAUNCHER='sh -c' exec "$(dirname "$0")/hosts.sh"
