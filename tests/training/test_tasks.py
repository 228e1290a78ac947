"""Several tasks in one run: objectives from recipes, runs that resume, taggers that list their outputs."""

import numpy as np
import pytest
import torch
import yaml
from test_distributed import assert_two_processes_resume_exactly
from test_fit import assert_same_run, metrics_of

import partt
from jets import CLASSES
from network_files import WEAVER
from partt.cli.main import main
from partt.data.config.data_config import DataConfig, load_data_config
from partt.data.files.lists import InputFile
from partt.data.files.tables import read_columns
from partt.errors import ConfigError, DataError
from partt.jobs.metrics_file import read_metrics
from partt.model.tasks import Task, classes_task
from partt.tagger.loading import load_tagger, load_torch_tagger
from partt.training.job import open_job
from partt.training.objectives.classification import Classification
from partt.training.objectives.tasks_of_recipe import make_objective, with_fitted_scales
from partt.training.recipe import load_recipe
from small_networks import SMALL
from training_jobs import TINY_RECIPE, run_job, stop_after, tiny_job, tiny_recipe

TARGETS = {"mass": "jet_sdmass", "mass_mask": "jet_nparticles > 20", "ln_pt": "np.log(jet_pt)"}
FAR = {"value": "np.where(part_deltaR > 1, part_charge > 0, -1)", "names": ["other", "positive"]}
PFN = {"name": "pfn", "settings": {key: list(value) for key, value in SMALL["pfn"][1].items()}}


def config_with(labels) -> DataConfig:
    data = yaml.safe_load(load_data_config("jetclass_kin").to_yaml())
    return DataConfig.model_validate({**data, "labels": labels})


def config_with_targets(**changes) -> DataConfig:
    """Return a config of ten classes, the mass of some jets, ln pT of all, and the class of a few particles."""
    labels = {"type": "hybrid", "value": [f"label_{name}" for name in CLASSES], "particles": {"far": FAR}}
    return config_with({**labels, "value_custom": {**TARGETS, **changes}})


def objective_of(config=None, **tasks):
    return make_objective(tiny_recipe(tasks=tasks), config or config_with_targets())


# --- from the recipe to the objective ---


def test_without_tasks_a_recipe_learns_the_classes():
    assert type(objective_of()) is Classification
    assert type(make_objective(tiny_recipe(), load_data_config("jetclass_kin"))) is Classification


def test_all_kinds_of_tasks():
    objective = objective_of(
        classification={"weight": 0.5},
        regressions={
            "mass": {"weight": 5.0, "shift": 90.0, "scale": 20.0, "unit": "GeV"},
            "resolution": {"target": "mass", "loss": "gaussian", "per_class": "residual"},
            "ln_pt": {"loss": "quantile", "quantiles": [0.1, 0.5], "per_class": True},
        },
    )
    assert objective.heads == {"classes": 10, "mass": 1, "resolution": 22, "ln_pt": 20}
    assert {name: term.weight for name, term in objective.terms.items()} == {
        "classes": 0.5, "mass": 5.0, "resolution": 1.0, "ln_pt": 1.0,
    }  # fmt: skip
    classes, mass, resolution, ln_pt = objective.tasks
    assert classes == classes_task(10)
    assert mass == Task(name="mass", kind="value", target="mass", shift=90.0, scale=20.0, unit="GeV")
    assert (resolution.target, resolution.kind, resolution.per_class) == ("mass", "gaussian", "residual")
    assert (ln_pt.quantiles, objective.terms["ln_pt"].objective.column) == ((0.1, 0.5), 1)


def test_only_regressions():
    objective = objective_of(classification={"weight": 0.0}, regressions={"mass": {}})
    assert objective.heads == {"mass": 1}
    assert objective.metric(None).name == "loss"


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"regressions": {"mas": {}}}, r"mas: the data config has no target 'mas' \(did you mean 'mass'\?\)"),
        ({"classification": {"weight": 0.0}}, "nothing to learn"),
    ],
)
def test_tasks_that_do_not_fit_the_data_config(tasks, message):
    with pytest.raises(ConfigError, match=message):
        objective_of(**tasks)


def test_scales_are_fitted_to_training_jets():
    recipe = tiny_recipe(
        tasks={"regressions": {"mass": {}, "ln_pt": {"shift": 1.0}, "m": {"target": "mass", "scale": 3.0}}}
    )
    random = np.random.default_rng(1)
    targets = np.stack([random.normal(90, 12, 50_000), np.full(50_000, 1.5)], axis=1)
    targets[::3, 0] = np.nan
    fitted = with_fitted_scales(recipe, config_with_targets(), lambda: targets).tasks.regressions
    assert (fitted["mass"].shift, fitted["mass"].scale) == pytest.approx((90, 12), rel=0.02)
    assert (fitted["ln_pt"].shift, fitted["ln_pt"].scale) == (1.0, 1.0)  # it is the same for all jets
    assert (fitted["m"].shift, fitted["m"].scale) == (fitted["mass"].shift, 3.0)
    given = tiny_recipe(tasks={"regressions": {"mass": {"shift": 0.0, "scale": 1.0}}})
    assert with_fitted_scales(given, config_with_targets(), pytest.fail) is given
    with pytest.raises(DataError, match="mass: none of 50000 training jets has a known target"):
        with_fitted_scales(recipe, config_with_targets(), lambda: np.full_like(targets, np.nan))


# --- runs ---

TASKS = {
    "classification": {"weight": 1.0},
    "regressions": {
        "mass": {"loss": "gaussian", "weight": 0.5, "unit": "GeV"},
        "ln_pt": {"loss": "quantile", "weight": 2.0, "shift": 6.0, "scale": 1.0, "per_class": "residual"},
    },
    "particles": {"far": {"weight": 0.1}},
}


def job_with_tasks(jet_file, config=None, **changes):
    recipe = tiny_recipe(**{"model": PFN, "tasks": TASKS, "epochs": 2, **changes})
    return open_job(recipe, config or config_with_targets(), [InputFile("", str(jet_file))], 0.25, seed=7)


def test_a_run_with_several_tasks_resumes_exactly(jet_file, tmp_path):
    job = job_with_tasks(jet_file, accumulate=2)
    run_job(job, tmp_path / "whole")
    assert run_job(job, tmp_path / "parts", should_stop=stop_after(4)).stopped
    torch.manual_seed(12345)
    again = job_with_tasks(jet_file, accumulate=2)  # which fits the scale again
    assert not run_job(again, tmp_path / "parts", resume=True).stopped
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    epochs = read_metrics(tmp_path / "whole" / "metrics.jsonl", "epoch")
    for part, names in (
        ("train", ("loss", "classes_loss", "accuracy", "mass_loss", "ln_pt_loss")),
        (
            "validation",
            ("loss", "auc", "mass_loss", "mass_bias", "mass_width", "ln_pt_width", "far_accuracy"),
        ),
    ):
        assert all(np.isfinite(line[f"{part}_{name}"]) for line in epochs for name in names)
    best = min(epochs, key=lambda line: line["validation_loss"])
    assert best["epoch"] == max(line["epoch"] for line in epochs if line["is_best"])
    total = best["validation_classes_loss"] + 0.5 * best["validation_mass_loss"]
    total += 2 * best["validation_ln_pt_loss"] + 0.1 * best["validation_far_loss"]
    assert best["validation_loss"] == pytest.approx(total)


def test_the_tagger_lists_its_outputs(jet_file, tmp_path):
    job = job_with_tasks(jet_file, epochs=1)
    run_job(job, tmp_path)
    fitted = load_recipe(str(tmp_path / "recipe.yaml")).tasks.regressions["mass"]
    tagger = load_torch_tagger(tmp_path / "best.safetensors")
    mass = Task(
        name="mass", kind="gaussian", target="mass", shift=fitted.shift, scale=fitted.scale, unit="GeV"
    )
    ln_pt = Task(
        name="ln_pt", kind="quantiles", target="ln_pt", quantiles=(0.16, 0.5, 0.84), shift=6.0,
        num_classes=10, per_class="residual",
    )  # fmt: skip
    assert tagger.tasks == (classes_task(10), mass, ln_pt)
    assert tagger.network.head_sizes == {"classes": 10, "mass": 2, "ln_pt": 33}
    assert tagger.to_bytes() == (tmp_path / "best.safetensors").read_bytes()


def test_the_scale_is_that_of_known_targets(jet_file):
    import uproot

    task = job_with_tasks(jet_file).recipe.tasks.regressions["mass"]
    with uproot.open(jet_file) as file:
        jets = file["tree"].arrays(["jet_sdmass", "jet_nparticles"], library="np")
    known = jets["jet_sdmass"][jets["jet_nparticles"] > 20]
    low, middle, high = np.quantile(known.astype(np.float64), [0.16, 0.5, 0.84])
    # the split leaves a quarter of the jets out, of which the first ones of each chunk are read
    assert task.shift == pytest.approx(middle, rel=0.2)
    assert task.scale == pytest.approx((high - low) / 2, rel=0.2)


def test_a_tagger_of_classes_is_written_as_before(jet_file, tmp_path):
    run_job(tiny_job(jet_file, model=PFN, epochs=1), tmp_path)
    assert b"tasks" not in (tmp_path / "best.safetensors").read_bytes()
    assert load_tagger(tmp_path).tasks == (classes_task(10),)


def test_two_processes_with_targets_that_are_hardly_known(jet_file, tmp_path):
    """Most batches have no jet with a known mass, and some no particle with a known class."""
    job = job_with_tasks(jet_file, config_with_targets(mass_mask="jet_nparticles > 58"))
    assert_two_processes_resume_exactly(job, tmp_path, stops=[4])
    steps = [line for line in metrics_of(tmp_path / "whole") if line["kind"] == "train"]
    assert any(line["mass_loss"] != 0 for line in steps)
    assert any(line["far_loss"] != 0 for line in steps)


def test_a_regression_without_classes(jet_file, tmp_path, monkeypatch, capsys):
    """As in weaver's regression mode: custom labels without names."""
    monkeypatch.chdir(tmp_path)
    config = config_with({"type": "custom", "value": {"mass": "jet_sdmass"}})
    (tmp_path / "mass.yaml").write_text(config.to_yaml())
    tasks = {"regressions": {"mass": {"loss": "mse"}}}
    recipe = {**TINY_RECIPE, "data_config": "mass.yaml", "model": PFN, "tasks": tasks, "epochs": 2}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    command = ["train", "recipe.yaml", "--train", str(jet_file), "--val-fraction", "0.2", "--out", "run"]
    assert main([*command, "--threads", "1", "--workers", "0"]) == 0
    first, header, *_, last = capsys.readouterr().out.splitlines()
    assert "jets;" in first  # without classes
    assert header.split()[:8] == ["epoch", "loss", "mass", "loss", "val.", "loss", "mass", "loss"]
    assert "validation loss" in last
    tagger = load_torch_tagger(tmp_path / "run")
    assert [task.name for task in tagger.tasks] == ["mass"]
    assert tagger.class_names == ()
    assert main(["predict", str(jet_file), "--tagger", "run", "--out", "scores.root", "--threads", "1"]) == 0
    found = read_columns("scores.root", ["mass", "true_mass", "jet_sdmass"])
    np.testing.assert_array_equal(found["true_mass"], found["jet_sdmass"])
    assert np.std(found["mass"]) > 0
    assert main(["check", "mass.yaml", "--train", str(jet_file)]) == 0
    tuned = [*command[:-1], "tuned", "--init-from", "run", "--set", "epochs=1", "--threads", "1"]
    assert main([*tuned, "--workers", "0"]) == 0
    assert "including the last layer" in capsys.readouterr().out
    assert load_torch_tagger("tuned").tasks == tagger.tasks
    assert main([*command, "--set", "tasks={}", "--threads", "1"]) == 3
    assert "list it in `tasks` of the recipe" in capsys.readouterr().err


def test_a_factor_needs_one_value_for_each_jet(jet_file, tmp_path):
    def job(factor_of):
        tasks = {"regressions": {"mass": {"factor_of": factor_of, "shift": 0.0, "scale": 1.0}}}
        return job_with_tasks(jet_file, tasks=tasks)

    with pytest.raises(DataError, match=r"lacks branches .* jet_mass"):
        job("jet_mass")
    with pytest.raises(DataError, match="part_px must have one value per jet"):
        run_job(job("part_px"), tmp_path)
    assert not (tmp_path / "run.json").exists()
    with pytest.raises(ConfigError, match="jet_pt, a column of the predictions, has the name of an observer"):
        job_with_tasks(jet_file, tasks={"regressions": {"jet_pt": {"target": "mass"}}})


def test_a_weaver_network_learns_a_target(jet_file, tmp_path):
    """As in weaver's regression mode: one target, one output of the module."""
    config = config_with({"type": "custom", "value": {"mass": "jet_sdmass"}})
    (tmp_path / "mass.yaml").write_text(config.to_yaml())
    (tmp_path / "network.py").write_text(WEAVER)
    recipe = {**TINY_RECIPE, "data_config": "mass.yaml", "model": {"file": "network.py"}, "epochs": 1}
    recipe["tasks"] = {"regressions": {"mass": {"loss": "mse"}}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    options = {"validation": 0.2, "num_threads": 1, "num_workers": 0}
    partt.train(tmp_path / "recipe.yaml", jet_file, out=tmp_path / "run", **options)
    tagger = load_tagger(tmp_path / "run", network_file=tmp_path / "network.py")
    partt.predict(tagger, jet_file, tmp_path / "scores.root", num_threads=1)
    assert np.isfinite(read_columns(str(tmp_path / "scores.root"), ["mass"])["mass"]).all()
    (tmp_path / "network.py").write_text(WEAVER + "\n\ndef get_loss(data_config):\n    return nn.MSELoss()\n")
    with pytest.raises(ConfigError, match="tasks: .*network.py has a loss of its own; remove"):
        partt.train(tmp_path / "recipe.yaml", jet_file, out=tmp_path / "other", **options)
