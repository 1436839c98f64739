#!/usr/bin/env bash
# A torch whose import fails, and one that cannot make a process group: the start says what would do, and a cell that
# imports it sees what any Python shows.
. "$(dirname "$0")/../lib.sh"

# A package as torch is one: its C++ classes can be registered once in a process, which a second try ends.
torch=$T/site/torch
mkdir -p "$torch/distributed"
cat >"$torch/__init__.py" <<-'END'
	import torch._C
	import torch.missing
END
cat >"$torch/_C.py" <<-'END'
	import os
	registered = []
	def init():
	    if registered:
	        os.abort()  # as C++ does: terminate called, already defined
	    registered.append("class")
END
cat >"$torch/missing.py" <<-'END'
	import torch
	torch._C.init()
	raise ImportError("half way")
END
touch "$torch/distributed/__init__.py"

mount_plain -o "size=1,env=PYTHONPATH=$T/site"
for _ in 1 2; do
	cell 'import torch' && bad 'a torch that cannot be imported is imported'
	like 'the cell sees why' "$(tail -n 1 "$G/traceback")" '^ImportError: half way$'
	is 'of files, it names those of torch' "$(grep -oE 'File "[^<"]*"' "$G/traceback")" \
		"$(printf 'File "%s"\n' "$torch/__init__.py" "$torch/missing.py")"
done
cell 'import torch.distributed' && bad 'its submodule is imported'
like 'also by a submodule' "$(tail -n 1 "$G/traceback")" '^ImportError: half way$'
is 'the rank is still there' "$(value '6 * 7')" 42
unmount

mount_plain -o "size=1,backend=gloo,env=PYTHONPATH=$T/site"
fails "$BUILD/ddip" -m "$M" start
like 'the start says why' "$(cat "$T/stderr")" \
	'backend gloo: .*/python[0-9.]* cannot import torch \(ImportError: half way\); .* -m pip install --force-reinstall torch'
unmount

# Names are gone once torch is imported, also for torch itself.
cat >"$T/sitecustomize.py" <<-'END'
	import os, sys
	class Deletes:
	    def find_spec(self, name, path=None, target=None):
	        c10d = sys.modules.get("torch.distributed.distributed_c10d")
	        if name == "IPython" and c10d is not None:
	            delattr(c10d, os.environ["GONE"])
	sys.meta_path.insert(0, Deletes())
END
for gone in BackendConfig GroupMember PrefixStore; do
	mount_torch -o "size=2,gpus=none,env=PYTHONPATH=$T,env=GONE=$gone"
	fails "$BUILD/ddip" -m "$M" start
	like "without $gone" "$(cat "$T/stderr")" \
		"torch [0-9.+a-z]+ cannot make the process group \([A-Za-z]+Error: .*'$gone'.*\); .* -m pip install --force-reinstall torch"
	unmount
done
