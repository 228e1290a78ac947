"""Classification with the loss of the user's network file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from partt.data.jet_batch import JetBatch
from partt.errors import ConfigError, DataError
from partt.model.config_types import CLASSES
from partt.model.foreign_code import blamed_on, seeded_by_torch
from partt.model.network import Outputs
from partt.training.objectives.classification import Classification
from partt.training.objectives.objective import LOSS, Losses, Measurements

OWN_LOSS = "own_loss"  # sum over the jets


class FileLoss(Classification):
    """The loss that get_loss of a network file returns: loss(logits, labels) of a batch, without weights."""

    def __init__(
        self, num_classes: int, loss: Callable[[Tensor, Tensor], Tensor], path: Path, *, has_weights: bool
    ) -> None:
        super().__init__(num_classes)
        self.loss = loss
        self.path = path
        self.has_weights = has_weights  # which the loss does not get

    def losses(self, outputs: Outputs, batch: JetBatch) -> Losses:
        """Return the loss of the batch, and the number of correct jets."""
        loss = self._loss(outputs, batch)
        sums = super().losses(outputs, batch).sums
        return Losses(loss, {**sums, LOSS.name: loss.detach().double() * len(batch)})

    def measurements(self, outputs: Outputs, batch: JetBatch) -> Measurements:
        """Return what classification measures, and the sum of the loss."""
        measured = super().measurements(outputs, batch)
        loss = self._loss(outputs, batch).double() * len(batch)
        return Measurements(measured.num_jets, {**measured.sums, OWN_LOSS: loss}, measured.values)

    def validation_values(self, measured: Measurements) -> dict[str, float | None]:
        """Return the mean loss, accuracy and AUC."""
        loss = float(measured.sums[OWN_LOSS]) / measured.num_jets
        return {**super().validation_values(measured), LOSS.name: loss}

    def notices(self, training: Mapping[str, int], validation: Mapping[str, int]) -> list[str]:
        """Return which classes have no jets, and that weights are not used."""
        ignored = [f"the loss of {self.path} does not get the weights of jets: they count in metrics only"]
        return [*(ignored if self.has_weights else []), *super().notices(training, validation)]

    def _loss(self, outputs: Outputs, batch: JetBatch) -> Tensor:
        if batch.labels is None:
            raise DataError("these jets have no labels")
        with blamed_on(self.path), seeded_by_torch():
            loss: Any = self.loss(outputs[CLASSES].float(), batch.labels)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            found = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ConfigError(f"{self.path}: the loss of a batch should be one number, found {found}")
        scalar: Tensor = loss.reshape(())
        return scalar
