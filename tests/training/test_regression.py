"""Regressions: losses against formulas and known distributions, unknown targets, weights, metrics."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from partt.data.jet_batch import JetBatch, concatenate
from partt.errors import DataError
from partt.model.tasks import Task
from partt.training.objectives import regression_losses
from partt.training.objectives.classification import Classification
from partt.training.objectives.objective import Metric, join_measurements
from partt.training.objectives.regression import Regression
from partt.training.objectives.sum_of_tasks import SumOfTasks, Term
from small_networks import packed_jets

NAN = float("nan")


def jets(targets, labels=None, weights=None) -> JetBatch:
    """Return jets of one particle with targets (B, R)."""
    targets = torch.as_tensor(targets, dtype=torch.float64)
    size = len(targets)
    return JetBatch(
        packed_jets([1] * size),
        None if labels is None else torch.as_tensor(labels),
        torch.ones(size) if weights is None else torch.as_tensor(weights, dtype=torch.float32),
        torch.zeros(size, dtype=torch.int32),
        torch.arange(size),
        torch.zeros(size, dtype=torch.bool),
        torch.zeros(size, dtype=torch.int32),
        torch.zeros(size, dtype=torch.int32),
        targets,
    )


def regression(loss="log_cosh", column=0, **task) -> Regression:
    kind = {"gaussian": "gaussian", "quantile": "quantiles"}.get(loss, "value")
    return Regression(Task(name="mass", target="mass", kind=kind, **task), loss, column)


# --- losses as functions ---

FORMULAS = {
    "log_cosh": lambda p, t: math.log(math.cosh(p - t)),
    "squared_error": lambda p, t: (p - t) ** 2,
    "absolute_error": lambda p, t: abs(p - t),
}
SLOPES = {
    "log_cosh": lambda p, t: math.tanh(p - t),
    "squared_error": lambda p, t: 2 * (p - t),
    "absolute_error": lambda p, t: math.copysign(1, p - t),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_losses_of_values_and_their_gradients(name):
    predictions = torch.linspace(-9, 8, 200, dtype=torch.float64, requires_grad=True)
    targets = torch.linspace(3, -4, 200, dtype=torch.float64)
    losses = getattr(regression_losses, name)(predictions, targets)
    losses.sum().backward()
    pairs = list(zip(predictions.tolist(), targets.tolist(), strict=True))
    assert losses.tolist() == pytest.approx([FORMULAS[name](p, t) for p, t in pairs], abs=1e-14)
    assert predictions.grad.tolist() == pytest.approx([SLOPES[name](p, t) for p, t in pairs], abs=1e-14)


def test_log_cosh_of_huge_differences():
    differences = torch.tensor([-1e30, -500.0, 0.0, 500.0, 1e30], requires_grad=True)
    losses = regression_losses.log_cosh(differences, torch.zeros(5))
    losses.sum().backward()
    far = 500 - math.log(2)
    assert losses.tolist() == pytest.approx([1e30, far, 0, far, 1e30], rel=1e-6, abs=1e-6)
    assert differences.grad.tolist() == [-1, -1, 0, 1, 1]


def test_the_gaussian_loss_is_the_density_of_scipy():
    means = torch.linspace(-2, 2, 50, dtype=torch.float64)
    log_variances = torch.linspace(-3, 3, 50, dtype=torch.float64)
    targets = torch.linspace(5, -4, 50, dtype=torch.float64)
    losses = regression_losses.gaussian_nll(means, log_variances, targets)
    density = stats.norm.logpdf(targets, means, np.exp(log_variances.numpy() / 2))
    assert losses.tolist() == pytest.approx((-density - math.log(2 * math.pi) / 2).tolist())
    inputs = [tensor.requires_grad_() for tensor in (means, log_variances)]
    assert torch.autograd.gradcheck(lambda m, s: regression_losses.gaussian_nll(m, s, targets), inputs)


def test_the_pinball_loss_and_its_gradient():
    quantiles = (0.16, 0.5, 0.9)
    predictions = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 7.0]], dtype=torch.float64, requires_grad=True)
    losses = regression_losses.pinball(predictions, torch.tensor([2.5, -1.0], dtype=torch.float64), quantiles)
    losses.sum().backward()
    # too low by d: q d; too high by d: (1 - q) d
    assert losses.tolist() == pytest.approx([0.16 * 1.5 + 0.5 * 0.5 + 0.1 * 0.5, 0.84 + 0.5 + 0.1 * 8])
    assert predictions.grad.flatten().tolist() == pytest.approx([-0.16, -0.5, 0.1, 0.84, 0.5, 0.1])


# --- what they find ---


def minimise(objective: Regression, batch: JetBatch, outputs, parameters, lr=0.1, num_steps=150) -> None:
    optimizer = torch.optim.Adam(parameters, lr=lr)
    for step in range(num_steps):
        optimizer.param_groups[0]["lr"] = lr * (1 - step / num_steps)
        optimizer.zero_grad()
        objective.losses({"mass": outputs()}, batch).loss.backward()
        optimizer.step()


def test_a_quantile_head_finds_the_quantiles_of_a_skewed_distribution():
    targets = np.random.default_rng(1).exponential(20, 10_000) + 80
    quantiles = (0.16, 0.5, 0.84)
    objective = regression("quantile", quantiles=quantiles, shift=100.0, scale=15.0)
    free = torch.zeros(1, 3, requires_grad=True)
    minimise(objective, jets(targets[:, None]), lambda: free.expand(len(targets), -1), [free])
    found = objective.task.predictions({"mass": free.detach()})[0].tolist()
    assert found == pytest.approx(np.quantile(targets, quantiles).tolist(), abs=0.1)
    assert found == pytest.approx([80 - 20 * math.log(1 - q) for q in quantiles], abs=0.5)
    assert objective.task.central == 1


def test_gaussian_widths_have_unit_pulls():
    random = np.random.default_rng(2)
    x = random.uniform(-1, 1, 10_000)
    targets = 125 + 10 * x + random.normal(0, 8 * np.exp(0.7 * x))
    objective = regression("gaussian", shift=125.0, scale=10.0)
    layer = torch.nn.Linear(1, 2)
    inputs = torch.tensor(x, dtype=torch.float32)[:, None]
    minimise(objective, jets(targets[:, None]), lambda: layer(inputs), layer.parameters())
    mean, width = objective.task.predictions({"mass": layer(inputs).detach()}).double().T.numpy()
    pulls = (targets - mean) / width
    assert pulls.std() == pytest.approx(1, abs=0.01)
    assert pulls[x > 0.5].std() == pytest.approx(1, abs=0.03)
    assert pulls[x < -0.5].std() == pytest.approx(1, abs=0.03)
    assert np.abs(width / (8 * np.exp(0.7 * x)) - 1).max() < 0.06


@pytest.mark.parametrize("loss", ["log_cosh", "mse", "mae"])
def test_a_value_finds_the_middle(loss):
    targets = np.random.default_rng(3).normal(90, 12, 5000)
    objective = regression(loss, shift=80.0, scale=10.0)
    free = torch.zeros(1, 1, requires_grad=True)
    minimise(objective, jets(targets[:, None]), lambda: free.expand(len(targets), -1), [free])
    assert float(objective.task.predictions({"mass": free.detach()})) == pytest.approx(90, abs=0.6)


# --- unknown targets, weights, classes ---


def both_terms() -> SumOfTasks:
    return SumOfTasks({"classes": Term(Classification(3), 1.0), "mass": Term(regression(), 2.0)})


def outputs_for(batch, mass=1) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    sizes = {"classes": 3, "mass": mass}
    return {
        name: torch.randn(len(batch), size, generator=generator, requires_grad=True)
        for name, size in sizes.items()
    }


def test_an_unknown_target_changes_only_its_own_term():
    objective, labels = both_terms(), [0, 1, 2, 1]
    whole = jets([[1.0], [2.0], [NAN], [4.0]], labels)
    outputs = outputs_for(whole)
    found = objective.losses(outputs, whole)
    found.loss.backward()
    known = [0, 1, 3]
    alone = regression().losses({"mass": outputs["mass"].detach()[known]}, whole.take(np.array(known)))
    classes = Classification(3).losses(outputs, whole)
    assert found.loss.item() == pytest.approx(classes.loss.item() + 2 * alone.loss.item())
    assert found.sums["classes/loss"] == classes.sums["loss"]
    assert found.sums["mass/known"] == 3
    assert (outputs["mass"].grad[2] == 0).all()
    assert (outputs["mass"].grad[known] != 0).all()
    assert (outputs["classes"].grad != 0).all()
    values = objective.training_values({name: float(value) for name, value in found.sums.items()}, 4)
    assert values["loss"] == pytest.approx(found.loss.item())
    assert values["mass_loss"] == pytest.approx(alone.loss.item())
    assert values["classes_loss"] == pytest.approx(classes.loss.item())


def test_a_batch_without_a_known_target_teaches_the_classes():
    batch = jets([[NAN], [NAN]], [0, 1])
    outputs = outputs_for(batch)
    found = both_terms().losses(outputs, batch)
    found.loss.backward()
    assert found.loss.item() == pytest.approx(Classification(3).losses(outputs, batch).loss.item())
    assert (outputs["mass"].grad == 0).all()  # there is a gradient, which several processes exchange
    assert (
        both_terms().training_values({name: float(v) for name, v in found.sums.items()}, 2)["mass_loss"] == 0
    )


@pytest.mark.parametrize("loss", ["log_cosh", "mse", "mae", "gaussian", "quantile"])
def test_a_weight_of_two_is_the_jet_twice(loss):
    options = {"quantiles": (0.2, 0.7)} if loss == "quantile" else {}
    objective = regression(loss, shift=1.0, scale=2.0, **options)
    weighted = jets([[1.0], [2.5], [NAN], [4.0]], weights=[1, 2, 3, 1])
    outputs = torch.randn(4, objective.task.num_outputs, generator=torch.Generator().manual_seed(1))
    places = np.array([0, 1, 1, 2, 2, 2, 3])
    repeated = replace(weighted, weights=torch.ones(4)).take(places)
    one, two = (
        objective.losses({"mass": outputs}, weighted),
        objective.losses({"mass": outputs[places]}, repeated),
    )
    assert one.sums["loss"].item() == pytest.approx(two.sums["loss"].item())
    assert one.loss.item() * 3 == pytest.approx(two.loss.item() * 4)
    measured = [
        objective.measurements({"mass": rows}, batch)
        for rows, batch in ((outputs, weighted), (outputs[places], repeated))
    ]
    losses = [objective.validation_values(part)["loss"] for part in measured]
    assert losses[0] == pytest.approx(losses[1])


def test_one_prediction_per_class():
    objective = regression("mse", num_classes=3, per_class=True)
    batch = jets([[1.0], [2.0]], [2, 0])
    outputs = torch.tensor([[9.0, 9.0, 1.5], [2.0, 9.0, 9.0]], requires_grad=True)
    found = objective.losses({"mass": outputs}, batch)
    found.loss.backward()
    assert found.loss.item() == pytest.approx(0.25 / 2)
    assert outputs.grad.tolist() == [[0, 0, 0.5], [0, 0, 0]]
    # in validation the class is not known: that with the highest score counts
    scores = torch.tensor([[0.0, 0.0, 5.0], [0.0, 5.0, 0.0]])
    assert objective.task.predictions({"mass": outputs, "classes": scores})[:, 0].tolist() == [1.5, 9.0]
    with pytest.raises(DataError, match="learned per class, but these jets have no labels"):
        objective.losses({"mass": outputs}, replace(batch, labels=None))


@pytest.mark.parametrize("per_class", [True, "residual"])
def test_a_batch_without_a_known_target(per_class):
    objective = regression("mse", num_classes=3, per_class=per_class)
    outputs = torch.ones(2, objective.task.num_outputs, requires_grad=True)
    losses = objective.losses({"mass": outputs}, jets([[NAN], [NAN]], labels=[0, 2]))
    losses.loss.backward()
    assert losses.loss == losses.sums["known"] == 0
    assert not outputs.grad.any()


def test_residuals_per_class():
    objective = regression("mse", num_classes=2, per_class="residual", shift=10.0, scale=2.0)
    outputs = torch.tensor([[1.0, 0.5, -1.0]])
    found = objective.losses({"mass": outputs}, jets([[14.0]], [1]))  # 2 when scaled
    assert found.loss.item() == pytest.approx((1 - 2) ** 2 + (1 - 1 - 2) ** 2)
    assert objective.task.predictions({"mass": outputs}).tolist() == [[12.0]]
    assert objective.task.in_units(objective.task.split(outputs).of_class).tolist() == [[[13.0], [10.0]]]


def test_gaussian_and_quantiles_per_class():
    task = Task(name="m", kind="gaussian", num_classes=3, per_class="residual")
    assert (task.num_values, task.num_outputs) == (2, 8)
    parts = task.split(torch.arange(8.0)[None])
    assert parts.of_all.tolist() == [[0, 1]]
    assert parts.of_class.tolist() == [[[2, 4], [4, 6], [6, 8]]]
    quantiles = Task(name="m", kind="quantiles", quantiles=(0.1, 0.9), num_classes=3, per_class=True)
    assert (quantiles.num_values, quantiles.num_outputs) == (2, 6)


# --- metrics ---


def test_bias_and_width_are_those_of_the_residuals_in_units():
    random = np.random.default_rng(5)
    targets = random.uniform(50, 150, 4000)
    predictions = targets + random.normal(3, 7, 4000)
    targets[::10] = NAN
    objective = regression("mse", shift=100.0, scale=20.0)
    outputs = torch.tensor((predictions - 100) / 20, dtype=torch.float32)[:, None]
    batch = jets(targets[:, None])
    whole = objective.validation_values(objective.measurements({"mass": outputs}, batch))
    assert whole["mass_bias"] == pytest.approx(3, abs=0.4)
    assert whole["mass_width"] == pytest.approx(7, abs=0.3)
    residuals = (predictions - targets)[np.isfinite(targets)]
    assert whole["loss"] == pytest.approx(np.square(residuals / 20).mean(), rel=1e-5)
    assert whole["mass_bias"] == pytest.approx(np.median(residuals), abs=1e-4)
    parts = [
        objective.measurements({"mass": outputs[first : first + 1000]}, batch.slice(first, first + 1000))
        for first in range(0, 4000, 1000)
    ]
    assert objective.validation_values(join_measurements(parts)) == pytest.approx(whole)


@torch.no_grad()
def validated(objective, batch):
    return objective.validation_values(objective.measurements(outputs_for(batch), batch))


def test_metrics_of_several_tasks():
    objective = both_terms()
    assert [metric.name for metric in objective.training_metrics] == [
        "loss", "classes_loss", "accuracy", "mass_loss",
    ]  # fmt: skip
    assert [metric.name for metric in objective.validation_metrics] == [
        "loss", "classes_loss", "accuracy", "auc", "mass_loss", "mass_bias", "mass_width",
    ]  # fmt: skip
    assert objective.metric(None).name == "loss"
    assert objective.heads == {"classes": 3, "mass": 1}
    batch = jets([[1.0], [2.0], [NAN], [4.0]], [0, 1, 2, 1])
    values = validated(objective, batch)
    assert list(values) == [metric.name for metric in objective.validation_metrics]
    assert values["loss"] == pytest.approx(values["classes_loss"] + 2 * values["mass_loss"])
    unknown = replace(batch, targets=torch.full((4, 1), NAN))
    values = validated(objective, unknown)
    assert values["mass_loss"] is values["mass_bias"] is None
    assert values["loss"] == values["classes_loss"]
    alone = SumOfTasks({"mass": Term(regression(), 1.0)})
    with pytest.raises(DataError, match="no validation jet has a known value of mass"):
        validated(alone, unknown)


def test_the_bias_nearest_to_zero_is_the_best():
    bias = Metric("bias", "bias", "nearer zero")
    assert bias.is_better(-0.1, 0.2)
    assert not bias.is_better(-0.3, 0.2)


def test_targets_have_columns():
    batch = concatenate([jets([[1.0, 5.0]]), jets([[2.0, NAN]])])
    second = regression("mse", column=1)
    assert second.losses({"mass": torch.tensor([[4.0], [0.0]])}, batch).loss.item() == pytest.approx(1)
    with pytest.raises(DataError, match="no target mass"):
        second.losses({"mass": torch.zeros(2, 1)}, replace(batch, targets=None))
