"""`partt predict` on the command line: what it prints, its exit codes."""

import json
import re

import pytest

import partt
from jets import write_jets
from partt.cli.main import main
from partt.tagger.tagger_file import save_tagger
from prediction_jobs import columns, make_tagger


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    save_tagger(tmp_path / "run" / "best.safetensors", make_tagger(test_time_selection="jet_pt > 60"))
    write_jets(tmp_path / "jets.root", 40)
    return tmp_path


def rows_of(text):
    """Return the rows of the table that was printed."""
    return dict(re.findall(r"^(\S.*?)  +(\S.*?)$", text, re.MULTILINE))


def test_the_balance_is_printed(folder, capsys):
    assert main(["predict", "--tagger", "run", "jets.root"]) == 0
    out = capsys.readouterr().out
    rows = rows_of(out)
    assert rows["entries in"] == "40"
    counts = [int(rows[name]) for name in ("scored", "not selected", "bad (not finite)")]
    assert sum(counts) == 40
    assert counts[1] > 0
    assert rows["outputs"] == "1"
    assert rows["files skipped"] == "0"
    assert float(rows["jets/s"].replace(",", "")) > 0
    assert "scores/jets.root, scores/predict.json" in out
    balance = json.loads((folder / "scores" / "predict.json").read_text())["balance"]
    assert [balance[name] for name in ("scored", "not_selected", "bad")] == counts
    assert main(["predict", "--tagger", "run", "jets.root"]) == 0
    assert rows_of(capsys.readouterr().out)["outputs"] == "1 (1 already complete)"


def test_the_options_reach_the_output(folder, capsys):
    words = ["--discriminant", "Hbb_vs_QCD", "--keep", "part_px", "jet_tau*", "--apply-selection"]
    command = ["predict", "--tagger", "run", "jets.root", "--out", "s.parquet", *words, "--embeddings"]
    assert main([*command, "--threads", "2", "--device", "cpu"]) == 0
    found = columns(folder / "s.parquet")
    assert {"Hbb_vs_QCD", "part_px", "jet_tau1", "embedding"} <= set(found)
    assert found["selected"].all()
    assert len(found["selected"]) < 40


def test_the_demo_tags_the_sample(folder, capsys):
    assert main(["predict", "--demo", "--tagger", "run", "--out", "demo"]) == 0
    assert rows_of(capsys.readouterr().out)["entries in"] == "900"
    assert len(list((folder / "demo").glob("*.root"))) == len(partt.sample_files())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "no files: name some"),
        (["jets.root"], 2, "no tagger: give --tagger a tagger file, a run folder or a name"),
        (["jets.root", "--demo"], 2, "not both"),
        (["jets.root", "--tagger", "top"], 2, "ships no tagger 'top'"),
        (["jets.root", "--tagger", "top.safetensors"], 3, "cannot read top.safetensors"),
        (["none.root", "--tagger", "run"], 3, "'none.root' matches no file"),
        (["jets.root", "--tagger", "run", "--out", "."], 2, "would replace the input jets.root"),
        (["jets.root", "--tagger", "run", "--discriminant", "Hbb"], 2, "should be SIGNAL_vs_BACKGROUND"),
        (["jets.root", "--tagger", "run", "--device", "tpu"], 2, "--device tpu: no such device"),
        (["jets.root", "--tagger", "run", "--device", "cuda"], 2, "torch finds 0 GPUs"),
        (["jets.root", "--tagger", "run", "--out", "/proc/none"], 5, "cannot write to /proc/none"),
        (
            ["jets.root", "--tagger", "run", "--out", "a.root", "--format", "parquet"],
            2,
            "is not the name of a",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, capsys, words, code, message):
    assert main(["predict", *words]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (folder / "scores").exists()


@pytest.mark.parametrize("words", [["--threads", "0"], ["--max-bad-fraction", "2"], ["--format", "csv"]])
def test_usage_errors(folder, words):
    with pytest.raises(SystemExit, match="2"):
        main(["predict", "jets.root", "--tagger", "run", *words])
