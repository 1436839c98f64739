#!/usr/bin/env bash
# One wait for anything: ddip wait over a socket.
DDIP_TEST_SOCKET=1 exec "$(dirname "$0")/wait.sh"
