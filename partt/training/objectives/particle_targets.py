"""What is learned of a masked particle: its features, and its type.

Axes: M particles, F features of the data config, K of them that are learned as numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from partt.data.column_meanings import CHARGE, DISPLACEMENTS, FLAG, TYPES, ends_in, meaning_of
from partt.data.config.data_config import DataConfig, InputVariable
from partt.errors import ConfigError
from partt.model.device_numbers import numbers_like

ABOVE = 1e-3  # a flag that is set, or a charge


@dataclass(frozen=True)
class ParticleTargets:
    """Which features of the main collection are learned, by their positions, and the type that others give.

    The type is the first flag (such as part_isMuon) that is set, or none, combined with the sign of the
    charge. Displacements of particles that are known to be neutral mean nothing, and do not count.
    """

    names: tuple[str, ...]  # of the features that are learned as numbers
    numbers: tuple[int, ...]
    scales: tuple[float, ...]  # that these are divided by
    displacements: tuple[bool, ...]  # which of these are displacements
    flags: tuple[tuple[int, InputVariable], ...] = ()
    charge: tuple[int, InputVariable] | None = None

    @property
    def num_types(self) -> int:
        """The number of types; 0: the features do not say."""
        if not self.flags and self.charge is None:
            return 0
        return (len(self.flags) + 1) * (1 if self.charge is None else 3)

    @property
    def num_outputs(self) -> int:
        """How many numbers the decoder gives for a particle: features, then types."""
        return len(self.names) + self.num_types

    def values(self, features: Tensor) -> Tensor:
        """Return the numbers to learn (M, K), of order 1, from features (M, F)."""
        if not self.numbers:
            return features[:, :0]
        columns = torch.stack([features[:, number] for number in self.numbers], dim=1)
        return columns / numbers_like(features, self.scales)

    def counts(self, features: Tensor) -> Tensor:
        """Return which of these numbers count (M, K)."""
        counted = torch.ones(len(features), len(self.numbers), dtype=torch.bool, device=features.device)
        if self.charge is None or not self.numbers:
            return counted
        is_displacement = numbers_like(features, self.displacements).bool()
        return counted & ~(is_displacement & (_raw(features, self.charge).abs() < ABOVE)[:, None])

    def types(self, features: Tensor) -> Tensor:
        """Return the types (M,), from 0 to `num_types` - 1."""
        types = torch.full((len(features),), len(self.flags), device=features.device)
        for number, flag in reversed(list(enumerate(self.flags))):
            types = types.masked_fill(_raw(features, flag) > ABOVE, number)
        if self.charge is None:
            return types
        charges = _raw(features, self.charge)
        return 3 * types + (charges > ABOVE).long() - (charges < -ABOVE).long() + 1


def particle_targets(config: DataConfig, scales: Mapping[str, float] | None = None) -> ParticleTargets:
    """Return what can be learned of the particles of a data config; by default, features are not scaled."""
    variables = dict(enumerate(config.main.features.variables if config.collections else ()))
    of_type = {place: each for place, each in variables.items() if meaning_of(each.name) == TYPES}
    numbers = {place: each.name for place, each in variables.items() if place not in of_type}
    targets = ParticleTargets(
        tuple(numbers.values()),
        tuple(numbers),
        tuple((scales or {}).get(name, 1.0) for name in numbers.values()),
        tuple(meaning_of(name) == DISPLACEMENTS for name in numbers.values()),
        tuple((place, each) for place, each in of_type.items() if ends_in(each.name, FLAG)),
        next(((place, each) for place, each in of_type.items() if ends_in(each.name, CHARGE)), None),
    )
    if not numbers and not targets.num_types:
        raise ConfigError("masked_particles: the data config has no features of particles to learn")
    for name in scales or {}:
        if name not in targets.names:
            known = ", ".join(targets.names)
            raise ConfigError(f"masked_particles.scales: no feature {name!r} is learned; there are {known}")
    return targets


def fitted_scales(targets: ParticleTargets, features: Tensor) -> dict[str, float]:
    """Return the standard deviations of the numbers that count, of particles (M, F), with a few digits."""
    values = (targets.values(features) * features.new_tensor(targets.scales)).double()
    counts = targets.counts(features)
    scales = {}
    for name, column, counted in zip(targets.names, values.T, counts.T, strict=True):
        width = float(column[counted].std()) if int(counted.sum()) > 1 else 0.0
        scales[name] = float(f"{width:.6g}") or 1.0  # of a feature that is always the same
    return scales


def _raw(features: Tensor, feature: tuple[int, InputVariable]) -> Tensor:
    """Return a feature (M,) before its standardisation."""
    place, variable = feature
    if variable.subtract_by is None:
        return features[:, place]
    return features[:, place] / variable.multiply_by + variable.subtract_by
