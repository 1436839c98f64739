#!/usr/bin/env python3
"""A kernel that knows nothing of the source tree finds the package as pip installs it."""

import json
import os
import subprocess
import tempfile

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "pip")


def test_install():
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "site")
        pip = [notebook.PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # its dependencies are there, and the programs are built; nothing is downloaded
        options = ["--no-deps", "--no-index", f"--config-settings=build={notebook.BUILD}"]
        subprocess.run([*pip, *options, "--target", target, notebook.ROOT], check=True)
        kernels = os.path.join(target, "share", "jupyter", "kernels")
        with open(os.path.join(kernels, "ddipfs", "kernel.json"), encoding="utf-8") as file:
            assert json.load(file)["display_name"] == "DDP (ddipfs)"
        with notebook.notebook(own=True, PYTHONPATH=target) as nb:
            for name in ("ddip", "Ddip", "ddipp"):
                nb.ok(f"%load_ext {name}")
            where = nb.ok("import ddip\nprint(ddip.__file__)").text()
            assert where.startswith(target), where
            assert "fastai" in nb.ok("%makedip -a fastai_v1").text("stderr")
            assert nb.ok("%%dip\nrank").data() == ["Out[0:2]: 0"]
            assert nb.ok("ddip.ranch(2, max, 1, 2)").data() == ["[2, 2]"]


if __name__ == "__main__":
    notebook.run(globals())
