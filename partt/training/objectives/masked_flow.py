"""Set-to-set flow matching of masked particles (arXiv:2409.12589).

Axes: B jets, M masked particles; K numbers to learn of a particle, C types; F frequencies; W width of the
decoder.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from partt.jet_inputs import sender
from partt.model.network import Outputs
from partt.training.objectives.masked_particles import OBSERVABLES_LOSS, TYPES, VALUES, MaskedParticles
from partt.training.objectives.masking import MaskedJets
from partt.training.objectives.objective import Metric

NOISE = "noise"  # output: (M, K + C)
NUM_FREQUENCIES, TIME_WIDTH = 16, 32


class Questions(nn.Module):
    """Noisy particles and the time -> questions for the decoder."""

    def __init__(self, num_inputs: int, width: int) -> None:
        super().__init__()
        self.from_particles = nn.Linear(num_inputs, width)
        self.from_time = nn.Sequential(
            nn.Linear(NUM_FREQUENCIES, TIME_WIDTH), nn.SiLU(), nn.Linear(TIME_WIDTH, width)
        )

    def forward(self, particles: Tensor, time: Tensor) -> Tensor:
        """Return (M, W) from noisy particles (M, K + C) and times (M,) from 0 to 1."""
        frequencies = torch.arange(NUM_FREQUENCIES, device=time.device)
        waves = (math.pi * time[:, None] * frequencies).cos()  # (M, F)
        questions: Tensor = self.from_particles(particles) + self.from_time(waves)
        return questions


class MaskedFlow(MaskedParticles):
    """Masked particles are mixed with noise, and the decoder learns the way from one to the other.

    x = (1 - t) x0 + t x1, where x0 are the numbers of a particle and its type as 0 and 1, x1 is normally
    distributed, and t = sigmoid of a normally distributed number for each jet. The decoder gives the velocity
    x1 - x0; the loss is the squared distance, its mean over numbers + weight x its sum over types. A particle
    needs no rank: the noisy particle itself shows which one it is.
    """

    def _parts(self) -> tuple[Metric, ...]:
        return (OBSERVABLES_LOSS,) if self.has_observables else ()

    def _new_ask(self, width: int) -> nn.Module:
        return Questions(self.targets.num_outputs, width)

    def _questions(
        self, masked: MaskedJets, features: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Outputs]:
        hidden, send = features[masked.rows], sender(features.device)
        time = torch.randn(masked.layout.num_jets, generator=generator).sigmoid().to(hidden.dtype)
        noise = torch.randn(len(hidden), self.targets.num_outputs, generator=generator).to(hidden.dtype)
        time, noise = send(time)[masked.jets], send(noise)
        start = self._start(hidden, noise)
        return self.ask(torch.lerp(start, noise, time[:, None]), time), {NOISE: noise}

    def _start(self, features: Tensor, noise: Tensor) -> Tensor:
        """Return x0 (M, K + C) of particles with features (M, F); numbers that do not count are noise."""
        num_values = len(self.targets.names)
        values = torch.where(
            self.targets.counts(features), self.targets.values(features), noise[:, :num_values]
        )
        return torch.cat((values, self._one_hot(self.targets.types(features)).to(values)), dim=1)

    def _one_hot(self, types: Tensor) -> Tensor:
        num_types = self.targets.num_types
        return functional.one_hot(types, num_types) if num_types else types.new_zeros(len(types), 0)

    def _distances(self, outputs: Outputs, features: Tensor) -> Tensor:
        noise = outputs[NOISE][:, : len(self.targets.names)]
        return (outputs[VALUES] - (noise - self.targets.values(features))).square()

    def _type_losses(self, outputs: Outputs, types: Tensor) -> Tensor:
        noise = outputs[NOISE][:, len(self.targets.names) :]
        return (outputs[TYPES] - (noise - self._one_hot(types))).square().sum(dim=1)
