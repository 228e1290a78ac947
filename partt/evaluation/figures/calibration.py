"""Reliability diagram: a class with score 0.8 should be right in 80 % of the cases."""

import numpy as np
from matplotlib.figure import Figure

from partt.evaluation.summary import ClassificationSummary
from partt.pages.drawing import Drawing
from partt.pages.style import colour

CAPTION = (
    "How often the class with the highest score is the true one, against that score. ECE (expected "
    "calibration error): the mean absolute difference between the two."
)


def draw_calibration(summary: ClassificationSummary) -> Drawing:
    """Draw accuracy against the highest score; below, the distribution of that score."""
    calibration = summary.predictions.calibration
    figure = Figure(figsize=(6.0, 5.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    accuracy = calibration.accuracy
    is_known = ~np.isnan(accuracy.value)
    upper.plot([0, 1], [0, 1], color="grey", linestyle="--", label="perfect")
    upper.errorbar(
        calibration.mean_score[is_known],
        accuracy.value[is_known],
        yerr=np.maximum(
            [(accuracy.value - accuracy.low)[is_known], (accuracy.high - accuracy.value)[is_known]], 0.0
        ),
        fmt="o-",
        markersize=4,
        color=colour(0),
        label=f"ECE = {calibration.expected_error:.4f}",
    )
    upper.set_ylabel("accuracy")
    upper.set_ylim(0, 1.02)
    upper.set_xlim(0, 1)
    upper.legend(loc="upper left")
    lower.stairs(100 * calibration.share, calibration.edges, fill=True, color=colour(0), alpha=0.5)
    lower.set_ylabel("% of jets", loc="center")
    lower.set_xlabel("highest score")
    return Drawing("calibration", "Calibration", CAPTION, figure)
