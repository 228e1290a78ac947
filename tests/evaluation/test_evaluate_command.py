"""`partt evaluate` from end to end, and in edge cases."""

import json
import subprocess
import sys

import correctionlib
import numpy as np
import pytest

import partt
from partt.cli.main import main
from partt.data.files.tables import write_table
from partt.errors import ConfigError, DataError
from partt.evaluation.jets import scores_from_arrays
from toy_scores import CLASSES, provenance, random_scores, score_table, write_scores


@pytest.mark.slow
def test_the_whole_report(tmp_path, capsys):
    seeds = [
        write_scores(tmp_path / f"seed{seed}.root", 1500, tagger=f"abc123{seed}", seed=seed, jets_seed=0)
        for seed in range(2)
    ]
    other = write_scores(tmp_path / "other.root", 700, seed=7)
    (tmp_path / "run").mkdir()
    epochs = [
        {
            "kind": "epoch",
            "step": 10,
            "epoch": i,
            "train_loss": 1.0,
            "validation_auc": None,
            "is_best": i == 0,
        }
        for i in range(2)
    ]
    (tmp_path / "run/metrics.jsonl").write_text("\n".join([*map(json.dumps, epochs), '{"kind": "ep']))
    out = tmp_path / "report"
    words = ["evaluate", *seeds, "--name", "ParT", "--out", out, "--compare", f"PFN={other}", "--published"]
    words += ["--weights", "weight", "--working-points", "eps_s=0.8,0.5", "eps_b=0.1"]
    words += ["--bins", "jet_pt=500,750,1000", "--run", tmp_path / "run", "--label", "CMS Simulation"]
    assert main([str(word) for word in words]) == 0
    printed = capsys.readouterr().out
    assert "ParT (2 seeds)" in printed
    assert "report.html" in printed
    of_each_model = {
        "discriminants",
        "scores",
        "confusion",
        "calibration",
        "efficiency_jet_pt",
        "efficiency_jet_eta",
        "mass",
    }
    figures = {"roc", "training"} | of_each_model | {f"{name}_PFN" for name in of_each_model}
    assert {path.name for path in (out / "figures").iterdir()} == {
        f"{name}.{kind}" for name in figures for kind in ("pdf", "png")
    }
    metrics = json.loads((out / "metrics.json").read_text())
    assert list(metrics["models"]) == ["ParT", "PFN"]
    assert len(metrics["models"]["ParT"]) == 2
    assert metrics["about"]["weights"] == "weight"
    assert metrics["models"]["ParT"][0]["origin"]["tagger_sha256"] == "abc1230"
    page = (out / "report.html").read_text()
    for words_on_page in (
        "abc1230",
        "seed0.root",
        partt.__version__,
        "ParT (100M jets)",
        "1,500 jets of 3 classes",
    ):
        assert words_on_page in page
    points = json.loads((out / "working_points.json").read_text())["discriminants"]["Hbb_vs_QCD"][
        "working_points"
    ]
    assert [point["name"] for point in points] == ["eps_s=0.8", "eps_s=0.5", "eps_b=0.1"]
    assert points[0]["signal_by"]["jet_pt"]["edges"] == [500, 750, 1000]
    efficiencies = correctionlib.CorrectionSet.from_file(str(out / "efficiencies.json"))
    assert 0 < efficiencies["Hbb_vs_QCD"].evaluate("eps_s=0.8", "QCD", "up", 600.0, 0.1) < 1
    assert (out / "table.tex").read_text().count(r"\midrule") == 2
    assert (out / "metrics.csv").read_text().startswith("model,source,seeds,jets,metric")
    assert "| ParT (2 seeds) | 1,500 |" in (out / "table.md").read_text()
    assert "(stat.) ± " in (out / "table.md").read_text()
    for model in ("ParT", "PFN"):  # every section switches between them
        assert (
            page.count(f'data-model="{model}"') == len(of_each_model) + 2
        )  # working points, what was evaluated
    assert max(len(row) for row in printed.splitlines() if not row.startswith("report:")) <= 80
    # no key, file or word about regressions
    assert "egression" not in (out / "metrics.json").read_text() + page.partition("<body>")[2]
    assert not list(out.glob("regressions*"))


def scores(probabilities, labels, classes=CLASSES, **options):
    return scores_from_arrays(classes, probabilities, labels, **options)


def degenerate(case):
    labels = np.arange(300) % 3
    probabilities = np.roll(random_scores(300)[0], 1, axis=0)
    mass = {"observers": {"jet_sdmass": np.linspace(0, 200, 300), "jet_pt": np.full(300, 600.0)}}
    if case == "equal scores":
        return scores(np.full((300, 3), 1 / 3), labels, **mass)
    if case == "nothing passes":
        return scores(np.eye(3)[labels], labels, **mass)
    if case == "one class has jets":
        return scores(probabilities[labels == 0], labels[labels == 0])
    if case == "a class without jets":
        return scores(probabilities[labels != 1], labels[labels != 1])
    if case == "one jet of each class":
        return scores(np.eye(3), [0, 1, 2])
    if case == "no weight":
        return scores(probabilities, labels, weights=np.where(labels == 1, 0.0, 1.0))
    if case == "negative weights":
        return scores(probabilities, labels, weights=np.where(np.arange(300) % 5, 1.0, -0.5))
    raise AssertionError(case)


EDGES = {
    "equal scores": ("1.000 +0.019 −0.000 [100]", "0.500"),
    "nothing passes": ("> 55 [0]", "1.000"),
    "one class has jets": ("–", "–"),
    "a class without jets": ("–", None),
    "one jet of each class": ("> 1.0 [0]", "1.000"),
    "no weight": ("–", None),
    "negative weights": (None, None),
}


@pytest.mark.parametrize("case", EDGES)
def test_edges_have_a_sensible_result(case):
    from partt.evaluation.table_formats import plain_text
    from partt.pages.number_text import cell_text

    found = partt.evaluate(degenerate(case))
    rejection, area = EDGES[case]
    cells = found.table.rows[0].cells
    if rejection is not None:
        assert plain_text(cell_text(cells[2])) == rejection
    if area is not None:
        assert cell_text(cells[1]).value == area
    if rejection == "–":
        assert any("no result, because there are no jets of" in note for note in found.main.notes)


@pytest.mark.parametrize(
    "case", ["equal scores", "nothing passes", "one class has jets", "one jet of each class"]
)
def test_edges_have_a_report(case, tmp_path):
    partt.evaluate(degenerate(case), out=tmp_path, working_points=["eps_s=0.5", "eps_b=0.01"])
    assert "</html>" in (tmp_path / "report.html").read_text()
    json.loads((tmp_path / "metrics.json").read_text())


def test_a_user_error_is_one_message(tmp_path, capsys):
    path = write_scores(tmp_path / "scores.root", 50)
    table = score_table(50)
    write_table(tmp_path / "unlabelled.root", {n: c for n, c in table.items() if not n.startswith("label_")})
    cases = [
        ([path, "--signal", "Hcc"], 2, "no class 'Hcc'"),
        ([path, "--label", "CMS $x$"], 2, "should be plain text, like 'CMS Simulation Preliminary'"),
        ([path, "--compare", "scores.root"], 2, "should be NAME=SCORES"),
        ([path, "--name", "A", "--compare", f"A={path}"], 2, "two models are called 'A'"),
        ([path, "--compare", f"scores={path}"], 2, "two models are called 'scores'"),
        ([path, "--bins", "jet_pT=1,2"], 3, "no column 'jet_pT'"),
        ([path, "--run", tmp_path / "no"], 3, "is this a run folder?"),
        ([tmp_path / "unlabelled.root"], 3, "has no labels"),
        ([tmp_path / "nothing*.root"], 3, "matches no file"),
    ]
    for words, code, message in cases:
        assert main(["evaluate", *map(str, words), "--out", str(tmp_path / "out")]) == code
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_is_called_like_its_tagger(tmp_path):
    path = tmp_path / "HToBB_000.root"
    note = provenance(path, "abc").model_copy(update={"tagger_name": "ParT-s"})
    write_table(path, score_table(50), note=note.model_dump_json)
    assert list(partt.evaluate(path).models) == ["ParT-s"]
    assert list(partt.evaluate(path, name="mine").models) == ["mine"]
    assert list(partt.evaluate(write_scores(tmp_path / "older.root", 50, tagger="abc")).models) == ["older"]


def test_python_errors():
    with pytest.raises(ConfigError, match="give weights of arrays to scores_from_arrays"):
        partt.evaluate(degenerate("equal scores"), weights="weight")
    with pytest.raises(ConfigError, match="no observer 'jet_pt' in the scores"):
        partt.evaluate(scores(*random_scores(30)), bins={"jet_pt": [0, 1]})
    with pytest.raises(ConfigError, match="no scores to evaluate"):
        partt.evaluate([])
    with pytest.raises(DataError, match="no jets left to evaluate"):
        scores(np.full((3, 3), np.nan), [0, 1, 2])


def test_many_files_are_read_in_chunks(tmp_path, monkeypatch):
    """The numbers do not depend on how the jets are cut into files and chunks."""
    from partt.evaluation import score_files

    table = score_table(900)
    write_table(tmp_path / "one.root", table)
    for part in range(3):
        piece = slice(300 * part, 300 * (part + 1))
        tables = [{n: c[piece][k : k + 100] for n, c in table.items()} for k in range(0, 300, 100)]
        write_table(tmp_path / f"part{part}.root", tables)
    whole = partt.evaluate(tmp_path / "one.root")
    monkeypatch.setattr(score_files, "MAX_CHUNK", 70)
    calls = []
    parts = partt.evaluate(
        str(tmp_path / "part*.root"), progress=lambda done, total: calls.append((done, total))
    )
    assert whole.table.rows[0].cells == parts.table.rows[0].cells
    assert calls == sorted(calls)
    assert all(done <= total == 900 for done, total in calls)


@pytest.mark.slow
def test_no_torch(tmp_path):
    path = write_scores(tmp_path / "scores.root", 60)
    code = (
        f"import sys, partt.cli.main; code = partt.cli.main.main(['evaluate', {path!r}, '--out', {str(tmp_path)!r}]); "
        "sys.exit('torch' if 'torch' in sys.modules else code)"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
