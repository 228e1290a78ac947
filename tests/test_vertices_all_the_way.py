"""Particles and secondary vertices, classes and two targets, from simulation to onnxruntime: every verb."""

import numpy as np
import pytest
import yaml

import partt
from partt.cli.main import main
from partt.data.config.data_config import load_data_config
from partt.data.files.tables import read_columns
from partt.scores.origin import read_provenance
from partt.training.train import train
from training_jobs import stop_after

TARGETS = {
    "mass_factor": "np.where(label_QCD == 1, gen_jet_sdmass, gen_resonance_mass) / jet_sdmass",
    "pt_factor": "gen_jet_pt / jet_pt",
}
TASKS = """{mass_factor: {loss: quantile, factor_of: jet_sdmass}, pt_factor: {loss: gaussian, factor_of: jet_pt, unit: '1'}}"""
COLUMNS = (
    *("score_Hbb", "score_QCD", "Hbb_vs_QCD"),
    *(f"{name}{end}" for name in TARGETS for end in ("", "_low", "_high")),
    *("jet_sdmass_corrected", "jet_pt_corrected", "jet_sdmass", "jet_pt"),
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_tagger_with_vertices_goes_all_the_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, jets, seed in (("train", 60, 1), ("test", 24, 2)):
        simulate = ["simulate", "--out", name, "--jets", str(jets), "--classes", "Hbb", "QCD"]
        assert main([*simulate, "--extra", "vertices", "generator", "--seed", str(seed)]) == 0
    data = yaml.safe_load(load_data_config("jetclass_vertices").to_yaml())
    data["labels"] |= {"type": "hybrid", "value_custom": TARGETS}
    (tmp_path / "targets.yaml").write_text(yaml.safe_dump(data))
    assert main(["check", "targets.yaml", "--train", "train/*.root", "--test", "test/*.root"]) == 0

    overrides = [
        "data_config=targets.yaml",
        f"tasks.regressions={TASKS}",
        "epochs=2",
        "batch_size=20",
        "model.settings={num_blocks: 1}",
    ]
    options = {"validation": "test/*.root", "overrides": overrides, "num_threads": 1}
    assert train("quick", "train/*.root", out="whole", **options).stopped is False
    assert train("quick", "train/*.root", out="run", should_stop=stop_after(4), **options).stopped
    changes = [word for text in overrides for word in ("--set", text)]
    files = ["--train", "train/*.root", "--val", "test/*.root"]
    assert main(["train", "quick", *files, "--out", "run", "--resume", "--threads", "1", *changes]) == 0
    tagger = partt.load_tagger("run")
    assert tagger.sha256 == partt.load_tagger("whole").sha256

    assert list(tagger.data_config.input_shape.collections) == ["pf", "sv"]
    assert "backbone.other_embeddings.sv.linear.weight" in tagger.network.state_dict()
    predict = ["predict", "test/*.root", "--discriminant", "Hbb_vs_QCD", "--threads", "1"]
    assert main([*predict, "--tagger", "run", "--out", "scores"]) == 0
    assert main(["evaluate", "scores/*.root", "--run", "run", "--out", "report"]) == 0
    assert (tmp_path / "report/report.html").exists()
    assert main(["export", "run", "--out", "tagger.onnx"]) == 0
    assert main([*predict, "--engine", "onnx", "--tagger", "tagger.onnx", "--out", "scores_onnx"]) == 0
    for file in (tmp_path / "scores").glob("*.root"):
        expected, found = (
            read_columns(str(path), [*COLUMNS, "true_mass_factor", "true_pt_factor"])
            for path in (file, tmp_path / "scores_onnx" / file.name)
        )
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(
            expected["jet_pt_corrected"], expected["pt_factor"] * expected["jet_pt"], rtol=1e-6
        )
        assert np.isfinite(expected["true_pt_factor"]).all()
        assert [task.name for task in read_provenance(str(file)).tasks] == ["classes", *TARGETS]
    scores = partt.load_tagger("tagger.onnx")
    assert {"num_pf", "num_sv", "sv_mass", "part_px", "jet_sdmass"} <= {
        item.name for item in scores.session.get_inputs()
    }
