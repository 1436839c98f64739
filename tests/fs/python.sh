#!/usr/bin/env bash
# Which Python: static and shared ones, virtual environments, and what is told when it does not work.
. "$(dirname "$0")/../lib.sh"

tried=
for python in /usr/bin/python3 "$HOME"/.pyenv/versions/*/bin/python3; do
	[ -x "$python" ] || continue
	"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || continue
	tried="$tried $python"
	mount_with "$python" -o size=1,backend=none
	is "$python: version" "$(value 'import sys; sys.version_info[:3]')" \
		"$("$python" -c 'import sys; print(sys.version_info[:3])')"
	is "$python: prefix" "$(value 'sys.prefix')" "$("$python" -c 'import sys; print(repr(sys.prefix))')"
	is "$python: executable" "$(value 'import os; os.path.realpath(sys.executable)')" \
		"'$(realpath "$("$python" -c 'import sys; print(sys.executable)')")'"
	unmount
done
[ -n "$tried" ] || bad 'no Python was tried'

# an environment: its own packages, its own prefix
if /usr/bin/python3 -m venv --without-pip "$T/env" 2>/dev/null; then
	printf 'WHERE = "here"\n' >"$(echo "$T"/env/lib/python3*/site-packages)/only_in_env.py"
	mount_with "$T/env/bin/python" -o size=1,backend=none
	is 'prefix of an environment' "$(value 'import sys; sys.prefix')" "'$T/env'"
	is 'its packages' "$(value 'import only_in_env; only_in_env.WHERE')" "'here'"
	unmount
fi

# by VIRTUAL_ENV, and by PATH
mkdir "$M" 2>/dev/null
VIRTUAL_ENV=$(realpath "$ROOT/.venv") "$BUILD/ddipfs" "$M"
is 'VIRTUAL_ENV' "$(grep '^python' "$G/ctl")" "python $(realpath "$ROOT/.venv")/bin/python"
unmount

# what does not work
fails "$BUILD/ddipfs" -o python=/nonexistent "$M"
printf '#!/bin/sh\necho "this is no Python" >&2\nexit 3\n' >"$T/python"
chmod +x "$T/python"
if "$BUILD/ddipfs" -o "python=$T/python" "$M" 2>"$T/message"; then
	fails cp /dev/stdin "$G/cell" <<<'x = 1'
	like 'what it said is told' "$(cat "$G/error")" 'no Python'
	unmount
else
	like 'what it said is told' "$(cat "$T/message")" 'Python'
fi
