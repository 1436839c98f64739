# `ddip_engine.known_bad`, for mypy: the engine is built with the magics' module.

from ddip.known_bad import *  # noqa: F403
