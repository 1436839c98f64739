#!/usr/bin/env bash
# scripts/setup makes the virtual environment: `make test` takes it along when it is interrupted, two of them take
# turns, and it takes the torch that is to be had.
. "$(dirname "$0")/../lib.sh"

unset PYTHON "${!PIP_@}"
export TOOLS="$T" PIP_NO_INDEX=1 PIP_CONFIG_FILE=/dev/null
mkdir -p "$T/tree/magics" "$T/stubs"
cp -a "$ROOT/Makefile" "$ROOT/scripts" "$T/tree"
cp -a "$ROOT/magics/ddip" "$T/tree/magics"
cd "$T/tree" || exit
# system packages are not under test
for program in apt-get sudo; do
	ln -s "$(type -P true)" "$T/stubs/$program"
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

# ---- which torch

# A pip that offers builds of torch, refuses the newest of them, as by a constraint, and tells what it is to install.
cat >.venv/bin/python <<'END'
#!/bin/sh
case $* in
'-m pip index versions torch') printf 'torch (2.15.0)\nAvailable versions: %s\n' "$OFFERED" ;;
'-m pip install'*' --dry-run '*2.15*) exit 1 ;;
'-m pip install'*' --dry-run '*) ;;
'-m pip install'*) echo "$*" >"$TOOLS/asked" ;;
'-c import torch') exit "${TORCH_MISSING:-1}" ;;
esac
END
# asks_for OFFERED WORDS: what pip is asked for, of torch
asks_for() {
	rm -f .venv/.setup
	OFFERED=$1 ok scripts/setup >"$T/out" 2>&1
	is "of $1, with a torch that is ${TORCH_MISSING:-not} there" "$(grep -o 'torch[>=][^ ]*' "$T/asked" | xargs)" "$2"
}
without_gpu() {
	ls /dev/nvidia0 /dev/nvidiactl /dev/dxg >/dev/null 2>&1 && return 1
	! grep -qsx 0x10de /sys/bus/pci/devices/*/vendor
}
asks_for '2.15.0, 2.14.1, 2.13.0' 'torch>=2.6'
if without_gpu; then
	asks_for '2.15.0+cpu, 2.15.0, 2.14.1, 2.13.0+cpu, 2.13.0, 2.12.0+cpu' 'torch>=2.6 torch==2.13.0+cpu'
	TORCH_MISSING=0 asks_for '2.13.0+cpu, 2.13.0' 'torch>=2.6'
fi

# ---- an environment whose making was interrupted

rm -r .venv
python3 -c 'import venv, ensurepip' 2>/dev/null || skip 'python3 has no venv or no ensurepip'
python3 -m venv --without-pip .venv
scripts/setup >"$T/out" 2>&1 && bad 'it used an environment without pip'
like "the user's own is left alone" "$(cat "$T/out")" '.venv has no pip, and was not made here'
[ ! -e .venv/bin/pip ] || bad "the user's own was changed"
echo 'not complete' >.venv/.setup # as setup begins
site=$(echo .venv/lib/python3*/site-packages)
mkdir "$site/pip"
touch "$site/pip/__init__.py"
echo 'import pip._internal.cli' >"$site/pip/__main__.py"
scripts/setup >"$T/out" 2>&1 && bad 'it found packages' # which are not to be had here, but pip is
like 'interrupted in the middle of pip' "$(cat "$T/out")" 'making the virtual environment'
ok .venv/bin/python -m pip --version >"$T/out"
