#!/usr/bin/env bash
# ddip run works with the group's files behind a socket.
DDIP_TEST_SOCKET=1 exec "$(dirname "$0")/run.sh"
