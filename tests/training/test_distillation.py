"""Learning from a teacher: the loss, its soft labels, files without labels, cache, resuming, several processes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from test_distributed import run_two
from test_fit import assert_same_run, metrics_of

from jets import CLASSES, make_jets, write_jets
from partt.cli.main import main
from partt.data.config.data_config import load_data_config
from partt.data.config.input_map import load_input_map
from partt.data.files.lists import InputFile
from partt.data.files.tables import write_table
from partt.data.reading.jet_source import read_chunk
from partt.errors import ConfigError
from partt.tagger.loading import load_tagger
from partt.tagger.tagger_file import TorchTagger, save_tagger
from partt.training.job import ReadingOptions, jets_by_class, open_job
from partt.training.objectives.distillation import Distillation
from pfnano import write_pfnano
from small_networks import SMALL, make_tagger
from training_jobs import TINY_RECIPE, run_job, stop_after, tiny_recipe

PFN = {"name": "pfn", "settings": {key: list(value) for key, value in SMALL["pfn"][1].items()}}
STUDENT = {"model": PFN, "epochs": 2}


def new_teacher(case="part", config="jetclass_full", **changes) -> TorchTagger:
    """Return a teacher of another network and other inputs than the student's, with random weights."""
    return make_tagger(case, config, make_jets(6, seed=2), **changes).with_hash()


@pytest.fixture(scope="module")
def teacher():
    return new_teacher()


@pytest.fixture(scope="module")
def without_labels(tmp_path_factory):
    """Return a file of the same jets as `jet_file`, without their labels."""
    path = tmp_path_factory.mktemp("jets") / "jets.root"
    write_table(path, {name: column for name, column in make_jets(300).items() if "label_" not in name})
    return path


def student_of(teacher, jets, cache=None, **changes):
    recipe = tiny_recipe(**{**STUDENT, **changes})
    config, files = load_data_config(recipe.data_config), [InputFile("", str(jets))]
    return open_job(recipe, config, files, 0.25, seed=7, reading=ReadingOptions(cache=cache), teacher=teacher)


def labelled(job):
    return read_chunk(job.train, 0, *job.train.files[0].chunks[0])


def test_the_loss_is_that_of_the_formula(jet_file, teacher):
    batch = labelled(student_of(teacher, jet_file)).slice(0, 12)
    random = np.random.default_rng(1)
    logits, weights = random.normal(0, 3, (12, 10)), random.uniform(0, 2, 12)
    soft_labels = batch.soft_labels.double().numpy().copy()
    soft_labels[3] = np.nan  # of which the teacher knows nothing
    temperature, label_weight, expected = 3.0, 0.4, []
    for jet in range(12):
        p, q = (np.exp(values / temperature) for values in (soft_labels[jet], logits[jet]))
        p, q = p / p.sum(), q / q.sum()
        divergence = 0 if jet == 3 else temperature**2 * sum(p * np.log(p / q))
        entropy = np.log(np.exp(logits[jet]).sum()) - logits[jet, batch.labels[jet]]
        expected.append(weights[jet] * ((1 - label_weight) * divergence + label_weight * entropy))
    batch = replace(
        batch,
        soft_labels=torch.tensor(soft_labels, dtype=torch.float32),
        weights=torch.tensor(weights, dtype=torch.float32),
    )
    outputs = {"classes": torch.tensor(logits, dtype=torch.float32, requires_grad=True)}
    objective = Distillation(10, temperature, label_weight)
    loss = objective.losses(outputs, batch).loss
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)
    with torch.inference_mode():
        measured = objective.validation_values(objective.measurements(outputs, batch))
    assert measured["loss"] == pytest.approx(np.sum(expected) / weights.sum(), rel=1e-5)
    same = (logits.argmax(1) == soft_labels.argmax(1))[np.arange(12) != 3]
    known = weights[np.arange(12) != 3]
    assert measured["agreement"] == pytest.approx((same * known).sum() / known.sum(), rel=1e-5)
    alone = Distillation(10, temperature, 0.0)
    gradient = torch.autograd.grad(
        alone.losses(outputs, replace(batch, labels=None)).loss, outputs["classes"]
    )
    assert gradient[0].isfinite().all()
    assert not gradient[0][3].any()


def test_soft_labels_are_the_scores_of_the_teacher(jet_file, teacher, exported):
    """The teacher has other inputs, another selection, and the classes in another order."""
    jets = labelled(student_of(teacher, jet_file))
    table = load_tagger_scores(teacher, jet_file, jets.source_entry.numpy())
    assert torch.allclose(jets.soft_labels.exp(), torch.tensor(table, dtype=torch.float32), atol=1e-6)
    order = [f"label_{name}" for name in CLASSES[::-1]]
    picky = new_teacher(labels={"type": "simple", "value": order}, selection="jet_nparticles > 20")
    found = labelled(student_of(picky, jet_file)).soft_labels
    lengths = np.diff(jets.inputs.main.offsets.numpy())
    assert torch.equal(found.isnan().all(dim=1), torch.tensor(lengths <= 20))
    scores = load_tagger_scores(picky, jet_file, jets.source_entry.numpy())[:, ::-1].copy()
    is_known = lengths > 20
    assert torch.allclose(found[is_known].exp(), torch.tensor(scores[is_known]).float(), atol=1e-6)
    network, file = exported("pfn")
    in_onnx = labelled(student_of(load_tagger(file.path), jet_file)).soft_labels
    in_torch = labelled(student_of(network, jet_file)).soft_labels
    assert torch.allclose(in_onnx, in_torch, atol=1e-4)


def test_jets_of_events_have_the_scores_of_the_teacher(tmp_path):
    """Several jets have the entry of their event; some of them are selected, and some events validate."""
    path = write_pfnano(tmp_path / "events.root", 60)
    config = load_data_config("jetclass_kin").replace(
        input=load_input_map("pfnano-ak8"), selection="jet_pt > 600"
    )
    teacher = make_tagger("pfn", "jetclass_full", neutral=True).with_hash()
    files = [InputFile("", str(path))]
    recipe = tiny_recipe(**{**STUDENT, "distillation": {"label_weight": 0}})
    job = open_job(recipe, config, files, 0.25, seed=7, reading=ReadingOptions(), teacher=teacher)
    jets = labelled(job)
    file = job.train.files[0]
    every = teacher.read(file, 0, 60, ["jet_pt"])
    kept = (every["jet_pt"] > 600) & job.train.split.contains(file.url, every.entries)
    assert 10 < kept.sum() < np.count_nonzero(every["jet_pt"] > 600) < len(kept)
    expected = teacher.tag(every).probabilities[kept]
    assert np.ptp(expected[:, 0]) > 1e-4  # of different jets
    assert torch.allclose(jets.soft_labels.exp(), torch.tensor(expected).float(), atol=1e-6)


def load_tagger_scores(teacher, jets, entries):
    """Return the teacher's probabilities, as prediction computes them."""
    from partt.data.files.tables import inspect_file

    variables = teacher.read(inspect_file(str(jets)), 0, 300)
    return teacher.tag(variables).probabilities[entries]


def test_labels_are_not_needed_and_change_nothing(jet_file, without_labels, teacher, tmp_path):
    job, blind = student_of(teacher, jet_file), student_of(teacher, without_labels)
    run_job(job, tmp_path / "labels")
    run_job(blind, tmp_path / "none")
    assert jets_by_class(blind.train, blind.train_index) == {}
    mine, theirs = (metrics_of(tmp_path / name) for name in ("none", "labels"))
    for line, other in zip(mine, theirs, strict=True):
        scored = {name: value for name, value in other.items() if not name.endswith(("accuracy", "auc"))}
        assert {name: value for name, value in line.items() if value is not None} == scored
    assert mine[-1]["validation_accuracy"] is None
    assert theirs[-1]["validation_accuracy"] > 0
    losses = [line["validation_loss"] for line in mine if line["kind"] == "epoch"]
    assert losses[1] < losses[0]
    assert load_tagger(tmp_path / "none").class_names == CLASSES
    with pytest.raises(ConfigError, match="metric: accuracy needs labels"):
        student_of(teacher, without_labels, metric="accuracy")


def test_a_cache_saves_the_teacher_and_changes_nothing(jet_file, teacher, tmp_path, monkeypatch):
    run_job(student_of(teacher, jet_file), tmp_path / "plain")
    run_job(student_of(teacher, jet_file, tmp_path / "cache"), tmp_path / "first")
    assert_same_run(tmp_path / "first", tmp_path / "plain")
    monkeypatch.setattr(TorchTagger, "tag", lambda *_, **__: pytest.fail("the teacher was asked again"))
    run_job(student_of(teacher, jet_file, tmp_path / "cache"), tmp_path / "second")
    assert_same_run(tmp_path / "second", tmp_path / "plain")


def test_a_resumed_run_is_the_same_and_another_teacher_is_refused(jet_file, teacher, tmp_path):
    changes = {"distillation": {"temperature": 2.0, "label_weight": 0.5}}
    run_job(student_of(teacher, jet_file, **changes), tmp_path / "whole")
    assert run_job(
        student_of(teacher, jet_file, **changes), tmp_path / "parts", should_stop=stop_after(8)
    ).stopped
    other = student_of(new_teacher("pfn"), jet_file, **changes)
    with pytest.raises(ConfigError, match=f'teacher: "{teacher.sha256}" before, "[0-9a-f]+" now'):
        run_job(other, tmp_path / "parts", resume=True)
    run_job(student_of(teacher, jet_file, **changes), tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_two_processes_learn_from_a_teacher(jet_file, teacher, tmp_path):
    assert run_two(student_of(teacher, jet_file, epochs=1), tmp_path) == [0, 0]
    last = metrics_of(tmp_path)[-1]
    assert last["kind"] == "epoch"
    assert 0 < last["validation_loss"] < last["train_loss"]


def test_the_command_line(jet_file, without_labels, teacher, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sha256 = save_tagger("teacher.safetensors", teacher)
    two = {"type": "simple", "value": ["label_QCD", "label_Hbb"]}
    save_tagger("two.safetensors", new_teacher("pfn", labels=two))
    recipe = {**TINY_RECIPE, **STUDENT, "epochs": 1}
    (tmp_path / "student.yaml").write_text(yaml.safe_dump(recipe))
    write_jets(tmp_path / "kin.root", 50)
    few = {name: column for name, column in make_jets(50).items() if "d0" not in name}
    write_table(tmp_path / "few.root", few)

    def train(tagger, jets, *options):
        words = [
            "--train",
            str(jets),
            "--val-fraction",
            "0.3",
            "--out",
            "run",
            "--threads",
            "1",
            "--workers",
            "1",
        ]
        code = main(["train", "student.yaml", *words, *(["--teacher", tagger] if tagger else []), *options])
        captured = capsys.readouterr()
        return code, " ".join((captured.out + captured.err).split())

    code, output = train("two.safetensors", jet_file)
    assert code == 2
    assert f"classes of the teacher are QCD, Hbb; those of the data config are {', '.join(CLASSES)}" in output
    code, output = train("teacher.safetensors", tmp_path / "few.root")
    assert code == 3
    assert "--teacher:" in output
    assert "part_d0val" in output
    code, output = train(None, jet_file, "--set", "distillation.temperature=2")
    assert code == 2
    assert "distillation: there is no teacher; give one with --teacher" in output
    code, output = train("teacher.safetensors", without_labels, "--set", "distillation.temperature=2")
    assert code == 0
    assert f"learns from the scores of teacher (part), sha256 {sha256[:12]}" in output
    assert "the training jets have no labels" in output
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())["distillation"]["temperature"] == 2
