"""Library functions that start processes from a notebook: here the ranks are those processes.

accelerate's notebook_launcher() calls its function; Lightning's notebook strategies become ddp.
"""

import functools

from ddip_engine import state

_SPAWNING = ("ddp_notebook", "ddp_fork", "ddp_spawn")  # Lightning strategies, or prefixes of them
_told = False


def _change_accelerate(module):
    plain = module.notebook_launcher

    @functools.wraps(plain)
    def notebook_launcher(function, args=(), num_processes=None, *others, **options):
        global _told
        if state.rank == 0 and not _told:
            asked = "" if num_processes in (None, state.size) else f", not on {num_processes}"
            ranks = "the rank that is" if state.size == 1 else f"the {state.size} ranks that are"
            print(f"notebook_launcher: the function is called on {ranks} here{asked}", flush=True)
        _told = True
        function(*args)

    module.notebook_launcher = notebook_launcher


def _change_lightning(connector):
    """connector: the name of the class that receives the strategy of a Trainer or a Fabric."""

    def change(module):
        kind = getattr(module, connector)
        plain = kind.__init__

        @functools.wraps(plain)
        def __init__(self, *args, **kwargs):
            strategy = kwargs.get("strategy")
            for name in _SPAWNING if isinstance(strategy, str) else ():
                if strategy.startswith(name):
                    kwargs["strategy"] = "ddp" + strategy.removeprefix(name)
            plain(self, *args, **kwargs)

        kind.__init__ = __init__

    return change


# module -> function that patches it once it has been imported
CHANGES = {
    "accelerate.launchers": _change_accelerate,
    "lightning.fabric.connector": _change_lightning("_Connector"),
    "lightning_fabric.connector": _change_lightning("_Connector"),
    "lightning.pytorch.trainer.connectors.accelerator_connector": _change_lightning(
        "_AcceleratorConnector"
    ),
    "pytorch_lightning.trainer.connectors.accelerator_connector": _change_lightning(
        "_AcceleratorConnector"
    ),
}
