"""Classification: cross entropy of the classes, accuracy, and the area under the ROC curve.

Axes: B jets, C classes.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor
from torch.nn import functional

from partt.data.jet_batch import JetBatch
from partt.data.reading.jet_index import JetIndex
from partt.errors import ConfigError, DataError
from partt.model.config_types import CLASSES
from partt.model.network import Outputs
from partt.model.tasks import classes_task
from partt.scores.passing import area, sort_sample
from partt.training.objectives.objective import LOSS, Losses, Measurements, Metric, Objective

ACCURACY = Metric("accuracy", "accuracy", "higher")
MAX_LISTED = 10  # names of classes in a message
AUC = Metric("auc", "AUC", "higher")


class Classification(Objective):
    """One softmax over the classes."""

    training_metrics: tuple[Metric, ...] = (LOSS, ACCURACY)
    validation_metrics: tuple[Metric, ...] = (LOSS, ACCURACY, AUC)
    default_metric = ACCURACY.name

    def __init__(self, num_classes: int, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.heads = {CLASSES: num_classes}
        self.tasks = (classes_task(num_classes),)
        self.label_smoothing = label_smoothing

    def losses(self, outputs: Outputs, batch: JetBatch) -> Losses:
        """Return the mean of weight x cross entropy; weights have mean 1 over all jets."""
        logits, labels = outputs[CLASSES].float(), labels_of_batch(batch)
        losses = functional.cross_entropy(
            logits, labels, reduction="none", label_smoothing=self.label_smoothing
        )
        loss = (losses * batch.weights).mean()
        correct = (logits.detach().argmax(dim=1) == labels).sum()
        return Losses(loss, {LOSS.name: loss.detach().double() * len(batch), ACCURACY.name: correct.double()})

    def measurements(self, outputs: Outputs, batch: JetBatch) -> Measurements:
        """Return weighted sums, and for the AUC the probabilities and labels of all jets."""
        logits, labels = outputs[CLASSES].float(), labels_of_batch(batch)
        weights = batch.weights.double()
        losses = functional.cross_entropy(logits, labels, reduction="none").double()
        correct = (logits.argmax(dim=1) == labels).double()
        sums = {
            "loss": (losses * weights).sum(),
            "correct": (correct * weights).sum(),
            "weight": weights.sum(),
        }
        values = {"probabilities": logits.softmax(dim=1), "labels": labels}
        return Measurements(len(batch), sums, values)

    def validation_values(self, measured: Measurements) -> dict[str, float | None]:
        """Return weighted loss and accuracy, and the AUC, which is None if only one class has jets."""
        loss, correct, weight = (float(measured.sums[name]) for name in ("loss", "correct", "weight"))
        if not weight:
            raise DataError(
                "the weights of the validation jets add up to 0, so there is no mean loss: use more of them "
                "(validation_jets_per_epoch), or other weights"
            )
        probabilities, labels = measured.values["probabilities"].numpy(), measured.values["labels"].numpy()
        return {
            LOSS.name: loss / weight,
            ACCURACY.name: correct / weight,
            AUC.name: area_under_curve(probabilities, labels),
        }

    def check_training(self, jets: Mapping[str, int]) -> None:
        """Raise an error if fewer than two classes have training jets."""
        found = [name for name, count in jets.items() if count]
        if len(found) < 2:
            raise DataError(
                f"all training jets are {', '.join(found) or 'of no class'}: a classifier needs jets of at "
                f"least two classes; add files of {_some([name for name in jets if name not in found])}"
            )

    def notices(self, training: Mapping[str, int], validation: Mapping[str, int]) -> list[str]:
        """Return which classes have no jets."""
        found = []
        if missing := [name for name, count in training.items() if not count]:
            found.append(f"no training jets of {_some(missing)}: the network cannot learn to recognise them")
        if missing := [name for name, count in validation.items() if not count]:
            is_area_known = len(validation) - len(missing) > 1
            note = (
                "the AUC is the mean over pairs of the other classes" if is_area_known else "there is no AUC"
            )
            found.append(f"no validation jets of {_some(missing)}: {note}, and the metrics do not show them")
        return found

    def check_validation(self, index: JetIndex, metric: str) -> None:
        """Raise an error if the metric is the AUC and fewer than two classes have validation jets."""
        if metric == AUC.name and np.count_nonzero(index.class_counts.sum(axis=0)) < 2:
            raise ConfigError(
                "metric: auc needs validation jets of two classes or more; choose accuracy or loss"
            )


def area_under_curve(probabilities: np.ndarray, labels: np.ndarray) -> float | None:
    """Return the mean AUC over all pairs of classes, from probabilities (B, C) and labels (B,).

    Classes without jets are left out; None if fewer than two have jets.
    """
    present = np.unique(labels)
    if len(present) < 2:
        return None
    jets = {number: probabilities[labels == number] for number in present}
    signals = present if probabilities.shape[1] > 2 else present[1:]
    areas = []
    for one in signals:
        own = sort_sample(jets[one][:, one])
        areas += [area(own, sort_sample(jets[other][:, one])) for other in present if other != one]
    return float(np.mean(areas))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_LISTED]) + (
        f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    )


def labels_of_batch(batch: JetBatch) -> Tensor:
    """Return the labels (B,) of jets, which must have some."""
    if batch.labels is None:
        raise DataError("these jets have no labels")
    return batch.labels
