"""Columns of regressions: their names, and the numbers in them."""

import pytest
import torch

from partt.errors import ConfigError
from partt.model.task_columns import predicted_columns, task_columns
from partt.model.tasks import Task, classes_task, fault_of
from partt.scores.columns import check_regression_columns, own_columns

CLASSES = ("Hbb", "b-jet")


def task(kind, **changes):
    return Task(**{"name": "m", "kind": kind, "target": "mass", **changes})


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (task("value"), ("m",)),
        (task("gaussian"), ("m", "m_low", "m_high")),
        (task("quantiles", quantiles=(0.16, 0.5, 0.84)), ("m", "m_low", "m_high")),
        (task("quantiles", quantiles=(0.3,)), ("m",)),
        (task("quantiles", quantiles=(0.16, 0.84)), ("m", "m_low", "m_high")),
        (
            task("quantiles", quantiles=(0.975, 0.5, 0.25, 0.025)),
            ("m", "m_low", "m_high", "m_q25"),
        ),
        (task("value", per_class=True, num_classes=2), ("m", "m_Hbb", "m_b_jet")),
    ],
)
def test_names(item, expected):
    columns = task_columns(item, CLASSES)
    assert columns.predicted == expected
    assert (columns.true, columns.variable, columns.corrected) == ("true_mass", None, None)


def test_every_quantile_has_a_column():
    names = task_columns(task("quantiles", quantiles=(0.6, 0.0214, 0.07, 0.9))).quantiles
    assert names == {0.0214: "m_low", 0.07: "m_q7", 0.6: "m", 0.9: "m_high"}


def test_a_factor_has_a_variable_and_a_corrected_value():
    columns = task_columns(task("value", factor_of="jet_mass"))
    assert (columns.variable, columns.corrected) == ("jet_mass", "jet_mass_corrected")


OUTPUTS = {"classes": torch.tensor([[0.0, 1.0], [2.0, 0.0]])}  # argmax: 1, 0


@pytest.mark.parametrize(
    ("item", "outputs", "expected"),
    [
        (task("value", shift=80.0, scale=10.0), [[0.0], [-1.5]], {"m": [80, 65]}),
        (
            task("gaussian", shift=1.0, scale=2.0),
            [[0.0, 0.0], [3.0, 1.3862944]],  # ln 4: a width of 2
            {"m": [1, 7], "m_low": [-1, 3], "m_high": [3, 11]},
        ),
        (
            task("quantiles", quantiles=(0.9, 0.4, 0.1, 0.2), scale=10.0),
            [[9.0, 4.0, 1.0, 2.0]],
            {"m": [40], "m_low": [10], "m_high": [90], "m_q20": [20]},
        ),
        (
            task("value", per_class=True, num_classes=2, scale=2.0),
            [[1.0, 2.0], [3.0, 4.0]],
            {"m": [4, 6], "m_Hbb": [2, 6], "m_b_jet": [4, 8]},
        ),
        (
            task("value", per_class="residual", num_classes=2, shift=1.0),
            [[1.0, 0.5, -0.5]],
            {"m": [2], "m_Hbb": [2.5], "m_b_jet": [1.5]},
        ),
        (
            task("quantiles", quantiles=(0.2, 0.5), per_class=True, num_classes=2),
            [[1.0, 2.0, 3.0, 4.0]],  # classes, then quantiles
            {"m": [4], "m_low": [3], "m_high": [4], "m_Hbb": [2], "m_b_jet": [4]},
        ),
    ],
)
def test_numbers(item, outputs, expected):
    outputs = torch.tensor(outputs)
    scores = {"classes": OUTPUTS["classes"][: len(outputs)], "m": outputs}
    found = predicted_columns([item], CLASSES, scores)
    assert tuple(found) == task_columns(item, CLASSES).predicted == tuple(expected)
    for name, values in expected.items():
        assert found[name].tolist() == pytest.approx(values), name


@pytest.mark.parametrize(
    ("tasks", "observers", "message"),
    [
        ([task("value", name="jet_pt")], ["jet_pt"], "jet_pt, a column .* an observer"),
        ([task("value")], ["true_mass"], "true_mass, a column .* an observer"),
        ([task("value", name="score_Hbb")], [], "score_Hbb, a column .* something else"),
        ([task("value", name="bad")], [], "bad, a column"),
        ([task("gaussian"), task("value", name="m_low")], [], "m_low, a column"),
        ([task("value", name=name, factor_of="jet_mass") for name in "ab"], [], "jet_mass_corrected, a col"),
        ([task("value", name="jet_mass", factor_of="jet_mass")], [], "jet_mass, a column"),
        ([task("value", per_class=True, num_classes=2), task("value", name="m_Hbb")], [], "m_Hbb, a col"),
    ],
)
def test_names_that_clash(tasks, observers, message):
    with pytest.raises(ConfigError, match=message):
        check_regression_columns([classes_task(2), *tasks], CLASSES, observers)


def test_names_that_do_not_clash():
    tasks = [classes_task(2), task("gaussian", factor_of="jet_mass"), task("value", name="n")]
    check_regression_columns(tasks, CLASSES, ["jet_mass", "mass", "jet_pt"])
    columns = own_columns(CLASSES, [], embeddings=False, tasks=tasks)
    assert columns[4:-4] == ["m", "m_low", "m_high", "n", "jet_mass_corrected", "true_mass"]


@pytest.mark.parametrize(
    "tasks",
    [
        [classes_task(3)],
        [task("value", name="classes")],
        [Task(name="m", kind="classes", num_classes=2)],
        [task("value"), task("gaussian")],
        [task("value", per_class=True, num_classes=2)],
        [classes_task(2), task("value", per_class=True, num_classes=3)],
    ],
)
def test_tasks_of_a_foreign_file_that_do_not_fit(tasks):
    assert fault_of(tasks, 2) == f"the task {tasks[-1].name} does not fit the classes and the other tasks"
    assert fault_of([classes_task(2), task("value")], 2) is None
