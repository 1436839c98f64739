#!/usr/bin/env bash
# `make run` works: a real training on real images, from nothing to nothing, in a folder with a space.
. "$(dirname "$0")/../lib.sh"

# where Python lies at an odd place; this ddip only shows what it is told
mkdir -p "$T/a bin/examples"
cp "$BUILD/ddip-demo" "$T/a bin"
touch "$T/a bin/examples/train_mnist.py"
printf '#!/bin/sh\nprintf "<%%s>" "$@"\nexit 1\n' >"$T/a bin/ddip"
chmod +x "$T/a bin/ddip"
said=$(PYTHON='/a, b\c/python' "$T/a bin/ddip-demo")
[[ $said == *'<mount><-o><python=/a\, b\\c/python>'* ]] || give_up "commas: $said"

# where there are no images; this one does all. tests/tool/wheel.sh trains with what is drawn
cat >"$T/a bin/ddip" <<'END'
#!/bin/sh
case "$*" in
'pull accuracy.same') echo 0.9 ;;
'cat group/ranks') echo 0 ;;
'pull '*) for last; do :; done && echo 1 >"$last" ;;
*) printf '<%s>' "$@" && echo ;;
esac
END
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
	# shellcheck disable=SC2016
	said=$(unshare -m "$BASH" -c 'mount -t tmpfs none /usr/share && exec "$@"' - "$T/a bin/ddip-demo" "$T/digits.png") ||
		bad "digits: $said"
	like 'they are drawn' "$said" '<run><-f><-r><0><.*/a bin/examples/draw_digits.py><(.*/digits)>.*<run><-f><.*/train_mnist.py><--epochs><3><--data><'
	like 'how to draw them is shown, too' "$said" 'ddip run -f -r 0 .*/a\\ bin/.*/draw_digits.py ~/digits; ddip run .* --data ~/digits'
	[ -s "$T/digits.png" ] || bad 'no picture of the digits'
fi

if has_module numpy; then
	ok "$TORCH_PYTHON" "$ROOT/scripts/examples/draw_digits.py" "$T/digits"
	for name in train t10k; do
		images=$(gzip -dc "$T/digits/$name-images-idx3-ubyte.gz" | wc -c) labels=$(gzip -dc "$T/digits/$name-labels-idx1-ubyte.gz" | wc -c)
		is "$name: an image for each label" "$((images - 16))" "$(((labels - 8) * 28 * 28))"
	done
fi

[ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ] || skip 'no Fashion-MNIST here'
has_module torch matplotlib || skip "no torch in $TORCH_PYTHON"
export PYTHON=$TORCH_PYTHON
programs="$T/a tree/build"
mkdir -p "$programs"
cp -a "$ROOT/magics" "$T/a tree"
cp -aL "$BUILD"/{ddip,ddip-*,ddip_engine.so,ddip_tool,ddipfs,examples} "$programs"
"$programs/ddip" demo "$T/loss 1.png" >"$T/out" 2>&1 || bad "demo: status $?"
cat "$T/out"
is 'three epochs' "$(grep -c 'epoch [1-3].*test loss.*accuracy' "$T/out")" 3
like 'progress' "$(cat "$T/out")" 'images/s'
like 'the same weights' "$(cat "$T/out")" 'all ranks hold the same weights'
like 'accuracy' "$(cat "$T/out")" 'same on all ranks: (8[5-9]|9[0-9])\.'
is 'a picture' "$(head -c 8 "$T/loss 1.png" | od -An -tx1 | xargs)" '89 50 4e 47 0d 0a 1a 0a'
is 'nothing is left' "$(find "$TMPDIR" -maxdepth 1 -name 'ddip-demo*')" ''
typed=$(sed -n 's/^export PATH=\(.*\):$PATH$/\1/p' "$T/out")
is 'what one is to type can be typed' "$(eval "echo $typed")" "$programs"
