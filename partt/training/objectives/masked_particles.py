"""Masked particles: learning without labels (arXiv:2401.13537, arXiv:2409.12589).

Some particles of each jet are hidden. The network sees only those that are left; a decoder, which belongs to
the objective and is thrown away after training, learns the hidden ones from the tokens of the others.

Axes: B jets, T particles of all jets, M of them masked; K numbers to learn of a particle, C types, D width of
the embedding, W width of the decoder.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from partt.data.jet_batch import JetBatch
from partt.data.reading.jet_index import JetIndex
from partt.errors import ConfigError, DataError
from partt.model.grouping import jet_of_row
from partt.model.network import Network, Outputs
from partt.training.objectives.jet_observables import ObservablesHead
from partt.training.objectives.linear_probe import probe_accuracy
from partt.training.objectives.masking import MaskedJets, draw_rows, masked_jets
from partt.training.objectives.objective import LOSS, Losses, Measurements, Metric, Objective
from partt.training.objectives.particle_decoder import ParticleDecoder
from partt.training.objectives.particle_targets import ParticleTargets
from partt.training.recipe import MaskedParticlesChoice

FEATURE_LOSS = Metric("feature_loss", "feature loss", "lower")
OBSERVABLES_LOSS = Metric("observables_loss", "observables loss", "lower")
TYPE_ACCURACY = Metric("type_accuracy", "type accuracy", "higher")
PROBE_ACCURACY = Metric("probe_accuracy", "probe accuracy", "higher")
ROWS, VALUES, TYPES = "rows", "values", "types"  # outputs: (M,), (M, K) and (M, C)
OBSERVABLES = "observables"  # output: distances (B,)
OF_VALUES, NUM_VALUES = "of values", "number of values"  # sums over numbers that count
OF_TYPES, NUM_CORRECT, NUM_MASKED = "of types", "correct", "masked"  # sums over masked particles
OF_OBSERVABLES, NUM_JETS = "of observables", "jets"  # sums over jets with particles
EMBEDDINGS, LABELS = "embeddings", "labels"  # values for the probe
MOST_RANKS = 128  # where the data config has no limit on the particles of a jet


class MaskedParticles(Objective):
    """L1 distance of features + weight x cross entropy of types + weight x distance of observables.

    The features and types are those of the masked particles; the decoder is asked for each of them by its
    rank in pT among the masked particles of its jet. The observables are those of the whole jet, read
    from its embedding. Which particles are masked depends on the seed, the number of batches before and
    the jets. In validation, the masks are always the same; where jets have labels, a linear probe on the
    embeddings shows what the network has learned, and changes nothing.
    """

    needs_labels = False

    def __init__(
        self,
        targets: ParticleTargets,
        choice: MaskedParticlesChoice,
        max_particles: int | None = None,
        num_observables: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__()
        self.heads = {}
        self.targets = targets
        self.choice = choice
        limit = MOST_RANKS if max_particles is None else int(choice.mask_fraction * max_particles + 1e-9)
        self.num_ranks = max(1, min(limit, MOST_RANKS))  # the particles after these share the last one
        self.num_observables = num_observables
        self.has_observables = bool(sum(num_observables) and choice.observables_weight)  # are learned
        self.training_metrics = (LOSS, *self._parts())
        self.validation_metrics = (*self.training_metrics, PROBE_ACCURACY)
        self.seed = 0  # of the masks, which are drawn on the host
        self.num_batches = 0  # of training
        self.decoder, self.ask, self.answer = nn.Module(), nn.Module(), nn.Module()  # `prepare` makes them
        self.observe: nn.Module | None = None

    def _parts(self) -> tuple[Metric, ...]:
        """Return the metrics of the parts of the loss."""
        of_particles = (FEATURE_LOSS, TYPE_ACCURACY) if self.targets.names and self.targets.num_types else ()
        return (*of_particles, *([OBSERVABLES_LOSS] if self.has_observables else []))

    def prepare(self, network: Network) -> None:
        """Draw the seed of the masks, and make the decoder for the tokens of a network."""
        if not network.backbone.token_width:
            raise ConfigError(
                f"masked_particles: the network {network.name} has no tokens of particles; part, part_s and "
                "slim_s have them"
            )
        self.seed, self.num_batches = int(torch.zeros((), dtype=torch.int64).random_()), 0
        self.decoder = ParticleDecoder(network.backbone, self.choice.decoder)
        self.ask = self._new_ask(self.choice.decoder.width)
        self.answer = nn.Linear(self.choice.decoder.width, self.targets.num_outputs)
        if self.has_observables:
            self.observe = ObservablesHead(network.backbone.width, self.num_observables)

    def get_extra_state(self) -> Tensor:
        """Return seed and number of batches, for checkpoints."""
        return torch.tensor([self.seed, self.num_batches])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore seed and number of batches."""
        self.seed, self.num_batches = state.tolist()

    def _new_ask(self, width: int) -> nn.Module:
        """Return the layers that make questions."""
        return nn.Embedding(self.num_ranks, width)

    def run(self, network: Network, batch: JetBatch) -> Outputs:
        """Return which particles are masked (M,), and what the decoder says of them: values and types."""
        generator = self._generator(batch)
        rows = draw_rows(batch.inputs.main.layout, self.choice.mask_fraction, generator)
        masked = masked_jets(batch.inputs, rows)
        embeddings = network.backbone(masked.visible(batch.inputs), with_tokens=True)
        questions, others = self._questions(masked, batch.inputs.main.features, generator)
        answers = self.answer(self.decoder(embeddings, questions, masked)).float()
        values, types = answers.split([len(self.targets.names), self.targets.num_types], dim=1)
        if self.observe is not None:
            others = {**others, OBSERVABLES: self.observe(embeddings.jets, batch.inputs.main)}
        return {ROWS: masked.rows, VALUES: values, TYPES: types, **others}

    def _questions(
        self, masked: MaskedJets, features: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Outputs]:
        """Return a question for each masked particle (M, W), and what else the loss needs to know."""
        del features, generator
        return self.ask(masked.ranks.clamp(max=self.num_ranks - 1)), {}

    def _generator(self, batch: JetBatch) -> torch.Generator:
        """Return random numbers for a batch: those of validation are always the same for the same jets."""
        if self.training:
            self.num_batches += 1
        number = self.num_batches if self.training else 0
        jet = [int(batch.source_file[0]), int(batch.source_entry[0])]  # other processes have other jets
        state = np.random.SeedSequence([self.seed, number, *jet]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0]))

    def losses(self, outputs: Outputs, batch: JetBatch) -> Losses:
        """Return the loss, weighted by the jets' weights; 0 if no particle is masked."""
        sums = self._sums(outputs, batch)
        return Losses(self._loss(sums), {name: total.detach().double() for name, total in sums.items()})

    def measurements(self, outputs: Outputs, batch: JetBatch) -> Measurements:
        """Return the sums of the loss."""
        sums = self._sums(outputs, batch)
        return Measurements(len(batch), {name: total.double() for name, total in sums.items()})

    def measure(self, network: Network, batch: JetBatch) -> Measurements:
        """Run the network for validation: on masked jets, and for the probe on whole ones, if labelled."""
        measured = super().measure(network, batch)
        if batch.labels is None:
            return measured
        embeddings = network.embed(batch.inputs).float()
        return replace(measured, values={EMBEDDINGS: embeddings, LABELS: batch.labels})

    def _sums(self, outputs: Outputs, batch: JetBatch) -> dict[str, Tensor]:
        """Return sums over the masked particles, weighted by the jets' weights."""
        particles, rows = batch.inputs.main, outputs[ROWS]
        features = particles.features[rows]
        weights = batch.weights[jet_of_row(particles.offsets, len(particles.features))[rows]]
        counts = self.targets.counts(features) * weights[:, None]
        sums = {NUM_VALUES: counts.sum(), NUM_MASKED: weights.sum()}
        sums[OF_VALUES] = (self._distances(outputs, features) * counts).sum()
        if self.targets.num_types:
            types = self.targets.types(features)
            sums[OF_TYPES] = (self._type_losses(outputs, types) * weights).sum()
            sums[NUM_CORRECT] = ((outputs[TYPES].argmax(dim=1) == types) * weights).sum()
        if OBSERVABLES in outputs:
            of_jets = batch.weights * (particles.lengths > 0)
            sums[OF_OBSERVABLES], sums[NUM_JETS] = (outputs[OBSERVABLES] * of_jets).sum(), of_jets.sum()
        return sums

    def _distances(self, outputs: Outputs, features: Tensor) -> Tensor:
        """Return the losses of the numbers of masked particles (M, K), from their features (M, F)."""
        return (outputs[VALUES] - self.targets.values(features)).abs()

    def _type_losses(self, outputs: Outputs, types: Tensor) -> Tensor:
        """Return the losses of the types of masked particles (M,)."""
        return functional.cross_entropy(outputs[TYPES], types, reduction="none")

    def _loss(self, sums: Mapping[str, Tensor]) -> Tensor:
        loss = sums[OF_VALUES] / sums[NUM_VALUES].clamp(min=1)
        if OF_TYPES in sums:
            loss = loss + self.choice.type_weight * sums[OF_TYPES] / sums[NUM_MASKED].clamp(min=1)
        if OF_OBSERVABLES in sums:
            of_observables = sums[OF_OBSERVABLES] / sums[NUM_JETS].clamp(min=1)
            loss = loss + self.choice.observables_weight * of_observables
        return loss

    def training_values(self, sums: Mapping[str, float], num_jets: int) -> dict[str, float]:
        """Return loss, mean distance of a feature, and accuracy of the types."""
        del num_jets
        totals = {name: torch.tensor(total, dtype=torch.float64) for name, total in sums.items()}
        if not totals:
            return {metric.name: 0.0 for metric in self.training_metrics}
        values = {LOSS.name: float(self._loss(totals))}
        values[FEATURE_LOSS.name] = float(totals[OF_VALUES] / totals[NUM_VALUES].clamp(min=1))
        if NUM_CORRECT in totals:
            values[TYPE_ACCURACY.name] = float(totals[NUM_CORRECT] / totals[NUM_MASKED].clamp(min=1))
        if OF_OBSERVABLES in totals:
            values[OBSERVABLES_LOSS.name] = float(totals[OF_OBSERVABLES] / totals[NUM_JETS].clamp(min=1))
        return {metric.name: values[metric.name] for metric in self.training_metrics}

    def validation_values(self, measured: Measurements) -> dict[str, float | None]:
        """Return the same of validation jets, and the accuracy of the probe if they have labels."""
        sums = {name: float(total) for name, total in measured.sums.items()}
        if not sums[NUM_MASKED]:
            raise DataError(
                f"masked_particles.mask_fraction: {self.choice.mask_fraction:g} masks no particle of the "
                "validation jets, which have too few"
            )
        probe = None
        if LABELS in measured.values:
            labels = measured.values[LABELS].numpy()
            known = labels >= 0
            probe = probe_accuracy(measured.values[EMBEDDINGS].numpy()[known], labels[known])
        return {**self.training_values(sums, measured.num_jets), PROBE_ACCURACY.name: probe}

    def check_validation(self, index: JetIndex, metric: str) -> None:
        """Raise an error if the metric is that of the probe, and the validation jets have no labels."""
        if metric == PROBE_ACCURACY.name and np.count_nonzero(index.class_counts.sum(axis=0)) < 2:
            raise ConfigError(
                f"metric: {metric} needs validation jets with labels of two classes or more; choose loss, or "
                "another one"
            )

    def notices(self, training: Mapping[str, int], validation: Mapping[str, int]) -> list[str]:
        """Return that there is no probe, if validation jets have no labels."""
        del training
        if sum(count > 0 for count in validation.values()) > 1:
            return []
        return ["the validation jets have no labels of two classes: there is no probe accuracy"]
