"""Claim: the notebook runs from its first to its last cell."""

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat, nbclient and ipykernel are not installed")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from conftest import REPOSITORY


def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("EPO_NOTEBOOK_STEPS", "64000")
    notebook = nbformat.read(REPOSITORY / "docs" / "python.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs or cell.source.endswith(")") for cell in cells), "it is committed with its outputs"
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    pictures = [output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]
    assert pictures
