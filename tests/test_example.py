"""example.py runs as it is: the whole pipeline in Python."""

import runpy

import pytest

from conftest import ROOT


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "example.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "900 jets, 0 errors" in printed
    assert "900 scored" in printed
    assert (tmp_path / "example/report/report.html").exists()
    assert (tmp_path / "example/tagger.onnx").exists()
