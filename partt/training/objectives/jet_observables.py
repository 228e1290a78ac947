"""Observables of whole jets: they follow from the particles, so they can be learned without labels.

Axes: B jets, T particles of all jets, F features, H hardest particles of a jet, O observables, D width of the
embedding.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from partt.jet_inputs import Collection, CollectionShape
from partt.model.grouping import jet_of_row, sum_over_jets
from partt.model.precision import full_precision
from partt.physics.four_vectors import azimuth, mass_squared, rapidity, transverse_momentum, wrap_angle

NUM_HARDEST = 20  # particles in energy correlations
POWERS = (0.5, 1.0, 2.0)  # of their distances
LARGEST = 5.0  # of a standardised observable
MOMENTUM = 1.0  # GeV, added to pT and mass in logarithms: the mass of a single particle is only rounding
TINY = 1e-6


def num_observables(shape: CollectionShape) -> tuple[int, int]:
    """Return the numbers of observables of jets with these particles: of momenta, and of features.

    The number of particles is one of the former, or, without momenta, one of the latter.
    """
    if not shape.has_momenta:
        return 0, 1 + 2 * shape.num_features
    return 6 + 3 * len(POWERS), 4 * shape.num_features


def observables(particles: Collection) -> Tensor:
    """Return the observables of jets (B, O); finite, but without meaning, for jets without particles.

    First the logarithm of the number of particles; with momenta also the logarithms of pT, mass, the sum of
    squared pT shares and energy correlations, and the pT shares of the hardest particle and of the hardest
    three. Then mean and root mean square of the features; with momenta also weighted by pT.
    """
    layout, features = particles.layout, particles.features.float()
    jets = jet_of_row(layout.offsets, layout.num_rows)
    number = layout.lengths.clamp(min=1).float()
    of_momenta = [number.log()[:, None]]
    of_features = _moments(features, number.reciprocal()[jets], layout.offsets)
    if particles.momenta is not None:
        momenta = particles.momenta.float()
        total = sum_over_jets(momenta, layout.offsets)
        pt = transverse_momentum(momenta)
        share = pt / sum_over_jets(pt, layout.offsets)[jets]
        rows = torch.stack((share, rapidity(momenta), azimuth(momenta)), dim=1)
        hardest = _hardest(rows, jets, layout.offsets)
        numbers = torch.stack((transverse_momentum(total), mass_squared(total).clamp(min=0).sqrt()), dim=1)
        squares = sum_over_jets(share.square(), layout.offsets)[:, None]
        of_momenta += [(numbers + MOMENTUM).log(), (squares + TINY).log()]
        of_momenta += [hardest[:, :1, 0], hardest[:, :3, 0].sum(dim=1, keepdim=True)]
        of_momenta.append((_energy_correlations(hardest) + TINY).log())
        of_features += _moments(features, share, layout.offsets)
    return torch.cat((*of_momenta, *of_features), dim=1)


def _moments(features: Tensor, weights: Tensor, offsets: Tensor) -> list[Tensor]:
    """Return means and root mean squares (B, F) of features (T, F); weights (T,) of a jet sum to 1."""
    mean = sum_over_jets(features * weights[:, None], offsets)
    return [mean, sum_over_jets(features.square() * weights[:, None], offsets).sqrt()]


def _hardest(rows: Tensor, jets: Tensor, offsets: Tensor) -> Tensor:
    """Return the rows of the hardest particles (B, H, 3) from pT, y, phi (T, 3); empty slots are 0."""
    by_pt = rows[:, 0].argsort(descending=True, stable=True)
    by_pt = by_pt[jets[by_pt].argsort(stable=True)]  # jet after jet
    place = (torch.arange(len(rows), device=rows.device) - offsets[jets]).clamp(max=NUM_HARDEST)
    slots = rows.new_zeros(len(offsets) - 1, NUM_HARDEST + 1, rows.shape[1])  # the last one is for the rest
    return slots.index_put((jets, place), rows[by_pt])[:, :NUM_HARDEST]


def _energy_correlations(hardest: Tensor) -> Tensor:
    """Return e2, e3 and e2 of harder particles for all powers (B, 3 x powers), from z, y and phi (B, H, 3).

    e2 = sum over pairs of z_i z_j R_ij^power, e3 = sum over triples of z_i z_j z_k (R_ij R_jk R_ik)^power,
    where z are shares of pT; the last is e2 with squared shares.
    """
    share, y, phi = hardest.unbind(-1)
    squared = (y[:, :, None] - y[:, None]).square() + wrap_angle(phi[:, :, None] - phi[:, None]).square()
    pairs = share[:, :, None] * share[:, None]
    found = []
    for power in POWERS:
        distance = squared.pow(power / 2)
        third = (distance * share[:, None]) @ distance  # sum over k
        found += [pairs * distance, pairs * distance * third, pairs.square() * distance]
    return torch.stack([each.sum((1, 2)) for each in found], dim=1)


class ObservablesHead(nn.Module):
    """A linear layer from embeddings of jets to their observables, standardised over all jets seen so far.

    All observables of momenta together count as much as all those of features.
    """

    shares: Tensor  # (O,) of each observable in the distance; sum to 1
    mean: Tensor  # (O,)
    variance: Tensor  # (O,)
    num_jets: Tensor  # (), those with particles

    def __init__(self, width: int, num_each: tuple[int, int]) -> None:
        super().__init__()
        num_outputs = sum(num_each)
        known = [number for number in num_each if number]
        shares = [1 / (len(known) * number) for number in known for _ in range(number)]
        self.linear = nn.Linear(width, num_outputs)
        self.register_buffer("shares", torch.tensor(shares), persistent=False)
        self.register_buffer("mean", torch.zeros(num_outputs))
        self.register_buffer("variance", torch.zeros(num_outputs))
        self.register_buffer("num_jets", torch.zeros(()))

    def forward(self, embeddings: Tensor, particles: Collection) -> Tensor:
        """Return the distances (B,) between observables read from embeddings (B, D) and the true ones."""
        with torch.no_grad(), full_precision(embeddings):
            truth = self._standardised(observables(particles), (particles.lengths > 0).float())
        distances = functional.smooth_l1_loss(self.linear(embeddings).float(), truth, reduction="none")
        return (distances * self.shares).sum(dim=1)

    def _standardised(self, values: Tensor, is_counted: Tensor) -> Tensor:
        """Return values (B, O) less their mean over all jets so far, in units of the standard deviation.

        In training both are updated: the moments of two samples, joined (Chan, Golub, LeVeque 1979).
        """
        if self.training:
            counted = is_counted[:, None]
            number = is_counted.sum()
            mean = (values * counted).sum(dim=0) / number.clamp(min=1)
            spread = ((values - mean).square() * counted).sum(dim=0)
            before, after = self.num_jets.clone(), (self.num_jets + number).clamp(min=1)
            step = mean - self.mean
            total = self.variance * before + spread + step.square() * before * number / after
            self.variance.copy_(total / after)
            self.mean.add_(step * number / after)
            self.num_jets.add_(number)
        standardised = (values - self.mean) / self.variance.sqrt().clamp(min=TINY)
        return standardised.clamp(-LARGEST, LARGEST)
