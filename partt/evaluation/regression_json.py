"""The numbers of regressions in metrics.json."""

from collections.abc import Mapping, Sequence
from typing import Any

from partt.evaluation.regression_table import binned_by
from partt.evaluation.resolutions import Resolution
from partt.evaluation.responses import (
    PULL_EDGES,
    CoverageSummary,
    PullSummary,
    RegressionSummary,
    ResponseSummary,
)
from partt.scores.intervals import Interval


def regressions_json(regressions: Mapping[str, RegressionSummary]) -> dict[str, Any]:
    """Return all numbers of regressions, by name."""
    return {name: _regression(found) for name, found in regressions.items()}


def _regression(found: RegressionSummary) -> dict[str, Any]:
    task, plan, groups = found.task, found.plan, found.groups
    return {
        "target": task.target,
        "factor_of": task.factor_of or None,
        "kind": task.kind,
        "unit": task.unit,
        "response": "prediction / true value" if plan.is_ratio else "prediction - true value",
        "jets": found.num_jets,
        "left_out": found.left_out,
        "prediction": _response(found.prediction, groups, plan.centre),
        "baselines": {
            name: _response(response, groups, plan.centre) for name, response in found.baselines.items()
        },
        "by_discriminant": {
            title: {
                "edges": binned.edges,
                **_resolutions(binned.resolution, ("signal", "background"), plan.centre),
            }
            for title, binned in found.by_discriminant.items()
        },
        "value_edges": plan.value_edges,
        "response_edges": plan.response_edges,
        "true_spectrum": _by_group(found.true_spectrum, groups),
        "coverage": _coverage(found.coverage, groups) if found.coverage else None,
        "pulls": _pulls(found.pulls, groups) if found.pulls else None,
    }


def _response(response: ResponseSummary, groups: Sequence[str], centre: float) -> dict[str, Any]:
    return {
        **_resolutions(response.resolution, groups, centre),
        "by": {
            name: {"edges": binned.edges, **_resolutions(binned.resolution, groups, centre)}
            for name, binned in binned_by(response).items()
        },
        "responses": _by_group(response.responses, groups),
        "spectrum": _by_group(response.spectrum, groups),
        "against_true": response.against_true,
    }


def _resolutions(resolution: Resolution, groups: Sequence[str], centre: float) -> dict[str, Any]:
    """Return jets, bias and width by group."""
    return {
        "jets": _by_group(resolution.num_jets, groups),
        "bias": _intervals(Interval(*(values - centre for values in resolution.median)), groups),
        "width": _intervals(resolution.width, groups),
    }


def _intervals(interval: Interval, groups: Sequence[str]) -> dict[str, Any]:
    return {
        group: {key: values[number] for key, values in interval._asdict().items()}
        for number, group in enumerate(groups)
    }


def _by_group(values: Any, groups: Sequence[str]) -> dict[str, Any]:
    return dict(zip(groups, values, strict=True))


def _coverage(coverage: CoverageSummary, groups: Sequence[str]) -> dict[str, Any]:
    return {
        "quantiles": coverage.quantiles,
        "below": _intervals(coverage.below, groups),
        "expected_inside": coverage.expected,
        "inside": _intervals(coverage.inside, groups),
        "inside_by": {
            name: {"edges": edges, **_intervals(interval, groups)}
            for name, (edges, interval) in coverage.inside_by.items()
        },
    }


def _pulls(pulls: PullSummary, groups: Sequence[str]) -> dict[str, Any]:
    return {
        "jets": _by_group(pulls.resolution.num_jets, groups),
        "median": _intervals(pulls.resolution.median, groups),
        "width": _intervals(pulls.resolution.width, groups),
        "edges": PULL_EDGES,
        "histogram": _by_group(pulls.histogram, groups),
        "left_out": pulls.num_left_out,
    }
