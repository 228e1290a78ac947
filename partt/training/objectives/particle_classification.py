"""Classes of particles, such as the origin of tracks: an auxiliary task of training.

Its head sees the tokens of the particles and belongs to the objective, not to the network: taggers do not
have it, and prediction and export do not pay for it.

Axes: B jets, T particles of a collection in all jets, C classes.
"""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from partt.data.jet_batch import JetBatch
from partt.errors import ConfigError
from partt.model.grouping import jet_of_row
from partt.model.heads import Head, HeadConfig
from partt.model.network import Network, Outputs, tokens_of
from partt.training.objectives.objective import LOSS, Losses, Measurements, Metric, Objective

KNOWN = "known"  # sum: number of particles whose class is known
CORRECT = "correct"
WEIGHT = "weight"


class ParticleClassification(Objective):
    """One softmax over the classes of each particle.

    Particles whose class is not known, and those that the network trimmed, do not count.
    """

    needs_tokens = True
    needs_labels = False

    def __init__(self, name: str, collection: str, num_classes: int, head: HeadConfig | None = None) -> None:
        super().__init__()
        self.heads = {}
        self.name = name  # of the task, and in JetBatch.particle_labels
        self.collection = collection
        self.num_classes = num_classes
        self.head_config = head or HeadConfig()
        self.head = nn.Sequential()  # `prepare` knows the width of the tokens
        self.particle_labels = (name,)
        self.accuracy = Metric(f"{name}_accuracy", f"{name} accuracy", "higher")
        self.training_metrics = self.validation_metrics = (LOSS, self.accuracy)

    def prepare(self, network: Network) -> None:
        """Make the head, with new weights, for the tokens of a network."""
        width = network.backbone.token_width
        if not width:
            raise ConfigError(
                f"tasks.particles.{self.name}: the network {network.name} has no tokens of particles; part, "
                "particlenet, pfn and pcnn have them"
            )
        self.head = nn.Sequential(nn.LayerNorm(width), Head(width, self.num_classes, self.head_config))

    def losses(self, outputs: Outputs, batch: JetBatch) -> Losses:
        """Return the mean of jet weight x cross entropy over the known particles; 0 if there is none."""
        found = self._of_particles(outputs, batch)
        total, num_known = (found.losses * found.weights).sum(), found.known.sum()
        sums = {LOSS.name: total.detach(), CORRECT: found.correct.sum(), KNOWN: num_known}
        return Losses(total / num_known.clamp(min=1), {name: value.double() for name, value in sums.items()})

    def training_values(self, sums: Mapping[str, float], num_jets: int) -> dict[str, float]:
        """Return mean loss and accuracy of the known particles."""
        del num_jets
        num_known = max(sums.get(KNOWN, 0.0), 1.0)
        return {
            LOSS.name: sums.get(LOSS.name, 0.0) / num_known,
            self.accuracy.name: sums.get(CORRECT, 0.0) / num_known,
        }

    def measurements(self, outputs: Outputs, batch: JetBatch) -> Measurements:
        """Return sums weighted by the jets' weights."""
        found = self._of_particles(outputs, batch)
        weights = found.weights.double()
        sums = {LOSS.name: found.losses.double() * weights, CORRECT: found.correct * weights, WEIGHT: weights}
        return Measurements(len(batch), {name: values.sum() for name, values in sums.items()})

    def validation_values(self, measured: Measurements) -> dict[str, float | None]:
        """Return weighted loss and accuracy; None if no particle is known."""
        loss, correct, weight = (float(measured.sums[name]) for name in (LOSS.name, CORRECT, WEIGHT))
        if not weight:
            return {LOSS.name: None, self.accuracy.name: None}
        return {LOSS.name: loss / weight, self.accuracy.name: correct / weight}

    def _of_particles(self, outputs: Outputs, batch: JetBatch) -> "_Particles":
        """Return what is found of all particles."""
        labels = batch.particle_labels[self.name]
        tokens, is_trimmed = tokens_of(outputs, self.collection)
        known = (labels.numbers >= 0) & ~is_trimmed
        logits = self.head(tokens).float()
        losses = functional.cross_entropy(logits, labels.numbers.where(known, 0), reduction="none")
        weights = batch.weights[jet_of_row(labels.offsets, len(labels.numbers))]
        return _Particles(
            known,
            losses.where(known, 0.0),
            (logits.argmax(dim=1) == labels.numbers) & known,
            weights.where(known, 0.0),
        )


class _Particles(NamedTuple):
    """Of each particle (T,); the last three are 0 unless it is known."""

    known: Tensor
    losses: Tensor
    correct: Tensor  # whether the highest score is that of the class
    weights: Tensor  # of the jet
