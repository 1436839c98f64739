#!/usr/bin/env bash
# Programs that write a temporary file and rename it push an object: rsync, sed -i, vim, NumPy, torch, os.replace.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
export V=$G/vars R=$G
cell 'import numpy as np, torch'

# a plain file in memory
printf 'hello' >"$V/.note" || bad 'create'
printf ' world' >>"$V/.note" || bad 'append'
is 'read' "$(cat "$V/.note")" 'hello world'
is 'size' "$(stat -c %s "$V/.note")" 11
truncate -s 5 "$V/.note" || bad 'truncate'
is 'cut' "$(cat "$V/.note")" hello
ok chmod 644 "$V/.note"
ok touch -d '2024-01-01' "$V/.note"
is 'listed' "$(ls -A "$V" | xargs)" .note
is 'not in the other directory' "$(ls -A "$G/rank0/vars" | xargs)" ''
ok mv "$V/.note" "$V/note~"
is 'renamed' "$(cat "$V/note~")" hello
is 'the old name' "$(errno open "$V/.note")" ENOENT
ok rm "$V/note~"
is 'removed' "$(ls -A "$V" | xargs)" ''
printf 'x' >"$G/rank1/vars/4913" && ok rm "$G/rank1/vars/4913"
is 'no such name' "$(errno create "$V/a-b" 1)" EINVAL
"$PLAIN_PYTHON" - <<'END' || bad 'offsets, descriptors'
import os
V = os.environ["V"]
fd = os.open(V + "/.f", os.O_RDWR | os.O_CREAT | os.O_EXCL)
assert os.pwrite(fd, b"abc", 5) == 3 and os.pread(fd, 20, 0) == b"\0" * 5 + b"abc"
assert os.fstat(fd).st_size == 8 and os.fsync(fd) is None
os.unlink(V + "/.f")
assert os.pread(fd, 3, 5) == b"abc"
os.close(fd)
assert not os.path.exists(V + "/.f")
END

# rsync: a name with a leading dot, then a rename; the next open finds the new object
"$TORCH_PYTHON" -c "import numpy as np; np.save('$T/a.npy', np.arange(5)); np.save('$T/large.npy', np.ones((1 << 20, 3)))"
if command -v rsync >/dev/null; then
	ok rsync -a "$T/a.npy" "$V/a.npy"
	is 'rsync' "$(cat "$V/a.json")" '[0, 1, 2, 3, 4]'
	is 'on all ranks' "$(cat "$G/rank1/vars/a.json")" '[0, 1, 2, 3, 4]'
	ok rsync -a "$T/large.npy" "$V/large.npy"
	is 'large' "$(value 'large.shape, float(large.sum())' 1)" '((1048576, 3), 3145728.0)'
	fails rsync -a "$T/a.npy" "$G/rank1/vars/a.cat.npy"
	like 'an OP is for all ranks' "$(tail -n 1 "$G/error")" "EINVAL .*no view 'cat.npy'"
	ok rsync -a "$T/a.npy" "$V/a.cat.npy"
	is 'split' "$(cat "$G"/rank?/vars/a.json | xargs -d '\n')" '[0, 1, 2] [3, 4]'
	is 'nothing left' "$(ls -A "$V" | xargs)" 'a large'
fi

# programs that remove the file before they write it again replace the object, whose type is kept
cell 'class Old(torch.nn.Linear): pass
t, p, m = torch.zeros(5, requires_grad=True), torch.nn.Parameter(torch.zeros(5)), Old(3, 2)'
"$TORCH_PYTHON" -c "import torch; from safetensors.torch import save_file
save_file({'weight': torch.ones(2, 3), 'bias': torch.ones(2)}, '$T/m.safetensors')"
for replace in mv install 'cp --remove-destination' 'rsync -a' 'rsync -a --inplace' 'tar'; do
	command -v "${replace%% *}" >/dev/null || continue
	cell 'with torch.no_grad():
    for v in (t, p, *m.parameters()): v.zero_()'
	mkdir "$T/new"
	cp "$T/a.npy" "$T/new/t.npy"
	"$TORCH_PYTHON" -c "import numpy as np; np.save('$T/new/p.npy', np.arange(5.0))"
	cp "$T/m.safetensors" "$T/new/m.safetensors"
	for name in t.npy p.npy m.safetensors; do
		case $replace in
		tar) tar -C "$T/new" -cf - $name | tar -C "$V" --no-overwrite-dir -xf - || bad "tar x of $name" ;;
		*)
			# shellcheck disable=SC2086 # words
			ok $replace "$T/new/$name" "$V/$name"
			;;
		esac
	done
	rm -r "$T/new"
	is "$replace onto a tensor, a parameter, a module: they stay what they are, with the new values" \
		"$(value 'type(t).__name__, t.tolist(), type(p).__name__, p.tolist(), type(m).__name__, m.weight.sum().item()' 1)" \
		"('Tensor', [0, 1, 2, 3, 4], 'Parameter', [0.0, 1.0, 2.0, 3.0, 4.0], 'Old', 6.0)"
done
cell 'del t, p, m, Old'

# sed -i: opens as mkstemp does
echo '{"lr": 0.1}' >"$V/config.json"
ok sed -i 's/0.1/0.01/' "$V/config.json"
is 'sed -i' "$(cat "$V/config.json")" '{"lr": 0.01}'
is 'on all' "$(cat "$G/rank1/vars/config")" "{'lr': 0.01}"
sed -i 's/}//' "$V/config.json" || bad 'a rename is answered before the push'
is 'the old object' "$(cat "$V/config.json")" '{"lr": 0.01}'
like 'the failure is told' "$(tail -n 1 "$G/error")" 'EBADMSG.*config.*not JSON'

# editors
if command -v vim >/dev/null; then
	ok vim -Nes -u NONE -i NONE -c '%s/0.01/0.5/' -c wq "$V/config.json" </dev/null
	is 'vim' "$(cat "$V/config.json")" '{"lr": 0.5}'
	ok vim -Nes -u NONE -i NONE -c 'set backup backupskip= backupcopy=no' -c '%s/0.5/0.7/' -c wq "$V/config.json" </dev/null
	is 'vim with a backup by renaming' "$(cat "$V/config.json")" '{"lr": 0.7}'
	until_true test -s "$V/config.json~"
	is 'the backup' "$(cat "$V/config.json~")" '{"lr": 0.5}'
	ok mv "$V/config.json~" "$V/config.json"
	is 'restored' "$(cat "$V/config.json")" '{"lr": 0.5}'
fi
ok mv "$V/config.json" "$V/config.json~"
is 'the variable stays' "$(cat "$V/config.json")" '{"lr": 0.5}'
ok rm "$V/config.json~"

# libraries
"$TORCH_PYTHON" - <<'END' || bad 'libraries'
import errno, json, os, tempfile
import numpy as np, torch
from safetensors.torch import load_file, save_file
V, R = os.environ["V"], os.environ["R"]
save_file({"w": torch.arange(6.).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}, V + "/model.safetensors")
back = load_file(R + "/rank1/vars/model.safetensors")
assert back["w"].tolist() == [[0, 1, 2], [3, 4, 5]] and back["b"].dtype == torch.bfloat16
np.save(V + "/plain.npy", np.eye(3))
assert (np.load(R + "/rank1/vars/plain.npy") == np.eye(3)).all()
torch.save({"t": torch.ones(2)}, V + "/saved.pt")
assert torch.load(R + "/rank1/vars/saved.pt")["t"].tolist() == [1, 1]
def replace(data, target, **kw):
    with tempfile.NamedTemporaryFile("wb", dir=V, delete=False, **kw) as f:
        f.write(data)
    os.replace(f.name, target)
replace(b"[1, 2]", V + "/r.json")
assert json.load(open(V + "/r.json")) == [1, 2] and json.load(open(R + "/rank1/vars/r.json")) == [1, 2]
replace(b"[3]", V + "/r.json", suffix=".json", prefix="tmp_x")
assert json.load(open(V + "/r.json")) == [3]
with tempfile.NamedTemporaryFile("wb", dir=V, delete=False) as f:  # renamed while it is open
    f.write(b"[4]")
    f.flush()
    os.replace(f.name, V + "/r.json")
    assert json.load(open(V + "/r.json")) == [4]
    try:
        os.write(f.fileno(), b"more")
        raise SystemExit("written after the push")
    except OSError as e:
        assert e.errno == errno.EACCES
with open(V + "/.new", "w") as f:
    f.write("[5]")
for target, error in (("r.png", errno.EOPNOTSUPP), ("r.nothing", errno.EINVAL), ("r.mean", errno.EOPNOTSUPP)):
    try:
        os.rename(V + "/.new", V + "/" + target)
        raise SystemExit(target)
    except OSError as e:
        assert e.errno == error, (target, e)
assert open(V + "/.new").read() == "[5]"
try:
    os.rename(V + "/.new", R + "/rank0/vars/r.json")
    raise SystemExit("to another directory")
except OSError as e:
    assert e.errno == errno.EXDEV
os.rename(V + "/.new", V + "/r")
assert open(V + "/r").read() == "[5]\n"
assert not [n for n in os.listdir(V) if n.startswith((".", "tmp"))], os.listdir(V)
END

# behind a running cell: the rename returns, the old object is shown until then
submit "import os
while not os.path.exists('$T/end'):
    pass"
echo '[6]' >"$V/.later" && ok mv "$V/.later" "$V/r.json"
is 'still the old one' "$(cat "$V/r.json")" '[5]'
touch "$T/end"
wait_cell "$n" >/dev/null
arrived() {
	[ "$(cat "$V/r.json")" = '[6]' ]
}
until_true arrived

# staged files are removed with their group
mkdir "$M/other" && echo 1 >"$M/other/vars/.x" && ok rmdir "$M/other" && mkdir "$M/other"
is 'a new group of that name' "$(ls -A "$M/other/vars")" ''
ok rmdir "$M/other"
