#!/usr/bin/env bash
# A failed cell gives its writer the right errno, and its outcome can be read afterwards.
. "$(dirname "$0")/../lib.sh"

mount_plain

is 'ok' "$(errno write "$G/cell" '1 + 1')" 0
is 'ok by fsync' "$(errno fsync "$G/cell" '1 + 1')" 0
is 'raised' "$(errno write "$G/cell" '1 / 0')" EREMOTEIO
is 'raised, by fsync' "$(errno fsync "$G/cell" '1 / 0')" EREMOTEIO
is 'state' "$(state)" error
is 'errno in status' "$(key "$G/cells/last/status" errno)" EREMOTEIO
like 'error of the cell' "$(cat "$G/cells/last/error")" 'rank [01]: ZeroDivisionError: division by zero'
like 'traceback: equal ones once' "$(cat "$G/traceback")" 'ranks 0[,-]1:'
like 'traceback: source line' "$(cat "$G/traceback")" '1 / 0'
grep -q 'ddip_engine' "$G/traceback" && bad 'the traceback shows the engine'
like 'error of the group' "$(cat "$G/error")" 'EREMOTEIO.*ZeroDivisionError'
is 'syntax' "$(errno write "$G/cell" 'def')" ENOEXEC
like 'syntax: text' "$(cat "$G/cells/last/error")" 'SyntaxError'
is 'SystemExit 0' "$(errno write "$G/cell" 'raise SystemExit')" 0
is 'SystemExit 3' "$(errno write "$G/cell" 'import sys; sys.exit(3)')" EREMOTEIO
is 'one rank raises' "$(errno write "$G/cell" 'assert rank == 0, "I am one"')" EREMOTEIO
like 'which one' "$(cat "$G/cells/last/error")" '^rank 1: AssertionError: I am one$'
is 'state of rank 0' "$(key "$G/cells/last/rank0/status" state)" ok
like 'state of rank 1' "$(key "$G/cells/last/rank1/status" state)" 'error|failed'
like 'the traceback of rank 1' "$(cat "$G/cells/last/rank1/traceback")" 'AssertionError: I am one'
is 'none of rank 0' "$(cat "$G/cells/last/rank0/traceback")" ''

# the writer sees the failure
fails cp /dev/stdin "$G/cell" <<<'1 / 0'
# shellcheck disable=SC2016
fails bash -c 'cat >"$0"' "$G/cell" <<<'1 / 0'
fails dd of="$G/cell" status=none <<<'1 / 0'
fails dd of="$G/cell" conv=fsync status=none <<<'1 / 0'
fails tee "$G/cell" <<<'1 / 0'
echo '1 / 0' >"$G/cell"
is 'echo cannot see it, status can' "$(key "$G/status" last)" error

# a failed cell does not affect the next one, and `error` keeps sixty-four entries
"$PLAIN_PYTHON" - "$G/cell" <<'END'
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
for i in range(66):
    os.write(fd, b"raise ValueError('number %d')" % i)
    try:
        os.fsync(fd)
    except OSError:
        pass
END
is 'the next one' "$(errno write "$G/cell" 'x = 1')" 0
is 'sixty-four failures are kept' "$(grep -c 'number [0-9]' "$G/error")" 64
is 'the oldest are not' "$(grep -c 'number [01]$' "$G/error")" 0
for _ in {1..5}; do
	errno write "$G/ctl" $'nonsense\n' >/dev/null
done
is 'the same failure again is counted, not added' "$(grep -c "no verb 'nonsense'.*(5 times)" "$G/error")" 1
cell 'raise ValueError("\x1b[31mred\x1b[0m and \x1b]0;title\x07plain")' 2>/dev/null
like 'colours and titles of a message are not written to who reads error' "$(tail -n 1 "$G/error")" 'ValueError: red and plain$'
# an editor of a cell file finds it unchanged, whatever ran in the meantime
is 'a cell file keeps its time' "$(stat -c %Y.%y "$G/cell"; cell 'x = 1')" "$(stat -c %Y.%y "$G/cell")"
: >"$G/error"
is 'cleared' "$(cat "$G/error")" ''

# a rank that exits
is 'a rank dies' "$(errno write "$G/cell" 'import os
if rank == 1: os._exit(7)')" EHOSTDOWN
like 'how it died' "$(cat "$G/cells/last/error")" 'rank 1.*(exit|status).*7'
is 'a new one is there' "$(errno write "$G/cell" 'y = rank')" 0
is 'with an empty namespace' "$(errno read "$G/rank1/vars/x")" ENOENT
is 'the other kept its own' "$(cat "$G/rank0/vars/x")" 1
is 'a signal' "$(errno write "$G/rank0/cell" 'import os, signal
os.kill(os.getpid(), signal.SIGKILL)')" EHOSTDOWN
like 'which signal' "$(cat "$G/cells/last/error")" 'SIGKILL|signal 9|[Kk]illed'

# no rank to run it
echo stop >"$G/ctl"
is 'stopped: told at open already' "$(errno open "$G/cell")" 0
is 'stopped: nobody runs it' "$(errno write "$G/cell" 'x = 1')" ESRCH
like 'and what to do' "$(cat "$G/error")" 'start'
