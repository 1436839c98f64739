#!/usr/bin/env bash
# Torch over several hosts, as in hosts.sh, each behind a relay.
DDIP_TEST_LAUNCHER='sh -c' exec "$(dirname "$0")/hosts.sh"
