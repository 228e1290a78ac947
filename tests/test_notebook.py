"""partt in notebooks: completion, reprs, and the tutorial, run by a real kernel."""

import inspect
import json
import subprocess
import sys

import pytest

import partt
from conftest import ROOT
from partt.evaluation.jets import scores_from_arrays


def test_completion_shows_the_functions_and_loads_nothing():
    code = "import sys, partt; print(dir(partt)); sys.exit('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name in ("check", "evaluate", "load_tagger", "predict", "sample_files", "train"):
        assert f"'{name}'" in shown
    assert "importlib" not in shown
    assert "scores" in inspect.signature(partt.evaluate).parameters
    assert inspect.getdoc(partt.train).startswith("Train with a recipe")


def test_an_evaluation_shows_its_table_and_figures():
    scores = scores_from_arrays(
        ["QCD", "<b>"], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]] * 20, [0, 1, 0, 1] * 20
    )
    assert len(repr(scores)) < 100
    found = partt.evaluate(scores, name="toy")
    assert repr(found).startswith("<Evaluation of toy: Accuracy 1")
    assert len(repr(found)) < 200
    page = found._repr_html_()
    assert "(seeds)" not in page  # there are none
    assert "&lt;b&gt; Rej 50%" in page
    assert page.count("<img src='data:image/png") == 2
    assert len(page) < 300_000


@pytest.mark.slow
def test_the_notebook_of_the_tutorial_runs(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    source = ROOT / "docs/tutorial/notebook.ipynb"
    notebook = nbformat.read(source, as_version=4)
    stored = {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    assert all(stored.values())  # which the docs show
    notebook.cells.insert(
        0, nbformat.v4.new_code_cell("import partt.jobs.notebook_bar as bar\nbar.PATIENCE = 0.0")
    )
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    shown = {text: json.dumps(found) for text, found in outputs.items()}
    (trained,) = (text for source, text in shown.items() if "partt.train" in source)
    assert "<progress" in trained
    assert "<b>notebook</b>" in trained  # the tagger, called like its run
    (masked,) = (text for source, text in shown.items() if "ak.mask" in source)
    assert "nan" in masked
    for text, found in stored.items():  # of the same kinds; jets, not numbers, are the same everywhere
        assert [sorted(one.get("data", ())) for one in outputs[text]][-1] == sorted(found[-1]["data"])
    (evaluated,) = (text for source, text in shown.items() if "partt.evaluate" in source)
    assert "<table>" in evaluated
    assert "data:image/png" in evaluated
    assert (tmp_path / "report/report.html").exists()
