#!/usr/bin/env bash
# Kernels of torch's operators that still run when their cell has ended; kernels that hang, fail, or lose the device.
. "$(dirname "$0")/lib.sh"

# again WORDS…: mounts with these words for the fake runtime
again() {
	! mountpoint -q "$M" || unmount
	export FAKE_CUDA="gpus=2 $*"
	mount_torch -o backend=none,size=1,gpus=0,grace=0.3
	cell 'import torch, fake_cuda, ctypes
fake, stream = fake_cuda.runtime(), torch.cuda.current_stream()
busy = lambda: not stream.query()
hold = lambda: fake.fake_cuda_hold(ctypes.c_void_p(stream.cuda_stream))
x = torch.arange(16.0, device="cuda").reshape(4, 4)'
}

# last FILE: its last float32
last() {
	tail -c 4 "$1" | od -An -t f4 | xargs
}

# operators behind a kernel that holds their stream: the cell ends at once, and the next ones add to the stream
again
cell 'hold(); y = x @ x; z = y.relu().sum(0) + 1; w = torch.zeros(3, device="cuda").add_(2)'
is 'the cell has ended, its kernels have not' "$(state) $(value 'busy()')" 'ok True'
cell 'z *= 2; v = z[1:].clone()'
cat "$G/vars/z.npy" >"$T/z.npy" & # waits for them
reader=$!
guarded cat "$G/vars/x" >"$T/x" & # text, too
other=$!
is 'the group goes on meanwhile' "$(value '6 * 7') $(value 'busy()')" '42 True'
[ ! -s "$T/z.npy" ] || bad 'a read does not wait for the kernels of an ended cell'
cell 'fake.fake_cuda_release()'
ok wait $reader
ok wait $other
is 'what is read is what they computed' "$(last "$T/z.npy")" "$(value 'f"{z[3].item():g}"' | tr -d "'")"
is 'and right' "$(value 'z.tolist() == ((torch.arange(16.0).reshape(4, 4).matrix_power(2)).sum(0) + 1).mul(2).tolist()')" True
is 'in place, and views' "$(value '(w.tolist(), v.tolist() == z[1:].tolist())')" '([2.0, 2.0, 2.0], True)'

# an interrupt that hits torch's own Python, which tells the shape of what is queued, is raised
cell 'def shape(*_):
    raise KeyboardInterrupt
meta = torch.library.Library("aten", "IMPL")
meta.impl("mm", shape, "Meta")
hold()
try:
    x @ x
    told = "swallowed"
except KeyboardInterrupt:
    told = "raised"
del meta
fake.fake_cuda_release()'
is 'an interrupt while an operator is queued' "$(value told)" "'raised'"

# a training step is queued as a whole, and gives what the CPU gives
cell 'from torch import nn
def train(device, held=False):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    data, labels = torch.linspace(-1, 1, 24).reshape(6, 4).to(device), torch.tensor([0, 1] * 3).to(device)
    if held:
        hold()
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), labels).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]
trained = train("cuda", held=True)'
is 'three steps are queued' "$(state) $(value 'busy()')" 'ok True'
cell 'fake.fake_cuda_release()'
is 'and are those of the CPU' "$(value 'all(torch.allclose(a.cpu(), b) for a, b in zip(trained, train("cpu")))')" True

# OPs and pushes behind work of the stream
cell 'hold(); y = x + 1'
cat "$G/vars/y.sum.json" >"$T/sum" &
reader=$!
until_true grep -q . "$G/rank0/status"
[ ! -s "$T/sum" ] || bad 'an OP does not wait'
kill $reader
wait $reader
is 'a reader that leaves is released' "$(value '1 + 1')" 2
cell 'fake.fake_cuda_release()'
is 'then it is there' "$(guarded cat "$G/vars/y.sum.json")" '[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0], [13.0, 14.0, 15.0, 16.0]]'

# a kernel that is slow: its cell ends before it, and a synchronization waits
again slow=aten::mm:700000
cell 'import time; begin = time.monotonic(); y = x @ x; queued = busy()'
is 'the call did not wait for it' "$(value 'queued')" True
is 'who needs the number does' "$(value 'y[3, 3].item(), time.monotonic() - begin > 0.6')" '(506.0, True)'

# one that hangs: a synchronization is no Python, so an interrupt becomes a kill after killafter
again hang=aten::mm
echo 'killafter 1' >"$G/ctl"
cell 'y = x @ x'
is 'a cell that only launches it ends' "$(state)" ok
pid=$(key "$G/rank0/status" pid)
submit 'torch.cuda.synchronize()'
until_true grep -q ' in synchronize$' "$G/rank0/stack.all"
echo interrupt >"$G/ctl"
like 'the rank was killed' "$(wait_cell "$n" | key /dev/stdin state)" '^(lost|interrupted)$'
like 'error says so' "$(cat "$G/error")" 'killafter: rank 0 ran no Python'
ok cell 'import torch; x = torch.ones(3, device="cuda")'
is 'its successor works' "$(value 'x.sum().item()') $([ "$(key "$G/rank0/status" pid)" != "$pid" ] && echo new)" '3.0 new'

# one that fails: the call returns, later ones do not, and the rank is replaced
for code in 700:an.illegal.memory.access 719:unspecified.launch.failure; do
	again "fail=aten::mm:${code%%:*}"
	pid=$(key "$G/rank0/status" pid)
	fails cell 'y = x @ x
torch.cuda.synchronize()'
	replaced() {
		[[ $(key "$G/rank0/status" pid) != @($pid|-|) ]]
	}
	until_true replaced
	like 'error has the text of CUDA' "$(cat "$G/error")" "the CUDA context is lost \(GPU 0: .*${code#*:}"
	ok cell 'import torch; x = torch.ones(3, device="cuda")'
done
