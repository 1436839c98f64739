#!/usr/bin/env bash
# Every command of SKILL.md does what it says; it is short, and the same in the mount and from ddip skill.
. "$(dirname "$0")/../lib.sh"

mount_torch -o "size=2,cwd=$T"
export DDIP_MOUNT=$M PATH=$BUILD:$PATH
cat >"$T/train.py" <<'END'
import argparse
import time
import torch
import torch.distributed as dist

def main(steps):
    model = torch.nn.Linear(1, 1)
    total = torch.zeros(())
    extra = {"sizes": [8, 16]}
    for step in range(steps):
        part = torch.ones(())
        dist.all_reduce(part)
        total += part * model(part.view(1, 1)).shape[1]
        time.sleep(0.05) # an interrupt comes here, and seldom in a hook
    print(f"step {step + 1} of {steps}")

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
dist.init_process_group()
main(parser.parse_args().steps)
END
cd "$T" || exit
is 'the mount has what ddip skill prints' "$(cat "$M/SKILL.md")" "$(ddip skill)"
[ "$(wc -l <"$M/SKILL.md")" -le 120 ] || bad 'SKILL.md is too long'
cp "$M/SKILL.md" "$T/SKILL.md"
"$PLAIN_PYTHON" "$ROOT/tests/tool/documents.py" "$T/SKILL.md" || bad 'SKILL.md says what does not happen'
[ "$(sed '/^$/,$d' "$M/README" | wc -l)" -le 15 ] || bad 'the first page of README is too long'
