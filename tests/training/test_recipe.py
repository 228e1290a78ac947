import re

import pytest
import torch
import yaml

from conftest import ROOT
from partt.config import load_record
from partt.data.config.data_config import load_data_config
from partt.errors import ConfigError
from partt.model.registry import build_network
from partt.training.objectives.tasks_of_recipe import make_objective
from partt.training.recipe import Recipe, load_recipe
from partt.training.schedules import rate_factor
from training_jobs import TINY_RECIPE, tiny_recipe


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(TINY_RECIPE))
    return path


def test_a_recipe_loads_back_equal(tmp_path):
    tasks = {"regressions": {"mass": {"loss": "quantile", "per_class": "residual"}, "pt": {"shift": 1.0}}}
    recipe = tiny_recipe(clip_norm=1.0, fine_tuning={"freeze": ["blocks.*"]}, tasks=tasks)
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    assert load_record(tmp_path / "recipe.yaml", Recipe) == recipe


def test_overrides_change_keys(recipe_file):
    changes = ["optimizer.lr=3e-4", "schedule.name=cosine", "model.settings.num_blocks=2", "patience=4"]
    recipe = load_recipe(str(recipe_file), changes)
    assert recipe.optimizer.lr == 3e-4
    assert recipe.schedule.name == "cosine"
    assert recipe.model.settings["num_blocks"] == 2
    assert recipe.patience == 4
    assert recipe.optimizer.name == "ranger"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lrr=1", r"--set optimizer.lrr=1: optimizer.lrr: unknown key \(did you mean 'lr'\?\)"),
        (
            "optimizer.lr=fast",
            r"--set optimizer.lr=fast: optimizer.lr: should be a valid number, found 'fast'",
        ),
        ("optimizer.lr=-1", r"greater than 0"),
        ("epochs=null", "give either epochs or steps"),
        ("class_names=[b, c, b]", "class_names.*duplicate name 'b'"),
        ("tasks.regressions={type: {}}", "tasks.regressions.type: .*choose another"),
        ("tasks.particles={type: {}}", "tasks.particles.type: .*choose another"),
        ("model.name=prt", r"no network 'prt' \(did you mean 'part'\?\)"),
        ("model.name=mine", "If it is a plug-in, install the package that has it"),
        ("model.settings.widht=3", "widht"),
        ("batch_size.x=3", "batch_size has no keys inside"),
        ("batch_size", "should be KEY=VALUE"),
        ("schedule.warmup_steps=2.5", "warmup_steps"),
        ("optimizer.momentum=0.9", "optimizer.momentum: only for sgd; that of ranger is the first of betas"),
        ("optimizer={name: sgd, lr: 1, eps: 1e-8}", "optimizer.eps: not for sgd"),
        ("optimizer.lr_factors={'heads(': 2}", "not a regular expression"),
        ("optimizer.lr_factors={'(a+)\\1': 2}", "cannot be matched in bounded time"),
        ("optimizer.lr_factors={heads: 0}", "greater than 0"),
        ("optimizer.lr=1e308", "optimizer.lr: should be less than or equal to 1000000000"),
        ("optimizer.lr_factors={heads: 1e300}", "less than or equal to 1000000000"),
        ("fine_tuning.head_lr_factor=1e300", "less than or equal to 1000000000"),
        ("distillation={temperature: 1e300}", "less than or equal to 1000000"),
        ("distillation={temperature: 1e-300}", "greater than or equal to 0.001"),
        ("tasks.regressions.classes.loss=mse", "regressions.classes: this name is taken by the classes"),
        ("tasks.regressions.mass.loss=cosh", "tasks.regressions.mass.loss: should be 'log_cosh', 'mse'"),
        ("tasks.regressions.m.quantiles=[0, 1]", "greater than 0"),
        ("tasks={regressions: {'jet mass': {}}}", "should match pattern"),
        (
            "tasks={classification: {weight: 0}, regressions: {m: {per_class: true}}}",
            "regressions.m.per_class: needs classification.weight > 0",
        ),
    ],
)
def test_wrong_overrides_are_explained(recipe_file, override, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe(str(recipe_file), [override])


def test_errors_name_the_line(recipe_file):
    recipe_file.write_text(recipe_file.read_text().replace("batch_size: 16", "batch_size: 16\nbatchsize: 3"))
    with pytest.raises(
        ConfigError, match=r"recipe.yaml:2: batchsize: unknown key \(did you mean 'batch_size'"
    ):
        load_recipe(str(recipe_file))


def test_a_data_config_beside_the_recipe_is_found(recipe_file):
    (recipe_file.parent / "mine.yaml").write_text("")
    recipe = load_recipe(str(recipe_file), ["data_config=mine.yaml"])
    assert recipe.data_config == str(recipe_file.parent / "mine.yaml")


@pytest.mark.parametrize("path", sorted((ROOT / "training").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_recipes_load(path):
    recipe = load_recipe(path.stem)
    config = load_data_config(recipe.data_config)
    with torch.device("meta"):
        network = build_network(
            recipe.model.name,
            recipe.model.network_config(),
            config.input_shape,
            make_objective(recipe, config).heads,
        )
    num_parameters = network.num_parameters
    row = rf"\| `{path.stem}` \|[^|]*\| {num_parameters:,} \|"
    assert re.search(row, (ROOT / "training" / "README.md").read_text()), num_parameters


@pytest.mark.parametrize(
    ("size", "lr", "weight_decay"),
    [("xs", 1e-3, 0.04), ("s", 5e-4, 0.02), ("m", 2.5e-4, 0.01), ("l", 1.25e-4, 0.005)],
)
def test_the_recipes_of_the_guide(size, lr, weight_decay):
    """arXiv:2608.02735: the rate and the decay of AdamW by size, one cycle with a short rise, a million steps."""
    for family in ("slim", "part") if size != "l" else ("slim",):
        recipe = load_recipe(f"jetclass_{family}_{size}")
        assert recipe.model.name == f"{family}_{size}"
        chosen = recipe.optimizer
        assert (chosen.name, chosen.lr, chosen.weight_decay) == ("adamw", lr, weight_decay)
        assert (recipe.schedule.name, recipe.schedule.rise_fraction) == ("one_cycle", 0.01)
        assert recipe.batch_size == 512
        assert recipe.epochs * recipe.jets_per_epoch == 512 * 1_000_000
        assert recipe.clip_norm is None
        peak = 10_000 - 1
        rates = [rate_factor(recipe.schedule, step, 10**6, 20_000) for step in (0, peak, peak + 1, 10**6 - 1)]
        assert rates[1] == 1 > rates[2]
        assert (rates[0], rates[3]) == pytest.approx((0.04, 4e-6), rel=1e-3)  # as torch's one cycle


def test_the_published_recipe():
    recipe = load_recipe("jetclass_part_full")
    assert (recipe.batch_size, recipe.epochs, recipe.jets_per_epoch) == (512, 50, 10_240_000)
    assert (recipe.optimizer.name, recipe.optimizer.lr, recipe.optimizer.weight_decay) == ("ranger", 1e-3, 0)
    assert recipe.model.settings == {"trim": True}
    assert recipe.metric is None  # accuracy
