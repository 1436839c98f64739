"""torch.distributed under the engine: one store client, one default group, and user code that
calls init_process_group() and destroy_process_group() as it would under torchrun.

What is done to torch is done by install(), in the zygote, before anybody imports from it. Mending
the objects that hold a dead group is in heal.py.
"""

import collections
import contextlib
import functools
import inspect
import os
import sys
import time
from datetime import timedelta
from errno import EOPNOTSUPP

import _ddip
from ddip_engine import state

_COLLECTIVES = """
    all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_gather_single
    all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier broadcast
    broadcast_object_list gather gather_object monitored_barrier new_group recv recv_object_list
    reduce reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter scatter_object_list
    send send_object_list split_group _all_gather_base _reduce_scatter_base
""".split()
# What not every rank does: how often says nothing.
_BY_TWO = ("send", "recv", "send_object_list", "recv_object_list", "wait", "new_group")
_CONNECT_S = 60  # to the store, which is there before any rank
_GRAVE_S = 0.25  # a group's threads are idle this long after its destruction
_GRAVES_MAX = 32  # each keeps threads and sockets

api = None  # torch.distributed; None: no torch, or one without it
c10d = None  # torch.distributed.distributed_c10d
_real_init = None
_real_destroy = None
_backend = "none"  # of the engine's group, as the daemon asked for it
_store = None  # the one client of the store of this rank
_endpoint = ("", 0)  # of that store
_inits = collections.Counter()  # init_process_group calls of this cell, by rendezvous
_claimed = None  # the cell in which user code took or made the default group; None: nobody yet
_met = None  # the generation in which the external ranks were met; None: not yet
_foreign = False  # the default group came of arguments that no later call can be compared with
_graves = collections.deque()  # (time, destroyed group): its threads may still want the GIL
_accelerate_stale = False


def install():
    """Replaces torch's rendezvous and wraps what user code calls. Without torch: does nothing."""
    global api, c10d, _real_init, _real_destroy
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return
    api = torch.distributed
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    _real_init, _real_destroy = c10d.init_process_group, c10d.destroy_process_group
    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
    handlers["env"], handlers["tcp"] = _env_rendezvous, _tcp_rendezvous
    for name, wrapper in (
        ("init_process_group", functools.wraps(_real_init)(_init_process_group)),
        ("destroy_process_group", functools.wraps(_real_destroy)(_destroy_process_group)),
    ):
        setattr(c10d, name, wrapper)
        setattr(api, name, wrapper)
    for name in _COLLECTIVES:
        _count(name)
    _count_wait()
    _mark_others()
    _ddip.mend_gloo()
    _wrap_spawn()
    os.register_at_fork(after_in_child=_in_child)


# ---- what the stall report and the abort look at


def _counted(function, name):
    enter, done = _ddip.collective, _ddip.collective_done
    alike = name not in _BY_TWO

    @functools.wraps(function)
    def counted(*args, **kwargs):
        enter(name)
        try:
            result = function(*args, **kwargs)
            if alike and _by_all(args, kwargs):
                done()
            return result
        finally:
            enter(None)

    return counted


def _by_all(args, kwargs):
    """True if the call is for the default group: then every rank must make it."""
    group = kwargs.get("group")
    if group is None:
        for each in args:
            if isinstance(each, c10d.ProcessGroup):
                group = each
    return group is None or group is c10d.GroupMember.WORLD


def _mark(owner, function, name):
    """Marks what blocks in C++ like a collective: parts of a wrapped model's step, the store."""
    real, enter = getattr(owner, function), _ddip.collective

    @functools.wraps(real)
    def marked(*args, **kwargs):
        if c10d.GroupMember.WORLD is None:
            return real(*args, **kwargs)
        enter(name)
        try:
            return real(*args, **kwargs)
        finally:
            enter(None)

    setattr(owner, function, marked)


def _mark_others():
    _mark(sys.modules["torch.autograd"], "_engine_run_backward", "backward")
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    if parallel is not None:
        _mark(parallel.DistributedDataParallel, "_pre_forward", "forward")
    for function in ("get", "wait"):
        _mark(c10d.Store, function, "store")


def _count(name):
    """Counts a collective. Where torch's own decorator wraps it, the inside is replaced, so that
    the function that others imported, and that torch.compile knows, stays the same object."""
    public = getattr(c10d, name, None)
    if public is None:
        return
    cells = dict(zip(public.__code__.co_freevars, public.__closure__ or (), strict=False))
    inner = cells.get("func")
    if inner is not None and inspect.isfunction(inner.cell_contents):
        inner.cell_contents = _counted(inner.cell_contents, name)
        return
    wrapper = _counted(public, name)
    for module in (c10d, api):
        if getattr(module, name, None) is public:
            setattr(module, name, wrapper)


def _count_wait():
    """`work.wait()` of an asynchronous collective blocks like a collective."""
    c10d.Work.wait = _counted(c10d.Work.wait, "wait")


def _wrap_spawn():
    """Processes that user code spawns are a job of their own: their rank 0 hosts their store."""
    spawn = sys.modules.get("torch.multiprocessing.spawn")
    if spawn is None:
        return
    real = spawn.start_processes

    @functools.wraps(real)
    def start_processes(*args, **kwargs):
        flag = os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        try:
            return real(*args, **kwargs)
        finally:
            if flag is not None:
                os.environ["TORCHELASTIC_USE_AGENT_STORE"] = flag

    spawn.start_processes = start_processes
    sys.modules["torch.multiprocessing"].start_processes = start_processes


# ---- rendezvous


def _client():
    """The rank's client of the store; made again if its socket is gone."""
    global _store
    if _store is not None:
        try:
            _store.check(["ddip"])
            return _store
        except RuntimeError:  # shut down to free this rank
            _store = None
    host, port = _endpoint
    _store = api.TCPStore(
        host, port, is_master=False, timeout=timedelta(seconds=_CONNECT_S), wait_for_workers=False
    )
    return _store


def _store_for(host, port, rank, size, timeout, tag):
    """A store whose keys no other init of this mount sees.

    The engine's store serves the ranks of this group, whatever host and port the program says; a
    group of other processes hosts its own, as without the engine.
    """
    own = os.getpid() == state.pid and _endpoint[1] != 0
    if state.external and size == state.size:
        own = own and (host, port) == _endpoint
        if own:
            return _store_with_external()
    if own and ((rank, size) == (state.rank, state.size) or (host, port) == _endpoint):
        if size != state.size:
            tag += f".of{size}"
        _inits[tag] += 1
        prefix = f"{state.generation}.{state.cell}.{_inits[tag]}{tag}"
        return api.PrefixStore(prefix, _client())
    hosts = rank == 0 and (host, port) != _endpoint
    return api.TCPStore(host, port, size, is_master=hosts, timeout=timeout, multi_tenant=True)


def _store_with_external():
    """The keys that a process with torch's own env:// arrives at. They can be used once."""
    global _met
    if _met == state.generation:
        raise RuntimeError(
            f"the external ranks ({state.external}) can be met once: write `recover` (or `restart`)"
            " to ctl, let their processes join anew, then call init_process_group() again"
        )
    _met = state.generation
    rendezvous = sys.modules["torch.distributed.rendezvous"]
    if "attempt" in rendezvous._create_c10d_store.__code__.co_varnames:  # torch before 2.5
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        return api.PrefixStore(f"/worker/attempt_{attempt}", _client())
    return _client()


def _forget_external():
    """Nobody shall read what the ranks of an older generation wrote for the external ones.

    Runs while no rank of the group meets others: at a rebuild, and when a new rank joins.
    """
    global _met
    if not state.external or c10d is None or _endpoint[1] == 0:
        return
    client = _client()
    if not hasattr(client, "list_keys"):  # then it is once for each start
        _met = state.generation if _met is not None else None
        return
    for key in client.list_keys():
        client.delete_key(key)


def _numbers(url):
    """(parsed url, rank, world size): of the url's query, else of the environment."""
    rendezvous = sys.modules["torch.distributed.rendezvous"]
    parsed = rendezvous.urlparse(url)
    query = rendezvous._query_to_dict(parsed.query)
    return parsed, query.get("rank"), query.get("world_size")


def _environment(name):
    value = os.environ.get(name)
    if not value:
        raise ValueError(
            "Error initializing torch.distributed using env:// rendezvous: "
            f"environment variable {name} expected, but not set"
        )
    return value


def _env_rendezvous(url, timeout=timedelta(minutes=30), **kwargs):
    """The handler of env://, see torch.distributed.rendezvous."""
    _, rank, size = _numbers(url)
    rank = int(rank if rank is not None else _environment("RANK"))
    size = int(size if size is not None else _environment("WORLD_SIZE"))
    host, port = _environment("MASTER_ADDR"), int(_environment("MASTER_PORT"))
    yield _store_for(host, port, rank, size, timeout, ""), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


def _tcp_rendezvous(url, timeout=timedelta(minutes=30), **kwargs):
    """The handler of tcp://, see torch.distributed.rendezvous."""
    parsed, rank, size = _numbers(url)
    for value, what in (
        (parsed.port, "port number"),
        (rank, "rank parameter"),
        (size, "world size parameter"),
    ):
        if value is None:
            raise ValueError(
                "Error initializing torch.distributed using tcp:// rendezvous: " + what + " missing"
            )
    tag = f".tcp.{parsed.hostname}:{parsed.port}"
    store = _store_for(parsed.hostname, parsed.port, int(rank), int(size), timeout, tag)
    yield store, int(rank), int(size)
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


# ---- the default group


@contextlib.contextmanager
def _hook_kept():
    """Each init wraps sys.excepthook once more; the rank reports its exceptions itself."""
    hook = sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = hook


def _begin(*args, **kwargs):
    """Torch's own init. Its keys have a count in their names, which a failed init leaves grown:
    the next one would look for the other ranks under a name that they do not use.
    """
    if c10d.GroupMember.WORLD is None:
        c10d._world.group_count = 0
    with _hook_kept():
        _real_init(*args, **kwargs)


def _init_process_group(*args, **kwargs):
    """Adopts the standing group where the call asks for nothing else, replaces it where it does.

    A group is taken once in a cell: a second call in the same cell gets torch's own error.
    """
    global _claimed, _foreign
    if os.getpid() != state.pid:
        return _real_init(*args, **kwargs)
    call = inspect.signature(_real_init).bind(*args, **kwargs)
    call.apply_defaults()
    asked = call.arguments
    _ddip.collective("init_process_group")
    try:
        if c10d.GroupMember.WORLD is not None and _claimed != state.cell:
            if _compatible(asked):
                _adopt(asked)
                return None
            _destroy_process_group()
        _begin(*args, **kwargs)
        _claimed = state.cell
        _foreign = _is_special(asked)
    finally:
        _ddip.collective(None)
    return None


def _is_special(asked):
    """True if the call names things that make a group of its own: a store, an address, options."""
    method = asked.get("init_method")
    return (
        asked.get("store") is not None
        or asked.get("pg_options") is not None
        or asked.get("device_id") is not None
        or bool(asked.get("_ranks"))
        or not (method is None or method.startswith("env://"))
    )


def _compatible(asked):
    """True if the standing default group is what the call asks for."""
    if _foreign or _is_special(asked):
        return False
    _, rank, size = _numbers(asked.get("init_method") or "env://")
    rank = rank if rank is not None else os.environ.get("RANK", state.rank)
    size = size if size is not None else os.environ.get("WORLD_SIZE", state.size)
    if asked.get("rank", -1) != -1:
        rank = asked["rank"]
    if asked.get("world_size", -1) != -1:
        size = asked["world_size"]
    world = c10d.GroupMember.WORLD
    if (int(rank), int(size)) != (world.rank(), world.size()):
        return False
    return _devices(asked.get("backend")) == _devices(c10d._world.pg_map[world][0])


def _devices(backend):
    """Which backend serves which device; names alone cannot be compared ("undefined")."""
    config = c10d.BackendConfig(c10d.Backend(backend or "undefined"))
    return dict(config.get_device_backend_map())


def _adopt(asked):
    global _claimed
    world = c10d.GroupMember.WORLD
    timeout = asked.get("timeout")
    if timeout is None:
        timeout = c10d._get_default_timeout(c10d._world.pg_map[world][0])
    c10d._set_pg_timeout(timeout, world)
    _claimed = state.cell


def _destroy_process_group(group=None):
    """Keeps the destroyed groups: their destructor joins threads that may want the GIL."""
    global _claimed, _foreign, _accelerate_stale
    if os.getpid() != state.pid:
        return _real_destroy(group)
    whole = group is None or group == c10d.GroupMember.WORLD
    now = time.monotonic()
    _graves.extend((now, pg) for pg in list(c10d._world.pg_map) if whole or pg == group)
    _real_destroy(group)
    if whole:
        _claimed, _foreign, _accelerate_stale = None, False, True
    return None


def _choose(backend):
    """The backend of the engine's group: what was asked for, auto by the devices there are."""
    if backend != "auto":
        return backend
    cuda = sys.modules["torch"].cuda
    enough = cuda.is_available() and cuda.device_count() >= state.local_size
    return "nccl" if enough and c10d.is_nccl_available() else "gloo"


def start(backend, address, port):
    """The default group of a new rank. backend "none": only what a later init by the user needs."""
    global _backend, _endpoint
    _backend, _endpoint = backend, (address, port)
    if c10d is None and backend not in ("auto", "none"):
        text = f"backend {backend}: {sys.executable} has no torch.distributed"
        raise state.Refusal(EOPNOTSUPP, f"{text}; install torch there, or say backend none")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.set_device(state.local_rank % torch.cuda.device_count())
    elif torch is not None:
        # Accelerate joins a group on the CPU only if this says so, as its own launcher does
        os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    make_default()


def make_default():
    """Makes the engine's default group, if it is to have one; waits for the other ranks.

    With external ranks the first init_process_group() of a cell makes it: they come when they do.
    """
    global _claimed, _foreign
    if state.external:
        _forget_external()
        return
    if _backend == "none" or (c10d is None and _backend == "auto"):
        return
    if c10d is None:
        raise ModuleNotFoundError(
            f"backend {_backend} needs torch, which {sys.executable} cannot import: "
            "set `python` to one that can, or `backend none`"
        )
    _begin(_choose(_backend), "env://", rank=state.rank, world_size=state.size)
    _claimed, _foreign = None, False


def begin_cell():
    """Before each cell, when state has its number: no init of it can meet another cell's keys."""
    _inits.clear()
    if _accelerate_stale:
        reset_accelerate()
    if len(_graves) > _GRAVES_MAX:
        # A loop of init and destroy: the oldest threads get the time that idle() would give them.
        time.sleep(max(0.0, _graves[0][0] + _GRAVE_S - time.monotonic()))
        idle()


def new_generation(generation):
    """No key of an older generation is seen again."""
    state.generation = generation
    state.cell = 0  # the last cell may have run on some ranks only: the keys must agree
    _inits.clear()


def drop_default():
    """Destroys the default group, whoever made it; False if there is none."""
    if c10d is None or c10d.GroupMember.WORLD is None:
        return False
    abort()
    _destroy_process_group()
    return True


def abort():
    """Frees a rank from NCCL collectives. Gloo has no such call: its sockets are shut down in C.

    A rank that is alone waits for nobody, and no new group would be made for it.
    """
    world = c10d.GroupMember.WORLD if c10d is not None else None
    if world is None or world.size() == 1 or not c10d.is_nccl_available():
        return
    cuda = sys.modules["torch"].device("cuda")
    groups = list(c10d._world.pg_map.items())
    groups = [pg for pg, (name, _) in groups if "nccl" in _devices(name).values()]
    backends = [pg._get_backend(cuda) for pg in groups]
    backends = [each for each in backends if isinstance(each, c10d.ProcessGroupNCCL)]
    if not backends:
        return
    # As one group of NCCL calls: communicators that are aborted one by one can block each other.
    backends[0]._group_start()
    try:
        for backend in reversed(backends):
            backend.abort()
    finally:
        backends[0]._group_end()


def reset_accelerate():
    """Accelerate's shared state outlives the group that it was made with."""
    global _accelerate_stale
    _accelerate_stale = False
    accelerate = sys.modules.get("accelerate.state")
    if accelerate is not None:
        accelerate.AcceleratorState._reset_state(reset_partial_state=True)


def idle():
    """Lets go of destroyed groups whose threads have come to rest. Called between messages."""
    now = time.monotonic()
    if not _graves or now - _graves[0][0] < _GRAVE_S or _loops_busy():
        return
    while _graves and now - _graves[0][0] >= _GRAVE_S:
        _graves.popleft()


def _loops_busy():
    """True if a worker thread of gloo is on a processor: it may want the GIL soon."""
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/stat", encoding="utf-8", errors="replace") as f:
                name, _, rest = f.read().partition("(")[2].rpartition(")")
        except FileNotFoundError:  # it has just ended
            continue
        if name.startswith("pt_gloo") and rest.split()[0] != "S":
            return True
    return False


def _in_child():
    """A forked child must not use its parent's sockets; a group it has only of its user."""
    global _store
    if _store is not None:
        _graves.append((0.0, _store))  # a thread of the parent may hold its lock
        _store = None
    if _claimed is None and c10d.GroupMember.WORLD is not None:
        _graves.extend((0.0, pg) for pg in c10d._world.pg_map)
        c10d._update_default_pg(None)
        c10d._unregister_all_process_groups()
        for table in (
            "pg_map",
            "pg_names",
            "pg_group_ranks",
            "pg_backend_config",
            "pg_to_tag",
            "tags_to_pg",
            "pg_coalesce_state",
        ):
            getattr(c10d._world, table).clear()
        c10d._world.group_count = 0
