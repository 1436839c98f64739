"""fastai 1 on the ranks: each Learner trains on all of them; only rank 0 shows progress bars."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    rank = 0  # a global of the cell that runs this


def prepare() -> str:
    """Prepares this rank. Returns a line to show; raises ImportError if fastai 1 is missing."""
    import sys

    try:
        import fastai
    except ImportError as e:
        raise ImportError(
            f"fastai is not installed for {sys.executable} ({e}); version 1 is installed by"
            " pip install 'fastai<2', with the torch of its time; for fastai 2 use -a fastai"
        ) from None
    if not fastai.__version__.startswith("1."):
        raise ImportError(
            f"fastai {fastai.__version__} is installed for {sys.executable}, and notebooks for"
            " version 1 do not run with it: use %makedip -a fastai, or an environment with"
            " 'fastai<2'"
        )
    import torch

    if torch.cuda.is_available():
        from fastai.torch_core import defaults

        defaults.device = torch.device("cuda", torch.cuda.current_device())
    make_distributed("on")
    show_progress("0")
    return f"fastai {fastai.__version__} is ready on rank {rank}"


def make_distributed(switch: str) -> str:
    """Makes learners created from now on train on all ranks together ("on"), or alone ("off")."""
    import torch
    from fastai import distributed
    from fastai.basic_train import Learner

    assert distributed  # importing it adds Learner.to_distributed
    plain = getattr(Learner, "_ddip_post_init", None) or Learner.__post_init__
    Learner._ddip_post_init = plain

    def post_init(learner):
        plain(learner)
        learner.to_distributed(torch.cuda.current_device())

    Learner.__post_init__ = post_init if switch == "on" else plain
    return f"distributed learners: {switch}"


def show_progress(which: str) -> str:
    """Shows progress bars on rank 0 ("0") or on all ranks ("all")."""
    import fastprogress
    from fastai import basic_data, basic_train, core

    fastprogress.fastprogress.NO_BAR = which != "all" and rank != 0
    bars = fastprogress.force_console_behavior()
    for module in (fastprogress.fastprogress, basic_train, basic_data, core):
        module.master_bar, module.progress_bar = bars
    return f"progress bars: {which}"


# name of a command -> its function, and the words that it takes
COMMANDS = {"ddp": (make_distributed, ("on", "off")), "progress": (show_progress, ("0", "all"))}
