# `ddip_engine.patches`, for mypy: the engine is built with the magics' module.

from ddip.patches import *  # noqa: F403
