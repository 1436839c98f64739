"""fastai 2 on the ranks: progress bars from rank 0 alone, and its own device on each rank."""


def prepare():
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
    show_progress("0")
    where = "learn.distrib_ctx()" if torch.cuda.is_available() else "DistributedDataParallel"
    return f"fastai {fastai.__version__} is ready on rank {rank}; train within {where}"  # noqa: F821


def show_progress(which):
    """Progress bars on rank 0 ("0") or on all ranks ("all")."""
    from fastai.callback.progress import ProgressCallback
    from fastai.learner import defaults

    callbacks = [cb for cb in defaults.callbacks if cb is not ProgressCallback]
    if which == "all" or rank == 0:  # noqa: F821
        callbacks.append(ProgressCallback)
    defaults.callbacks = callbacks
    return f"progress bars: {which}"


COMMANDS = {"progress": show_progress}


def command(name, *words):
    """Runs a command of the table."""
    if name not in COMMANDS:
        raise ValueError(f"no command {name!r}; there are: {' '.join(COMMANDS)}")
    return COMMANDS[name](*words)
