#!/usr/bin/env bash
# ddip mcp: its tools, as a client of the protocol's own package sees them.
. "$(dirname "$0")/../lib.sh"

mount_with "$TORCH_PYTHON" -o backend=none -o size=2 -o grace=0.2
export DDIP_MOUNT=$PLACE PATH=$BUILD:$PATH
mkdir "$T/without"
echo 'raise ImportError' >"$T/without/mcp.py"
PYTHONPATH=$T/without fails ddip mcp
like 'without the package' "$(cat "$T/stderr")" "^ddip: the Python package mcp is missing in .*pip install 'ddipfs\[mcp\]'"
"$TORCH_PYTHON" -c 'import mcp' 2>"$T/why" || skip "no package mcp in $TORCH_PYTHON: $(tail -n 1 "$T/why")"
PATH=$(dirname "$TORCH_PYTHON"):$PATH
ok guarded "$TORCH_PYTHON" "$ROOT/tests/tool/mcp_client.py"
is 'no cell is left' "$(head -n 1 "$G/status")" 'state idle'
