#!/usr/bin/env bash
# Parts of torch and its neighbors work as their documentation shows, in cells, quick ones twice in the same ranks:
# metrics, DataLoader's workers, distributed checkpoints, profiler, compile.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2,gpus=none

# twice WHAT <<SOURCE: runs a cell that must succeed, twice
twice() {
	local source i
	source=$(cat)
	for i in 1 2; do
		cell "$source" || bad "$1, $i: $(cat "$G/traceback")"
	done
}

cell "import torch, torch.distributed as dist, torch.nn as nn; FOLDER = '$T'"

if has_module torchmetrics; then
	twice 'torchmetrics' <<-'END'
		import torchmetrics
		metric = torchmetrics.classification.MulticlassAccuracy(num_classes=4, average="micro")
		target = torch.tensor([0, 1, 2, 3])
		for _ in range(3):
		    metric(target if rank == 0 else (target + 1) % 4, target)
		accuracy = metric.compute().item()
	END
	is 'torchmetrics counts what all ranks have seen' "$(cat "$G/vars/accuracy.same")" 0.5
fi

# In a cell, a dataset for spawned workers must be in a module, as in any notebook.
cat >"$T/squares.py" <<-'END'
	import os
	from torch.utils.data import Dataset
	class Squares(Dataset):
	    def __len__(self):
	        return 16
	    def __getitem__(self, i):
	        return i * i, os.getpid()
END
cat >"$T/workers_in_a_cell.py" <<-'END'
	import os, sys
	sys.path[:0] = [FOLDER] * (FOLDER not in sys.path)
	from squares import Squares
	from torch.utils.data import DataLoader, DistributedSampler
	seen = {}
	for method in ("fork", "spawn", "forkserver"):
	    data = Squares()
	    loader = DataLoader(data, 4, sampler=DistributedSampler(data, shuffle=False), num_workers=1,
	                        multiprocessing_context=method)
	    values = []
	    for squares, pids in loader:
	        values += squares.tolist()
	        assert os.getpid() not in pids.tolist(), method
	    seen[method] = values
	dist.barrier()
END
cell "$(cat "$T/workers_in_a_cell.py")" || bad "DataLoader's workers in a cell: $(cat "$G/traceback")"
for k in 0 1; do
	squares="[$(for i in {0..7}; do echo $(((2 * i + k) ** 2)); done | paste -sd, | sed 's/,/, /g')]"
	is "rank $k has its share from workers of each start method" "$(cat "$G/rank$k/vars/seen.json")" \
		"{\"fork\": $squares, \"spawn\": $squares, \"forkserver\": $squares}"
done

twice 'torch.distributed.checkpoint' <<-'END'
	import torch.distributed.checkpoint as dcp
	from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
	from torch.distributed.device_mesh import init_device_mesh
	from torch.distributed.fsdp import fully_shard
	torch.manual_seed(1)
	model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
	fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
	optimizer = torch.optim.AdamW(model.parameters(), 0.1)
	model(torch.ones(4, 8)).sum().backward()
	optimizer.step()
	weights, moments = get_state_dict(model, optimizer)
	dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=FOLDER + "/checkpoint")
	before = model[0].weight.full_tensor().detach().clone()
	with torch.no_grad():
	    for p in model.parameters():
	        p.zero_()
	weights, moments = get_state_dict(model, optimizer)
	state = {"model": weights, "optimizer": moments}
	dcp.load(state, checkpoint_id=FOLDER + "/checkpoint")
	set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
	after = model[0].weight.full_tensor().detach()
	assert torch.equal(before, after) and before.abs().sum() > 0
	finished = dcp.async_save({"model": weights}, checkpoint_id=FOLDER + "/async",
	                          process_group=dist.new_group(backend="gloo"))
	finished.result()
END
[ -e "$T/checkpoint/.metadata" ] && [ -e "$T/async/.metadata" ] || bad 'a checkpoint has no .metadata'

twice 'torch.profiler' <<-'END'
	from torch.profiler import ProfilerActivity, profile, record_function, schedule
	traces = []
	with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2),
	             on_trace_ready=lambda p: traces.append(p.key_averages())) as profiler:
	    for step in range(4):
	        with record_function("a step"):
	            dist.all_reduce(torch.ones(64, 64) @ torch.ones(64, 64))
	        profiler.step()
	names = {event.key for event in traces[0]}
	assert {"a step", "aten::mm", "gloo:all_reduce"} <= names, names
	profiler.export_chrome_trace(f"{FOLDER}/trace{rank}.json")
END
ok test -s "$T/trace1.json"

if command -v g++ >/dev/null; then
	# torch tries the compiler with each vector unit of the processor first, which takes longer than all the rest
	cell "import os, torch._inductor.config as config
os.environ['TORCHINDUCTOR_CACHE_DIR'] = '$T/inductor'
config.cpp.vec_isa_ok = True"
	cat >"$T/compile.py" <<-'END'
		torch.manual_seed(0)
		net = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 1))
		compiled = nn.parallel.DistributedDataParallel(torch.compile(net))
		batch = torch.randn(8, 4) + rank
		loss = compiled(batch).square().mean()
		loss.backward()
		plain = net(batch).square().mean()
		torch.testing.assert_close(loss, plain)
		gradient = net[0].weight.grad
	END
	cell "$(cat "$T/compile.py")" || bad "torch.compile: $(cat "$G/traceback")"
	ok cmp "$G/rank0/vars/gradient.npy" "$G/rank1/vars/gradient.npy"
else
	echo 'torch.compile: no g++ here'
fi
