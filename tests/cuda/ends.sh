#!/usr/bin/env bash
# A collective of NCCL ends by an interrupt, whoever sends it, as what tests/cells/ends.sh waits in does.
. "$(dirname "$0")/lib.sh"

mount_torch -o backend=nccl,size=2
cell "import sys; sys.path.insert(0, '$T'); kept = 7" || bad 'the first cell'
export T G
"$TORCH_PYTHON" "$ROOT/tests/cells/ends.py" cuda || bad 'some do not end as they should'
