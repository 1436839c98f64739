#!/usr/bin/env python3
"""The notebooks of scripts/examples run from top to bottom, as with `jupyter execute`."""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient", "tqdm", "matplotlib")

EXAMPLES = os.path.join(notebook.ROOT, "scripts/examples")
DATA = "/usr/share/datasets/fashion-mnist"


def execute(name):
    """Runs a copy of a notebook. Returns the Outcomes of its code cells."""
    import nbformat

    node = nbformat.read(os.path.join(EXAMPLES, f"{name}.ipynb"), as_version=4)
    nbformat.validate(node)
    with tempfile.TemporaryDirectory() as folder, notebook.place(folder) as mount:
        for file in glob.glob(os.path.join(EXAMPLES, "*.py")):
            shutil.copy(file, folder)
        environment = {**os.environ, **notebook.environment_of(mount)}
        resources = {"metadata": {"path": folder}}
        notebook.client(node, resources=resources).execute(env=environment)
    return [notebook.Outcome(cell) for cell in node.cells if cell.cell_type == "code"]


def text(outcomes):
    """Everything that they printed or showed as text."""
    return "\n".join(o.text() + "\n".join(o.data()) for o in outcomes)


def errors(outcomes):
    """The names of the errors, in order."""
    return [outcome.error[0] for outcome in outcomes if outcome.error]


def test_are_clean():
    import nbformat

    for path in glob.glob(os.path.join(EXAMPLES, "*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        kept = [c for c in cells if c.cell_type == "code" and (c.outputs or c.execution_count)]
        assert not kept, f"{path}: the outputs are made by who runs it"


def test_first_steps():
    """papermill, which ends at any error, runs it, and the saved notebook shows what it did."""
    notebook.need_package("papermill")
    import nbformat

    with tempfile.TemporaryDirectory() as folder, notebook.place(folder) as mount:
        source, made = os.path.join(EXAMPLES, "first_steps.ipynb"), f"{folder}/made.ipynb"
        subprocess.run(
            [sys.executable, "-m", "papermill", "--no-progress-bar", source, made],
            cwd=folder,
            env={**os.environ, **notebook.environment_of(mount)},
            timeout=notebook.HANG_LIMIT_S,
            check=True,
        )
        cells = nbformat.read(made, as_version=4).cells
    said = text([notebook.Outcome(cell) for cell in cells if cell.cell_type == "code"])
    assert "name 'x' is not defined" in said and "ranks 0-1:" in said, said
    assert "IndexError: list index out of range" in said, said
    assert "is rank 1 of 2" in said and "Out[1:1]: 10" in said, said
    assert "tensor([3., 3., 3.])" in said and "tensor([1.5000, 1.5000, 1.5000])" in said, said
    assert "[3.5, 3.5, 3.5]" in said, said


def test_user_guide():
    done = execute("user_guide")
    assert errors(done) == ["NameError", "NameError", "RemoteError", "DipError"], errors(done)
    said = text(done)
    assert said.count("variable is: {1: 'foo', 2: 'bar'}") == 2, said
    assert "on, will run cell as %%dip --see all" in said, said


def test_train_ddp():
    _need_data()
    done = execute("train_ddp")
    assert sum(len(o.data("image/png")) for o in done) == 2
    assert "epoch 2: 100%" in text(done)
    accuracy = float(text(done).rpartition("mean accuracy ")[2].partition("%")[0])
    assert accuracy > 60, accuracy


def test_fastai():
    _need_data()
    notebook.need("fastai", "accelerate")
    done = execute("fastai")
    said = text(done)
    assert "is ready on rank 1" in said and said.count("accuracy ") >= 2, said
    assert any("<table" in html for o in done for html in o.data("text/html")), said
    assert sum(len(o.data("image/png")) for o in done) == 1


def test_accelerate():
    _need_data()
    notebook.need("accelerate")
    said = text(execute("accelerate"))
    assert "[1] 1 of 2 on cpu" in said and "of 6000 test images" in said, said


def test_debug_a_hang():
    said = text(execute("debug_a_hang"))
    assert "in=all_reduce" in said and "rank 1 has seen 10 batches" in said, said
    assert "state interrupted" in said and "(10, 2.0)" in said, said


def _need_data():
    if not os.path.isdir(DATA):
        notebook.skip(f"there is no {DATA}: Debian's package dataset-fashion-mnist")


if __name__ == "__main__":
    notebook.run(globals())
