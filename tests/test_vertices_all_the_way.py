"""Particles and secondary vertices from simulation to onnxruntime: every verb, on the command line."""

import numpy as np
import pytest

import partt
from partt.cli.main import main
from partt.data.files.tables import read_columns
from partt.training.train import train
from training_jobs import stop_after


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_tagger_with_vertices_goes_all_the_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, jets, seed in (("train", 60, 1), ("test", 24, 2)):
        simulate = ["simulate", "--out", name, "--jets", str(jets), "--classes", "Hbb", "QCD"]
        assert main([*simulate, "--extra", "vertices", "--seed", str(seed)]) == 0
    assert main(["check", "jetclass_vertices", "--train", "train/*.root", "--test", "test/*.root"]) == 0

    overrides = [
        "data_config=jetclass_vertices",
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
            read_columns(str(path), ["score_Hbb", "score_QCD", "Hbb_vs_QCD"])
            for path in (file, tmp_path / "scores_onnx" / file.name)
        )
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-5, err_msg=name)
    scores = partt.load_tagger("tagger.onnx")
    assert {"num_pf", "num_sv", "sv_mass", "part_px"} <= {item.name for item in scores.session.get_inputs()}
