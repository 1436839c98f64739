#!/usr/bin/env bash
# Examples in which ranks hold parts of a model work: model_parallel.py both ways, fsdp.py.
. "$(dirname "$0")/../lib.sh"

[ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || skip 'no Fashion-MNIST here'
mount_torch -o size=2,gpus=none
export DDIP_MOUNT=$M PATH=$BUILD:$PATH
examples=$ROOT/scripts/examples

# Both train. How far rounding drives them apart over many steps means nothing: not compared.
for how in '' --pipelined; do
	# shellcheck disable=SC2086 # no word, or one
	ok ddip run "$examples/model_parallel.py" --images 4000 $how
	cp "$G/rank1/vars/losses.json" "$T/losses"
	"$PLAIN_PYTHON" - "$T/losses" <<-'END_PYTHON' || bad "model_parallel.py $how does not learn"
		import json, sys
		losses = json.load(open(sys.argv[1]))
		assert len(losses) == 62, len(losses)
		assert sum(losses[-10:]) < 0.7 * sum(losses[:10]), losses
	END_PYTHON
done
is 'each rank has its stage' "$(cat "$G"/rank[01]/vars/stage | grep -c Flatten)" 1

# Both compute the same gradients: for one batch, in float64, where the order of the sums (a few thousand
# terms of 1e-16) is far below the bound and a wrong scale or a lost micro-batch far above it.
ddip run - <<-END_PYTHON || bad 'plain and pipelined gradients differ'
	import sys
	sys.path.insert(0, "$examples")
	import model_parallel, torch, torch.distributed as dist
	dist.init_process_group("gloo")
	device, batch, width = torch.device("cpu"), 64, 32
	data = torch.Generator().manual_seed(1)
	images = torch.randn(batch, 1, 28, 28, generator=data, dtype=torch.float64)
	labels = torch.randint(10, (batch,), generator=data)
	me, size = dist.get_rank(), dist.get_world_size()
	def gradients(make):
	    part = model_parallel.make_stage(me, size, width)
	    loss = make(part).step(images, labels)
	    return loss, [p.grad for p in part.parameters()]
	torch.set_default_dtype(torch.float64)
	try:
	    loss, plain = gradients(lambda part: model_parallel.Plain(part, (batch, width), device))
	    other_loss, pipelined = gradients(lambda part: model_parallel.Pipelined(part, 4, device))
	finally:
	    torch.set_default_dtype(torch.float32)
	assert all(g.dtype == torch.float64 and g.abs().max() > 0 for g in plain)
	torch.testing.assert_close(pipelined, plain, rtol=1e-9, atol=1e-12)
	if loss is not None:
	    torch.testing.assert_close(other_loss, loss, rtol=1e-9, atol=1e-12)
	dist.destroy_process_group()
END_PYTHON

ddip run -a "$examples/fsdp.py" --images 2000 --epochs 1 >"$T/out" || bad "fsdp.py: status $?"
held=$(sed -n 's/.*rank [01] holds \([0-9]*\) of.*/\1/p' "$T/out" | paste -sd+)
is 'all shares are the whole' $((held)) "$(sed -n 's/.*holds.* of \([0-9]*\) .*/\1/p;T;q' "$T/out")"
like 'it learns' "$(cat "$T/out")" 'accuracy [3-9][0-9]\.'
ok cp "$G/rank0/vars/weights.safetensors" "$T/0"
ok cp "$G/rank1/vars/weights.safetensors" "$T/1"
ok cmp "$T/0" "$T/1"
