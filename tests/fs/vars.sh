#!/usr/bin/env bash
# Objects are files: text, json, pkl; while ranks are idle and busy; on one rank and on all; bad uses get an errno.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'import os, sys
from collections import OrderedDict
n, f, s, none, flag = 42, 0.1, "it'"'"'s\n\"quoted\"", None, True
nested = {"a": [1, 2, {"b": (3, 4)}], "c": None}
mine = rank
def double(v):
    return 2 * v
class Point:
    pass
_private = 1
point = Point()'

# listing: what cells created, not modules, imports, private names or the engine's own
is 'ls' "$(ls "$G/vars" | tr '\n' ' ')" 'Point double f flag mine n nested none point s '
is 'ls of a rank' "$(ls "$G/rank1/vars" | wc -l)" 10
like 'names' "$(cat "$G/names")" $'\nn +type=int'

# text
is 'int' "$(cat "$G/vars/n")" 42
is 'float' "$(cat "$G/vars/f")" 0.1
is 'str as str()' "$(cat "$G/vars/s")" $'it\'s\n"quoted"'
is 'None' "$(cat "$G/vars/none")" None
is 'dict' "$(cat "$G/vars/nested")" "{'a': [1, 2, {'b': (3, 4)}], 'c': None}"
is 'rank 0 by default' "$(cat "$G/vars/mine")" 0
is 'a rank' "$(cat "$G/rank1/vars/mine")" 1
is 'size' "$(cat "$G/vars/n" | wc -c)" 3

# writing text: a literal, else a string
echo 7 >"$G/vars/pushed" || bad 'push'
is 'on all ranks' "$(cat "$G"/rank?/vars/pushed | xargs)" '7 7'
is 'its type' "$(value 'type(pushed).__name__' 1)" "'int'"
echo "[1, 'two', None]" >"$G/vars/pushed"
is 'a list' "$(value 'pushed[1]')" "'two'"
is 'texts without a comma, as NumPy prints an array' "$(errno create "$G/vars/pushed" "['a' 'b']")" EBADMSG
is 'a description of an object' "$(errno create "$G/vars/picture" '<Image size=4x3 at 0x7F0AF0>')" EBADMSG
is 'words where a list is' "$(errno create "$G/vars/pushed" 'just words')" EBADMSG
is 'leave the list' "$(value 'pushed[1]' 1)" "'two'"
echo '"just words"' >"$G/vars/pushed"
echo 'just words' >"$G/vars/pushed"
is 'a string' "$(value 'pushed')" "'just words'"
printf 'two\n\n' >"$G/vars/pushed"
is 'one newline is cut' "$(value 'pushed')" "'two\\n'"
echo 5 >"$G/rank1/vars/mine"
is 'on one rank' "$(cat "$G"/rank?/vars/mine | xargs)" '0 5'
is 'a letter of another alphabet' "$(errno create "$G/vars/größe" 5) $(value 'größe')" '0 5'
is 'in parts, as another system writes it' "$(errno create "$G/vars/gro"$'\xcc\x88'"ße" 6)" EINVAL
like 'the text' "$(tail -n 1 "$G/error")" "means 'größe'"
is 'it is not there' "$(ls "$G/vars" | grep -c 'gr') $(value 'größe')" '1 5'
is 'a broken list' "$(errno create "$G/vars/pushed" '[1, 2')" EBADMSG
like 'leaves the old one' "$(value 'pushed')" 'two'
like 'the text' "$(tail -n 2 "$G/error")" 'EBADMSG.*never closed'

# write, fsync, write: each fsync pushes the bytes so far, and ranks keep what they got
"$PLAIN_PYTHON" - "$G" <<'END' || bad 'writing goes on after fsync'
import errno, os, sys
G = sys.argv[1]
def text():
    return [open(f"{G}/rank{k}/vars/grows").read() for k in (0, 1)]
fd = os.open(G + "/vars/grows", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
os.write(fd, b"one")
os.fsync(fd)
assert text() == ["one\n"] * 2, text()
os.fsync(fd)
os.write(fd, b" two")
assert text() == ["one\n"] * 2, text()
os.fsync(fd)
assert text() == ["one two\n"] * 2, text()
os.ftruncate(fd, 0)
os.pwrite(fd, b"three", 0)
os.close(fd)
assert text() == ["three\n"] * 2, text()
fd = os.open(G + "/vars/grows", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
os.write(fd, b"four")
os.fsync(fd)
assert os.pread(fd, 10, 0) == b"four"
os.close(fd)

# what is not written from its beginning, or cut without being written, stays as it is
for flags, change in (
    (os.O_WRONLY, lambda fd: os.ftruncate(fd, 10)),
    (os.O_WRONLY, lambda fd: os.pwrite(fd, b"x", 5)),
    (os.O_WRONLY | os.O_CREAT, lambda fd: os.ftruncate(fd, 2)),
):
    fd = os.open(G + "/vars/grows", flags, 0o600)
    try:
        change(fd)
        raise SystemExit("half an object")
    except OSError as e:
        assert e.errno == errno.EINVAL, e
    os.close(fd)
    assert text() == ["four\n"] * 2, text()
try:
    os.truncate(G + "/vars/grows", 2)
    raise SystemExit("cut")
except OSError as e:
    assert e.errno == errno.EINVAL, e
# a program that makes holes: what was written, the rest zeros
with open(G + "/vars/holes", "wb") as f:
    f.write(b"a")
    f.truncate(3)
assert open(G + "/vars/holes").read() == "a\0\0\n"
END
like 'error says how an object is written' "$(cat "$G/error")" 'EINVAL .*grows: an object is written as a whole'

# an empty file is an object if its view has one: an empty string
: >"$T/empty"
for how in "cp $T/empty" "touch" "install $T/empty"; do
	$how "$G/vars/hollow" || bad "$how of a new name"
	is "$how makes an empty string" "$(cat "$G"/rank?/vars/hollow | xargs -d '\n') $(value 'hollow')" "  ''"
	rm "$G/vars/hollow"
done
echo 5 >"$G/vars/hollow"
touch "$G/vars/hollow"
is 'touch of a name that is there changes nothing' "$(cat "$G/vars/hollow")" 5
echo '"words"' >"$G/vars/hollow"
: >"$G/vars/hollow"
is 'a string is emptied' "$(value 'hollow' 1)" "''"
truncate -s 0 "$G/vars/s" || bad 'truncate -s 0'
is 'truncate -s 0 empties a string' "$(value 's')" "''"
fails cp "$T/empty" "$G/vars/n.json"
is 'an empty file is no JSON' "$(cat "$G/vars/n")" 42
like 'error says so' "$(tail -n 1 "$G/error")" 'EBADMSG .*n: not JSON'
rm "$G/vars/hollow"
cell "s = 'it\\'s\\n\"quoted\"'"

# json and pickle round trips
is 'json' "$(cat "$G/vars/nested.json")" '{"a": [1, 2, {"b": [3, 4]}], "c": null}'
echo '{"x": [1.5, true, null, "é"]}' >"$G/vars/j.json" || bad 'json'
is 'json back' "$(value 'j == {"x": [1.5, True, None, "é"]}' 1)" True
is 'bad json' "$(errno create "$G/vars/j.json" '{"x": ')" EBADMSG
"$PLAIN_PYTHON" - "$G/vars" <<'END' || bad 'pickle'
import pickle, sys
vars = sys.argv[1]
value = {"set": {1, 2}, "bytes": bytes(range(256)), "big": 2**100, "nested": [((),)]}
with open(vars + "/p.pkl", "wb") as f:
    pickle.dump(value, f, protocol=5)
with open(vars + "/p.pkl", "rb") as f:
    assert pickle.load(f) == value
END
is 'bad pickle' "$(errno create "$G/vars/p.pkl" 'nonsense')" EBADMSG
cat "$G/vars/double.pkl" >"$G/vars/triple.pkl" || bad 'a function of a cell by pickle'
is 'it works' "$(value 'triple(4)' 1)" 8

# `same`
is 'same' "$(cat "$G/vars/n.same")" 42
is 'not the same' "$(errno read "$G/vars/mine.same")" ENOTUNIQ

# a view only reads: a file object has a detach(), too
cell 'words = open(os.devnull); found = []'
for view in json csv png npy; do
	is "$view of a file" "$(errno read "$G/vars/words.$view")" EOPNOTSUPP
done
is 'a file that was looked at' "$(value 'words.read()')" "''"
is 'same as json' "$(cat "$G/vars/nested.same.json")" "$(cat "$G/vars/nested.json")"

# removing and renaming
rm "$G/vars/pushed" || bad rm
is 'gone on all' "$(errno read "$G/rank1/vars/pushed")" ENOENT
mv "$G/rank0/vars/n" "$G/rank0/vars/renamed" || bad mv
is 'renamed' "$(cat "$G/rank0/vars/renamed")" 42
is 'only there' "$(cat "$G/rank1/vars/n")" 42
is 'the old name' "$(errno read "$G/rank0/vars/n")" ENOENT
cell 'both = rank
if rank == 0: one = 1'
mv "$G/vars/both" "$G/vars/other" || bad 'mv on all ranks'
is 'renamed on all ranks' "$(cat "$G"/rank?/vars/other | xargs) $(ls "$G/vars" | grep -c both)" '0 1 0'
mv "$G/vars/one" "$G/vars/other" || bad 'mv is queued'
cell pass
is 'a name that one rank lacks is renamed on none' "$(cat "$G/rank0/vars/one") $(cat "$G"/rank?/vars/other | xargs)" '1 0 1'
like 'error says which rank lacks it' "$(tail -n 1 "$G/error")" 'ENOENT.*one.* rank 1'
is 'not to another rank' \
	"$(errno rename "$G/rank1/vars/n" "$G/rank0/vars/n")$(errno rename "$G/vars/s" "$G/rank1/vars/t")" \
	EOPNOTSUPPEOPNOTSUPP
is 'it is where it was' "$(cat "$G/rank1/vars/n" "$G/vars/s" | head -n 1)" 42
is 'nothing is appended' "$(errno append "$G/vars/s" more)" EOPNOTSUPP
is 'the old one' "$(tail -n 1 "$G/vars/s")" '"quoted"'
echo 8 >"$G/vars/_pushed" || bad 'a private name'
is 'a private name is not listed' "$(cat "$G/rank1/vars/_pushed") $(ls "$G/vars" | grep -c _)" '8 0'
is 'no such private name' "$(errno read "$G/vars/_nothing")" ENOENT
is 'rm of nothing' "$(errno unlink "$G/vars/nothing")" ENOENT

# errors
while read -r what path error; do
	is "$what $path" "$(errno "$what" "$G/$path" 1)" "$error"
done <<'END'
open vars/nothing ENOENT
open vars/nothing.nothing ENOENT
open vars/f.nothing EINVAL
open vars/f.json.json EINVAL
create vars/new.nothing EINVAL
create vars/1abc EINVAL
create vars/a-b EINVAL
create vars/class EINVAL
open vars/point.json EOPNOTSUPP
open vars/s.npy EOPNOTSUPP
open rank0/vars/s.same EINVAL
create vars/f.same EOPNOTSUPP
create vars/f.dir EOPNOTSUPP
END
is 'a wrong view' "$(errno open "$G/vars/f.nothing")" EINVAL
like 'its text' "$(tail -n 1 "$G/error")" "EINVAL .*f.nothing: no view 'nothing'; there are json"
echo 7 >"$G/vars/.staged"
is 'a word of Python is no name' "$(errno rename "$G/vars/s" "$G/vars/lambda") $(errno rename "$G/vars/.staged" "$G/vars/if.json")" \
	'EINVAL EINVAL'
is 'nothing is lost by it' "$(cat "$G/vars/.staged") $(errno open "$G/vars/s")" '7 0'
rm "$G/vars/.staged"

# all ranks or none: a pickle that one of the ranks cannot read
cell 'class Odd:
    def __reduce__(self):
        return eval, ("1 if rank == 0 else 1 / 0",)'
cell 'odd = Odd()'
is 'one rank refuses' "$(errno write "$G/cell" 'kept = "old"')" 0
"$PLAIN_PYTHON" - "$G/vars" <<'END' || bad 'all or none'
import errno, pickle, sys
class Odd:
    def __reduce__(self):
        return eval, ("1 if __import__('__main__').rank == 0 else 1 / 0",)
try:
    with open(sys.argv[1] + "/kept.pkl", "wb") as f:
        pickle.dump(Odd(), f)
    raise SystemExit("no error")
except OSError as e:
    assert e.errno == errno.EBADMSG, e
END
is 'none has it' "$(cat "$G"/rank?/vars/kept | xargs)" 'old old'

# while a cell runs
mkfifo "$T/gate"
submit "count = 0
while not os.path.exists('$T/end'):
    count += 1"
until_true grep -q running "$G/cells/$n/status"
a=$(cat "$G/vars/count" 2>/dev/null || echo 0)
grows() {
	[ "$(cat "$G/vars/count")" -gt "$a" ]
}
until_true grows
is 'still running' "$(state "$n")" running
touch "$T/end"
like 'the cell that counted' "$(wait_cell "$n")" 'state ok'
is 'the end' "$(cat "$G/vars/count.json")" "$(value count)"

# while C code holds the GIL: a reader waits, can be interrupted, or does not block
mkfifo "$T/gil0" "$T/gil1"
# one call in C that signals when it is running
submit "import ctypes
paths = b'$T/held%d' % rank, b'$T/gil%d' % rank
None in map(ctypes.PyDLL(None).open, paths, (os.O_CREAT, os.O_RDONLY), (0o600, 0))"
for rank in 0 1; do
	until_true test -e "$T/held$rank"
done
is 'O_NONBLOCK does not wait for the GIL' "$("$PLAIN_PYTHON" -c "
import errno, os
try:
    os.open('$G/vars/s', os.O_RDONLY | os.O_NONBLOCK)
except OSError as e:
    print(errno.errorcode[e.errno])")" EAGAIN
timeout 1 cat "$G/vars/s"
is 'a reader that waits for the GIL can be interrupted' $? 124
head -n 1 "$G/vars/s" >"$T/read" &
echo >"$T/gil0"
echo >"$T/gil1"
wait $!
is 'a reader waits until the GIL is free' "$(cat "$T/read")" "it's"
like 'the cell that held the GIL' "$(wait_cell "$n")" 'state ok'

# an open file keeps its object, whatever happens to the name
cell 'text = "old " * 1000'
exec 5<"$G/vars/text"
cell 'text = "new"; import gc; gc.collect()'
is 'the old bytes' "$(cat <&5 | md5sum)" "$( (printf 'old %.0s' $(seq 1000); echo) | md5sum)"
exec 5<&-

# an object whose own code never ends and catches what it can: an interrupt ends the push on all ranks
ranks=$(rank_pids)
cell "import pickle
class Forever:
    def __reduce__(self):
        return decode, ()
def decode():
    open('$T/decodes' + str(rank), 'w').close()
    for caught in range(3):
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass
if rank == 0:
    with open('$T/forever.pkl', 'wb') as f:
        pickle.dump(Forever(), f)
import time"
errno copy "$G/vars/forever.pkl" "$T/forever.pkl" >"$T/pushed" &
for rank in 0 1; do
	until_true test -e "$T/decodes$rank"
done
echo interrupt >"$G/ctl"
wait $!
is 'a push that is interrupted while it is decoded' "$(cat "$T/pushed")" EINTR
like 'error says so' "$(tail -n 1 "$G/error")" 'EINTR forever: .*forever: interrupted before the object was made'
is 'the ranks live on' "$(rank_pids)" "$ranks"
is 'and have no part of it' "$(errno read "$G/vars/forever")" ENOENT
