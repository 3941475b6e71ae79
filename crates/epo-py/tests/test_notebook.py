"""Claim: the notebook runs from its first to its last cell, and is committed with the outputs of the present code.

``EPO_WRITE=1 crates/epo-py/tests/quick.sh -k notebook`` executes it in full and writes it anew.
"""

import json
import os
import re

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat, nbclient and ipykernel are not installed")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

import epo
from conftest import REPOSITORY

PATH = REPOSITORY / "docs" / "python.ipynb"


def outputs(notebook, kind):
    """All outputs of a kind, such as ``image/png``, in order."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [output["data"][kind] for cell in cells for output in cell.outputs if kind in output.get("data", {})]


def first_epochs(notebook):
    """The numbers of the first two epochs that the notebook shows. Later ones depend on the number of steps in all."""
    tables = [text for text in outputs(notebook, "text/plain") if re.search(r"^0  ", text, re.MULTILINE)]
    rows = re.findall(r"^[01]  .*$", tables[0], re.MULTILINE)
    assert len(rows) == 2, tables[0]
    return [[float(number) for number in row.split()] for row in rows]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook after a run with few steps, or, to write it, with all of them."""
    with epo.make("SafetyPointGoal1-v0", render_mode="rgb_array") as env:
        env.reset(seed=0)
        try:
            env.render()
        except epo.EpoError as error:
            pytest.skip(f"!!! no pictures on this machine: {error}")
    notebook = nbformat.read(PATH, as_version=4)
    is_written = bool(os.environ.get("EPO_WRITE"))
    before = os.environ.pop("EPO_NOTEBOOK_STEPS", None)
    if not is_written:
        os.environ["EPO_NOTEBOOK_STEPS"] = "64000"
    try:
        folder = tmp_path_factory.mktemp("notebook")
        client = nbclient.NotebookClient(
            notebook, timeout=1200, resources={"metadata": {"path": folder}}, record_timing=False, coalesce_streams=True
        )
        client.execute()
    finally:
        os.environ.pop("EPO_NOTEBOOK_STEPS", None)
        if before is not None:
            os.environ["EPO_NOTEBOOK_STEPS"] = before
    if is_written:
        notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
        PATH.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return notebook


def test_the_notebook_runs_and_shows_its_pictures(executed):
    assert len(outputs(executed, "image/png")) == 1, "the curves"
    assert len(outputs(executed, "image/gif")) == 1, "the video"


def test_the_committed_outputs_are_those_of_the_present_code(executed):
    """This test fails if the notebook was executed with a version that trains differently, or not executed at all."""
    committed = nbformat.read(PATH, as_version=4)
    assert first_epochs(committed) == first_epochs(executed)
    cells = [cell for cell in committed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell.outputs for cell in cells)
    assert len(outputs(committed, "image/png")) == len(outputs(committed, "image/gif")) == 1


def test_the_notebook_names_no_folder_of_the_machine_that_ran_it():
    text = PATH.read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])/(root|home|work|tmp|usr|var)/", text)
