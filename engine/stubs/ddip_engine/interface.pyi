# `ddip_engine.interface`, for mypy: the engine is built with the magics' module.

from ddip.interface import *  # noqa: F403
