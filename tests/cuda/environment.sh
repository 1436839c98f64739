#!/usr/bin/env bash
# The environment with the fakes is that of $PYTHON, whatever it was made of before.
python=${PYTHON:-.venv/bin/python}
. "$(dirname "$0")/lib.sh"

cd "$ROOT" || exit
ln "$BUILD/cuda/site" "$T/site" 2>/dev/null || skip 'TMPDIR and the build are on different file systems: no hard links'
mkdir -p "$T/build/cuda"
cp -p "$BUILD"/cuda/{site,*.o} "$T/build/cuda"
# copy PYTHON STATUS: makes it
copy() {
	BUILD=$T/build PYTHON=$1 tests/fake/cuda/make-environment >"$T/out" 2>&1
	is "$1: status" $? "$2"
}

copy "$python" 0
ok "$T/build/cuda/env/bin/python" -c 'import torch; assert torch.cuda.is_available()'
copy "$PLAIN_PYTHON" 77
[ -s "$T/build/cuda/why-not" ] || bad 'it does not say why not'
copy "$python" 0
[ ! -e "$T/build/cuda/why-not" ] || bad 'it says still why not'
ok "$T/build/cuda/env/bin/python" -c 'import torch; assert torch.cuda.is_available()'
