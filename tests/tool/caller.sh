#!/usr/bin/env bash
# What the caller of tests/run has set for himself does not reach a test, what guides tests does.
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/build/unit"
cat >"$T/build/unit/told" <<'END'
#!/bin/sh
umask >"$BUILD/umask"
env >"$BUILD/env"
END
chmod +x "$T/build/unit/told"
cd "$ROOT/.." || exit
(
	umask 077
	env CDPATH=/:/usr LANG=de_DE.UTF-8 LC_ALL=C SHELL=/bin/zsh COLUMNS=20 PYTHONSTARTUP=/x PYTHONPATH=/x MAKEFLAGS=-n \
		DDIP_MOUNT=/x DDIP_GROUP=other DDIPFS=/x BASH_ENV= SEED=7 BUILD="$T/build" "${ROOT##*/}/tests/run" unit/told
) >"$T/out" 2>&1 || bad "tests/run: $(cat "$T/out")"
is 'umask' "$(cat "$T/build/umask")" 0022
is 'of the caller' "$(grep -E '^(CDPATH|L[AC]|SHELL=|COLUMNS|PYTHON.*=/x|MAKE|DDIP_[MG]|DDIPFS)' "$T/build/env")" ''
is 'for the tests' "$(grep -cE '^(SEED=7|HOME=.|PATH=.|TMPDIR=/tmp/ddip-test)' "$T/build/env")" 4
