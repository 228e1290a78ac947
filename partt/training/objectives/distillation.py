"""Distillation: the student learns the probabilities of a teacher, with or without labels (arXiv:1503.02531).

Axes: B jets, C classes.
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor
from torch.nn import functional

from partt.data.jet_batch import JetBatch
from partt.data.reading.jet_index import JetIndex
from partt.errors import ConfigError, DataError
from partt.model.config_types import CLASSES
from partt.model.network import Outputs
from partt.training.objectives.classification import (
    ACCURACY,
    AUC,
    Classification,
    area_under_curve,
    labels_of_batch,
)
from partt.training.objectives.objective import LOSS, Losses, Measurements, Metric

AGREEMENT = Metric("agreement", "agreement", "higher")  # the same class has the highest score
WEIGHT, KNOWN, CORRECT, LABELLED = "weight", "known", "correct", "labelled"  # sums of weights of jets


class Distillation(Classification):
    """(1 - w) T² KL(teacher || student) + w x cross entropy of the labels.

    Both distributions are softened: softmax(logits / T). T² keeps the size of the gradient. Jets without soft
    labels count with their labels only.
    """

    default_metric = LOSS.name
    validation_metrics = (LOSS, AGREEMENT, ACCURACY, AUC)

    def __init__(
        self, num_classes: int, temperature: float, label_weight: float, label_smoothing: float = 0.0
    ) -> None:
        super().__init__(num_classes, label_smoothing)
        self.temperature = temperature
        self.label_weight = label_weight
        self.needs_labels = label_weight > 0
        labels = (ACCURACY,) if self.needs_labels else ()
        self.training_metrics = (LOSS, AGREEMENT, *labels)

    def losses(self, outputs: Outputs, batch: JetBatch) -> Losses:
        """Return the mean of weight x loss; weights have mean 1 over all jets."""
        logits = outputs[CLASSES].float()
        losses, _ = self._losses(logits, batch, self.label_smoothing)
        loss = (losses * batch.weights).mean()
        best = logits.detach().argmax(dim=1)
        agrees = best == _best_of_teacher(batch)
        sums = {LOSS.name: loss.detach() * len(batch), AGREEMENT.name: agrees.sum()}
        if self.needs_labels:
            sums[ACCURACY.name] = (best == labels_of_batch(batch)).sum()
        return Losses(loss, {name: total.double() for name, total in sums.items()})

    def measurements(self, outputs: Outputs, batch: JetBatch) -> Measurements:
        """Return weighted sums over the jets that count, and, for the AUC, probabilities and labels."""
        logits = outputs[CLASSES].float()
        losses, counts = self._losses(logits, batch, label_smoothing=0.0)
        weights = batch.weights.double()
        best = logits.argmax(dim=1)
        sums = {
            LOSS.name: losses * weights,
            AGREEMENT.name: (best == _best_of_teacher(batch)) * weights,
            WEIGHT: counts * weights,
            KNOWN: (_best_of_teacher(batch) >= 0) * weights,
        }
        values = {}
        if batch.labels is not None:
            sums |= {CORRECT: (best == batch.labels) * weights, LABELLED: weights}
            values = {"probabilities": logits.softmax(dim=1), "labels": batch.labels}
        return Measurements(len(batch), {name: total.double().sum() for name, total in sums.items()}, values)

    def validation_values(self, measured: Measurements) -> dict[str, float | None]:
        """Return weighted loss and agreement with the teacher; accuracy and AUC if the jets have labels."""
        sums = {name: float(total) for name, total in measured.sums.items()}
        if not sums[KNOWN]:
            raise DataError(
                "the teacher has no scores of the validation jets: its selection leaves all of them out, or "
                "its inputs are NaN or infinite"
            )
        values: dict[str, float | None] = {
            LOSS.name: sums[LOSS.name] / sums[WEIGHT],
            AGREEMENT.name: sums[AGREEMENT.name] / sums[KNOWN],
        }
        if LABELLED not in sums:
            return {**values, ACCURACY.name: None, AUC.name: None}
        kept = measured.values
        area = area_under_curve(kept["probabilities"].numpy(), kept["labels"].numpy())
        return {**values, ACCURACY.name: sums[CORRECT] / sums[LABELLED], AUC.name: area}

    def check_training(self, jets: Mapping[str, int]) -> None:
        """Raise an error if labels are learned, and fewer than two classes have training jets."""
        if self.needs_labels:
            super().check_training(jets)

    def notices(self, training: Mapping[str, int], validation: Mapping[str, int]) -> list[str]:
        """Return what there are no labels of."""
        missing = []
        if not training:
            missing.append("the training jets have no labels: the teacher's scores are all that is learned")
        if not validation:
            missing.append("the validation jets have no labels: there is no accuracy, and no AUC")
        return [*missing, *super().notices(training if self.needs_labels else {}, validation)]

    def check_validation(self, index: JetIndex, metric: str) -> None:
        """Raise an error if a metric needs labels that the validation jets do not have."""
        if metric in {ACCURACY.name, AUC.name} and not np.any(index.class_counts):
            raise ConfigError(
                f"metric: {metric} needs labels, which the validation jets do not have; choose loss or "
                f"{AGREEMENT.name}"
            )
        super().check_validation(index, metric)

    def _losses(self, logits: Tensor, batch: JetBatch, label_smoothing: float) -> tuple[Tensor, Tensor]:
        """Return the losses (B,), and which jets count (B,); the others have the loss 0."""
        soft_labels = _soft_labels(batch)
        known = soft_labels.isfinite().all(dim=1)
        teacher = (soft_labels.where(known[:, None], 0.0) / self.temperature).log_softmax(dim=1)
        student = (logits / self.temperature).log_softmax(dim=1)
        divergence = functional.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=1)
        losses = known * divergence * self.temperature**2
        if not self.needs_labels:
            return losses, known
        labels = labels_of_batch(batch)
        entropy = functional.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)
        return (1 - self.label_weight) * losses + self.label_weight * entropy, known | True


def _soft_labels(batch: JetBatch) -> Tensor:
    if batch.soft_labels is None:
        raise DataError("these jets have no soft labels: a teacher is needed")
    return batch.soft_labels


def _best_of_teacher(batch: JetBatch) -> Tensor:
    """Return the class (B,) with the teacher's highest score; -1 if it has none."""
    soft_labels = _soft_labels(batch)
    return soft_labels.argmax(dim=1).where(soft_labels.isfinite().all(dim=1), -1)
