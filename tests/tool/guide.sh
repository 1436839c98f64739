#!/usr/bin/env bash
# Every command of the tutorial, of the page for newcomers, and of the examples in the other pages
# does what they say that it does.
. "$(dirname "$0")/../lib.sh"

"$TORCH_PYTHON" -c 'import torch, safetensors, matplotlib' 2>/dev/null || skip "no torch in $TORCH_PYTHON"
M=$T/ddip # what the pages call ~/ddip
export HOME=$T DDIP_MOUNT=$M PATH=$BUILD:$PATH
VIRTUAL_ENV=$(dirname "$(dirname "$TORCH_PYTHON")")
export VIRTUAL_ENV

# What a reader of the examples has: programs, settings, an array at home.
prepare() {
	cat >train.py <<-'END'
		import argparse, torch, torch.distributed as dist
		from matplotlib.figure import Figure
		parser = argparse.ArgumentParser()
		parser.add_argument("--epochs", type=int, default=2)
		dist.init_process_group()
		model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
		fig = Figure()
		for epoch in range(parser.parse_args().epochs):
		    loss = model(torch.ones(4, 2)).square().mean()
		    loss.backward()
		    print("epoch", epoch + 1, "loss", loss.item())
	END
	echo 'print(world_size)' >evaluate.py
	echo '{"lr": 0.1}' >settings.json
	"$TORCH_PYTHON" -c 'import numpy; numpy.save("../weights.npy", numpy.ones(3))'
}

for page in fs/ddipfs.7 scripts/ddip-coming-from.7 scripts/ddip.1 fs/ddipfs.1 fs/ddipfs.4; do
	mkdir "$T/reader" "$M"
	cd "$T/reader" || exit
	[ "$page" = fs/ddipfs.7 ] || prepare
	# this one is about the files of a mount that is there
	[ "$page" != fs/ddipfs.4 ] || ddip mount -o size=2
	python3 "$ROOT/tests/tool/documents.py" "$ROOT/$page" || bad "$page says what does not happen"
	! mountpoint -q "$M" || ddip umount "$M"
	cd "$T" || exit
	rm -r "$T/reader" "$M"
done
