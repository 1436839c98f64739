#!/usr/bin/env bash
# Programs that remove variables as a side effect do no damage: mv out of the mount, rm -r of more than variables.
# Programs that unlink before they write work: mv into the mount, install, tar.
. "$(dirname "$0")/../lib.sh"

mount_plain
V=$G/vars
cell 'class Thing:
    def __repr__(self): return "a thing, elided ..."
thing, things, n, s, none = Thing(), [Thing()], 42, "words", None'

# mv out of the mount copies the text and removes the variable: allowed only if the text is the whole object
fails mv "$V/thing" "$T/thing"
is 'the object stays where its text is not all of it' "$(cat "$V/thing")" 'a thing, elided ...'
like 'error says what to do' "$(tail -n 1 "$G/error")" 'EOPNOTSUPP .*thing was kept: .*copy a view of it, as thing.pkl'
fails mv "$G/rank1/vars/things" "$T/things"
is 'that of one rank as well' "$(cat "$G/rank1/vars/things")" '[a thing, elided ...]'
ok mv "$V/n" "$V/s" "$V/none" "$T"
is 'scalars and strings go' "$(ls "$V" | xargs) $(cat "$T/n" "$T/s" "$T/none" | xargs)" 'Thing thing things 42 words None'
is 'who has only looked may remove' "$(cat "$V/things" >/dev/null; rm "$V/things" && ls "$V" | xargs)" 'Thing thing'
"$PLAIN_PYTHON" - "$V/thing" <<'END' || bad 'who insists removes'
import errno, os, sys
open(sys.argv[1]).read()
try:
    os.unlink(sys.argv[1])
    raise SystemExit("removed at once")
except OSError as e:
    assert e.errno == errno.EOPNOTSUPP, e
os.unlink(sys.argv[1])
assert not os.path.exists(sys.argv[1])
END

# nor is a process refused because of an earlier one with the same pid (if a pid can be chosen)
cell 'class Thing:
    def __repr__(self): return "a thing, elided ..."
thing = Thing()'
"$PLAIN_PYTHON" - "$V/thing" <<'END' || bad 'a process with the number of one that has read the text removes'
import os, platform, sys


def child(work, number=None):
    """Runs it in a child of this number; the number, None if another process took it."""
    if number:
        with open("/proc/sys/kernel/ns_last_pid", "w") as f:
            f.write(str(number - 1))
    pid = os.fork()
    if pid == 0:
        if number in (None, os.getpid()):
            work()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if number in (None, pid):
        assert status == 0, status
        return pid


if os.getuid() or [int(n) for n in platform.release().split(".")[:2]] < [6, 9]:
    sys.exit()
reader = child(lambda: open(sys.argv[1]).read())
for _ in range(1000):
    if child(lambda: os.unlink(sys.argv[1]), reader):
        assert not os.path.exists(sys.argv[1])
        break
END

ok rm -f "$V/thing" # if no pid could be chosen

# rm -r of a directory with files that cannot be removed leaves the variables alone
cell 'a, b = 1, 2'
for what in rank0 rank1 '' cells; do
	fails rm -rf "$G/$what"
	is "variables stay after rm -rf G/$what" "$(ls "$V" "$G/rank1/vars" | grep -cx '[ab]')" 4
done
fails rm -rf "$M"
is 'variables stay after rm -rf of the mount' "$(ls "$V" | grep -cx '[ab]')" 2
like 'error says why' "$(tail -n 1 "$G/error")" 'EACCES .* was kept: .*to remove variables: rm vars/\*'
"$PLAIN_PYTHON" -c 'import shutil, sys; shutil.rmtree(sys.argv[1], ignore_errors=True)' "$G"
is 'variables stay after shutil.rmtree' "$(ls "$V" | grep -cx '[ab]')" 2
ok rm "$V/a" "$V/b"
is 'rm of variables removes them' "$(ls "$V" | xargs)" Thing
cell 'a, b = 1, 2'
fails rm -rf "$G/vars"
is 'rm -rf of vars itself removes all, and the directory stays' "$(ls "$V" | xargs)" ''

# programs that remove the file that they replace
echo '[1]' >"$T/x.json"
for i in new old; do
	cp "$T/x.json" "$T/w.json"
	ok mv "$T/w.json" "$V/w.json"
	is "mv onto a view of a $i name" "$(cat "$G"/rank?/vars/w | xargs) $(ls "$T" | grep -c w.json)" '[1] [1] 0'
	ok install "$T/x.json" "$V/i.json"
	is "install onto a view of a $i name" "$(cat "$G"/rank?/vars/i | xargs)" '[1] [1]'
	ok cp --remove-destination "$T/x.json" "$V/c.json"
	is "cp --remove-destination, a $i name" "$(cat "$G"/rank?/vars/c | xargs)" '[1] [1]'
	tar -C "$T" -cf - x.json | tar -C "$V" --no-overwrite-dir -xf - || bad "tar x of a $i name"
	is "tar x of a $i name" "$(cat "$G"/rank?/vars/x | xargs)" '[1] [1]'
done
echo '[1' >"$T/bad.json"
for replace in mv install 'cp --remove-destination'; do
	cp "$T/bad.json" "$T/w.json"
	# shellcheck disable=SC2086 # words
	fails $replace "$T/w.json" "$V/w.json"
	is "$replace: bytes that do not decode leave the object that they were to replace" "$(cat "$G"/rank?/vars/w | xargs)" '[1] [1]'
done
ok rm "$V/w.json"
is 'rm of a view removes the variable: it is not listed, not found, not in the next cell' \
	"$(ls "$V" "$G/rank1/vars" | grep -cx w) $(errno open "$V/w") $(value '"w" in globals()' 1)" '0 ENOENT False'
echo '[1]' >"$V/w.json"
ok rm "$G/rank1/vars/w.json"
is 'rm of a view of one rank removes it there' "$(cat "$V/w") $(errno open "$G/rank1/vars/w")" '[1] ENOENT'
removed() {
	! grep -q "^$1 " "$G/names"
}
echo '[1]' >"$V/alone.json" && ok rm "$V/alone.json" && until_true removed alone
"$PLAIN_PYTHON" - "$V" <<'END' || bad 'a program that removes a view and goes on'
import os, subprocess, sys
os.chdir(sys.argv[1])
def names():
    return [line.split()[0] for line in open("../names")]
for name in "k", "l":
    open(name + ".json", "w").write("[1]")
    os.unlink(name + ".json")
    assert name not in os.listdir() and not os.path.exists(name), name
subprocess.run(["sh", "-c", "printf '[2]' | cp /dev/stdin k.json"], check=True)
assert open("k").read() == "[2]\n"  # what another process writes is its own
while "l" in names():  # it is removed, though nobody waits and this process goes on
    pass
END
ok rm "$V/k"
fails cp -f "$T/x.json" "$V/w.png"
is 'a view that is only read does not cost the variable' "$(cat "$V/w")" '[1]'
is 'nor does an OP' "$(errno unlink "$V/w.same") $(cat "$V/w")" 'EOPNOTSUPP [1]'
