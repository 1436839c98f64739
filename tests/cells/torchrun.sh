#!/usr/bin/env bash
# `# ddip run:` runs a program as torchrun does: in the environment that it expects, and to a complete end.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
mkdir "$T/src" "$T/here"

# directive FILE [JSON]: prints the first line for a program in that file; JSON: further keys
directive() {
	printf '# ddip run: {"argv": ["%s", "--n", "two words"], "module": null, "cwd": "%s", "env": {"HELLO": "caller", "LANG": "C"}%s}\n' \
		"$1" "$T/here" "${2:+, $2}"
}

# program NAME [JSON]: saves standard input as that file and runs it
program() {
	cat >"$T/src/$1"
	{
		directive "$T/src/$1" "${2:-}"
		cat "$T/src/$1"
	} | cat >"$G/cell"
}

# said RANK: prints what the last program printed on the rank
said() {
	cat "$G/cells/last/rank$1/stdout"
}

is 'the namespace before anything ran' "$(key "$G/status" namespace)" empty
printf 'env HELLO=group\nenv SET=group\n' >"$G/ctl"
echo 'VALUE = 1' >"$T/src/helper.py"
mkdir "$T/more"
echo 'PLACE = "PYTHONPATH"' >"$T/more/elsewhere.py"
program args.py <<'END' || bad "a program: $(cat "$G/error")"
"""Its docstring."""
import os
import sys

import helper

assert __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals()
print(sys.argv[1:], sys.argv[0] == __file__, os.path.basename(__file__), __doc__, __spec__)
print(sys.path[0] == os.path.dirname(__file__), os.path.basename(os.getcwd()), "" in sys.path)
print(os.environ["HELLO"], os.environ["SET"], os.environ["LANG"], "HOME" in os.environ)
print([os.environ[k] for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "OMP_NUM_THREADS")],
      os.environ["MASTER_PORT"].isdigit(), os.path.isdir(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"])))
print([os.environ["TORCH_NCCL_" + k] for k in ("ASYNC_ERROR_HANDLING", "ENABLE_MONITORING", "RETHROW_CUDA_ERRORS",
                                               "DUMP_ON_TIMEOUT", "WAIT_TIMEOUT_DUMP_MILSEC")],
      os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"])
try:
    get_ipython()
except NameError:
    print("no IPython")
"a last expression"
END
is 'what a program finds' "$(said 1)" "['--n', 'two words'] True args.py Its docstring. None
True here False
group group C False
['1', '1', '2', '1'] True True
['0', '0', '0', '0', '0'] lo lo
no IPython"
is 'a program has no result' "$(cat "$G/cells/last/result")" ''
is 'its variables stay' "$(cat "$G/rank1/vars/names" 2>/dev/null)$(key "$G/status" namespace)" program
is 'the surroundings are as before' "$(value 'import os, sys
(os.getcwd() == "'"$PWD"'", sys.argv, "HELLO" in os.environ and os.environ["HELLO"], "__file__" in globals(), type(get_ipython()).__name__)')" \
	"(True, [''], 'group', False, 'ZMQInteractiveShell')"
is 'the namespace after a cell' "$(key "$G/status" namespace)" cells

# keep: the same names; an edited helper module is reloaded
cell 'kept = 7'
echo 'VALUE = 22' >"$T/src/helper.py"
program keep.py '"keep": true' <<'END' || bad "keep: $(cat "$G/error")"
import helper
print(kept, helper.VALUE)
END
is 'keep: names and an edited helper' "$(said 0)" '7 22'
echo 'VALUE = 333' >"$T/src/helper.py"
printf '# ddip: %s\nimport helper\nprint(helper.VALUE)\n' "$T/src/keep.py" | cat >"$G/cell"
is 'a cell with a directive sees an edited helper, too' "$(said 1)" 333

# modules
mkdir -p "$T/here/pkg"
: >"$T/here/pkg/__init__.py"
cat >"$T/here/pkg/tool.py" <<'END'
import sys
from . import part
print(__name__, __package__, __spec__.name, sys.argv[1:], sys.argv[0] == __file__, part.X, sys.path[0][-4:])
END
echo 'X = 5' >"$T/here/pkg/part.py"
module() {
	printf '# ddip run: {"argv": ["a"], "module": "%s", "cwd": "%s", "env": {"PYTHONPATH": "%s"}}\n' "$1" "$T/here" "$T/more"
}
module pkg.tool | cat >"$G/cell" || bad "-m: $(cat "$G/error")"
is 'a module' "$(said 1)" "__main__ pkg pkg.tool ['a'] True 5 here"
module elsewhere | cat >"$G/cell" || bad "PYTHONPATH: $(cat "$G/error")"
is 'a module of PYTHONPATH' "$(cat "$G/vars/PLACE")" PYTHONPATH
is 'no such module' "$(errno write "$G/cell" "$(module nonsense)")" EREMOTEIO
like 'it is told' "$(cat "$G/cells/last/rank0/stderr")" 'No module named nonsense'

# bad lines: an errno, what is wrong, what would be right; nothing runs
while IFS='|' read -r what line text; do
	is "$what" "$(errno write "$G/cell" "$line"$'\nran = 1\n')" ENOEXEC
	like "$what: text" "$(tail -n 1 "$G/error")" "$text"
done <<'END'
no JSON|# ddip run: {"argv"|want '# ddip run: .*Expecting
no object|# ddip run: []|want '# ddip run:
no FILE|# ddip run: {"argv": []}|there is no FILE
argv of numbers|# ddip run: {"argv": [1]}|'argv' has the wrong type
env of numbers|# ddip run: {"argv": ["a"], "env": {"A": 1}}|'env' has the wrong type
END
is 'a directory that is not there' "$(errno write "$G/cell" '# ddip run: {"argv": ["a"], "cwd": "/nowhere"}
ran = 1')" EREMOTEIO
like 'it is named' "$(tail -n 1 "$G/error")" 'FileNotFoundError.*/nowhere'
is 'nothing ran' "$(errno read "$G/vars/ran")" ENOENT
is 'the group is as it was' "$(value 'os.getcwd() == "'"$PWD"'"')" True

# bytes that are not UTF-8, with a coding cookie and without
{
	directive "$T/src/latin.py"
	printf '# -*- coding: latin-1 -*-\nprint(len("\344"), ascii("\344"))\n'
} | cat >"$G/cell" || bad "latin-1: $(cat "$G/error")"
is 'a coding cookie' "$(said 0)" "1 '\\xe4'"
printf 'print("\344")\n' >"$T/bytes"
cp "$T/bytes" "$G/cell" 2>/dev/null && bad 'bytes without a cookie were run'
like 'bytes that are no text' "$(tail -n 1 "$G/error")" 'ENOEXEC.*not in UTF-8'

# the end of a program is the end of its process
rm -f "$T"/here/*.txt
program end.py <<'END' || bad "the end: $(cat "$G/error")"
import atexit, concurrent.futures, multiprocessing, os, tempfile, threading, time, weakref
rank = os.environ["RANK"]
def late():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    print("thread")
    threading.Thread(target=print, args=("thread of a thread",)).start()
def child(path):
    with open(path, "w") as f:
        f.write("child")
threading.Thread(target=late).start()
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(print, "pool", flush=True)
multiprocessing.get_context("fork").Process(target=child, args=(f"{rank}.child.txt",)).start()
folder = tempfile.TemporaryDirectory()
class Thing: pass
thing = Thing()
weakref.finalize(thing, print, "finalize")
unflushed = open(f"{rank}.file.txt", "w")
unflushed.write("buffered")
atexit.register(print, "first")
atexit.register(print, "last", "registered")
atexit.register(lambda: 1 / 0)
print("the last line")
END
is 'the order of the end' "$(said 1 | grep -v '^pool' | paste -sd '|')" \
	'the last line|thread|thread of a thread|last registered|first|finalize'
is 'a pool did its work' "$(said 0 | grep -c '^pool')" 1
is 'files and children' "$(cat "$T"/here/?.child.txt "$T"/here/?.file.txt)" 'childchildbufferedbuffered'
like 'an atexit function that raises' "$(cat "$G/cells/last/rank0/stderr")" 'atexit function.*ZeroDivisionError'
is 'a temporary directory is gone' "$(value '__import__("os").path.exists(folder.name)')" False
is 'pools work in the next cell' "$(value 'concurrent.futures.ThreadPoolExecutor(1).submit(int, "3").result()')" 3

# the ways it fails
program raises.py <<'END'
import sys
sys.excepthook = lambda kind, error, trace: print("hooked", kind.__name__, error)
raise ValueError("bad")
END
is 'sys.excepthook is called' "$(said 0)" 'hooked ValueError bad'
like 'the traceback is kept' "$(cat "$G/traceback")" 'raises.py", line 3.*ValueError: bad'
is 'the hook is gone' "$(value 'sys.excepthook.__name__')" "'excepthook'"

# streams, umask and timers
look='import os, signal, sys
(sys.stdin is sys.__stdin__, sys.stderr is sys.__stderr__, oct(os.umask(0o22)), signal.alarm(0), signal.getitimer(2))'
value "$look" 1 >"$T/out" # sets the umask
program replaces.py <<'END' || bad "replaced streams: $(cat "$G/error")"
import io, os, signal, sys
class Held(list):
    write = list.append
    def flush(self):
        sys.__stdout__.write("".join(self))
        self.clear()
sys.stdin = io.TextIOWrapper(sys.stdin.buffer)
sys.stdout = Held()
sys.stderr = open(2, "w")
os.umask(0)
signal.alarm(1000)
signal.setitimer(signal.ITIMER_PROF, 1000)
print("held back")
END
is 'a stream in place of sys.stdout is flushed' "$(said 1)" 'held back'
is 'streams, umask and timers are as before' "$(value "$look" 1)" "(True, True, '0o22', 0, (0.0, 0.0))"
cell 'print(1); os.write(2, b"2"); print(sys.stdin.buffer.closed)' || bad "after it: $(cat "$G/error")"
is 'what a cell prints is seen again' "$(said 1)$(cat "$G/cells/last/rank1/stderr")" $'1\nFalse2'

program message.py <<'END'
import sys
sys.exit("a message")
END
is 'sys.exit with a message' "$(cat "$G/cells/last/rank0/stderr")" 'a message'
program stops.py <<'END' || bad 'sys.exit(0) is no failure'
import sys
sys.exit(0)
END

# standard input: the data written to it, and its end
cat >"$T/reads" <<'END'
import sys
print(sys.stdin.readline(), sys.stdin.buffer.read(2), list(sys.stdin))
print(repr(sys.stdin.read()), repr(sys.stdin.buffer.read()))
try:
    input()
except EOFError:
    print("EOFError")
END
printf 'one\ntwo\nthree' >"$G/rank0/stdin"
echo eof | tee "$G/rank1/ctl" >"$G/rank0/ctl"
program reads.py <"$T/reads" || bad "stdin: $(cat "$G/error")"
is 'what it reads' "$(said 0)" "one
 b'tw' ['o\\n', 'three']
'' b''
EOFError"
is 'nothing to read' "$(said 1)" " b'' []
'' b''
EOFError"
printf 'x' >"$G/rank0/stdin"
echo eof >"$G/rank0/ctl"
is 'the end comes in a cell' "$(value 'sys.stdin.read()')" "'x'"
printf 'y\n' >"$G/rank0/stdin"
is 'and only once' "$(value 'sys.stdin.readline()')" "'y\\n'"
is 'eof takes no arguments' "$(errno write "$G/rank0/ctl" $'eof 1\n')" EINVAL

# process groups: none until the program creates one; then as under torchrun
echo restart >"$G/ctl"
cat >"$T/groups" <<'END'
import os, torch, torch.distributed as dist
assert not dist.is_initialized()
rank = int(os.environ["RANK"])
file = {"init_method": "file://" + os.getcwd() + "/meet", "rank": rank, "world_size": 2}
for how in {}, {"init_method": "env://"}, file, file:
    dist.init_process_group("gloo", **how)
    t = torch.ones(1)
    dist.all_reduce(t)
    print(t.item())
    dist.destroy_process_group()
END
for i in 1 2; do
	program groups.py <"$T/groups" || bad "groups, $i: $(cat "$G/error" "$G/traceback")"
	is "each way to meet, $i" "$(said 1 | xargs)" '2.0 2.0 2.0 2.0'
done
echo restart >"$G/ctl"
{
	directive "$T/src/alone.py"
	echo 'import torch.distributed as dist'
	echo 'assert not dist.is_initialized()'
} | cat >"$G/rank0/cell" || bad "one rank alone: $(cat "$G/error")"
is 'the group is there again for cells' "$(value 'dist.is_initialized()')" True
is 'a program alone is a program' "$(echo restart >"$G/ctl"; {
	directive "$T/src/alone.py"
	echo 'x = 1'
} | cat >"$G/rank0/cell"; key "$G/status" namespace)" program
echo reset >"$G/ctl"
is 'the namespace after reset' "$(key "$G/status" namespace)" empty

# what it leaves running is shut down, also when it fails
program rpc.py '"keep": true' <<'END'
import os
import torch.distributed.rpc as rpc
rpc.init_rpc("w" + os.environ["RANK"], rank=int(os.environ["RANK"]), world_size=2)
assert rpc.rpc_sync("w0", max, (1, 2)) == 2
raise ValueError("after it")
END
like 'a failure after init_rpc' "$(cat "$G/cells/last/rank0/traceback")" 'ValueError: after it' # rank 1 may fail first
is 'no RPC is left' "$(value 'rpc.api._is_current_rpc_agent_set()')" False

# os._exit(0) is a success, os.execv continues in another program
program exit.py <<'END' || bad "os._exit(0): $(cat "$G/error")"
import os
print("before", flush=True)
os._exit(0)
END
is 'os._exit(0)' "$(said 1)" before
program exec.py <<'END' || bad "os.execv: $(cat "$G/error")"
import os, sys
if len(sys.argv) < 4:
    os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
print(sys.argv[1:], os.environ["HELLO"])
END
is 'os.execv' "$(said 0)" "['--n', 'two words', 'again'] group"
cell 'import torch, torch.distributed as dist
t = torch.ones(1); dist.all_reduce(t)' || bad "the group after it: $(cat "$G/error")"

# unseeded random numbers differ between ranks and between starts
draw='import random, numpy, torch; drawn = [random.random(), numpy.random.rand(), torch.rand(1).item()]'
cell "$draw"
first=$(cat "$G"/rank?/vars/drawn.json)
echo restart >"$G/ctl"
cell "$draw"
is 'six times three different numbers' "$(printf '%s\n' "$first" "$(cat "$G"/rank?/vars/drawn.json)" | tr -d '[],' | xargs -n 1 | sort -u | wc -l)" 12

# ddip run knows the flags of this torchrun, and which of them have a value; ddip(1) has them in its table
"$TORCH_PYTHON" - "$ROOT" <<'END' || bad 'flags of torchrun'
import sys
root = sys.argv[1]
sys.path[:0] = [f"{root}/magics"]
from ddip.tool import torchrun
from torch.distributed.run import get_args_parser
with open(f"{root}/scripts/ddip.1") as file:
    items = " ".join(line for line in file if line.startswith(".It ")).split()
wrong = []
for action in get_args_parser()._actions:
    names = [name[2:] for name in action.option_strings if name.startswith("--")]
    if not names or names[0] == "help":
        continue
    name = torchrun.spell(names[0])
    known = torchrun.PLAIN if action.nargs == 0 else torchrun.VALUED
    if name not in known and name not in torchrun.INSTEAD:
        wrong.append(names[0])
wrong += [name for name in torchrun._ALL if f"-{name}" not in items]
sys.exit(f"unknown, or not in ddip(1): {wrong}" if wrong else 0)
END

# what ps shows
pid=$(rank_pids | tail -n 1)
like 'the title of a rank' "$(tr '\0' ' ' <"/proc/$pid/cmdline")" '^ddip: rank 1 of 2, group *$'
