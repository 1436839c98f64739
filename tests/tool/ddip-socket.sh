#!/usr/bin/env bash
# The verbs of the tool work with the group's files behind a socket.
DDIP_TEST_SOCKET=1 exec "$(dirname "$0")/ddip.sh"
