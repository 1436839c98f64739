#!/usr/bin/env bash
# Exceptions that misbehave when they are looked at end a cell as any other: it fails, with a traceback and a report.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

mount_"${ODD_ERRORS:-plain}" -o size=1 -o killafter=60
ok guarded "$PLAIN_PYTHON" "$ROOT/tests/fs/odd_errors.py" "$G"

# the text of an exception takes for ever, and whatever else is asked of its class: an interrupt ends that, not the rank
pids=$(rank_pids)
for what in 'def __str__(self): self.hang()' '__notes__ = property(lambda self: self.hang())'; do
	submit "import time
class Odd(Exception):
    def hang(self):
        print('hangs', flush=True)
        while True: time.sleep(1)
    $what
raise Odd"
	prints "$G/cells/$n/stream" hangs
	echo interrupt >"$G/cells/$n/ctl"
	wait_cell "$n" >/dev/null
	like "it ends with its own name: $what" "$(cat "$G/cells/$n/error")" 'Odd'
done
is 'the rank stays' "$(rank_pids)" "$pids"

# a program's own excepthook fails, in the same way
fails "$BUILD/ddip" -m "$M" run -f - <<<'import sys
class Odd(Exception):
    __notes__ = property(lambda self: 1 / 0)
def hook(*info): raise Odd("in the hook")
sys.excepthook = hook
raise Odd("in the program")'
like 'both are told' "$(cat "$T/stderr")" 'Exception ignored in sys.excepthook.*Odd: in the hook.*Odd: in the program'
