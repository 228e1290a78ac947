"""Efficiencies of the working points as a correctionlib file, for analyses."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from partt.evaluation.summary import DiscriminantSummary, Summary
from partt.evaluation.working_points import BinnedEfficiency
from partt.scores.passing import Floats

VARIATIONS = ("nominal", "down", "up")


def to_correctionlib(summary: Summary) -> str:
    """Return a correction set, as JSON: for each discriminant the efficiency of each true class.

    Inputs: working_point, jet_class, variation (nominal, down, up: the 68 % interval) and the binned
    observers; values outside the bins use the nearest bin.
    """
    from correctionlib import schemav2  # noqa: PLC0415 - slow to import

    corrections = [_correction(one, schemav2) for one in summary.discriminants.values()]
    found = schemav2.CorrectionSet(
        schema_version=2,
        description="efficiencies of working points, by partt evaluate",
        corrections=corrections,
    )
    return str(found.model_dump_json(exclude_unset=True))


def _correction(one: DiscriminantSummary, schema: Any) -> Any:
    discriminant = one.discriminant
    classes = one.working_points[0].by_class
    observers = list(classes[discriminant.signal].edges)
    by_point: list[dict[str, Any]] = []
    for working_point in one.working_points:
        by_class = []
        for name, binned in working_point.by_class.items():
            by_variation = [
                {"key": variation, "value": _content(binned, variation)} for variation in VARIATIONS
            ]
            inner = {"nodetype": "category", "input": "variation", "content": by_variation}
            by_class.append({"key": name, "value": inner})
        inner = {"nodetype": "category", "input": "jet_class", "content": by_class}
        by_point.append({"key": working_point.point.request.name, "value": inner})
    texts = {
        "working_point": f"one of {', '.join(item['key'] for item in by_point)}",
        "jet_class": f"the true class, one of {', '.join(classes)}",
        "variation": "nominal, or an end of the 68 % interval: down, up",
    }
    return schema.Correction(
        name=discriminant.name,
        version=1,
        description=f"efficiency of {discriminant.title} >= threshold; a bin without jets has the overall "
        "efficiency, with 0 for down and 1 for up",
        inputs=[
            *(schema.Variable(name=name, type="string", description=text) for name, text in texts.items()),
            *(schema.Variable(name=name, type="real") for name in observers),
        ],
        output=schema.Variable(name="efficiency", type="real"),
        data={"nodetype": "category", "input": "working_point", "content": by_point},
    )


def _content(binned: BinnedEfficiency, variation: str) -> Any:
    interval = binned.efficiency
    values, without_jets = {
        "nominal": (interval.value, binned.overall),
        "down": (interval.low, 0.0),
        "up": (interval.high, 1.0),
    }[variation]
    numbers = [without_jets if math.isnan(value) else float(value) for value in np.clip(values, 0, 1)]
    if not binned.edges:
        return numbers[0]
    return {
        "nodetype": "multibinning",
        "inputs": list(binned.edges),
        "edges": _edges(binned.edges),
        "content": numbers,
        "flow": "clamp",
    }


def _edges(edges: Mapping[str, Floats]) -> list[list[float]]:
    return [values.tolist() for values in edges.values()]
