# `ddip_engine.p5`, for mypy: the engine is built with the magics' module.

from ddip.p5 import *  # noqa: F403
