#!/usr/bin/env bash
# A cell that uses the mount that runs it succeeds, or is refused with EDEADLK and a text: from the rank itself, a
# thread and a child process; nothing hangs.
. "$(dirname "$0")/../lib.sh"

mount_plain -o "size=2,timeout=$HANG_LIMIT_S"

# Used by the cells: all_ways(ARG…) makes a call in each of three ways and returns the names of the errnos.
cell "G = '$G'
import errno, os, subprocess, sys, threading

def act(path, text=None, flags=0):
    'The errno of a read, or of a write and its close.'
    flags |= os.O_RDONLY if text is None else os.O_WRONLY | os.O_CREAT
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as e:
        return errno.errorcode[e.errno]
    name = '0'
    try:
        while os.read(fd, 1 << 16) if text is None else os.write(fd, text.encode()) is None:
            pass
    except OSError as e:
        name = errno.errorcode[e.errno]
    try:
        os.close(fd)
    except OSError as e:
        name = errno.errorcode[e.errno] if name == '0' else name
    # one number, two names
    return name.replace('EDEADLOCK', 'EDEADLK')

def in_thread(*args):
    came = []
    t = threading.Thread(target=lambda: came.append(act(*args)))
    t.start()
    t.join()
    return came[0]

def in_child(*args):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(w, act(*args).encode())
        os._exit(0)
    os.close(w)
    name = os.read(r, 99).decode()
    os.close(r)
    os.waitpid(pid, 0)
    return name

def all_ways(*args):
    return ' '.join(f(*args) for f in (act, in_thread, in_child))
" || give_up 'no definitions'

# inside WHAT EXPRESSION EXPECTED: rank 0's result in a cell of all ranks, in which the other does nothing
inside() {
	local n
	exec 5<>"$G/cell"
	printf '%s if rank == 0 else None\n' "$2" >&5
	# reading returns the number of the cell that was written through this descriptor
	read -r n <&5
	exec 5<&-
	like "$1: the cell" "$(wait_cell "$n")" 'state ok'
	is "$1" "$(cat "$G/cells/$n/rank0/result")" "'$3'"
}

# said PATTERN: must match the text of the last failure
said() {
	like 'the text' "$(tail -n 1 "$G/error")" "$1"
}

yes='0 0 0'
no='EDEADLK EDEADLK EDEADLK'

# files that the daemon answers itself
for file in status ranks error names ctl stall cells/last/source cells/last/status \
	rank0/status rank1/status; do
	inside "read $file" "all_ways(G + '/$file')" "$yes"
done
inside 'list' "' '.join(sorted(os.listdir(G + '/vars')))[:3]" 'G a'

# stacks, also that of the thread that asks
inside 'stack of another' "all_ways(G + '/rank1/stack')" "$yes"
inside 'own stack' "all_ways(G + '/rank0/stack')" "$yes"

# objects: reading works; writing to its own rank would wait for itself
cell 'x = rank * 10'
inside 'read of own variable' "all_ways(G + '/rank0/vars/x')" "$yes"
inside 'read of the other one' "all_ways(G + '/rank1/vars/x')" "$yes"
inside 'read over all' "all_ways(G + '/vars/x.gather')" "$yes"
inside 'write of the other one' "all_ways(G + '/rank1/vars/x', '5')" "$yes"
is 'it is there' "$(cat "$G/rank1/vars/x")" 5
inside 'write of own variable' "all_ways(G + '/rank0/vars/x', '6')" "$no"
said 'EDEADLK .*rank0/vars/x.* rank 0 would wait for its own running cell.*O_NONBLOCK'
is 'what was refused is not done later' "$(value x)" 0
inside 'write on all ranks' "all_ways(G + '/vars/x', '7')" "$no"
is 'it is not done later, either' "$(value x) $(value x 1)" '0 5'
inside 'it can be queued' "all_ways(G + '/rank0/vars/x', '8', os.O_NONBLOCK)" "$yes"
is 'and comes after the cell' "$(cell 'pass'; cat "$G/rank0/vars/x")" 8
mkfifo "$T/gate"
cell "def refused_then_closed():
    fd = os.open(G + '/rank0/vars/x', os.O_WRONLY | os.O_TRUNC)
    os.write(fd, b'9')
    try:
        os.fsync(fd)
    except OSError as e:
        threading.Thread(target=lambda: (open('$T/gate').read(), os.close(fd))).start()
        return errno.errorcode[e.errno].replace('EDEADLOCK', 'EDEADLK')
" "$G/rank0/cell"
inside 'fsync of own variable' 'refused_then_closed()' EDEADLK
echo >"$T/gate"
has_nine() {
	[ "$(cat "$G/rank0/vars/x")" = 9 ]
}
until_true has_nine # a close after the cell pushes what fsync could not
inside 'rm is queued' "os.unlink(G + '/rank0/vars/x') or 'ok'" ok
is 'and done after the cell' "$(value "'x' in globals()")" False

# cells
inside 'a cell for all' "all_ways(G + '/cell', 'y = 1')" "$no"
said 'EDEADLK .*group/cell: rank 0 would wait for its own running cell'
inside 'a cell for itself' "all_ways(G + '/rank0/cell', 'y = 1')" "$no"
inside 'a cell for the other one' "all_ways(G + '/rank1/cell', 'y = 2')" "$yes"
is 'it ran' "$(value y 1)" 2
inside 'a queued one for all' "all_ways(G + '/cell', 'z = 3', os.O_NONBLOCK)" "$yes"
is 'it ran, too' "$(value z)" 3
inside 'its own end' "all_ways(os.path.realpath(G + '/cells/last') + '/wait')" "$no"
said 'EDEADLK .*cells/[0-9]+/wait: rank 0 would wait for its own running cell'
inside 'its own stream' "all_ways(os.path.realpath(G + '/cells/last') + '/stream')" "$no"
inside 'the end of another' "all_ways(G + '/cells/1/wait')" "$yes"
inside 'its own interrupt' \
	"act('/dev/null') if act(G + '/cells/1/ctl', 'interrupt') == '0' else 'no'" 0

# a cycle: rank 0 waits for rank 1, which must not wait for rank 0 then
cat >"$G/cell" <<'END'
import time
came = act(f"{G}/rank{1 - rank}/cell", "pass")
END
like 'a circle of two' "$(tr -d '\n ' <"$G/vars/came.gather.json")" \
	'^\["0","EDEADLK"\]$|^\["EDEADLK","0"\]$'

# verbs
inside 'settings at any time' "all_ways(G + '/ctl', 'stall 60\n')" "$yes"
inside 'start of what runs' "all_ways(G + '/ctl', 'start\n')" "$yes"
for verb in free reset; do
	inside "$verb waits for its own end" "all_ways(G + '/ctl', '$verb\n')" "$no"
done
is "reset came after the cell" "$(value "'act' in globals()")" False

# verbs that end this very cell: they are carried out, whatever happens to the cell
exec 4<"$G/events"
ends() {
	like "a cell that says $1 ends" "$(errno write "$G/cell" "import os
if rank == 0:
    fd = os.open('$G/ctl', os.O_WRONLY)
    os.write(fd, b'$1\\n')
    os.close(fd)")" '^(EHOSTDOWN|EINTR|ECANCELED|EREMOTEIO)$'
	await 4 "state $2" >/dev/null
}
ends restart restarting
await 4 'state idle' >/dev/null
is 'after restart' "$(errno write "$G/cell" 'import os')" 0
ends stop stopped
is 'start after stop' "$(errno write "$G/ctl" $'start\n')" 0
is 'after stop' "$(errno write "$G/cell" 'import os')" 0
exec 4<&-
is 'and all of it is over' "$(key "$G/status" state)" idle
