"""Shared by tests of the engine's Python: torch, NumPy, the package ddip_engine from its sources.

Where torch is missing the test runs again in the environment that has it.
"""

import os
import sys
import types

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.environ.get("PYTHON") or os.path.join(ROOT, ".venv", "bin", "python")

try:
    import numpy as np  # noqa: F401
    import torch  # noqa: F401
except ImportError as e:
    if os.path.exists(PYTHON) and not os.environ.get("DDIP_TEST_AGAIN"):
        os.environ["DDIP_TEST_AGAIN"] = "yes"
        os.execv(PYTHON, [PYTHON, *sys.argv])
    print(f"{sys.executable}: {e}")
    sys.exit(77)

package = types.ModuleType("ddip_engine")
package.__path__ = [os.path.join(ROOT, "engine", "ddip_engine")]
package.__path__.append(os.path.join(ROOT, "magics", "ddip"))  # for what both sides use
sys.modules["ddip_engine"] = package
