"""Several tasks in one run: objectives from recipes, runs that resume, taggers that list their outputs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_distributed import run_two
from test_fit import assert_same_run, metrics_of

from partt.data.config.data_config import DataConfig, load_data_config
from partt.errors import ConfigError, DataError
from partt.jobs.metrics_file import read_metrics
from partt.model.grouping import jet_of_row
from partt.model.tasks import Task, classes_task
from partt.tagger.loading import load_tagger, load_torch_tagger
from partt.training.objectives.classification import Classification
from partt.training.objectives.regression import Regression
from partt.training.objectives.sum_of_tasks import SumOfTasks, Term
from partt.training.objectives.tasks_of_recipe import make_objective, with_fitted_scales
from training_jobs import run_job, stop_after, tiny_job, tiny_recipe


class ConfigWithTargets(DataConfig):
    """A data config with two targets."""

    @property
    def target_names(self) -> tuple[str, ...]:
        return ("mass", "pt_ratio")


def config_with_targets(**changes) -> DataConfig:
    config = load_data_config("jetclass_kin")
    fields = {name: getattr(config, name) for name in DataConfig.model_fields}
    return ConfigWithTargets(**{**fields, **changes})


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
            "pt_ratio": {"loss": "quantile", "quantiles": [0.1, 0.5], "per_class": True},
        },
    )
    assert objective.heads == {"classes": 10, "mass": 1, "resolution": 22, "pt_ratio": 20}
    assert {name: term.weight for name, term in objective.terms.items()} == {
        "classes": 0.5, "mass": 5.0, "resolution": 1.0, "pt_ratio": 1.0,
    }  # fmt: skip
    classes, mass, resolution, ratio = objective.tasks
    assert classes == classes_task(10)
    assert mass == Task(name="mass", kind="value", target="mass", shift=90.0, scale=20.0, unit="GeV")
    assert (resolution.target, resolution.kind, resolution.per_class) == ("mass", "gaussian", "residual")
    assert (ratio.quantiles, objective.terms["pt_ratio"].objective.column) == ((0.1, 0.5), 1)


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
        tasks={"regressions": {"mass": {}, "pt_ratio": {"shift": 1.0}, "m": {"target": "mass", "scale": 3.0}}}
    )
    random = np.random.default_rng(1)
    targets = np.stack([random.normal(90, 12, 50_000), np.full(50_000, 1.5)], axis=1)
    targets[::3, 0] = np.nan
    fitted = with_fitted_scales(recipe, config_with_targets(), lambda: targets).tasks.regressions
    assert (fitted["mass"].shift, fitted["mass"].scale) == pytest.approx((90, 12), rel=0.02)
    assert (fitted["pt_ratio"].shift, fitted["pt_ratio"].scale) == (1.0, 1.0)  # it is the same for all jets
    assert (fitted["m"].shift, fitted["m"].scale) == (fitted["mass"].shift, 3.0)
    given = tiny_recipe(tasks={"regressions": {"mass": {"shift": 0.0, "scale": 1.0}}})
    assert with_fitted_scales(given, config_with_targets(), pytest.fail) is given
    with pytest.raises(DataError, match="mass: none of 50000 training jets has a known target"):
        with_fitted_scales(recipe, config_with_targets(), lambda: np.full_like(targets, np.nan))


# --- runs ---


class FromParticles(SumOfTasks):
    """Learns targets of the particles: the mass of each jet, known for some jets only, and ln pT."""

    known_every = 3

    def losses(self, outputs, batch):
        return super().losses(outputs, self.with_targets(batch))

    def measurements(self, outputs, batch):
        return super().measurements(outputs, self.with_targets(batch))

    def with_targets(self, batch):
        particles = batch.inputs.main
        total = particles.momenta.new_zeros(len(batch), 4)
        total = total.index_add(0, jet_of_row(particles.offsets), particles.momenta)
        mass = (total[:, 3].square() - total[:, :3].square().sum(dim=1)).clamp(min=0).sqrt()
        mass[batch.source_entry % self.known_every != 0] = float("nan")
        pt = total[:, :2].square().sum(dim=1).sqrt().clamp(min=1).log()
        return replace(batch, targets=torch.stack([mass, pt], dim=1))


TASKS = {
    "mass": Task(name="mass", kind="gaussian", target="mass", shift=100.0, scale=40.0, unit="GeV"),
    "ln_pt": Task(
        name="ln_pt", kind="quantiles", target="ln_pt", quantiles=(0.16, 0.5, 0.84), shift=6.0,
        num_classes=10, per_class="residual",
    ),
}  # fmt: skip


def several_tasks(kind=FromParticles) -> SumOfTasks:
    regressions = {
        "mass": Term(Regression(TASKS["mass"], "gaussian", 0), 0.5),
        "ln_pt": Term(Regression(TASKS["ln_pt"], "quantile", 1), 2.0),
    }
    return kind({"classes": Term(Classification(10), 1.0), **regressions})


def job_with_tasks(jet_file, objective=None, **changes):
    job = tiny_job(jet_file, epochs=2, **changes)
    return replace(job, recipe=job.recipe.replace(metric="loss"), objective=objective or several_tasks())


def test_a_run_with_several_tasks_resumes_exactly(jet_file, tmp_path):
    job = job_with_tasks(jet_file, accumulate=2)
    run_job(job, tmp_path / "whole")
    assert run_job(job, tmp_path / "parts", should_stop=stop_after(4)).stopped
    torch.manual_seed(12345)
    assert not run_job(job, tmp_path / "parts", resume=True).stopped
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    epochs = read_metrics(tmp_path / "whole" / "metrics.jsonl", "epoch")
    for part, names in (
        ("train", ("loss", "classes_loss", "accuracy", "mass_loss", "ln_pt_loss")),
        ("validation", ("loss", "auc", "mass_loss", "mass_bias", "mass_width", "ln_pt_width")),
    ):
        assert all(np.isfinite(line[f"{part}_{name}"]) for line in epochs for name in names)
    best = min(epochs, key=lambda line: line["validation_loss"])
    assert best["epoch"] == max(line["epoch"] for line in epochs if line["is_best"])
    total = best["validation_classes_loss"] + 0.5 * best["validation_mass_loss"]
    assert best["validation_loss"] == pytest.approx(total + 2 * best["validation_ln_pt_loss"])


def test_the_tagger_lists_its_outputs(jet_file, tmp_path):
    run_job(job_with_tasks(jet_file), tmp_path)
    tagger = load_torch_tagger(tmp_path / "best.safetensors")
    assert tagger.tasks == (classes_task(10), *TASKS.values())
    assert tagger.network.head_sizes == {"classes": 10, "mass": 2, "ln_pt": 33}
    copy = tagger.to_bytes()
    assert copy == (tmp_path / "best.safetensors").read_bytes()


def test_a_tagger_without_classes(jet_file, tmp_path):
    objective = FromParticles({"mass": Term(Regression(TASKS["mass"], "gaussian", 0), 1.0)})
    run_job(job_with_tasks(jet_file, objective), tmp_path)
    tagger = load_torch_tagger(tmp_path)
    assert tagger.tasks == (TASKS["mass"],)
    with pytest.raises(ConfigError, match="this tagger gives no classes, but mass"):
        tagger.tag(None)


def test_a_tagger_of_classes_is_written_as_before(jet_file, tmp_path):
    run_job(tiny_job(jet_file, epochs=1), tmp_path)
    assert b"tasks" not in (tmp_path / "best.safetensors").read_bytes()
    assert load_tagger(tmp_path).tasks == (classes_task(10),)


class HardlyKnown(FromParticles):
    """Most batches have no jet with a known mass."""

    known_every = 40


def test_two_processes_with_targets_that_are_hardly_known(jet_file, tmp_path):
    job = job_with_tasks(jet_file, several_tasks(HardlyKnown))
    assert run_two(job, tmp_path / "whole") == [0, 0]
    assert run_two(job, tmp_path / "parts", stop_at=4) == [75, 75]
    assert run_two(job, tmp_path / "parts", resume=True) == [0, 0]
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    assert any(line["mass_loss"] != 0 for line in metrics_of(tmp_path / "whole") if line["kind"] == "train")
