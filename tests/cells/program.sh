#!/usr/bin/env bash
# Programs run unmodified: argparse, __main__, tracebacks, workers of all kinds, the usual libraries.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
export DDIP_MOUNT=$M
ddip=$BUILD/ddip
mkdir "$T/src"
cd "$T/src" || exit

cat >helper.py <<'END'
VALUE = 42
END
cat >args.py <<'END'
"""A program with arguments."""
import argparse
import os
import sys

import helper

parser = argparse.ArgumentParser()
parser.add_argument("--n", type=int, default=1)
parser.add_argument("words", nargs="*")
args = parser.parse_args()
if __name__ == "__main__":
    print(args.n, args.words, helper.VALUE, os.path.basename(__file__), sys.argv[0])
    if args.n == 13:
        raise RuntimeError("unlucky")
END
is 'arguments' "$("$ddip" run -f args.py --n 3 'two words' "it's")" \
	"3 ['two words', \"it's\"] 42 args.py args.py"
is 'a bad argument' "$("$ddip" run -f args.py --n x 2>&1 | grep -v ^usage)" \
	$'args.py: error: argument --n: invalid int value: \'x\'\nranks 0,1:\nSystemExit: 2'
"$ddip" run -f args.py --n 13 >"$T/out" 2>&1
is 'exit status' $? 1
like 'file and line in the traceback' "$(cat "$T/out")" 'args.py", line 15'
like 'the source line' "$(cat "$T/out")" 'raise RuntimeError\("unlucky"\)'
if has_module IPython; then
	echo 'from IPython.utils.path import filefind; filefind("nowhere")' >own.py
	"$ddip" run -f own.py >"$T/out" 2>&1
	like 'frames of IPython in it' "$(cat "$T/out")" 'own.py", line 1.*in filefind.*nowhere'
fi
is 'argv is as before' "$(value 'import sys; len(sys.argv)')" 1
printf '# ddip: %s --n 5 "quoted word"\n%s\n' "$PWD/args.py" "$(cat args.py)" >"$G/cell"
is 'the line by hand' "$(cat "$G/cells/last/rank1/stdout")" "5 ['quoted word'] 42 args.py $PWD/args.py"
cat >waits.py <<'END'
import os
import signal
import threading

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
waits = threading.Thread(target=lambda: print(signal.sigwait({signal.SIGUSR1}).name))
waits.start()
os.kill(os.getpid(), signal.SIGUSR1)
waits.join()
END
is 'a thread that waits for signals' "$("$ddip" run -f waits.py)" SIGUSR1
is 'the cells after it block none' "$(value 'signal.pthread_sigmask(signal.SIG_BLOCK, ())')" 'set()'
mkdir links
cat >where.py <<'END'
import sys
import helper
print(sys.argv[0], __file__, sys.path[0])
END
ln -s ../where.py links/seven.py
for file in links/seven.py ./where.py; do
	is "argv, __file__ and path of $file" "$("$ddip" run -f $file)" "$("$TORCH_PYTHON" $file)"
done
cat >names.py <<'END'
print(sorted(globals()), __doc__, __spec__, __package__, __cached__, type(__loader__).__name__)
import builtins
print(sorted(vars(builtins)), __builtins__ is builtins)
END
is 'the names that a program finds' "$("$ddip" run -f names.py)" "$("$TORCH_PYTHON" names.py)"
is 'cells have their own again' "$(value '(rank, open is builtins.open, callable(display))')" '(0, False, True)'
echo 'print(rank, open is builtins.open, hasattr(builtins, "display"))' >keep.py
is 'and programs with -k' "$("$ddip" run -k keep.py)" '0 True False'
printf '\357\273\277print(7)\n' >bom.py
is 'a byte order mark' "$("$ddip" run -f bom.py; cat bom.py >"$G/cell"; cat "$G/cells/last/rank0/stdout")" \
	$'7\n7'

# workers: fork, spawn, forkserver; mp.spawn; all find the functions of the program
cat >workers.py <<'END'
import multiprocessing as mp
import os

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor(i * i)


def work(k, folder):
    with open(os.path.join(folder, f"{os.environ['RANK']}.{k}"), "w") as f:
        f.write("done")


if __name__ == "__main__":
    import sys
    loader = DataLoader(Squares(), 4, num_workers=2, multiprocessing_context="fork")
    print("fork", sum(int(batch.sum()) for batch in loader))
    for method in "spawn", "forkserver":  # whose workers import torch
        mp.set_start_method(method, force=True)
        print(method, sum(int(batch.sum()) for batch in DataLoader(Squares(), 4, num_workers=1)))
    torch.multiprocessing.spawn(work, (sys.argv[1],), nprocs=1)
END
mkdir "$T/done"
is 'workers' "$("$ddip" run -f workers.py "$T/done" | xargs)" 'fork 140 spawn 140 forkserver 140'
is 'mp.spawn' "$(ls "$T/done" | xargs)" '0.0 1.0'
cat >pool.py <<'END'
import multiprocessing as mp


def negative(x):
    return -x


if __name__ == "__main__":
    with mp.get_context("spawn").Pool(1) as pool:
        print(pool.map(negative, [-1]))
END
is 'a pool' "$("$ddip" run -f pool.py)" '[1]'

# the same without a file: fork works
cell 'import torch
from torch.utils.data import DataLoader
total = sum(int(b.sum()) for b in DataLoader(list(range(10)), 2, num_workers=2))' || bad 'DataLoader in a cell'
is 'its sum' "$(cat "$G/vars/total")" 45

# a program for torchrun; as_torchrun.sh compares with that
cat >reduce.py <<'END'
import os

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    t = torch.tensor([float(os.environ["RANK"]) + 1])
    dist.all_reduce(t)
    if dist.get_rank() == 0:
        print("sum", t.item(), "of", dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
END
for i in 1 2 3; do
	is "as torchrun, $i" "$("$ddip" run -f reduce.py)" 'sum 3.0 of 2'
done

# rank 0 leaves without a word while rank 1 waits for it: torchrun's processes close their connections as they end
cat >leaves.py <<'END'
import sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    if "destroy" in sys.argv:
        dist.destroy_process_group()
    sys.exit()
dist.all_reduce(torch.ones(1))
END
echo 'grace 0.3' >"$G/ctl"
for how in '' destroy; do
	guarded "$ddip" run -f leaves.py $how >"$T/out" 2>&1
	is "rank 0 leaves${how:+ and destroys its group}: the status" $? 1
	like 'and the error of who waits' "$(cat "$T/out")" 'leaves.py", line 9.*RuntimeError: .*pair.cc'
	cell 'if not dist.is_initialized(): dist.init_process_group("gloo")
t = torch.ones(1)
dist.all_reduce(t)' || bad "the next cell: $(tail -n 1 "$G/error")"
	is 'the next cell has a whole group' "$(cat "$G"/rank?/vars/t | xargs)" 'tensor([2.]) tensor([2.])'
done
