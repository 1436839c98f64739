"""The register of every name of torch, IPython, the standard library and a few libraries that is
private or that the engine replaces: what it is for, and what is lost without it.

All access to such names goes through a Row. One that is missing, or around which a function of ours
raises, costs what its row says and nothing else: it is counted, the daemon is told once (`status`),
or in a notebook `%makedip -i` shows it, and the user's call does what it would do without us.
"""

from __future__ import annotations

import os
import sys
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    from typing_extensions import Self

    T = TypeVar("T")
    F = TypeVar("F", bound=Callable[..., Any])


PRIVATE = "private"  # used as it is
REPLACED = "replaced"  # something of ours takes its place, and calls it
METHOD = "method"  # a class of ours overrides it
ATTRIBUTE = "attribute"  # private, of instances only
OFFICIAL = "official"  # public; another way is used without it, or it is done without
MAGICS = "magics"  # private or replaced, and used by the magics in the process of the notebook

ROWS: dict[str, Row] = {}  # by name
_lines: list[str] = []  # what is to be told, in order
_tell: tuple[Callable[[str], object], int] | None = None  # takes one line; None: no daemon yet


class Row:
    """One name. As a context manager it keeps exceptions of ours away from the user's call."""

    __slots__ = (
        "failures", "kind", "last", "lost", "missing", "module", "name", "optional", "parents",
        "path", "why",
    )  # fmt: skip

    def __init__(
        self, kind: str, module: str, path: str, why: str, lost: str, optional: bool = False
    ) -> None:
        """path: from the module to the name; optional: some supported versions do not have it."""
        self.kind, self.module, self.path = kind, module, path
        self.why, self.lost, self.optional = why, lost, optional
        self.name = f"{module}.{path}"
        *self.parents, self.last = path.split(".")
        self.missing = self.failures = 0  # how often it was not there; how often ours raised
        ROWS[self.name] = self

    def get(self, default: Any = None) -> Any:
        """What the name refers to; the default if it is missing, or nobody imported the module."""
        found = sys.modules.get(self.module)
        if found is None:
            return default
        try:
            for part in self.parents:
                found = getattr(found, part)
            return getattr(found, self.last)
        except AttributeError:
            return self._miss(default)

    def of(self, owner: object, default: Any = None) -> Any:
        """The same of an instance, for a name that is an attribute of instances."""
        try:
            return getattr(owner, self.last)
        except AttributeError:
            return self._miss(default)

    def put(self, owner: object, value: object) -> bool:
        """Sets it on an instance that has it. Returns False if it is missing."""
        if self.of(owner, self) is self:
            return False
        setattr(owner, self.last, value)
        return True

    def replace(self, make: Callable[[Any], Any], *others: object) -> Any:
        """Puts make(what is there) in its place, and in that of the same object in other modules.
        Returns what was there; None, with nothing replaced, if it is missing."""
        real = self.get()
        if real is None:
            return None
        with self:
            made, owner = passed_over(make(real)), sys.modules[self.module]
            for part in self.parents:
                owner = getattr(owner, part)
            setattr(owner, self.last, made)
            for other in others:
                if getattr(other, self.last, None) is real:
                    setattr(other, self.last, made)
        return real

    def call(self, *args: Any, default: Any = None) -> Any:
        """Calls it, quietly. Returns the default if it is missing or raises an Exception."""
        function = self.get()
        if function is not None:
            with self:
                return quietly(function, *args)
        return default

    def step_aside(self, error: BaseException) -> None:
        """This exception of ours was kept from the user's call."""
        self.failures += 1
        if self.failures == 1:
            first = (str(error).splitlines() or [""])[0]
            _note(f"patch_failed {self.name}: {type(error).__name__}: {first}; lost: {self.lost}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False  # an interrupt is not ours
        self.step_aside(error)
        return True

    def _miss(self, default):
        self.missing += 1
        if self.missing == 1 and not self.optional:
            _note(f"patch_missing {self.name}: {self.lost}")
        return default


def quietly(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Calls a function; what it warns of is about our call, and not shown to the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def passed_over(function: Any) -> Any:
    """Returns the function. If it is one of the engine's, what warns or logs below it with a
    stacklevel (of 2 or more) names the line that it would name without the engine.

    warnings and logging pass over frames whose file name says that they are of the import system:
    is_internal_filename() in Python/_warnings.c, _is_internal_frame() in Lib/logging/__init__.py.
    """
    code = getattr(function, "__code__", None)
    if code is not None and code.co_filename.startswith("<ddip_engine"):
        file = f"{code.co_filename[:-1]}, as importlib._bootstrap>"
        function.__code__ = code.replace(co_filename=file)
    return function


def note_way(what: str, way: str) -> None:
    """Tells `status` by which of several ways something is done."""
    line = f"way_{what} {way}"
    if line not in _lines:
        _note(line)


def tell_to(function: Callable[[str], object], pid: int) -> None:
    """From now on, in the process of this pid, calls function(line) with each line to be told."""
    global _tell
    _tell = function, pid
    for line in _lines:
        function(line)


def _note(line):
    _lines.append(line)
    if _tell is not None and _tell[1] == os.getpid():
        _tell[0](line)


def lines() -> list[str]:
    """The lines that have been noted: what is missing, what failed."""
    return list(_lines)


def check() -> None:
    """Notes which names the modules that are imported do not have."""
    for row in ROWS.values():
        if row.kind not in (ATTRIBUTE, MAGICS):
            row.get()


# fmt: off

# ---- torch

VERSION = Row(
    OFFICIAL, "torch", "__version__", "which versions are too old, or are known to fail",
    "a version of torch that is too old is not refused",
)
GENERATOR = Row(
    OFFICIAL, "torch", "default_generator", "each rank draws random numbers of its own",
    "all ranks draw the same random numbers, until a cell seeds torch",
)
SET_THREADS = Row(
    OFFICIAL, "torch", "set_num_threads", "torch's threads are those of OMP_NUM_THREADS",
    "each rank has as many of torch's threads as the host has cores",
)
THREADS = Row(
    OFFICIAL, "torch", "get_num_threads", "a program's threads are set only if they differ",
    "builds of torch without OpenMP warn when a program begins",
)
HAS_CUDA = Row(
    OFFICIAL, "torch", "cuda.is_available", "whether torch has GPUs",
    "torch is taken to have a GPU if it counts any",
)
USES_CUDA = Row(
    OFFICIAL, "torch", "cuda.is_initialized", "whether torch has used a GPU in this rank",
    "a rank with a GPU is taken to use it",
)
DEVICE_COUNT = Row(
    OFFICIAL, "torch", "cuda.device_count", "a rank's GPU, and what is queued on each",
    "a rank reads from no GPU but its own",
)
SET_DEVICE = Row(
    OFFICIAL, "torch", "cuda.set_device", "each rank begins with a GPU of its own",
    "all ranks use the first GPU, unless a cell chooses another",
)
CURRENT_DEVICE = Row(
    OFFICIAL, "torch", "cuda.current_device", "which GPU a cell has chosen",
    "each rank is taken to use its own GPU",
)
CURRENT_STREAM = Row(
    OFFICIAL, "torch", "cuda.current_stream", "a read waits for the stream that a cell has chosen",
    "a read of a tensor does not wait for what is queued in a stream that a cell has chosen",
)
EMPTY_CACHE = Row(
    OFFICIAL, "torch", "cuda.empty_cache", "frees the GPU memory that torch caches",
    "GPU memory that torch caches is not freed",
)
ON_DEVICE = Row(
    OFFICIAL, "torch", "cuda.device", "what is pushed is ordered after work on its own GPU",
    "a push to another GPU than the rank's own does not wait for torch's work there",
)
SYNCHRONIZE = Row(
    OFFICIAL, "torch", "cuda.synchronize", "the self-test runs while the program computes nothing",
    "work of the program may make the figures of the self-test worse",
)
PEAK = Row(
    OFFICIAL, "torch", "cuda.max_memory_allocated", "a cell's report has the peak of GPU memory",
    "a cell's report does not have the peak of GPU memory",
)
ALLOCATED = Row(
    OFFICIAL, "torch", "cuda.memory_allocated", "how much GPU memory a rank's tensors have",
    "rankK/gpu does not say how much memory tensors have",
)
RESERVED = Row(
    OFFICIAL, "torch", "cuda.memory_reserved", "how much GPU memory torch keeps for a rank",
    "neither rankK/gpu nor `free` says how much memory torch keeps",
)
SNAPSHOT = Row(
    OFFICIAL, "torch", "cuda.memory_snapshot", "how large a tensor fits into what torch keeps",
    "rankK/gpu does not say how large a tensor fits into what torch keeps",
)
NCCL_VERSION = Row(
    OFFICIAL, "torch", "cuda.nccl.version", "versions that are known to fail are named at start",
    "versions of torch and NCCL that are known to fail are not named",
)
STEP_HOOK = Row(
    OFFICIAL, "torch.optim.optimizer", "register_optimizer_step_post_hook",
    "counts the steps of optimizers", "the steps of optimizers are not counted",
)
MODULE_BEGINS = Row(
    OFFICIAL, "torch.nn.modules.module", "register_module_forward_pre_hook",
    "counts the forwards of models", "with `clock forward` they are not counted",
)
MODULE_ENDS = Row(
    OFFICIAL, "torch.nn.modules.module", "register_module_forward_hook",
    "tells the outermost module", "with `clock forward` the forwards of models are not counted",
)
IS_COMPILING = Row(
    OFFICIAL, "torch", "compiler.is_compiling", "no graph of the user's is broken to count a step",
    "the steps of optimizers are not counted",
)

_C10D = "torch.distributed.distributed_c10d"
_DDP = "torch.nn.parallel.distributed"

TCP_STORE = Row(
    OFFICIAL, "torch.distributed", "TCPStore", "the store of external ranks and of other hosts",
    "nothing, as long as torch.distributed.rendezvous has it, too",
)
STORE = Row(
    OFFICIAL, "torch.distributed", "Store", "the ranks meet in the engine's own store",
    "nothing, as long as torch.distributed.distributed_c10d has it, too",
)
STORE_ERROR = Row(
    OFFICIAL, "torch.distributed", "DistStoreError", "a wait for a key has timed out",
    "a wait for a key that times out raises RuntimeError, of which DistStoreError is a kind",
)
NETWORK_ERROR = Row(
    OFFICIAL, "torch.distributed", "DistNetworkError", "the group's store is gone",
    "a store that is gone raises RuntimeError, of which DistNetworkError is a kind",
)
FLIGHT = Row(
    PRIVATE, "torch._C._distributed_c10d", "_dump_fr_trace_json",
    "the stall report knows each group's operations, also those of DDP's reducer",
    "the stall report knows of collectives only what Python calls",
    optional=True,  # from torch 2.9 on
)
FLIGHT_NCCL = Row(
    PRIVATE, "torch._C._distributed_c10d", "_dump_nccl_trace_json", "the same of NCCL's groups",
    "the stall report knows of collectives of NCCL only what Python calls",
    optional=True,  # only where there is NCCL
)
INIT = Row(
    REPLACED, _C10D, "init_process_group", "user code adopts or replaces the engine's group",
    "init_process_group() in a cell is torch's own: it makes a second group, or refuses to",
)
DESTROY = Row(
    REPLACED, _C10D, "destroy_process_group", "destroyed groups live until their threads are idle",
    "destroy_process_group() is torch's own: its threads may wait for the GIL",
)
PG_MAP = Row(
    PRIVATE, _C10D, "_world.pg_map", "the list of all process groups",
    "only the default group is known: other groups are neither kept alive nor aborted",
)
WORLD = Row(
    PRIVATE, _C10D, "_world", "hides the group from programs, and resets the names of groups",
    "programs find the process group of the cells, and a failed init may make the next one hang",
)
UPDATE_DEFAULT = Row(
    PRIVATE, _C10D, "_update_default_pg", "hides the group from programs and forked children",
    "programs find the process group of the cells",
)
UNREGISTER = Row(
    PRIVATE, _C10D, "_unregister_all_process_groups", "the same",
    "programs find the process group of the cells",
)
REGISTER = Row(
    PRIVATE, _C10D, "_register_process_group", "shows a hidden group again",
    "programs find the process group of the cells",
)
SET_TIMEOUT = Row(
    PRIVATE, _C10D, "_set_pg_timeout", "init_process_group(timeout=) of an adopted group",
    "an adopted group keeps its earlier timeout",
)
BACKEND_CONFIG = Row(
    OFFICIAL, _C10D, "get_backend_config", "which backend serves which devices in a group",
    "a group with several backends is taken for one with the first of them",
)
BACKEND_NAME = Row(
    OFFICIAL, _C10D, "get_backend", "the default timeout of NCCL is another one",
    "a group on NCCL that a cell adopts has the default timeout of other backends",
)
TIMEOUT = Row(
    OFFICIAL, "torch.distributed.constants", "default_pg_timeout",
    "a group that a cell adopts has torch's default timeout",
    "a group that a cell adopts has a timeout of 30 minutes",
)
NCCL_TIMEOUT = Row(
    OFFICIAL, "torch.distributed.constants", "default_pg_nccl_timeout", "the same with NCCL",
    "a group on NCCL that a cell adopts has the default timeout of other backends",
)
HANDLERS = Row(
    PRIVATE, "torch.distributed.rendezvous", "_rendezvous_handlers",
    "env://, tcp:// and file:// lead to the engine's store",
    "what meets by other means than init_process_group() (RPC) meets at MASTER_PORT",
)
SPAWN = Row(
    REPLACED, "torch.multiprocessing.spawn", "start_processes",
    "processes that user code spawns form a job of their own",
    "spawned processes look for a store of their own at MASTER_PORT",
)
COLLECTIVES = {
    name: Row(
        REPLACED, _C10D, name, "counts the collectives, and tells which one a rank is in",
        f"the stall report does not see {name}()",
        optional=name in ("all_gather_single", "reduce_scatter_single"),  # from torch 2.14 on
    )
    for name in """
    all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_gather_single
    all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier broadcast
    broadcast_object_list gather gather_object monitored_barrier new_group recv recv_object_list
    reduce reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter scatter_object_list
    send send_object_list split_group _all_gather_base _reduce_scatter_base
    """.split()
}
WORK_WAIT = Row(
    REPLACED, _C10D, "Work.wait", "the wait for an asynchronous collective is one too",
    "the stall report does not see the wait for an asynchronous collective",
)
WORK_TYPE = Row(
    PRIVATE, _C10D, "Work._get_op_type", "a wait for a send or receive is no collective",
    "the stall report does not tell a wait for a send from one for a collective",
)
STORE_GET = Row(
    REPLACED, _C10D, "Store.get", "a wait for the store can be seen and ended",
    "the stall report does not see a wait for the store",
)
STORE_WAIT = Row(
    REPLACED, _C10D, "Store.wait", "a wait for the store can be seen and ended",
    "the stall report does not see a wait for the store",
)
BACKWARD = Row(
    REPLACED, "torch.autograd", "_engine_run_backward", "a model's backward is a collective",
    "the stall report does not see a backward",
)
FORWARD = Row(
    REPLACED, _DDP, "DistributedDataParallel._pre_forward", "a model's forward is a collective",
    "the stall report does not see a model's forward",
)
DDP_INIT = Row(
    REPLACED, _DDP, "DistributedDataParallel.__init__", "the wrappers that a rebuild repairs",
    "a model must be wrapped again after a rebuild",
)
DDP_LOADED = Row(
    REPLACED, _DDP, "DistributedDataParallel.__setstate__", "loaded and copied wrappers, too",
    "a loaded model must be wrapped again after a rebuild",
)
DDP_RESET = Row(
    PRIVATE, "torch.distributed", "Reducer._reset_state", "waits for threads in a model's step",
    "a thread that still runs a backward when the group is rebuilt may end the rank",
)
DDP_DELAYED = Row(
    ATTRIBUTE, _DDP, "DistributedDataParallel._static_graph_delay_allreduce_enqueued",
    "a repaired wrapper with static_graph=True begins again",
    "a model with static_graph=True must be wrapped again after a rebuild",
)
DDP_PRECISION = Row(
    PRIVATE, "torch.distributed", "Reducer._set_mixed_precision_param_dtype",
    "a repaired wrapper keeps mixed_precision=",
    "a model with mixed_precision= must be wrapped again after a rebuild",
)
IN_BACKWARD = Row(
    ATTRIBUTE, "torch", "nn.Parameter._in_backward_optimizers",
    "a repaired wrapper keeps optimizers that step in its backward",
    "a model with such optimizers must be wrapped again after a rebuild",
    optional=True,  # only where there are such optimizers
)
DDP_OPTIMIZER = Row(
    PRIVATE, "torch.distributed", "Reducer._set_optimizer_in_backward", "the same",
    "a model with such optimizers must be wrapped again after a rebuild",
)
FSDP_STATE = Row(
    ATTRIBUTE, "torch.distributed.fsdp", "FSDPModule._get_fsdp_state",
    "tells whether the parameters of fully_shard() are gathered when they are saved",
    "gathered parameters are saved whole, and cannot be loaded",
)
FSDP_PASS = Row(
    ATTRIBUTE, "torch.distributed.fsdp", "FSDPState._training_state",
    "tells whether a model of fully_shard() is in the middle of a pass when it is saved",
    "what is loaded in the middle of a pass is not what the step goes on with",
)
FSDP_GROUPS = Row(
    ATTRIBUTE, "torch.distributed.fsdp", "FSDPState._fsdp_param_groups", "the same",
    "gathered parameters are saved whole, and cannot be loaded",
    optional=True,  # older versions have the next one
)
FSDP_GROUP = Row(
    ATTRIBUTE, "torch.distributed.fsdp", "FSDPState._fsdp_param_group", "the same",
    "gathered parameters are saved whole, and cannot be loaded",
    optional=True,
)
RECONFIGURE = Row(
    OFFICIAL, _C10D, "ProcessGroup.reconfigure", "a rebuild gives all groups new connections",
    "a rebuild makes the default group again, and others are lost",
    optional=True,  # from torch 2.14 on
)
RECONFIGURE_OPTIONS = Row(
    OFFICIAL, _C10D, "ReconfigureOptions", "the same",
    "a rebuild makes the default group again, and others are lost",
    optional=True,  # from torch 2.14 on
)
GROUP_RANKS = Row(
    OFFICIAL, _C10D, "get_process_group_ranks", "the ranks of each group",
    "the stall report knows no groups, and a rebuild loses all but the default one",
)
NCCL2 = Row(
    OFFICIAL, _C10D, "ProcessGroupNCCL2", "the backend nccl, if TORCH_DIST_USE_NCCL2 says so",
    "there is only ProcessGroupNCCL",
    optional=True,  # from torch 2.14 on
)
DDP_HOOKS = Row(
    ATTRIBUTE, _DDP, "DistributedDataParallel._comm_hooks", "a repaired wrapper keeps its hooks",
    "a repaired model has no communication hooks",
)
ABORTS = {
    (kind, name): Row(
        REPLACED, _C10D, f"{kind}.{name}", "nobody frees a communicator that C is ending",
        "a user's own abort of a group may race with that of the engine",
        optional=True,  # without NCCL there is no ProcessGroupNCCL
    )
    for kind in ("ProcessGroup", "ProcessGroupNCCL")
    for name in ("abort", "shutdown")
}
GET_BACKEND = Row(
    PRIVATE, _C10D, "ProcessGroup._get_backend", "the NCCL communicators of a group",
    "a rank in an NCCL collective is freed only with its process",
)
COMM_PTR = Row(
    PRIVATE, _C10D, "ProcessGroupNCCL._comm_ptr", "C ends a collective while Python cannot",
    "a rank in an NCCL collective that holds the GIL is freed only with its process",
    optional=True,
)
GROUP_START = Row(
    PRIVATE, _C10D, "ProcessGroupNCCL._group_start", "all communicators are aborted at once",
    "the communicators are aborted one by one",
    optional=True,
)
GROUP_END = Row(
    PRIVATE, _C10D, "ProcessGroupNCCL._group_end", "all communicators are aborted at once",
    "the communicators are aborted one by one",
    optional=True,
)
NEG_VIEW = Row(
    PRIVATE, "torch", "_neg_view", "reads a negated tensor without running a kernel",
    "the read of a negated tensor on a GPU waits for the work that is queued there",
)
HAS_CONTEXT = Row(
    PRIVATE, "torch", "_C._cuda_hasPrimaryContext", "no CUDA context is made only to look for one",
    "memory is asked of GPUs that the rank does not use",
    optional=True,
)
PRINT_OPTIONS = Row(
    PRIVATE, "torch", "_tensor_str.PRINT_OPTS", "reads only what print shows of a tensor on a GPU",
    "the text of a tensor on a GPU ignores torch.set_printoptions(threshold=)",
)
TENSOR_STR = Row(
    PRIVATE, "torch", "_tensor_str._tensor_str", "the text of a tensor on a GPU, without a kernel",
    "the text of a tensor on a GPU does not name its device",
)
RPC_AGENT = Row(
    PRIVATE, "torch.distributed.rpc.api", "_is_current_rpc_agent_set", "ends RPC with its program",
    "RPC goes on after the end of a program",
)

# ---- IPython

_SHELL = "IPython.core.interactiveshell"

SHOW = Row(
    METHOD, _SHELL, "InteractiveShell._showtraceback", "tracebacks go to the stream of the cell",
    "tracebacks are printed, not displayed",
)
ATEXIT = Row(
    METHOD, _SHELL, "InteractiveShell._atexit_once", "a rank ends without a collection of garbage",
    "a rank takes longer to end",
    optional=True,
)
TEE = Row(
    METHOD, _SHELL, "InteractiveShell._tee", "no copy of the output for the history",
    "IPython keeps a copy of all output",
    optional=True,  # from IPython 9 on
)
SHOW_LOCALLY = Row(
    MAGICS, "ipykernel.zmqshell", "ZMQInteractiveShell._showtraceback",
    "a traceback of `%%dip local` is shown once", "a traceback of `%%dip local` is shown twice",
)
FASTAI_BROADCAST = Row(
    REPLACED, "fastai.distributed", "DistributedDL._broadcast", "fastai trains without a GPU",
    "fastai needs a GPU",
)
TENSOR_VERSION = Row(
    PRIVATE, "torch", "Tensor._version", "which tensors a cell has changed in place",
    "the report of a cell names only variables that refer to another object",
)
EXC_INFO = Row(
    PRIVATE, _SHELL, "InteractiveShell._get_exc_info", "%pdb in a cell",
    "%pdb may show the exception of an earlier cell",
)
DISPLAY_LEVEL = Row(
    ATTRIBUTE, "IPython.core.display_trap", "DisplayTrap._nested_level",
    "closes a trap that an interrupt left open",
    "after an interrupt at a bad moment, the values of cells are not shown",
)
BUILTIN_LEVEL = Row(
    ATTRIBUTE, "IPython.core.builtin_trap", "BuiltinTrap._nested_level",
    "closes a trap that an interrupt left open",
    "after an interrupt at a bad moment, display() is no builtin",
)
INSTANCE = Row(
    PRIVATE, "traitlets.config.configurable", "SingletonConfigurable._instance",
    "a program finds no IPython", "a program finds IPython, as if it ran in a notebook",
)

INSPECT = Row(
    MAGICS, "ipykernel.kernelbase", "Kernel.do_inspect", "Shift-Tab shows objects of the ranks",
    "Shift-Tab shows objects of the notebook only",
)
DEBUG_THREAD = Row(
    REPLACED, "debugpy", "debug_this_thread", "VS Code's request for it connects to no port",
    "before VS Code debugs a cell, the kernel's process connects to port 5678",
    optional=True,  # only there if a front end can debug
)
SHUTDOWN = Row(
    MAGICS, "ipykernel.kernelbase", "Kernel.do_shutdown", "a restart leaves the cell alone",
    "Kernel > Restart interrupts the cell that runs on the ranks",
)

# ---- the standard library

OPTIONS = Row(
    MAGICS, "argparse", "ArgumentParser._option_string_actions", "where the code of `%dip` begins",
    "`%dip CODE` takes no options: `%%dip` does",
)

QUITTER = Row(
    PRIVATE, "_sitebuiltins", "Quitter", "exit() and quit() accept a status in cells",
    "exit() and quit() in a cell accept no status",
)
GETSIGNAL = Row(
    PRIVATE, "_signal", "getsignal", "looks quickly whose handler SIGINT has", "5 us in each cell",
)
SIGNAL = Row(
    REPLACED, "signal", "signal", "whether user code handles SIGINT itself",
    "an interrupt may be sent again although user code has handled it",
)
TRACERS, ALL_TRACERS = (
    [
        Row(
            REPLACED, "sys", name, "whether a tracer writes variables back that are only read",
            "reading a local variable may delete it while its function is traced", is_optional,
        )
        for name in names
    ]
    for names, is_optional in (
        (("settrace", "setprofile"), False),
        (("_settraceallthreads", "_setprofileallthreads"), True),
    )
)
SET_TRACE = Row(
    REPLACED, "bdb", "Bdb.set_trace", "a debugger stops in the cell, not above it",
    "stepping in a debugger leaves the cell",
)
CMDLOOP = Row(
    PRIVATE, "pdb", "Pdb._cmdloop", "an interrupt ends the prompt of a debugger",
    "a timeout or the death of who wrote the cell does not end the prompt of breakpoint()",
)
TRACE_DISPATCH = Row(
    REPLACED, "bdb", "Bdb.trace_dispatch", "what ends a debugger's prompt is a KeyboardInterrupt",
    "handlers in the cell do not see the interrupt that ends a debugger's prompt",
)
POST_MORTEM = Row(
    REPLACED, "pdb", "post_mortem", "the same of pdb.pm()",
    "handlers in the cell do not see the interrupt that ends the prompt of pdb.pm()",
)
INTERACT = Row(
    REPLACED, "code", "InteractiveConsole.interact", "an interrupt ends a console",
    "handlers in the cell do not see the interrupt that ends a console",
)
PDB_INIT = Row(
    REPLACED, "pdb", "Pdb.__init__", "Ctrl-C after a debugger's `continue` ends the cell",
    "Ctrl-C after a debugger's `continue` shows its prompt again",
)
FIND_AND_LOAD = Row(
    PRIVATE, "importlib._bootstrap", "_find_and_load", "an interrupt does not hit an import",
    "an interrupted import may have to be done again after a restart",
)
RUN_MODULE = Row(
    PRIVATE, "runpy", "_run_module_as_main", "`ddip run -m MODULE`",
    "the names of a program that was run with -m are gone at its end",
)
FINALIZERS = Row(
    PRIVATE, "weakref", "finalize._registry", "runs a program's finalizers at its end",
    "a program's weakref.finalize callbacks run when the rank ends",
)
MP_FINALIZERS = Row(
    PRIVATE, "multiprocessing.util", "_finalizer_registry", "runs those of multiprocessing",
    "multiprocessing's finalizers run when the rank ends, not with their program",
)
POOL_LOCK = Row(
    PRIVATE, "concurrent.futures.thread", "_global_shutdown_lock", "ends a program's thread pools",
    "the end of a program shuts down the thread pools of earlier cells, too",
)
POOL_SHUTDOWN = Row(
    PRIVATE, "concurrent.futures.thread", "_shutdown", "ends a program's thread pools",
    "the end of a program shuts down the thread pools of earlier cells, too",
)
POOL_QUEUES = Row(
    PRIVATE, "concurrent.futures.thread", "_threads_queues", "ends a program's thread pools",
    "the end of a program shuts down the thread pools of earlier cells, too",
)
POOL_WAKEUPS = Row(
    PRIVATE, "concurrent.futures.process", "_threads_wakeups", "ends a program's process pools",
    "the end of a program shuts down the process pools of earlier cells, too",
)
LOG_HANDLERS = Row(
    PRIVATE, "logging", "_handlerList", "flushes log handlers at a program's end",
    "log records that a handler holds back are written when the rank ends",
)
END_THREADS = Row(
    PRIVATE, "threading", "_shutdown", "a rank's end waits for its threads",
    "the end of a rank does not run threading's own exit functions",
)
EXIT_FUNCTIONS = Row(
    PRIVATE, "atexit", "_run_exitfuncs", "runs exit functions when a rank ends",
    "what cells registered with atexit does not run",
)
AT_EXIT = Row(
    REPLACED, "atexit", "register", "a program's exit functions run at its end",
    "a program's exit functions run when the rank ends",
)
NOT_AT_EXIT = Row(
    REPLACED, "atexit", "unregister", "forgets a program's exit function",
    "a program's exit functions run although they were unregistered",
)
EXECV = Row(
    REPLACED, "os", "execv", "a program that becomes another one leaves the rank alive",
    "a program that becomes another one with os.execv() ends the rank",
)
EXECVE = Row(
    REPLACED, "os", "execve", "a program that becomes another one leaves the rank alive",
    "a program that becomes another one with os.execve() ends the rank",
)
INPUT = Row(
    REPLACED, "builtins", "input", "input() reads what is written to a rank's stdin",
    "input() has no prompt",
)
GETPASS = Row(
    REPLACED, "getpass", "getpass", "getpass() reads what is written to a rank's stdin",
    "getpass() finds no terminal",
)

# ---- libraries, patched as soon as they are imported

RICH_REFRESH = Row(
    REPLACED, "rich.live", "Live.refresh", "rich's progress bars in a notebook",
    "rich prints its progress bars line by line",
)
RICH_SEGMENTS = Row(
    PRIVATE, "rich.jupyter", "_render_segments", "the same",
    "rich prints its progress bars line by line",
)
RICH_BUFFER = Row(
    PRIVATE, "rich.console", "Console._render_buffer", "the same",
    "rich prints its progress bars line by line",
)
RICH_LOCK = Row(
    ATTRIBUTE, "rich.live", "Live._lock", "the same", "rich prints its progress bars line by line",
)
RICH_RENDER = Row(
    ATTRIBUTE, "rich.live", "Live._live_render", "the same",
    "rich prints its progress bars line by line",
)
RICH_NESTED = Row(
    ATTRIBUTE, "rich.live", "Live._nested", "one progress bar within another", "it is drawn twice",
    optional=True,  # from rich 14 on
)
DEBUGGER_API = Row(
    PRIVATE, "_pydevd_bundle.pydevd_api", "PyDevdAPI", "a front end's breakpoints stop a rank",
    "no breakpoint stops",
    optional=True,  # only there if a front end debugs
)
WAIT_SUSPEND = Row(
    METHOD, "pydevd", "PyDB.do_wait_suspend", "`stall` says that a debugger has stopped a rank",
    "a rank that a debugger has stopped counts as stalled",
    optional=True,
)
COMM = Row(
    REPLACED, "comm", "create_comm", "widgets talk to their notebook", "widgets do not appear",
)
LAUNCHER = Row(
    REPLACED, "accelerate.launchers", "notebook_launcher", "calls the function on the ranks",
    "notebook_launcher() starts processes of its own",
)
CONNECTORS = [
    Row(
        REPLACED, module, f"{kind}.__init__", "Lightning's notebook strategies become ddp",
        "Lightning's notebook strategies start processes of their own",
    )
    for module, kind in (
        ("lightning.fabric.connector", "_Connector"),
        ("lightning_fabric.connector", "_Connector"),
        ("lightning.pytorch.trainer.connectors.accelerator_connector", "_AcceleratorConnector"),
        ("pytorch_lightning.trainer.connectors.accelerator_connector", "_AcceleratorConnector"),
    )
]
ACCELERATE = Row(
    PRIVATE, "accelerate.state", "AcceleratorState._reset_state", "Accelerate's shared state",
    "Accelerate must be imported anew after a rebuild: restart",
)
