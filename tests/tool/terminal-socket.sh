#!/usr/bin/env bash
# The tool works at a terminal with the group's files behind a socket.
DDIP_TEST_SOCKET=1 exec "$(dirname "$0")/terminal.sh"
