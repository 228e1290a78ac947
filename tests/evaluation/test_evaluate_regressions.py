"""`partt evaluate` of files with regressions, from end to end."""

import csv
import io
import json

import numpy as np
import pytest
from toy_regressions import regression_table, write_regressions

from partt.cli.main import main
from partt.data.files.tables import read_columns, write_table
from partt.evaluation.evaluate import evaluate
from partt.evaluation.score_files import open_score_files
from toy_scores import score_table


def run(*words):
    return main(["evaluate", *map(str, words)])


@pytest.mark.slow
def test_the_whole_report(tmp_path, capsys):
    seeds = [
        write_regressions(tmp_path / f"seed{seed}.root", tagger=f"abc{seed}", seed=seed, jets_seed=0)
        for seed in range(2)
    ]
    other = write_regressions(tmp_path / "other.root", 900, tagger="def", resolution=0.2)
    out = tmp_path / "report"
    words = [*seeds, "--name", "ParT", "--compare", f"PFN={other}", "--baseline", "mass_factor=jet_sdmass"]
    assert run(*words, "--weights", "weight", "--bins", "jet_pt=500,750,1000", "--out", out) == 0
    printed = capsys.readouterr().out
    for text in (
        "response of mass_factor × jet_mass",
        "ParT (2 seeds)",
        "jet_sdmass",
        "width, Hbb",
        "Hbb Rej 50%",
    ):
        assert text in printed
    assert "mass: 30 of 1,500 jets left out: true value is not known" in printed
    figures = {
        *(f"{kind}_{target}" for kind in ("response", "spectra", "prediction", "dependence", "width", "coverage")
          for target in ("mass_factor", "pt_true")),
        *("bias_mass_factor_discriminants", "bias_pt_true_discriminants", "pulls_mass_factor"),
    }  # fmt: skip
    assert {f"{name}.png" for name in figures} <= {path.name for path in (out / "figures").iterdir()}
    metrics = json.loads((out / "metrics.json").read_text())
    mass = metrics["models"]["ParT"][0]["regressions"]["mass"]
    assert mass["factor_of"] == "jet_mass"
    assert mass["left_out"] == {"true value is not known": 30}
    assert mass["prediction"]["by"]["jet_pt"]["edges"] == [500, 750, 1000]
    assert list(mass["baselines"]) == ["jet_mass", "jet_sdmass"]
    width = mass["prediction"]["width"]["all jets"]
    assert width["low"] < width["value"] < width["high"]
    lines = list(csv.DictReader(io.StringIO((out / "regressions.csv").read_text())))
    own = [
        line
        for line in lines
        if line["metric"] == "width" and line["class"] == "Hbb" and line["observer"] == "jet_pt"
    ]
    assert {line["predictor"] for line in own} >= {"mass", "jet_mass", "jet_sdmass"}
    assert {(line["bin_low"], line["bin_high"]) for line in own} == {("500.0", "750.0"), ("750.0", "1000.0")}
    assert {line["metric"] for line in lines} == {
        "bias",
        "width",
        "below",
        "inside",
        "pull_median",
        "pull_width",
    }
    page = (out / "report.html").read_text()
    for text in ("Regression of mass_factor × jet_mass", "baseline", "width of the pulls", "PFN"):
        assert text in page
    assert r"\multicolumn{2}{c}{jet\_sdmass}" in (out / "regressions.tex").read_text()
    assert (
        (out / "regressions.md")
        .read_text()
        .startswith("| mass\\_factor × jet\\_mass | Jets | ParT (2 seeds) bias |")
    )


def test_regressions_only(tmp_path, capsys):
    path = write_regressions(tmp_path / "masses.root", 300, classes=False)
    assert run(path, "--out", tmp_path / "report", "--bins", "jet_pt=500,750,1000") == 0
    made = {path.name for path in (tmp_path / "report").iterdir()}
    assert made == {
        "figures",
        "metrics.json",
        "regressions.md",
        "regressions.tex",
        "regressions.csv",
        "report.html",
    }
    printed = capsys.readouterr().out
    assert "response of pt_true" in printed
    assert "Accuracy" not in printed
    page = (tmp_path / "report/report.html").read_text()
    assert "300 jets of 2 regressions" in page
    assert "Background rejection" not in page
    one = json.loads((tmp_path / "report/metrics.json").read_text())["models"]["masses"][0]
    assert "accuracy" not in one
    assert one["jets"] == {"all jets": 300}


def test_seeds_are_recognised_by_what_is_not_predicted(tmp_path):
    files = [write_regressions(tmp_path / f"{seed}.root", 60, classes=False, seed=seed, jets_seed=0, tagger="abc")
             for seed in range(2)]  # fmt: skip
    assert [len(seed) for seed in open_score_files(files)] == [1, 1]
    parts = [write_regressions(tmp_path / f"part{seed}.root", 60, classes=False, seed=seed, tagger="abc")
             for seed in range(2)]  # fmt: skip
    assert [len(seed) for seed in open_score_files(parts)] == [2]


def test_files_without_a_note(tmp_path):
    """Columns x and true_x are a regression; a note of partt decides alone."""
    true = np.linspace(1, 2, 50)
    write_table(tmp_path / "foreign.root", {"x": 1.1 * true, "true_x": true, "other": true})
    (regression,) = evaluate(tmp_path / "foreign.root").main.regressions.values()
    assert regression.task.target == "x"
    assert regression.prediction.resolution.median.value[0] == pytest.approx(1.1)
    table = score_table(100) | {"x": np.ones(100), "true_x": np.ones(100)}
    write_table(tmp_path / "scores.parquet", table)
    found = evaluate(tmp_path / "scores.parquet").main
    assert list(found.regressions) == ["x"]
    assert found.classification is not None


def test_without_true_values(tmp_path, capsys, one_figure):
    for classes, code in ((True, 0), (False, 3)):
        path = tmp_path / f"{classes}.root"
        write_regressions(path, 80, classes=classes)
        table = read_columns(
            str(path), [name for name in _columns(path) if name != "true_mass_factor"], 0, 80
        )
        del table["true_pt_true"]
        from partt.data.files.tables import read_note

        note = read_note(str(path))
        write_table(path, table, note=lambda note=note: note)
        assert run(path, "--out", tmp_path / f"report_{classes}") == code
        said = capsys.readouterr()
        assert f"mass: no result, because {path} has no column true_mass_factor" in said.out + said.err


def _columns(path):
    from partt.data.files.tables import inspect_file

    return inspect_file(str(path)).branches


def test_a_user_error_is_one_message(tmp_path, capsys):
    path = write_regressions(tmp_path / "scores.root", 50)
    for words, code, message in [
        (["--baseline", "mass"], 2, "--baseline mass: should be REGRESSION=OBSERVER"),
        (["--baseline", "mass=jet_sd"], 3, "has no column 'jet_sd' (did you mean 'jet_sdmass'?)"),
        (["--baseline", "energy=jet_sdmass"], 2, "no regression 'energy'"),
    ]:
        assert run(path, *words, "--out", tmp_path / "out") == code
        assert message in capsys.readouterr().err


def test_chunks_do_not_matter(tmp_path, monkeypatch):
    from partt.evaluation import score_files

    write_regressions(tmp_path / "a.root", 300)
    whole = evaluate(tmp_path / "a.root").regression_tables[0].rows
    monkeypatch.setattr(score_files, "MAX_CHUNK", 70)
    assert repr(evaluate(tmp_path / "a.root").regression_tables[0].rows) == repr(whole)
    assert regression_table(5).keys() >= {"mass", "mass_low", "true_mass_factor"}
