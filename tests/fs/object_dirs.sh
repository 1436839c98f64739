#!/usr/bin/env bash
# The inside of objects is directories: any key is a file with the views and OPs of the object, programs that walk over them
# come to an end, and a rank that is stuck or dead is no hang.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'import argparse, os
class Schedule:
    def __init__(self):
        self._last_lr = [0.1]
    @property
    def computed(self):
        raise AssertionError
    def __getattr__(self, name):
        raise AssertionError
config = argparse.Namespace(lr=0.5, sizes=[1, {"deep": "words"}])
schedule = Schedule()
mine = {"r": rank, 3: [rank] * 2, "only" if rank else "both": 1}
odd = {"a/b": 1, "": 2, ".": 3, "..": 4, "w.npy": 5, "w.mean": 6, "w.d": 7, "%": 8, "a\nb": 9, "é": 10, (1, "x"): 11,
       "a" * 256: 12, ".hidden": 13}
loop = {"up": [], "words": "text"}
loop["up"].append(loop)
many = {str(i): i for i in range(10000)}'

is 'not listed beside the variables' "$(ls "$G/vars" | xargs)" 'Schedule config loop many mine odd schedule'
is 'find' "$(cd "$G/vars" && find config.d | sort | xargs)" \
	'config.d config.d/lr config.d/sizes config.d/sizes.d config.d/sizes.d/0 config.d/sizes.d/1 config.d/sizes.d/1.d config.d/sizes.d/1.d/deep'
is 'an entry' "$(cat "$G/vars/config.d/lr")" 0.5
is 'a nested one' "$(cat "$G/rank1/vars/config.d/sizes.d/1.d/deep.json")" '"words"'
is 'the last of a list' "$(cat "$G/vars/config.d/sizes.d/-1.d/deep")" words
is 'attributes of an object' "$(ls "$G/vars/schedule.d" | xargs) $(cat "$G/vars/schedule.d/_last_lr.d/0")" '_last_lr _last_lr.d 0.1'
is 'each rank has its own' "$(cat "$G"/rank?/vars/mine.d/r | xargs)" '0 1'
is 'over the ranks' "$(cat "$G/vars/mine.d/r.gather" "$G/vars/mine.d/3.gather.json" "$G/vars/mine.d/3.d/0.max" | xargs)" '[0, 1] [[0, 0], [1, 1]] 1'
is 'not the same' "$(errno read "$G/vars/mine.d/r.same") $(cat "$G/vars/config.d/lr.same")" 'ENOTUNIQ 0.5'
is 'an entry of one rank only' "$(errno read "$G/vars/mine.d/both.same")" ENOENT
like 'its pickle' "$("$PLAIN_PYTHON" -c 'import pickle, sys; print(pickle.load(open(sys.argv[1], "rb")))' "$G/vars/mine.d/3.pkl")" '\[0, 0\]'
is 'its help' "$(head -n 1 "$G/vars/config.d/sizes.doc" | grep -c list)" 1

# any key is a name, and is found by it
is 'odd names' "$(ls -A "$G/vars/odd.d" | LC_ALL=C sort | xargs -d '\n')" '% %25 %2E %2E%2E (1, '"'x'"') .hidden a%0Ab a%2Fb w%2Ed w%2Emean w%2Enpy é'
is 'all of them' "$(cd "$G/vars/odd.d" && find . -type f -exec cat '{}' + | sort -n | xargs)" '1 2 3 4 5 6 7 8 9 10 11 13'
is 'and over the ranks' "$(cat "$G/vars/odd.d/w%2Emean.sum" "$G/vars/odd.d/w.mean" 2>&1 | head -n 1)" 12
like 'what is not listed is said' "$(cat "$G/error")" 'ENAMETOOLONG group/vars/odd.d: not listed: 1 of what is in odd.d, which no name'

# what may be the end of a name, as the daemon says it
suffixes=$(sed -n '/^NAME is/,/^Verbs/s/^  \([a-z][a-z0-9]*\) .*/\1/p' "$M/README")
[ "$(wc -w <<<"$suffixes")" -gt 15 ] || bad "README has only these views and OPs: $suffixes"
cell "suffixed = {'k.' + word: word for word in '$(xargs <<<"$suffixes") d'.split()}"
# shellcheck disable=SC2086 # words
is 'keys that end like views and OPs' "$(ls "$G/vars/suffixed.d" | sort | xargs)" \
	"$(printf 'k%%2E%s\n' $suffixes d | sort | xargs)"
# shellcheck disable=SC2086 # words
is 'each is found' "$(cat "$G/vars/suffixed.d"/* | sort | xargs)" "$(printf '%s\n' $suffixes d | sort | xargs)"

# programs that walk
is 'an endless object' "$(guarded find "$G/vars/loop.d" | wc -l)" 5
is 'but all names exist' "$(cat "$G/vars/loop.d/up.d/0.d/up.d/0.d/words")" text
guarded cp -r "$G/vars/config.d" "$T/copy" || bad 'cp -r'
is 'what cp got' "$(cat "$T/copy/sizes.d/1.d/deep")" words
tar -cf "$T/tar" -C "$G/vars" config.d mine.d || bad 'tar'
is 'what tar got' "$(tar -xOf "$T/tar" config.d/sizes.d/0)" 1
guarded diff -r "$G/rank0/vars/config.d" "$G/rank1/vars/config.d" || bad 'diff of equal ones'
is 'diff' "$(diff -rq "$G/rank0/vars/mine.d" "$G/rank1/vars/mine.d" | wc -l)" 6
guarded du -a "$G/vars/config.d" "$G/vars/loop.d" >"$T/du" || bad du
is 'stat' "$(stat -c '%F %a' "$G/vars/config.d" "$G/vars/config.d/sizes.d" "$G/vars/config.d/lr" | xargs -d '\n')" \
	'directory 700 directory 700 regular empty file 600'
is 'many' "$(ls "$G/vars/many.d" | wc -l) $(cat "$G/vars/many.d/9999")" '10000 9999'
is 'inode numbers' "$(ls -i "$G/vars/config.d" | awk '/sizes.d/ {print $1}')" "$(stat -c %i "$G/vars/config.d/sizes.d")"

# what is not there
while read -r what path error; do
	is "$what $path" "$(errno "$what" "$G/$path" 1)" "$error"
done <<'END2'
read vars/nothing.d/x ENOENT
read vars/config.d/nothing ENOENT
read vars/config.d/lr.d/x ENOENT
read vars/config.d/lr.npz ENOENT
read vars/config.d/lr.csv EOPNOTSUPP
read vars/config.d/lr.cuda EOPNOTSUPP
read vars/schedule.d/computed ENOENT
read vars/config.d EISDIR
create vars/new.d EINVAL
unlink vars/config.d/lr EACCES
mkdir vars/config.d/new.d EACCES
END2
is 'mv' "$(errno rename "$G/vars/config.d/lr" "$G/vars/config.d/new")" EACCES
fails ls "$G/vars/config.d/lr.d"
like 'error says why' "$(tail -n 1 "$G/error")" 'ENOENT group/vars/config.d/lr.d: config.d/lr is a float: it has nothing inside'
fails cat "$G/vars/config.d/rate"
like 'and what there is' "$(tail -n 1 "$G/error")" "ENOENT group/vars/config.d/rate: no 'rate' in config.d, a Namespace: ls shows what there is"
fails rm -rf "$G/vars/config.d" "$G/vars/mine.d/r"
is 'nothing has changed' "$(value config.lr) $(errno read "$G/vars/.config.d/x")" '0.5 ENOENT'

# what is there is set by a write, and a dict takes new keys; on all ranks, or on none
cell 'import collections, dataclasses
@dataclasses.dataclass(frozen=True)
class Frozen:
    x: int = 1
class Picky(dict):
    def __setitem__(self, key, value):
        if value == "bad" and rank:
            raise ValueError("no " + value)
        super().__setitem__(key, value)
ordered = collections.OrderedDict(a=1)
frozen, pair, uneven, picky = Frozen(), (1, [2]), [0] * (rank + 1), Picky(a=1)'
while read -r path value; do
	echo "$value" >"$G/$path" || bad "$path"
done <<'END2'
vars/config.d/lr 0.25
vars/config.d/sizes.d/1.d/deep "deeper"
vars/config.d/sizes.d/-2 [0]
vars/mine.d/new.json {"k": 1}
vars/mine.d/new.d/k.json null
vars/mine.d/3.d/1 7
rank1/vars/mine.d/r 6
vars/odd.d/a%2Fb 20
vars/odd.d/w%2Enpy 21
vars/odd.d/more%2Enpy 22
vars/ordered.d/b 2
vars/pair.d/1.d/0 3
vars/picky.d/a "good"
END2
is 'on both ranks' "$(cell 'r = config, mine, [odd[k] for k in ("a/b", "w.npy", "more.npy")], ordered, pair, dict(picky)'
	cat "$G"/rank?/vars/r)" \
"(Namespace(lr=0.25, sizes=[[0], {'deep': 'deeper'}]), {'r': 0, 3: [0, 7], 'both': 1, 'new': {'k': None}}, [20, 21, 22], OrderedDict($(
	)[('a', 1), ('b', 2)]), (1, [3]), {'a': 'good'})
(Namespace(lr=0.25, sizes=[[0], {'deep': 'deeper'}]), {'r': 6, 3: [1, 7], 'only': 1, 'new': {'k': None}}, [20, 21, 22], OrderedDict($(
	)[('a', 1), ('b', 2)]), (1, [3]), {'a': 'good'})"
echo '[0.5, 0.75]' >"$G/vars/mine.d/r.cat.json"
is 'a part for each rank' "$(cat "$G"/rank?/vars/mine.d/r | xargs)" '[0.5] [0.75]'
while read -r what path error text; do
	is "$what $path" "$(errno "$what" "$G/$path" '"bad"')" "$error"
	like "why $what $path fails" "$(tail -n 1 "$G/error")" "$text"
done <<'END2'
create vars/config.d/rate ENOENT config.d/rate: no 'rate' in config.d, a Namespace
write vars/pair.d/0 EOPNOTSUPP pair.d/0: pair.d/0 can't be set: pair is a tuple
write vars/frozen.d/x EOPNOTSUPP frozen.d/x: .*cannot assign to field
create vars/uneven.d/1 ENOENT uneven.d/1: no '1' in uneven.d, a list
write vars/picky.d/a EOPNOTSUPP picky.d/a: ValueError: no bad
create vars/picky.d/b EOPNOTSUPP picky.d/b: ValueError: no bad
write vars/config.d/lr.mean EOPNOTSUPP lr.mean: mean over all ranks can only be read
append vars/config.d/lr EOPNOTSUPP written as a whole
create vars/config.d/.lr.swp EACCES .
END2
is 'of a new key, error says nothing' "$(grep -c "'new' in mine\|more%2Enpy\|OrderedDict" "$G/error")" 0
is 'nothing was set' "$(cell 'r = config.lr, pair, frozen.x, uneven, dict(picky)'; cat "$G"/rank?/vars/r)" \
	"(0.25, (1, [3]), 1, [0], {'a': 'good'})
(0.25, (1, [3]), 1, [0, 0], {'a': 'good'})"
echo 0.5 | "$BUILD/ddip" -m "$M" push config.d/lr -
is 'ddip push' "$(value config.lr)" 0.5

# what a running program holds
submit "def main(state):
    open('$T/begun%d' % rank, 'w').close()
    while not os.path.exists('$T/end'): state['step'] += 1
main({'step': 0, 'lr': [0.1 * rank]})"
until_true [ -e "$T/begun0" ]
until_true [ -e "$T/begun1" ]
is 'locals' "$(ls "$G/locals/state.d" | xargs) $(cat "$G/rank1/locals/state.d/lr.d/0" "$G/rank1/locals.0/state.d/lr.d/0" "$G/locals/state.d/lr.d/0.sum" | xargs)" \
	'lr lr.d step 0.1 0.1 0.1'
steps() {
	[ "$(cat "$G/locals/state.d/step")" -gt 1 ]
}
until_true steps
is 'locals are only read' "$(errno write "$G/locals/state.d/step" 1) $(errno create "$G/locals/state.d/new" 1)" 'EACCES EACCES'
fails cat "$G/rank0/locals/nothing.d/x"
touch "$T/end"
wait_cell "$n" >/dev/null
fails cell 'def f(x):
    x.missing
f({"a": [rank]})'
n=$(readlink "$G/cells/last")
is 'what a failed cell has left' "$(cat "$G/cells/$n/rank1/locals/x.d/a.d/0")" 1


# a directory that stays open while its object goes
exec 5<"$G/vars/mine.d/r"
(cd "$G/vars/mine.d" && cell 'del mine' && fails ls && fails cat r)
is 'an open entry is what it was' "$(cat <&5)" '[0.5]'
exec 5<&-

# a rank that is stuck where no Python runs
mkfifo "$T/gil0" "$T/gil1"
submit "import ctypes
paths = b'$T/held%d' % rank, b'$T/gil%d' % rank
None in map(ctypes.PyDLL(None).open, paths, (os.O_CREAT, os.O_RDONLY), (0o600, 0))"
for rank in 0 1; do
	until_true test -e "$T/held$rank"
done
is 'a stuck rank' "$(guarded ls "$G/vars/config.d" 2>&1 | grep -c 'temporarily unavailable')" 1
is 'and then at once' "$(errno read "$G/vars/config.d/lr") $(errno read "$G/vars/config.d/lr")" 'EAGAIN EAGAIN'
echo >"$T/gil0"
echo >"$T/gil1"
wait_cell "$n" >/dev/null
is 'afterwards' "$(cat "$G/vars/config.d/lr")" 0.5

# a program that stats each entry asks the rank once for each, if it is quick: what was said 10 ms ago is asked again
asks_once() {
	exec 5<"$M/trace"
	(cd "$G/vars" && stat many.d/1 many.d/2 many.d/3 many.d/1 >"$T/stats") || bad stat
	stat "$M/version" >>"$T/stats"
	guarded sed '/ fuse .* version /q' <&5 >"$T/trace"
	exec 5<&-
	asked=$(grep -c '> Thas' "$T/trace")
	[ "$asked" -ge 1 ] && [ "$asked" -le 5 ]
}
until_true asks_once

# but what a client may know to be gone is asked for again
guarded "$PLAIN_PYTHON" - "$G" <<'END' || bad 'an entry that is gone'
import os, sys
G = sys.argv[1]
ENTRY = f"{G}/vars/now.d/k"
cell = os.open(f"{G}/cell", os.O_WRONLY)

def run(source):
    os.write(cell, source.encode())
    os.fsync(cell)

for turn in range(200):
    run("now = {'k': 1}")
    assert os.path.exists(ENTRY) and os.path.exists(ENTRY), turn
    run("del now['k']" if turn % 2 else "now = 5")
    assert not os.path.exists(ENTRY), turn
    assert os.path.exists(os.path.dirname(ENTRY)) == bool(turn % 2), turn

# while a cell runs, by what it prints
run("now = {'k': 0}")
os.set_blocking(cell, False)
os.write(cell, b"""
while True:
    line = input()
    if line == 'end': break
    if line == 'out': now.pop('k', None)
    else: now['k'] = 1
    print(line, flush=True)
""")
try:
    os.fsync(cell)
except BlockingIOError:
    pass
with open(f"{G}/rank0/stdin", "wb", buffering=0) as f, open(f"{G}/rank1/stdin", "wb", buffering=0) as g:
    out = open(f"{G}/rank0/follow", "rb", buffering=0)
    def say(word):
        f.write(word + b"\n")
        g.write(word + b"\n")
        seen = b""
        while word + b"\n" not in seen:
            seen += os.read(out.fileno(), 4096)
    for turn in range(100):
        say(b"in")
        assert os.path.exists(ENTRY), turn
        say(b"out")
        assert not os.path.exists(ENTRY), turn
    f.write(b"end\n")
    g.write(b"end\n")
END

# a rank that dies
is_gone() {
	[ "$(errno read ./lr)" != 0 ]
}
(cd "$G/rank1/vars/config.d" && echo kill >"$G/rank1/ctl" && until_true is_gone && fails ls)
echo stop >"$G/ctl"
is 'without an engine' "$(errno read "$G/vars/config.d/lr")" ENOENT
