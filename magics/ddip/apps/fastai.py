"""fastai 2 on the ranks: fit() trains on all of them; only rank 0 shows progress bars.

fastai takes WORLD_SIZE for the number of processes that train one model, at any time. Here a
learner does so only within fit(), or within the user's own distrib_ctx(). Otherwise each rank has a
learner of its own, whose predictions, losses and metrics are not gathered; and fastai's finder of
learning rates, which keeps the model in a file that only rank 0 writes, keeps it in memory.
"""

from __future__ import annotations

import contextlib
import inspect
import io

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    rank = 0  # a global of the cell that runs this


_PLACES = (0, 0.25, 0.5, 0.75, 1)  # of a schedule, at which ranks compare it
_joined: set[Any] = set()  # the DistributedTrainers between before_fit and after_fit
_is_on = False  # fit() trains with all ranks


def prepare() -> str:
    """Prepares this rank. Returns a line to show; raises ImportError if fastai 2 is missing."""
    import sys

    try:
        import fastai
    except ImportError as e:
        raise ImportError(
            f"fastai is not installed for {sys.executable} ({e}): pip install fastai"
        ) from None
    if fastai.__version__.startswith("1."):
        raise ImportError(f"this is fastai {fastai.__version__}: use %makedip -a fastai_v1")
    import torch
    from fastai import torch_core

    if torch.cuda.is_available():
        torch_core.default_device(torch.cuda.current_device())
    else:
        torch_core.default_device(False)
    make_distributed("on")
    show_progress("0")
    return f"fastai {fastai.__version__} is ready on rank {rank}: fit() trains with all ranks"


def make_distributed(switch: str) -> str:
    """Makes learners train on all ranks together ("on"), or on each rank alone ("off")."""
    global _is_on
    try:
        import accelerate  # noqa: F401
    except ImportError as e:
        raise ImportError(
            f"to train with all ranks fastai needs accelerate ({e}): pip install accelerate"
        ) from None
    _is_on = switch == "on"
    _gather_only_when_joined()
    _keep_in_memory()
    _replace_fit()
    return f"distributed learners: {switch}"


def _plain(owner: Any, name: str) -> Any:
    """An attribute of fastai's as it was before the first rank was prepared."""
    kept = vars(owner).get("_ddip_plain")
    if kept is None:
        kept = owner._ddip_plain = {}
    return kept.setdefault(name, getattr(owner, name))


def _gather_only_when_joined() -> None:
    import torch
    from ddip_engine import patches
    from fastai import torch_core
    from fastai.distributed import DistributedTrainer

    gather = _plain(torch_core, "maybe_gather")
    begin, end = _plain(DistributedTrainer, "before_fit"), _plain(DistributedTrainer, "after_fit")

    def maybe_gather(x, axis=0):
        return gather(x, axis) if _joined else x

    def before_fit(trainer):
        logger = trainer.learn.logger
        begin(trainer)
        if hasattr(trainer.learn, "progress"):
            trainer.learn.logger = logger  # this rank has a bar, and its table
        _joined.add(trainer)

    def after_fit(trainer):
        _joined.discard(trainer)
        end(trainer)

    def broadcast(loader, numbers, source):
        """Replaces fastai's own function, which moves the numbers to a GPU first."""
        numbers = torch.LongTensor(numbers)
        torch.distributed.broadcast(numbers, source)
        return numbers.tolist()

    torch_core.maybe_gather = maybe_gather
    DistributedTrainer.before_fit, DistributedTrainer.after_fit = before_fit, after_fit
    if not torch.cuda.is_available():
        patches.FASTAI_BROADCAST.replace(lambda real: broadcast)


def _keep_in_memory() -> None:
    """Has LRFinder keep the model and the optimizer in memory."""
    import torch
    from fastai.callback.schedule import LRFinder, ParamScheduler
    from fastai.torch_core import get_model

    def before_fit(finder):
        ParamScheduler.before_fit(finder)
        finder.best_loss = float("inf")
        kept = finder.kept = io.BytesIO()
        learner = finder.learn
        torch.save([get_model(learner.model).state_dict(), learner.opt.state_dict()], kept)

    def after_fit(finder):
        finder.learn.opt.zero_grad()  # else the next fit() would have these gradients
        _restore(finder, finder.learn)

    LRFinder.before_fit, LRFinder.after_fit = before_fit, after_fit


def _restore(finder: Any, learner: Any) -> None:
    """Gives a learner back what the finder has kept of it."""
    import torch
    from fastai.torch_core import get_model

    kept, finder.kept = getattr(finder, "kept", None), None
    if kept is None:
        return
    kept.seek(0)
    model, optimizer = torch.load(kept, weights_only=False)
    get_model(learner.model).load_state_dict(model)
    learner.opt.load_state_dict(optimizer)


def _replace_fit() -> None:
    import torch
    from fastai.callback.schedule import LRFinder
    from fastai.learner import Learner
    from fastcore.foundation import L

    plain = _plain(Learner, "fit")
    signature = inspect.signature(plain)

    def fit(learner, *args, **kwargs):
        bound = signature.bind(learner, *args, **kwargs)
        given = bound.arguments
        finders = [cb for cb in L(given.get("cbs")) if isinstance(cb, LRFinder)]
        group = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
        joins = _is_on and group and not hasattr(learner, "distributed_trainer")
        with _as_it_was(learner, finders):
            if joins:
                given["cbs"] = L(given.get("cbs")) + _trainers(given.get("start_epoch", 0))
            if joins and finders:  # an epoch has fewer batches than lr_find() has counted
                given["n_epoch"] *= torch.distributed.get_world_size()
            return plain(*bound.args, **bound.kwargs)

    fit.__doc__, fit.__signature__ = plain.__doc__, signature  # type: ignore[attr-defined]
    Learner.fit = fit


@contextlib.contextmanager
def _as_it_was(learner: Any, finders: Any) -> Any:
    """A fit() that does not come to its end leaves the learner as one that does."""
    from torch.nn.parallel import DistributedDataParallel

    model, loaders, logger = learner.model, list(learner.dls.loaders), learner.logger
    try:
        yield
    except BaseException:
        _joined.difference_update([each for each in _joined if each.learn in (learner, None)])
        if learner.model is not model and isinstance(learner.model, DistributedDataParallel):
            learner.model = learner.model.module
        learner.dls.loaders = loaders
        if learner.opt is not None:
            learner.opt.zero_grad()
        for finder in finders:
            _restore(finder, learner)
        raise
    finally:
        learner.logger = logger


def _trainers(start_epoch: int) -> Any:
    """The callbacks for a fit() that joins all ranks."""
    import torch
    from fastai.callback.core import Callback
    from fastai.distributed import DistributedTrainer

    class Alike(Callback):
        """Gives the optimizers the same state. Raises ValueError if the ranks would train in other
        ways."""

        order = 65  # behind schedules, before those that skip epochs

        def before_fit(self):
            self.begins = True
            _share_state(self.learn.opt)

        def before_epoch(self):
            said = _hypers(self.learn)
            if self.begins:
                said |= _plan(self.learn) | {"start_epoch": str(start_epoch)}
            self.begins = False
            _compare(said)

    return [DistributedTrainer(sync_bn=torch.cuda.is_available()), Alike()]


def _share_state(opt: Any) -> None:
    """Gives all ranks the optimizer's state of rank 0, as DistributedDataParallel does with the
    parameters: a fit() that was interrupted may have made a step more on one of them."""
    import torch

    live = getattr(opt, "opt", opt)  # torch's, in a wrapper, or fastai's
    params = [param for group in opt.param_lists for param in group]
    packed = io.BytesIO()
    torch.save([dict(live.state.get(param, {})) for param in params], packed)
    sent = [packed.getvalue()]
    torch.distributed.broadcast_object_list(sent, 0)
    if torch.distributed.get_rank() == 0:
        return
    shared = torch.load(
        io.BytesIO(sent[0]),
        map_location=lambda storage, place: storage if place == "cpu" else storage.cuda(),
        weights_only=False,
    )
    for param, state in zip(params, shared, strict=True):
        live.state[param] = state


def _hypers(learner: Any) -> dict[str, str]:
    """The hyperparameters of all parameter groups."""
    found: dict[str, list[Any]] = {}
    for group in learner.opt.hypers:
        for name, value in group.items():
            found.setdefault(name, []).append(value)
    return {name: " ".join(map(str, values)) for name, values in found.items()}


def _plan(learner: Any) -> dict[str, str]:
    """What else all ranks need alike: how long they train, and the schedules."""
    from fastai.callback.schedule import ParamScheduler

    found = {"n_epoch": str(learner.n_epoch)}
    for which, loader in zip(("training", "validation"), learner.dls.loaders, strict=False):
        found[f"the number of {which} batches"] = str(len(loader))
    for scheduler in (cb for cb in learner.cbs if isinstance(cb, ParamScheduler)):
        for name, schedule in scheduler.scheds.items():
            if callable(schedule):
                found[f"the schedule of {name}"] = ", ".join(str(schedule(x)) for x in _PLACES)
    return found


def _compare(said: dict[str, str]) -> None:
    """Raises ValueError on all ranks if they do not say the same."""
    import torch

    all_said: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(all_said, said)
    for other, theirs in enumerate(all_said):
        for name in all_said[0] | theirs:
            one, another = all_said[0].get(name, "missing"), theirs.get(name, "missing")
            if one != another:
                raise ValueError(
                    f"{name} is {one} on rank 0 and {another} on rank {other}: the ranks train one"
                    " model, and need the same (%dip -a 'ddp off' lets each train its own)"
                )


def show_progress(which: str) -> str:
    """Shows progress bars on rank 0 ("0") or on all ranks ("all")."""
    from fastai.callback.progress import ProgressCallback
    from fastai.learner import defaults

    callbacks = [cb for cb in defaults.callbacks if cb is not ProgressCallback]
    if which == "all" or rank == 0:
        callbacks.append(ProgressCallback)
    defaults.callbacks = callbacks
    return f"progress bars: {which}"


# name of a command -> its function, and the words that it takes
COMMANDS = {"ddp": (make_distributed, ("on", "off")), "progress": (show_progress, ("0", "all"))}
