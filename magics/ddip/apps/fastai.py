"""fastai 2 on the ranks: fit() trains on all of them; only rank 0 shows progress bars."""

from __future__ import annotations

import inspect

TYPE_CHECKING = False
if TYPE_CHECKING:
    rank = 0  # a global of the cell that runs this


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
    import torch
    from ddip_engine import patches

    try:
        import fastai.distributed  # noqa: F401
    except ImportError as e:
        raise ImportError(f"to train with all ranks fastai needs accelerate ({e})") from None
    from fastai.learner import Learner

    plain = getattr(Learner, "_ddip_fit", None) or Learner.fit
    Learner._ddip_fit = plain

    def fit(learner, *args, **kwargs):
        group = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
        if not group or hasattr(learner, "distributed_trainer"):
            return plain(learner, *args, **kwargs)
        with learner.distrib_ctx(sync_bn=torch.cuda.is_available()):
            return plain(learner, *args, **kwargs)

    def broadcast(loader, numbers, source):
        """Replaces fastai's own function, which moves the numbers to a GPU first."""
        numbers = torch.LongTensor(numbers)
        torch.distributed.broadcast(numbers, source)
        return numbers.tolist()

    fit.__doc__, fit.__signature__ = plain.__doc__, inspect.signature(plain)  # type: ignore[attr-defined]
    Learner.fit = fit if switch == "on" else plain
    if not torch.cuda.is_available():
        patches.FASTAI_BROADCAST.replace(lambda real: broadcast)
    return f"distributed learners: {switch}"


def show_progress(which: str) -> str:
    """Shows progress bars on rank 0 ("0") or on all ranks ("all")."""
    from fastai.callback.progress import ProgressCallback
    from fastai.learner import defaults

    callbacks = [cb for cb in defaults.callbacks if cb is not ProgressCallback]
    if which == "all" or rank == 0:
        callbacks.append(ProgressCallback)
    defaults.callbacks = callbacks
    return f"progress bars: {which}"


COMMANDS = {"ddp": make_distributed, "progress": show_progress}


def command(name: str, *words: str) -> str:
    """Runs one of COMMANDS."""
    if name not in COMMANDS:
        raise ValueError(f"no command {name!r}; there are: {' '.join(COMMANDS)}")
    return COMMANDS[name](*words)
