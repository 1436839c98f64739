#!/usr/bin/env bash
# Static and shared Pythons and virtual environments work, and one that does not work is reported.
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
ok /usr/bin/python3 -m venv --without-pip "$T/env"
printf 'WHERE = "here"\n' >"$(echo "$T"/env/lib/python3*/site-packages)/only_in_env.py"
mount_with "$T/env/bin/python" -o size=1,backend=none
is 'sys.prefix is that of the environment' "$(value 'import sys; sys.prefix')" "'$T/env'"
is 'packages of the environment can be imported' "$(value 'import only_in_env; only_in_env.WHERE')" "'here'"
unmount

# found by VIRTUAL_ENV, and by PATH
mkdir "$M" 2>/dev/null
VIRTUAL_ENV=$(realpath "$ROOT/.venv") "$BUILD/ddipfs" "$M"
is 'VIRTUAL_ENV' "$(grep '^python' "$G/ctl")" "python $(realpath "$ROOT/.venv")/bin/python"
unmount

# a missing Python; files that are no Python are in dead.sh
fails "$BUILD/ddipfs" -o python=/nonexistent "$M"
like 'the message names the Python that is missing' "$(cat "$T/stderr")" '/nonexistent: No such file'
