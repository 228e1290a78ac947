"""All numbers as JSON: metrics.json, working_points.json."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from partt.evaluation.regression_json import regressions_json
from partt.evaluation.results import Evaluation
from partt.evaluation.results_table import ResultsTable
from partt.evaluation.summary import ClassificationSummary, DiscriminantSummary, Summary
from partt.evaluation.working_points import BinnedEfficiency
from partt.pages.json_text import json_text

FORMAT_VERSION = 1


def metrics_json(evaluation: Evaluation, about: Mapping[str, Any]) -> str:
    """Return everything that was computed."""
    models = {name: [_summary(seed) for seed in seeds] for name, seeds in evaluation.models.items()}
    return json_text(
        {
            "format_version": FORMAT_VERSION,
            "about": about,
            "table": _table(evaluation.table),
            "models": models,
        }
    )


def working_points_json(summary: Summary, model: str) -> str:
    """Return thresholds and efficiencies of the working points, for an analysis to apply."""
    return json_text(
        {
            "format_version": FORMAT_VERSION,
            "model": model,
            "origin": summary.origin,
            "discriminants": {
                name: {
                    "signal": one.discriminant.signal,
                    "backgrounds": one.discriminant.backgrounds,
                    "working_points": _working_points(one),
                }
                for name, one in summary.discriminants.items()
            },
        }
    )


def _table(table: ResultsTable) -> list[dict[str, Any]]:
    return [
        {
            "model": row.model,
            "source": row.source or None,
            "seeds": row.num_seeds,
            "jets": row.num_jets,
            "results": [
                {
                    "metric": column.metric,
                    "signal": column.discriminant.signal if column.discriminant else None,
                    "backgrounds": column.discriminant.backgrounds if column.discriminant else None,
                    "signal_efficiency": column.efficiency,
                    **(dataclasses.asdict(cell) if cell else {"value": None}),
                }
                for column, cell in zip(table.columns, row.cells, strict=True)
            ],
        }
        for row in table.rows
    ]


def _summary(summary: Summary) -> dict[str, Any]:
    return {
        "classes": summary.class_names,
        "files": summary.files,
        "origin": summary.origin,
        "rows": summary.num_rows,
        "left_out": summary.left_out,
        "jets": summary.num_jets,
        "weighted": summary.is_weighted,
        "notes": summary.notes,
        **(_classification(summary.classification) if summary.classification else {}),
        **({"regressions": regressions_json(summary.regressions)} if summary.regressions else {}),
    }


def _classification(summary: ClassificationSummary) -> dict[str, Any]:
    calibration = summary.predictions.calibration
    return {
        "accuracy": {"value": summary.predictions.accuracy, "error": summary.spread.accuracy},
        "auc": {"value": summary.area, "error": summary.spread.area, "pairs": summary.areas},
        "confusion": summary.predictions.normalised,
        "calibration": {
            "expected_error": calibration.expected_error,
            "edges": calibration.edges,
            "share": calibration.share,
            "mean_score": calibration.mean_score,
            "accuracy": calibration.accuracy._asdict(),
        },
        "discriminants": {
            name: {
                "signal": one.discriminant.signal,
                "backgrounds": one.discriminant.backgrounds,
                "signal_jets": one.num_signal,
                "background_jets": one.num_background,
                "auc": one.area,
                "roc": vars(one.curve),
                "rejections": vars(one.rejections),
                "working_points": _working_points(one),
                "sculpting": vars(one.sculpting) if one.sculpting else None,
            }
            for name, one in summary.discriminants.items()
        },
    }


def _working_points(one: DiscriminantSummary) -> list[dict[str, Any]]:
    return [
        {
            "name": found.point.request.name,
            "threshold": found.point.threshold,
            "signal_efficiency": {key: values[0] for key, values in found.point.signal._asdict().items()},
            "background_efficiency": {
                key: values[0] for key, values in found.point.background._asdict().items()
            },
            "signal_jets_passing": found.point.num_signal_passing,
            "background_jets_passing": found.point.num_background_passing,
            "efficiency_by_class": {name: binned.overall for name, binned in found.by_class.items()},
            "signal_by": {name: _binned(binned) for name, binned in found.signal_by.items()},
            "background_by": {name: _binned(binned) for name, binned in found.background_by.items()},
        }
        for found in one.working_points
    ]


def _binned(binned: BinnedEfficiency) -> dict[str, Any]:
    (edges,) = binned.edges.values()
    return {"edges": edges, **binned.efficiency._asdict(), "jets": binned.num_jets}
