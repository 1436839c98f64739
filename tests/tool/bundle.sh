#!/usr/bin/env bash
# The bundle, unpacked into a new folder, works in an environment that knows no source and no build tree: nothing is
# mounted, and each Python serves a socket. Its tests and measurements for GPUs run through with the CPU in place of a
# GPU, and report what they skip.
. "$(dirname "$0")/../lib.sh"

sanitized && skip 'a bundle of a sanitized build runs nowhere else'
[ -e "$(pkg-config --variable=libdir fuse3)/libfuse3.a" ] || skip 'there is no libfuse3.a'
has_module torch numpy || skip "no torch or NumPy in $TORCH_PYTHON"
cuda=$BUILD/fake/libcudart.so.13
[ -e "$cuda" ] || skip "$cuda is not built (make check)"
cd "$ROOT" || exit
BUILD=$(realpath --relative-to=. "$BUILD") VERSION=$(make -s version) OUT=$T \
	scripts/make-bundle >"$T/out" 2>&1 || give_up "make-bundle: $(tail -n 5 "$T/out")"
tail -n 1 "$T/out"
mkdir "$T/else where"
cd "$T/else where" || exit
tar -xzf "$T"/ddipfs-*-bundle.tar.gz
cd ddipfs-* || exit
is 'libfuse is in the program' "$(ldd bin/ddipfs | grep -c fuse)" 0
# of a short name nothing can be told: the sources have it, too
grep -rqF "$ROOT" "$ROOT"/{README.md,engine,fs,include,magics,scripts,tests} ||
	is 'nothing leads to where it was made' "$(grep -rlF "$ROOT" .)" ''
is 'everybody can read it' "$(find . ! -perm -444 -o -type d ! -perm -555)" ''
# the fake runtime is not part of it
cp -r "$ROOT/tests/fake/cupy" "$cuda" "$T"

# inside PYTHON WORDS…: calls ./run there, which has its own limits for hangs
inside() {
	unshare -m "$BASH" -c 'mount -t tmpfs none /dev/shm && mount --bind /dev/null /dev/fuse && exec "$@"' - \
		env -i DDIP_TEST="$DDIP_TEST" DDIP_EAGER=1 HOME="$T" TMPDIR="$T" PATH=/usr/bin:/bin PYTHON="$1" \
		PYTHONPATH="$T" DDIP_CUDART="$T/${cuda##*/}" ./run "${@:2}" 2>&1
}

if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
	skip 'only root can hide /dev/fuse'
fi
said=$(inside "$TORCH_PYTHON" rehearse) || bad "rehearse: $said"
like 'all tests run, without a device' "$said" '5 passed, 0 failed, 0 skipped'
like 'the measures are on a socket' "$said" 'a rehearsal, these figures mean nothing; .* on a socket'
is 'each has its row' "$(grep -c '^| [^-w]' <<<"$said")" 9
[ ! -e tests/gpu/RESULTS.md ] || bad 'a rehearsal is no result'
like 'what needs a GPU is skipped aloud' "$(inside "$TORCH_PYTHON" check-gpu nccl)" \
	'test_nccl: no GPU that torch of .* can use'
like 'the measures are skipped aloud' "$(inside "$TORCH_PYTHON" bench-gpu)" 'no GPU that torch .*bench-gpu: skipped'
for python in "$PLAIN_PYTHON" ~/.pyenv/versions/3.12.*/bin/python3; do
	[ -x "$python" ] || continue
	said=$(inside "$python" check-gpu start) || bad "$python: $said"
	like "$python runs it" "$said" '1 passed, 0 failed, 0 skipped'
done
