#!/usr/bin/env bash
# A name exists exactly while its variable does: idle, while a cell runs, while it is written, removed, renamed.
. "$(dirname "$0")/../lib.sh"

mount_plain
V=$G/vars
cell 'import os, time
here, _private = 1, 2'

exists() { [ -e "$1" ] || bad "$1 does not exist"; }
absent() { [ ! -e "$1" ] || bad "$1 exists"; }

# idle
exists "$V/here"
exists "$V/here.json"
exists "$V/_private"
absent "$V/_nothing"
absent "$V/nothing"
absent "$V/nothing.json"
is 'rm of nothing' "$(errno unlink "$V/nothing")" ENOENT
is 'rm of a private name that is none' "$(errno unlink "$V/_nothing")" ENOENT
is 'a wrong view of a private one' "$(errno open "$V/_private.nothing")" EINVAL
for i in {1..50}; do
	echo "$i" >"$V/a" && mv "$V/a" "$V/b" || bad "mv $i"
	[ "$(cat "$V/b")" = "$i" ] || bad "b is not $i after mv"
	absent "$V/a"
	rm "$V/b" || bad "rm $i"
	absent "$V/b"
	[ "$(errno open "$V/b")" = ENOENT ] || bad "b opens after rm"
done

# renamed twice at once: an open afterwards waits for both
"$PLAIN_PYTHON" - "$V" <<'END' || bad 'a name that is opened behind two queued renames'
import os, sys
V = sys.argv[1]
for i in range(300):
    with open(f"{V}/first", "w", encoding="ascii") as file:
        file.write(str(i))
    os.rename(f"{V}/first", f"{V}/second")
    os.rename(f"{V}/second", f"{V}/third")
    with open(f"{V}/third", encoding="ascii") as file:
        assert int(file.read()) == i
os.unlink(f"{V}/third")
END

# names that programs probe next to a file do not exist, which is not logged as an error; an unknown view is one
: >"$G/error"
for name in .here.swp .here.swx .here.json.swp here.swp here.json.swp 4913 here~ here.json~ .#here '#here#' here.bak \
	here.json.tmp here.orig .git .gitignore .directory .nfs0001 __init__.py pyproject.toml package.json nothing.nothing; do
	is "$name is looked for in vain" "$(errno open "$V/$name") $(errno open "$G/rank1/vars/$name")" 'ENOENT ENOENT'
done
is 'error tells of none of them' "$(cat "$G/error")" ''
is 'a view that is none is refused' "$(errno open "$V/here.jsn")" EINVAL
like 'error tells of it' "$(cat "$G/error")" "EINVAL group/vars/here.jsn: no view 'jsn'; there are json"

# while it is being written
"$PLAIN_PYTHON" - "$G" <<'END' || bad 'a name that is open for writing'
import os, sys
G = sys.argv[1]
fd = os.open(G + "/vars/arriving.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
for path in "vars/arriving", "vars/arriving.json", "vars/arriving.npy", "rank1/vars/arriving":
    assert os.path.exists(f"{G}/{path}"), path
assert "arriving" in os.listdir(G + "/vars") and "arriving" in os.listdir(G + "/rank1/vars")
try:
    os.open(G + "/vars/arriving.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    raise SystemExit("made twice")
except FileExistsError:
    pass
os.write(fd, b"[1")
os.unlink(G + "/vars/here")
try:
    os.close(fd)
    raise SystemExit("bad JSON went well")
except OSError:
    pass
assert not os.path.exists(G + "/vars/arriving") and "arriving" not in os.listdir(G + "/vars")
fd = os.open(G + "/rank1/vars/single", os.O_WRONLY | os.O_CREAT, 0o600)
assert os.path.exists(G + "/rank1/vars/single") and not os.path.exists(G + "/vars/single")
os.write(fd, b"1")
os.close(fd)
END
rm "$G/rank1/vars/single"
echo 1 >"$V/here"

# while a cell runs: what it has created exists, anything else does not
running() {
	rm -f "$T/end" "$T"/begun?
	errno nonblock "$G/cell" "made, _made = rank, 1
open('$T/begun' + str(rank), 'w').close()
while not os.path.exists('$T/end'): time.sleep(0.001)" >/dev/null
	n=$(readlink "$G/cells/last")
	until [ -e "$T/begun0" ] && [ -e "$T/begun1" ]; do sleep "$POLL_S"; done
}
ended() {
	: >"$T/end"
	wait_cell "$n" >/dev/null
}
running
is 'it is listed' "$(ls "$V" "$G/rank1/vars" | grep -c '^made$') $(grep -c '^made type=int' "$G/names")" '2 1'
exists "$V/made"
exists "$V/_made"
exists "$G/rank1/vars/made.json"
is 'it is read' "$(cat "$G/rank1/vars/made")" 1
absent "$V/done"
absent "$V/done.json"
absent "$V/_done"
is 'rm of nothing meanwhile' "$(errno unlink "$V/done")" ENOENT
is 'reading nothing meanwhile' "$(errno open "$V/done")" ENOENT
is 'a wrong view meanwhile' "$(errno open "$V/made.nothing")" EINVAL
rm "$V/here" || bad 'rm meanwhile'
absent "$V/here"
absent "$G/rank1/vars/here.json"
is 'it is not listed' "$(ls "$V" | grep -c here)" 0
echo '[7]' >"$V/.aside" && mv "$V/.aside" "$V/queued.json"
exists "$V/queued"
is 'what is queued is listed' "$(ls "$V" | grep -c queued)" 1
mv "$V/queued" "$V/renamed" || bad 'mv meanwhile'
absent "$V/queued"
exists "$G/rank0/vars/renamed"
ended
is 'all was done in order' "$(ls "$V" | xargs) $(cat "$V/renamed")" 'made renamed [7]'

# a rank that runs no Python, and answers nobody: what it reported last is listed
cell 'known = 1'
mkfifo "$T/stuck"
submit "import ctypes
unknown = 1
libc = ctypes.PyDLL(None)
open('$T/in_c', 'w').close()
libc.open(b'$T/stuck', 0)" "$G/rank1/cell"
until_true [ -e "$T/in_c" ]
like 'ls of a rank that is stuck' "$(guarded ls "$G/rank1/vars" | xargs)" '^(ctypes )?known.*renamed'
like 'names' "$(guarded cat "$G/names")" 'known type=int'
: >"$T/stuck"
wait_cell "$n" >/dev/null
is 'and then' "$(ls "$G/rank1/vars" | grep -c '^unknown$')" 1
cell 'del known' && cell 'del unknown' "$G/rank1/cell"

# many programs create variables while a cell runs
echo '[1, 2, 3]' >"$T/x.json"
mkdir "$T/tree" && for i in {1..20}; do echo "$i" >"$T/tree/t$i"; done
tar -C "$T/tree" -cf "$T/tree.tar" .
running
for i in {1..100}; do
	{ cp "$T/x.json" "$V/p$i.json" 2>>"$T/refused" || echo "cp $i: $?" >>"$T/refused"; } &
	copies[i]=$!
done
{ tar -C "$V" --no-overwrite-dir -xf "$T/tree.tar" 2>>"$T/refused" || echo "tar: $?" >>"$T/refused"; } &
tar=$!
until [ "$(ls "$V" | grep -c '^p[0-9]')" = 100 ]; do sleep "$POLL_S"; done
ended
wait "${copies[@]}" $tar
is 'nothing is refused' "$(grep -v ' waits for cell ' "$T/refused")" '' # on a slow machine they wait for long
is '100 copies' "$(cat "$G"/rank1/vars/p{1..100} | sort | uniq -c | xargs)" '100 [1, 2, 3]'
is 'a tar archive' "$(cat "$V"/t{1..20} | xargs)" "$(seq 20 | xargs)"

# reset
running
exists "$V/renamed"
"$PLAIN_PYTHON" -c "
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)
os.write(fd, b'reset\n')
os.close(fd)" "$G/ctl"
absent "$V/renamed"
is 'nothing is listed that a queued reset takes' "$(ls "$V" | xargs)" ''
ended
is 'nor after it' "$(cat "$G/cell" >/dev/null; cell pass; ls "$V" | xargs)" ''

# a rank whose C code holds the GIL does not block lookups
cell 'import ctypes, os'
mkfifo "$T/gate"
errno nonblock "$G/rank0/cell" "None in map(ctypes.PyDLL(None).open, (b'$T/held', b'$T/gate'), (os.O_CREAT, os.O_RDONLY), (0o600, 0))" >/dev/null
n=$(readlink "$G/cells/last")
until [ -e "$T/held" ]; do sleep "$POLL_S"; done
for i in {1..40}; do absent "$V/nothing$i"; done
: >"$T/gate" # all were answered: only this ends the C code
wait_cell "$n" >/dev/null
