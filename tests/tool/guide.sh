#!/usr/bin/env bash
# Every command of the README, of the tutorial, of the page for newcomers, and of the
# examples in the other pages does what they say.
. "$(dirname "$0")/../lib.sh"
needs_mount

has_module torch safetensors matplotlib || skip "no torch in $TORCH_PYTHON"
M=$T/ddip # what the pages call ~/ddip
export HOME=$T DDIP_MOUNT=$M PATH=$BUILD:$PATH
VIRTUAL_ENV=$(dirname "$(dirname "$TORCH_PYTHON")")
export VIRTUAL_ENV

"$TORCH_PYTHON" -c 'import numpy, sys; numpy.save(open(sys.argv[1], "wb"), numpy.ones(3))' "$T/weights"

# What a reader of the examples has: programs, settings, an array in the home directory.
prepare_page() {
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
	cp "$T/weights" ../weights.npy
}

# try PAGE [WHAT]: runs the page's commands in a directory where the reader has these
try() {
	mkdir "$T/reader" "$M"
	cd "$T/reader" || exit
	"prepare_${2:-page}"
	python3 "$ROOT/tests/tool/documents.py" "$ROOT/$1" || bad "$1 says what does not happen"
	! mountpoint -q "$M" || ddip umount "$M"
	cd "$T" || exit
	rm -r "$T/reader" "$M"
}

# A reader of the README has the sources, and the programs built.
prepare_readme() {
	ln -s "$BUILD" build
	ln -s "$ROOT/scripts" scripts
	ln -s "$VIRTUAL_ENV" .venv
}

prepare_nothing() {
	:
}

# The page is about the files of an existing mount.
prepare_mounted() {
	prepare_page
	ddip mount -o size=2
}

try fs/ddipfs.7 nothing
try scripts/ddip-coming-from.7
try scripts/ddip.1
DDIP_EAGER=0 try fs/ddipfs.1 # it trains nothing
try fs/ddipfs.4 mounted
# shellcheck disable=SC2016 # a fence of Markdown
commands=$(sed -n '/^```shell/,/^```/p' "$ROOT/README.md" | grep -v '^```' | sed 's/  *#.*//' | xargs)
is 'all of the README but what has tests of its own is tried' "$commands" \
	'pip install ddipfs-*.whl ddip demo make run make test'
[ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || skip 'the README: no Fashion-MNIST here'
try README.md readme
