#!/usr/bin/env bash
# Cells have notebook semantics, with IPython and without.
. "$(dirname "$0")/../lib.sh"

common() {
	is "$1: value" "$(value '1 + 1')" 2
	is "$1: no value" "$(value 'a = 1')" ''
	is "$1: a string's repr" "$(value '"x"')" "'x'"
	is "$1: names live on" "$(value 'a')" 1
	is "$1: many lines" "$(value $'def f():\n    return 7\n\nf()')" 7
	is "$1: await" "$(value $'import asyncio\nawait asyncio.sleep(0, "waited")')" "'waited'"
	is "$1: __main__" "$(value '__name__')" "'__main__'"
	is "$1: sys.modules" "$(value 'import sys; sys.modules["__main__"].a')" 1
	is "$1: get the source" "$(value 'import inspect; inspect.getsource(f)')" \
		"'def f():\\n    return 7\\n'"
	cell $'def g():\n    return 1 / 0\n\ng()' 2>/dev/null
	like "$1: traceback" "$(cat "$G/traceback")" 'line 4.*line 2, in g.*return 1 / 0.*ZeroDivisionError'
	is "$1: no engine frames" "$(grep -c 'ddip_engine' "$G/traceback")" 0
	is "$1: lines of an older cell" "$(cell 'g()' 2>/dev/null; grep -c 'return 1 / 0' "$G/traceback")" 1
	cell 'class C: pass' && cell 'c = C()'
	is "$1: pickle of a cell's class" "$(value 'import pickle; type(pickle.loads(pickle.dumps(c))) is C')" True
	cell 'try:
    1 / 0
except ZeroDivisionError as e:
    raise KeyError("second") from e' 2>/dev/null
	like "$1: chained" "$(cat "$G/traceback")" 'ZeroDivisionError.*direct cause.*KeyError'
}

mount_plain
common 'without IPython'
is 'plain: %magic is a syntax error' "$(errno write "$G/cell" '%time 1')" ENOEXEC
unmount

mount_torch -o size=2
"$TORCH_PYTHON" -c 'import IPython' 2>/dev/null || skip "no IPython in $TORCH_PYTHON"
common 'with IPython'
cell '%env DDIP_TEST_WORD=hello' || bad '%env'
is 'its effect' "$(value 'import os; os.environ["DDIP_TEST_WORD"]')" "'hello'"
cell '!echo from the shell $DDIP_TEST_WORD' || bad '!cmd'
is '!cmd' "$(cat "$G/cells/last/rank0/stdout")" 'from the shell hello'
is 'files = !ls' "$(value 'out = !echo one
out[0]')" "'one'"
cell 'f?' || bad 'obj?'
cell '%%bash
echo in bash' || bad '%%bash'
is '%%bash' "$(cat "$G/cells/last/rank1/stdout")" 'in bash'
cell 'from IPython.display import display, HTML
display(HTML("<b>rich</b>"))' || bad display
like 'display' "$(guarded cat "$G/cells/last/stream")" '"display_data".*<b>rich</b>'
cell 'display({"application/json": {"a": [float("nan"), float("-inf"), 1.5]}}, raw=True)' || bad 'display of NaN'
like 'NaN, which JSON has not, is text' "$(cat "$G/cells/last/stream")" '\{"a": \["nan", "-inf", 1\.5\]\}'
like 'get_ipython' "$(value 'type(get_ipython()).__name__')" ZMQInteractiveShell
is 'the errno of a syntax error' "$(errno write "$G/cell" 'x = = 1')" ENOEXEC
cell '%reset -f' || bad '%reset'
is 'names of the engine after %reset' "$(value '(rank, world_size, local_rank)' 1)" '(1, 2, 1)'
is 'names of the user after %reset' "$(errno read "$G/vars/C")" ENOENT
cell 'exit(3)' 2>/dev/null
like 'exit() after %reset' "$(cat "$G/cells/last/error")" 'rank 0: SystemExit: 3'
cell 'mine = 1'
is '%who' "$(value '%who_ls')" "['mine']"
cell '%reset -s -f' || bad '%reset -s'
is 'names of the engine after %reset -s' "$(value '(rank, world_size, local_rank)' 1)" '(1, 2, 1)'
is 'names of the user after %reset -s' "$(errno read "$G/vars/mine")" ENOENT
cell 'rank = 7'
is 'a name of the engine that was changed' "$(value '%who_ls')" "['rank']"
cell '%reset -f'

# The output of a command goes where print() writes; its exit status is what IPython makes of it.
cell $'%%capture kept\n!echo out; echo err >&2; sleep 1000 & echo $! >&2' || bad '%%capture of !cmd'
is '%%capture of !cmd' "$(value 'kept.stdout, kept.stderr.split()[0]')" "('out\\n', 'err')"
cell 'import os; os.kill(int(kept.stderr.split()[1]), 9)' || bad 'the command in the background'
cell $'%%capture --no-stderr kept\n!printf "\\342\\202"; printf "\\254\\377"; echo seen >&2' || bad '%%capture of half of it'
is '%%capture of half of it' "$(value 'kept.stdout')" "'€�'"
cell 'print("next")'
is 'the status of a signal' "$(value $'!kill -9 $$\n_exit_code')" -9
is 'the status of a signal, by a shell' "$(value $'%%capture\n!exit 137')$(value _exit_code)" -9
cell $'%config InteractiveShell.system_raise_on_error = True\n!exit 3' 2>/dev/null
if "$TORCH_PYTHON" -c 'import IPython.core.interactiveshell as i; i.InteractiveShell.system_raise_on_error' 2>/dev/null; then
	like 'commands that raise' "$(cat "$G/traceback")" 'CalledProcessError: .*exit 3.*status 3'
	cell '%config InteractiveShell.system_raise_on_error = False'
fi

is 'an exit in a cell within a cell' "$(errno write "$G/cell" $'%%capture\nimport sys; sys.exit(3)')" EREMOTEIO
like 'its error' "$(cat "$G/cells/last/error")" 'SystemExit: 3'
is 'an exit without a status' "$(errno write "$G/cell" $'%%capture\nimport sys; sys.exit()')" 0
cell $'a = 1\n%xdel a' || bad '%xdel'
cell 'a = None' && cell '%xdel a' && is '%xdel again' "$(value $'b = 1\n%xdel b\n"a" in globals() or "b" in globals(), rank' 1)" '(False, 1)'

# Cells that run within a cell, as those of `%run helpers.ipynb` do, have sources of their own.
cell $'shell = get_ipython()
def outer():
    return "the outer cell"

shell.run_cell("def first():\\n    return 1 / 0\\n")
shell.run_cell("passing = 0")
shell.run_cell("\\n\\n\\ndef second():\\n    return outer() + 0\\n")' || bad 'cells within a cell'
is 'the sources of their functions' "$(value 'import inspect; [inspect.getsource(f) for f in (first, second, outer)]')" \
	"$(value $'["def first():\\n    return 1 / 0\\n", "def second():\\n    return outer() + 0\\n",
 "def outer():\\n    return \'the outer cell\'\\n".replace("\'", \'"\')]')"
is 'lines are kept only where functions need them' "$(value 'import linecache
[entry[3] for entry in linecache.cache.values() if "passing = 0\n" in entry[2]]')" '[]'
cell 'get_ipython().run_cell("%%capture\nx = 1\nfirst()")' 2>/dev/null
like 'a traceback through cells in cells' "$(cat "$G/traceback")" \
	'Traceback[^"]*"<cell [0-9]+\.2>", line 2, in <module>[^"]*first\(\)[^"]*"<cell [0-9]+\.1>", line 2, in first.*1 / 0'
cell 'def late(): raise KeyError
get_ipython().run_cell("late()")' 2>/dev/null
like 'it begins in the inner cell' "$(cat "$G/traceback")" 'Traceback[^"]*"<cell [0-9]+\.1>", line 1, in <module>[^"]*"<cell [0-9]+>", line 1'
like 'as in a notebook' "$(guarded cat "$G/cells/last/stream")" 'In\[[0-9]+\], line 1'

# Tracebacks show no frames of IPython's own, as in IPython.
printf 'def fails():\n    return 1 / 0\nfails()\n' >"$T/fails.py"
cell "%run $T/fails.py" 2>/dev/null
like 'a traceback of %run' "$(cat "$G/traceback")" "recent call last[^\"]*\"$T/fails.py\", line 3.*line 2, in fails"
cell $'%%time\ndef slow(): return 1 / 0\nslow()' 2>/dev/null
like 'a traceback of %%time' "$(guarded cat "$G/cells/last/stream")" 'line 1.*<timed exec>.*<timed exec>.*ZeroDivisionError'
is 'no frames of IPython' "$(grep -c 'site-packages/IPython' "$G/traceback" "$G/cells/last/stream" | cut -d : -f 2 | paste -sd ' ')" '0 0'
cell 'get_ipython().run_cell("1 +")' 2>/dev/null
is 'a syntax error of a cell in a cell' "$(grep -c IPython "$G/traceback")" 0

# %pdb: a failed cell ends in the debugger, in an inner cell, too; an interrupted one does not.
cell '%pdb on'
for source in '1 / 0' $'%%capture --no-stdout\n1 / 0'; do
	printf 'p 6 * 7\nq\n' >"$G/rank0/stdin"
	cell "$source" "$G/rank0/cell" 2>/dev/null
	like "%pdb: $source" "$(cat "$G/cells/last/rank0/stdout")" 'ipdb> .*42'
	like "%pdb: its error: $source" "$(cat "$G/cells/last/error")" 'rank 0: ZeroDivisionError'
done
is '%pdb: an interrupt' "$(errno write "$G/cell" 'raise KeyboardInterrupt')" EINTR
cell '%pdb off'

# Callbacks that watch or change cells see each cell, also one that IPython itself would leave as it is.
cell 'shell, seen = get_ipython(), []
for event in ("pre_execute", "post_execute"): shell.events.register(event, lambda event=event: seen.append(event))
import ast
class Doubled(ast.NodeTransformer):
    def visit_Constant(self, node): return ast.Constant(node.value * 2)'
is 'callbacks of any execution' "$(value 'seen')" "['post_execute', 'pre_execute']"
cell 'shell.events.register("pre_run_cell", lambda info: seen.append(info.raw_cell))
shell.events.register("post_run_cell", lambda result: seen.append(result.success))'
cell 'x = 1'
is 'callbacks of a cell' "$(value 'seen[-5:-2]')" "['x = 1\\n', 'post_execute', True]"
cell 'shell.ast_transformers.append(Doubled())'
is 'a transformer of trees' "$(value '21')" 42
