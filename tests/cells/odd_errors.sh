#!/usr/bin/env bash
# The same as fs/odd_errors with IPython, which looks at an exception in ways of its own.
ODD_ERRORS=torch . "$(dirname "$0")/../fs/odd_errors.sh"
