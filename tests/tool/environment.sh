#!/usr/bin/env bash
# scripts/setup makes the virtual environment: `make test` takes it along when it is interrupted, two of them take turns.
. "$(dirname "$0")/../lib.sh"

unset PYTHON "${!PIP_@}"
export TOOLS="$T" PIP_NO_INDEX=1 PIP_CONFIG_FILE=/dev/null
mkdir -p "$T/tree" "$T/stubs"
cp -a "$ROOT/Makefile" "$ROOT/scripts" "$T/tree"
cd "$T/tree" || exit
# system packages are not under test
for program in apt-get sudo; do
	ln -s "$(command -v true)" "$T/stubs/$program"
done
PATH=$T/stubs:$PATH

# In its place, a pip that tells its pid and waits for a line.
mkdir -p .venv/bin "$T/pids"
cat >.venv/bin/python <<'END'
#!/bin/sh
case $* in
'-m pip install'*)
	echo >"$TOOLS/pids/$$"
	ls "$TOOLS/pids" | wc -l >>"$TOOLS/at_once"
	read -r _ <"$TOOLS/go"
	rm "$TOOLS/pids/$$"
	;;
-c*) exit 1 ;;
esac
END
chmod +x .venv/bin/python
mkfifo "$T/go"

# ---- Ctrl-C

at_work() {
	[ "$(ls "$T/pids")" ]
}

setsid env --default-signal=INT make test >"$T/out" 2>&1 &
group=$!
until_true at_work
pip=$(ls "$T/pids")
kill -INT -- -$group
wait $group && bad 'make test went well'
gone "$pip"
rm -f "$T/pids/$pip" "$T/at_once"

# ---- two at once

scripts/setup --test >"$T/first" 2>&1 &
until_true at_work
scripts/setup --test >"$T/second" 2>&1 &
second_is_known() {
	grep -q waiting "$T/second" || [ "$(wc -l <"$T/at_once")" -gt 1 ]
}
until_true second_is_known
like 'it says that it waits' "$(cat "$T/second")" 'waiting for another setup'
exec 5<>"$T/go"
printf 'go\ngo\n' >&5
wait
is 'one pip at a time, and the second has nothing to do' "$(cat "$T/at_once")" 1

# ---- an environment whose making was interrupted

rm -r .venv
python3 -c 'import venv, ensurepip' 2>/dev/null || skip 'python3 has no venv or no ensurepip'
# repairs WHAT: packages are not to be had here, but pip is
repairs() {
	scripts/setup >"$T/out" 2>&1 && bad "$1: it found packages"
	like "$1" "$(cat "$T/out")" 'making the virtual environment'
	ok .venv/bin/python -m pip --version >"$T/out"
}
python3 -m venv --without-pip .venv
scripts/setup >"$T/out" 2>&1 && bad 'it used an environment without pip'
like "the user's own is left alone" "$(cat "$T/out")" '.venv has no pip, and was not made here'
[ ! -e .venv/bin/pip ] || bad "the user's own was changed"
echo 'not complete' >.venv/.setup # as setup begins
repairs 'interrupted before pip was there'
rm -r .venv/lib/python3*/site-packages/pip/_internal/cli
repairs 'interrupted in the middle of pip'
