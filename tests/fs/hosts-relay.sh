#!/usr/bin/env bash
# Groups over several hosts work as in hosts.sh when each host is behind a relay.
DDIP_TEST_LAUNCHER='sh -c' exec "$(dirname "$0")/hosts.sh"
