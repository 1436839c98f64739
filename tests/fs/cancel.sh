#!/usr/bin/env bash
# An interrupt ends an object's own code that runs when it is created, replaced or removed; the ranks live on.
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/src/package"
echo >"$T/src/package/part.py"
# after `go` it runs on for a while: time for an interrupt that wrongly ends the import
cat >"$T/src/package/__init__.py" <<END
import os, sys, time
import package.part
sys.begun = getattr(sys, 'begun', 0) + 1
open('$T/imports' + os.environ['RANK'], 'w').close()
while not os.path.exists('$T/go'):
    time.sleep(0.01)
end = time.monotonic() + 0.2
while time.monotonic() < end:
    pass
END
mount_plain -o size=2
echo start >"$G/ctl" || bad start
ranks=$(rank_pids)
echo 'killafter off' >"$G/ctl"

# endless [FILE]: creates a y whose __del__ never returns, by this cell file
endless() {
	cell "import time
class Endless:
    def __del__(self, path='$T/removed' + str(rank), open=open, sleep=time.sleep):
        open(path, 'w').close()
        while True:
            sleep(0.01)
y = Endless()" "${1:-$G/cell}"
}

# ends WHAT RANKS COMMAND…: the command, or work that it leaves, waits for objects' code on these ranks until that is
# interrupted; the command's errno is in $T/errno
ends() {
	local what=$1 on=$2 pid rank
	shift 2
	errno "$@" >"$T/errno" &
	pid=$!
	for rank in $on; do
		until_true test -e "$T/removed$rank"
	done
	is "$what: an interrupt" "$(errno write "$G/ctl" $'interrupt\n')" 0
	wait "$pid"
	for rank in 0 1; do
		until_true grep -q '^state idle' "$G/rank$rank/status"
	done
	is "$what: the ranks live on" "$(rank_pids)" "$ranks"
	is "$what: they take cells" "$(value '1 + 1' 1)" 2
	rm "$T"/removed?
}

endless
ends 'a removal' '0 1' unlink "$G/vars/y"
is 'the name is gone' "$(errno read "$G/vars/y") $(errno read "$G/rank1/vars/y")" 'ENOENT ENOENT'
endless
ends 'a push in its place' '0 1' create "$G/vars/y" 5
is 'it is there on all ranks' "$(cat "$T/errno") $(cat "$G"/rank?/vars/y | xargs)" '0 5 5'
endless "$G/rank1/cell"
ends 'a push on one rank' 1 create "$G/rank1/vars/y" 6
is 'it is there' "$(cat "$T/errno") $(cat "$G"/rank?/vars/y | xargs)" '0 5 6'
endless
cell 'z = 7'
ends 'a new name' '0 1' rename "$G/vars/z" "$G/vars/y"
is 'it has it on all ranks' "$(cat "$G"/rank?/vars/y | xargs)" '7 7'
endless
ends 'reset' '0 1' write "$G/ctl" $'reset\n'
is 'the namespaces are empty' "$(cat "$T/errno") $(ls "$G/vars")" '0 '
endless
cell 'y.itself = y; del y'
ends 'free' '0 1' write "$G/ctl" $'free\n'
is 'it says so' "$(cat "$T/errno")" EINTR

# an import within a push is completed first: half a module could not be imported again
cell "import pickle, sys, threading
sys.path.insert(0, '$T/src')
class Importing:
    def __reduce__(self):
        return __import__, ('package',)
class Waiting:
    def __reduce__(self):
        return wait, ()
def wait():
    lock = threading.Lock()
    lock.acquire()
    open('$T/waits' + str(rank), 'w').close()
    lock.acquire()
class Deaf:
    def __reduce__(self):
        return deaf, ()
def deaf():
    while True:
        try:
            open('$T/deaf' + str(rank), 'w').close()
            while True:
                pass
        except BaseException:
            pass
if rank == 0:
    for each in Importing, Waiting, Deaf:
        with open('$T/' + each.__name__ + '.pkl', 'wb') as f:
            pickle.dump(each(), f)"
errno copy "$G/vars/module.pkl" "$T/Importing.pkl" >"$T/errno" &
until_true test -e "$T/imports0"
until_true test -e "$T/imports1"
is 'an import in a push: an interrupt' "$(errno write "$G/ctl" $'interrupt\n')" 0
cat "$G"/rank?/stack >/dev/null # it has come there
touch "$T/go"
wait $!
is 'the push ends' "$(cat "$T/errno")" EINTR
is 'the module can be imported' "$(errno write "$G/cell" 'import package; package.end')" 0
is 'it was done' "$(value sys.begun 0) $(value sys.begun 1)" '1 1'

# code that blocks in C
errno copy "$G/vars/waiting.pkl" "$T/Waiting.pkl" >"$T/errno" &
until_true test -e "$T/waits0"
until_true test -e "$T/waits1"
is 'a push that waits for a lock: an interrupt' "$(errno write "$G/ctl" $'interrupt\n')" 0
wait $!
is 'it ends' "$(cat "$T/errno")" EINTR
is 'its ranks live on' "$(rank_pids)" "$ranks"

# code that does not end, whatever is raised in it
echo 'killafter 0' >"$G/ctl"
errno copy "$G/rank1/vars/deaf.pkl" "$T/Deaf.pkl" >"$T/errno" &
until_true test -e "$T/deaf1"
is 'a push that does not end: an interrupt' "$(errno write "$G/rank1/ctl" $'interrupt\n')" 0
wait $!
is 'its rank is killed' "$(cat "$T/errno")" EHOSTDOWN
like 'error tells why' "$(grep killafter "$G/error")" 'rank 1 did not stop for 1 s after the interrupt.*its variables are lost'
is 'a new rank is there' "$(errno write "$G/cell" 'y = rank')" 0
is 'the other one is as it was' "$(rank_pids | head -n 1)" "$(head -n 1 <<<"$ranks")"
