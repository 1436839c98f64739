#!/usr/bin/env bash
# Objects on a real GPU: their views are those of a copy on the host, also while a kernel runs.
. "$(dirname "$0")/../lib.sh"

"$TORCH_PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
	skip "no GPU that torch of $TORCH_PYTHON can use"
mount_torch -o size=1,gpus=0

cell 'import torch, numpy as np, io
x = torch.arange(1 << 22, device="cuda", dtype=torch.float32).reshape(2048, -1)
t, half, flags = x.T, x.bfloat16(), x > 5'
for name in x t flags; do
	cell "np.save('$T/want.npy', $name.cpu().numpy())"
	ok cmp "$G/vars/$name.npy" "$T/want.npy"
done
cell "import safetensors.torch; safetensors.torch.save_file({'half': half}, '$T/want')"
ok cmp "$G/vars/half.safetensors" "$T/want"
is 'text' "$(cat "$G/vars/x")" "$(value 'print(x, flush=True)' >/dev/null; cat "$G/cells/last/rank0/stdout")"

# a kernel of the running cell is not waited for
submit "torch.cuda._sleep(1 << 34); print('on', flush=True); torch.cuda.synchronize(); print('off', flush=True)"
until_true grep -q on "$G/cells/$n/rank0/stdout"
ok cmp "$G/vars/flags.npy" "$T/want.npy"
fails grep -q off "$G/cells/$n/rank0/stdout"
cell "pass" "$G/rank0/cell"

# what is pushed lands where the object was
cp "$G/vars/x.npy" "$T/x.npy"
cp "$T/x.npy" "$G/vars/x.npy" || bad 'push'
is 'its device' "$(value 'x.device.type, float(x[3, 4])')" "('cuda', 6148.0)"
