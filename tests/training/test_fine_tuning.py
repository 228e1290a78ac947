"""Starting from another tagger's weights."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from test_distributed import run_two
from test_fit import assert_same_run, tensors_of
from weaver.nn.model.ParticleTransformer import ParticleTransformer as WeaverParticleTransformer

import partt
from conftest import FIXTURES
from jets import CLASSES, make_jets
from partt.cli.main import main
from partt.data.config.data_config import load_data_config
from partt.data.files.tables import write_table
from partt.errors import ConfigError
from partt.model.state_dicts import without_prefix
from partt.model.weaver_weights import export_particle_transformer, import_particle_transformer
from partt.tagger.loading import load_torch_tagger
from partt.tagger.tagger_file import save_tagger
from partt.training.distributed import World
from partt.training.fine_tuning import weights_to_start_from
from partt.training.job import with_defaults
from partt.training.learner import make_learner
from partt.training.recipe import FineTuning
from partt.training.schedules import backbone_factor
from small_networks import ALL, SMALL_SLIM, make_tagger, small_network
from training_jobs import TINY_RECIPE, run_job, stop_after, tiny_job, tiny_recipe

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")  # of BatchNorms, which a step changes


@pytest.fixture(scope="module")
def jetclass_run(jet_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("jetclass")
    run_job(tiny_job(jet_file, epochs=1), out)
    return out


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter a folder with jets of the top landscape's layout, and recipes."""
    table = make_jets(200)
    table["label"] = (np.arange(200) % 2).astype(np.int32)
    write_table(tmp_path / "top.root", table)
    recipe = {**TINY_RECIPE, "data_config": "top_landscape_kin", "epochs": 1}
    (tmp_path / "tune.yaml").write_text(yaml.safe_dump(recipe))
    (tmp_path / "full.yaml").write_text(yaml.safe_dump({**recipe, "data_config": "jetclass_full"}))
    (tmp_path / "pfn.yaml").write_text(yaml.safe_dump({**recipe, "model": {"name": "pfn"}}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(recipe, tagger, *options):
    files = [
        "--train",
        "top.root",
        "--val-fraction",
        "0.3",
        "--out",
        "run",
        "--threads",
        "1",
        "--workers",
        "0",
    ]
    return main(["train", recipe, *files, "--init-from", str(tagger), *options])


def test_the_head_is_new_and_what_is_frozen_stays(folder, jetclass_run, capsys):
    tagger = load_torch_tagger(jetclass_run / "best.safetensors")
    freeze = "fine_tuning.freeze=[particle_embedding.*, pair_embedding.*, blocks.*, class_*, norm.*]"
    assert train("tune.yaml", jetclass_run / "best.safetensors", "--set", freeze) == 0
    output = capsys.readouterr().out
    assert "with a new last layer" in output
    assert "(34 to train)" in output
    tuned = load_torch_tagger(folder / "run" / "best.safetensors")
    assert len(tuned.class_names) == 2
    after = tuned.network.state_dict()
    for name, tensor in tagger.network.state_dict().items():  # including statistics of frozen BatchNorms
        assert name.startswith("heads.") or torch.equal(tensor, after[name]), name
    assert after["heads.classes.output.weight"].shape == (2, 16)


def test_slim_keeps_its_backbone_and_gets_a_new_head(folder):
    save_tagger(folder / "slim.safetensors", make_tagger("slim_m"))
    model = {"name": "slim_m", "settings": SMALL_SLIM}
    recipe = {**TINY_RECIPE, "data_config": "top_landscape_kin", "model": model, "epochs": 1}
    (folder / "slim.yaml").write_text(yaml.safe_dump(recipe))
    assert train("slim.yaml", "slim.safetensors", "--set", "optimizer.lr=1e-20") == 0
    before = load_torch_tagger(folder / "slim.safetensors").network.state_dict()
    after = load_torch_tagger(folder / "run" / "best.safetensors").network.state_dict()
    assert after["heads.classes.output.weight"].shape == (2, 16)
    for name, tensor in before.items():
        assert name.startswith("heads.") or torch.equal(tensor, after[name]), name


def test_resuming_another_tagger_is_refused(folder, jetclass_run, capsys):
    assert train("tune.yaml", jetclass_run / "best.safetensors") == 0
    assert train("tune.yaml", jetclass_run / "best.safetensors", "--resume") == 0
    assert train("tune.yaml", folder / "run" / "best.safetensors", "--resume") == 2
    assert "initial_tagger: " in capsys.readouterr().err


def test_the_same_classes_keep_the_head(jet_file, jetclass_run, tmp_path):
    job = tiny_job(jet_file, steps=1, epochs=None, optimizer={"lr": 1e-20}, model=job_model(dropout=0.5))
    initial = weights_to_start_from(jetclass_run / "best.safetensors", job.recipe, job.train.config)
    assert initial.heads == "including the last layer"
    run_job(job, tmp_path, initial_weights=initial.tensors)
    head = load_torch_tagger(jetclass_run / "best.safetensors").network.heads["classes"].output.weight
    assert torch.equal(tensors_of(tmp_path)["network/heads.classes.output.weight"], head)


def test_from_weights_that_weaver_trained(tmp_path):
    """Fine-tuning as in the paper: JetClass weights, converted top landscape, shipped recipe."""
    torch.manual_seed(0)
    theirs = WeaverParticleTransformer(7, num_classes=10, use_pre_activation_pair=False, fc_params=[])
    config, expected = import_particle_transformer(theirs.state_dict(), "0.5")
    state = export_particle_transformer(expected, config, "0.4")
    torch.save({f"mod.{name}": tensor for name, tensor in state.items()}, tmp_path / "ParT_kin.pt")
    jets, start, out = tmp_path / "top.root", tmp_path / "start.safetensors", tmp_path / "run"
    assert main(["convert", "toplandscape", str(FIXTURES / "top_landscape.h5"), "--out", str(jets)]) == 0
    options = ["--arch", "part", "--features", "kin", "--dialect", "0.4", "--out", str(start)]
    assert main(["import-weaver", str(tmp_path / "ParT_kin.pt"), *options]) == 0
    changes = ["batch_size=8", "jets_per_epoch=16", "epochs=1", "optimizer.lr=1e-20"]
    options = [f"--set={change}" for change in changes]
    options += ["--val-fraction", "0.3", "--init-from", str(start), "--out", str(out)]
    options += ["--threads", "1", "--workers", "0"]
    assert main(["train", "top_landscape_fine_tune", "--train", str(jets), *options]) == 0
    tuned = load_torch_tagger(out / "best.safetensors")
    assert tuned.class_names == ("jet_isTop", "jet_isQCD")
    for name, parameter in tuned.network.named_parameters():
        if name.startswith("heads."):
            assert len(parameter) == 2
        else:
            assert torch.allclose(parameter, expected[name], rtol=1e-6), name


def test_heads_are_added_and_dropped(jet_file, jetclass_run, tmp_path):
    """Classes, then classes and two targets, then other targets: the backbone and what is the same stay."""
    labels = {"type": "hybrid", "value": [f"label_{name}" for name in CLASSES]}
    labels["value_custom"] = {"mass": "jet_sdmass", "ln_pt": "np.log(jet_pt)"}
    data = yaml.safe_load(load_data_config("jetclass_kin").to_yaml())
    (tmp_path / "data.yaml").write_text(yaml.safe_dump({**data, "labels": labels}))

    def run(name, start, **tasks):
        recipe = {**TINY_RECIPE, "data_config": "data.yaml", "steps": 1, "epochs": None, "tasks": tasks}
        recipe |= {"optimizer": {"name": "sgd", "lr": 1e-30}}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
        notices = []
        options = {"init_from": start, "num_threads": 1, "num_workers": 0, "report": notices.append}
        partt.train(tmp_path / "recipe.yaml", jet_file, validation=0.3, out=tmp_path / name, **options)
        tagger = load_torch_tagger(tmp_path / name)
        return tagger, str(notices[0]), tagger.network.state_dict()

    before = load_torch_tagger(jetclass_run).network.state_dict()
    two, notice, weights = run("two", jetclass_run, regressions={"mass": {"loss": "gaussian"}, "ln_pt": {}})
    assert "with a new last layer of mass, ln_pt" in notice
    assert list(two.network.heads) == ["classes", "mass", "ln_pt"]
    assert all(torch.equal(weights[name], before[name]) for name in before if not name.endswith(BUFFERS))

    again, notice, more = run(
        "again",
        tmp_path / "two",
        regressions={"mass": {"loss": "gaussian", "unit": "GeV"}, "pt": {"target": "ln_pt"}},
    )
    assert "with a new last layer of pt, without its ln_pt" in notice
    assert list(again.network.heads) == ["classes", "mass", "pt"]
    assert torch.equal(more["heads.mass.output.weight"], weights["heads.mass.output.weight"])
    assert (again.tasks[1].shift, again.tasks[1].scale) == (two.tasks[1].shift, two.tasks[1].scale)

    other, notice, last = run(
        "other",
        tmp_path / "two",
        classification={"weight": 0.0},
        regressions={"mass": {"loss": "quantile", "quantiles": [0.2, 0.5]}},
    )
    assert "with a new last layer, without its classes and ln_pt" in notice
    assert other.class_names == ()
    assert not torch.equal(last["heads.mass.output.weight"], weights["heads.mass.output.weight"])

    classes, notice, last = run("classes", tmp_path / "two")
    assert "including the last layer, without its mass and ln_pt" in notice
    assert list(classes.network.heads) == ["classes"]
    assert all(torch.equal(last[name], before[name]) for name in before if not name.endswith(BUFFERS))


def test_heads_that_the_objective_does_not_need_are_ignored(jet_file):
    weights = {"heads.mass.output.bias": torch.ones(1), "heads.classes.output.bias": torch.ones(10)}
    network = make_learner(tiny_job(jet_file), World(), torch.device("cpu"), weights).network
    assert list(network.heads) == ["classes"]
    assert torch.equal(network.heads["classes"].output.bias, torch.ones(10))


def job_model(**settings):
    return {"name": "part", "settings": {**TINY_RECIPE["model"]["settings"], **settings}}


@pytest.mark.parametrize(
    ("recipe", "options", "code", "message"),
    [
        ("pfn.yaml", [], 2, "the network of the tagger is part, that of the recipe is pfn"),
        ("full.yaml", [], 2, "those of jetclass_full are part_pt_log"),
        ("tune.yaml", ["--set", "fine_tuning.freeze=[nothing.*]"], 2, "'nothing.*' matches no parameter"),
        ("tune.yaml", ["--set", "model.settings.width=32"], 3, "the weights do not fit the network"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(folder, jetclass_run, capsys, recipe, options, code, message):
    assert train(recipe, jetclass_run / "best.safetensors", *options) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_backbone_waits_then_catches_up(jet_file, jetclass_run, tmp_path):
    """Frozen for three steps, statistics of BatchNorms included; then its rate rises for two steps."""
    every_step = {"epochs": 1, "checkpoint_minutes": 0, "keep_checkpoints": 100, "clip_norm": 0.1}
    recipe = {"fine_tuning": {"freeze_steps": 3, "catch_up_steps": 2, "head_lr_factor": 2.0}, **every_step}
    initial = weights_to_start_from(jetclass_run, tiny_job(jet_file).recipe, load_data_config("jetclass_kin"))

    def run(name, **options):
        job = tiny_job(jet_file, optimizer={"name": "adamw", "lr": 1e-3, "weight_decay": 0.1}, **recipe)
        return run_job(job, tmp_path / name, initial_weights=initial.tensors, **options)

    run("whole")
    files = sorted((tmp_path / "whole" / "checkpoints").glob("*.pt"))
    by_step = {int(file.name[5:14]): torch.load(file, weights_only=True) for file in files}
    assert list(by_step) == [1, 2, 3, 4, 5, 6]
    for step, tensors in by_step.items():
        for name, start in initial.tensors.items():
            is_same = torch.equal(tensors[f"network/{name}"], start)
            assert is_same == (step <= 3 and name.startswith("backbone.")) or not start.any(), (step, name)
    moments = {name for name in by_step[3] if name.startswith("optimizer/")}
    assert len(moments) < len([name for name in by_step[4] if name.startswith("optimizer/")])
    choice = tiny_recipe(**recipe).fine_tuning
    assert [backbone_factor(choice, step) for step in range(7)] == pytest.approx(
        [0, 0, 0, 1 / 3, 2 / 3, 1, 1]
    )
    assert backbone_factor(FineTuning(), 0) == 1
    assert run("parts", should_stop=stop_after(5)).stopped
    run("parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    # several processes compute gradients of the frozen part, and drop them
    job = tiny_job(jet_file, **{**recipe, "fine_tuning": {"freeze_steps": 100}})
    assert run_two(job, tmp_path / "two", initial_weights=initial.tensors) == [0, 0]
    after = without_prefix("network/", tensors_of(tmp_path / "two"))
    for name, start in initial.tensors.items():
        assert torch.equal(after[name], start) == name.startswith("backbone."), name


def test_standardisation_is_that_of_the_tagger(folder, jetclass_run, capsys):
    data = yaml.safe_load(load_data_config("top_landscape_kin").to_yaml())
    name, *numbers = data["inputs"]["pf_features"]["vars"][0]
    data["inputs"]["pf_features"]["vars"][0] = [name, numbers[0] + 1, numbers[1], -4, 4, 0]
    for group in data["inputs"].values():
        group["length"] = 100
    (folder / "other.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    tagger = load_torch_tagger(jetclass_run)

    def numbers_of(*options):
        code = train("tune.yaml", jetclass_run, "--set", "data_config=other.yaml", *options)
        assert code == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert "length is 100 in the data config, which counts, and 128 in the tagger" in printed
        assert f"the data config standardises inputs in another way: {name} (x -" in printed
        return load_torch_tagger(folder / "run").data_config, printed

    config, printed = numbers_of()
    assert "the tagger's numbers are used" in printed
    assert config.resolved_variables[name] == tagger.data_config.resolved_variables[name]
    shutil.rmtree(folder / "run")
    config, printed = numbers_of("--set", "fine_tuning.standardisation=config")
    assert config.resolved_variables[name].clip_max == 4


@pytest.mark.parametrize(
    ("fine_tuning", "message"),
    [
        ({"freeze_steps": 2}, "freeze_steps: the backbone has random weights"),
        ({"freeze": ["blocks.*"]}, "freeze: these parameters have random weights"),
    ],
)
def test_random_weights_are_not_frozen(folder, fine_tuning, message):
    recipe = yaml.safe_load((folder / "tune.yaml").read_text()) | {"fine_tuning": fine_tuning}
    (folder / "frozen.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(ConfigError, match=message):
        partt.train("frozen.yaml", "top.root", validation=0.3, out="other", num_workers=0)


def test_a_run_that_ends_before_its_backbone_learns_says_so(folder, jetclass_run, capsys):
    """Of the steps of the run, the first may leave the backbone as it is, and some more raise its rate."""
    steps = ["--set", "epochs=null", "--set", "steps=6"]

    def said(**fine_tuning):
        choice = ["--set", f"fine_tuning={json.dumps(fine_tuning)}", "--resume"]
        shutil.rmtree(folder / "run", ignore_errors=True)
        assert train("tune.yaml", jetclass_run, *steps, *choice) == 0
        return " ".join(capsys.readouterr().out.split())

    assert "fine_tuning.freeze_steps: the run has 6 steps; only its heads" in said(freeze_steps=6)
    text = said(freeze_steps=3, catch_up_steps=3)
    assert "catch_up_steps: the run has 6 steps; its end comes before" in text
    assert "the run has 6 steps" not in said(freeze_steps=3, catch_up_steps=2)


def test_an_exported_tagger_is_no_start(folder, capsys):
    assert train("tune.yaml", "tagger.onnx") == 2
    assert "is an exported tagger: the tagger file that it was made of is needed" in capsys.readouterr().err


def test_settings_that_weights_have_learned_with_are_those_of_the_tagger(folder, capsys):
    """Other settings would load without a word, and be another network."""
    learned = {"frame": "jet", "momentum_unit": 5.0, "num_heads": 2}
    tagger = make_tagger("slim_m", settings=learned)
    save_tagger(folder / "slim.safetensors", tagger)
    model = {"name": "slim_m", "settings": SMALL_SLIM}
    recipe = {**TINY_RECIPE, "data_config": "top_landscape_kin", "model": model, "epochs": 1}
    (folder / "slim.yaml").write_text(yaml.safe_dump(recipe))

    def config_of(*options):
        assert train("slim.yaml", "slim.safetensors", "--set", "optimizer.lr=1e-20", *options) == 0
        return load_torch_tagger("run").network.config, " ".join(capsys.readouterr().out.split())

    config, printed = config_of()
    assert {name: getattr(config, name) for name in learned} == learned
    assert config == tagger.network.config
    assert (
        "num_heads 4, in the tagger 2, frame lab, in the tagger jet, momentum_unit 20.0, in the tagger 5.0; "
        "the tagger's are used"
    ) in printed
    assert yaml.safe_load((folder / "run/recipe.yaml").read_text())["model"]["settings"]["frame"] == "jet"
    shutil.rmtree("run")
    config, printed = config_of("--set", "fine_tuning.standardisation=config")
    assert (config.frame, config.num_heads) == ("lab", 4)
    assert "the recipe's are used" in printed


@pytest.mark.parametrize("case", ALL)
def test_settings_that_weights_have_learned_with_exist(case):
    network = small_network(case)
    assert set(network.backbone.learned_with) <= set(type(network.config).model_fields)


def test_runs_of_before_kept_their_standardisation(jet_file, jetclass_run, tmp_path):
    """run.json without the key: the choice was that of the data config."""
    job = replace(tiny_job(jet_file, fine_tuning={"standardisation": "config"}), initial_tagger="ab" * 32)
    definition = json.loads(json.dumps(job.definition(1)))
    for key in ("standardisation", "freeze_steps", "catch_up_steps"):
        del definition["recipe"]["fine_tuning"][key]
    for key in ("distillation", "ema"):
        del definition["recipe"][key]
    del definition["teacher"]
    assert with_defaults(definition) == json.loads(json.dumps(job.definition(1)))
