#!/usr/bin/env bash
# The write that completes an object answers with what became of it: not every program looks at what close says.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
export V=$G/vars
cell 'x = None' || give_up "$(cat "$G/traceback")"
"$TORCH_PYTHON" - <<'END' || bad 'objects that are whole'
import errno, fractions, io, os, zipfile
import numpy as np
import torch
from safetensors.torch import save

V = os.environ["V"]


class Open:
    """A descriptor of a variable's file, and what its writes have said."""

    def __init__(self, name):
        self.fd = os.open(f"{V}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def write(self, data, at=None):
        """None if it went well, else its errno."""
        try:
            n = os.write(self.fd, data) if at is None else os.pwrite(self.fd, data, at)
            assert n == len(data), n
        except OSError as e:
            return errno.errorcode[e.errno]

    def close(self):
        os.close(self.fd)


def text(name):
    with open(f"{V}/{name}") as f:
        return f.read()


def npy(a):
    b = io.BytesIO()
    np.save(b, a)
    return b.getvalue()


def pt(o):
    b = io.BytesIO()
    torch.save(o, b)
    return b.getvalue()


arrays = (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.eye(3, dtype="i2")), np.array("ab"), np.float32(3),
          np.array(["2020-01-01"], "M8[D]"), np.arange(100000))
for i, array in enumerate(arrays):
    data, f = npy(array), Open(f"a{i}.npy")
    for at in range(0, len(data), 65536):  # the last piece answers
        assert f.write(data[at : at + 65536]) is None
    assert (np.load(f"{V}/a{i}.npy") == array).all(), f"{array} before the close"
    f.close()
    assert (np.load(f"{V}/a{i}.npy") == array).all(), f"{array} after the close"

states = {"w": torch.ones(3, 2), '"data_offsets":[0,99999]': torch.zeros(5)}
for name, data in ("s.safetensors", save(states)), ("p.pt", pt({"n": 1, "t": torch.ones(9)})):
    f = Open(name)
    assert f.write(data[:-3]) is None
    assert f.write(data[-3:]) is None
    assert text(name.split(".")[0]), "before the close"
    f.close()
assert "data_offsets" in text("s"), text("s")

# what the ranks refuse is the errno of the write, and of it alone
refused = pt(fractions.Fraction(1, 3))  # not among what weights_only loads
f = Open("bad.pt")
assert f.write(refused) == "EBADMSG"
f.close()
assert not os.path.exists(f"{V}/bad")
spoilt = save(states).replace(b'"dtype":"F32"', b'"dtype":"F99"')
f = Open("bad.safetensors")
assert f.write(spoilt) == "EBADMSG"
f.close()

# a part, in any order, waits for the close; so does what states no size
data = npy(np.arange(1000))
f = Open("late.npy")
assert f.write(data[2000:], 2000) is None
assert f.write(data[:2000], 0) is None
f.close()
assert np.load(f"{V}/late.npy")[999] == 999
outer = io.BytesIO()
with zipfile.ZipFile(outer, "w") as z:
    z.writestr("inner.zip", pt({"n": 2}))
    z.writestr("rest", b"x" * 100)
data, inner = outer.getvalue(), outer.getvalue().index(b"rest") - 30
f = Open("nested.pt")
assert f.write(data[:inner]) is None, "the end of a file within it was taken for its own"
assert f.write(data[inner:]) == "EBADMSG"
f.close()

# bytes behind the end are the close's: with them it is no array
f = Open("two.npy")
assert f.write(npy(np.arange(3))) is None and f.write(npy(np.arange(4))) is None
try:
    f.close()
    raise SystemExit("bytes behind an array went unnoticed")
except OSError as e:
    assert e.errno == errno.EBADMSG, e
assert np.load(f"{V}/two.npy").shape == (3,)
END
