"""Packed jets and randomised networks for the tests of the model."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

torch.set_num_threads(1)  # small tensors: faster than two, and the same on every machine


@dataclass(frozen=True)
class PackedJets:
    particles: Tensor  # (T, F)
    momenta: Tensor  # (T, 4)
    offsets: Tensor  # (B + 1,)
    points: Tensor  # (T, 2)

    @property
    def inputs(self):
        return self.particles, self.momenta, self.offsets, self.points

    def jet(self, index: int) -> "PackedJets":
        rows = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        offsets = torch.tensor([0, rows.stop - rows.start])
        return PackedJets(self.particles[rows], self.momenta[rows], offsets, self.points[rows])

    def rows(self, rows: Tensor) -> "PackedJets":
        return PackedJets(self.particles[rows], self.momenta[rows], self.offsets, self.points[rows])

    def padded(self, length: int):
        """Return features (B, P, F), momenta (B, P, 4) and mask (B, P); zeros as padding."""
        lengths = self.offsets.diff()
        mask = torch.arange(length) < lengths[:, None]
        dense = []
        for values in (self.particles, self.momenta):
            padded = values.new_zeros(len(lengths), length, values.shape[1])
            padded[mask] = values
            dense.append(padded)
        return *dense, mask


def make_jets(lengths, num_features=17, seed=0, dtype=torch.float64) -> PackedJets:
    random = np.random.default_rng(seed)
    total = int(np.sum(lengths))
    pt = random.exponential(8, total) + 0.5
    eta, phi = random.normal(0.3, 0.3, total), random.normal(3.0, 0.3, total)
    mass = random.choice([0.0, 0.000511, 0.1396, 0.498], total)
    px, py, pz = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    momenta = np.stack([px, py, pz, np.sqrt(px**2 + py**2 + pz**2 + mass**2)], axis=1)
    return PackedJets(
        torch.tensor(random.normal(0, 1, (total, num_features)), dtype=dtype),
        torch.tensor(momenta, dtype=dtype),
        torch.tensor(np.concatenate([[0], np.cumsum(lengths)]), dtype=torch.int64),
        torch.tensor(np.stack([eta - 0.3, phi - 3.0], axis=1), dtype=dtype),
    )


def randomise(network: nn.Module, seed: int = 1) -> None:
    """Move every weight and every running statistic away from its neutral start."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data += 0.1 * noise.to(parameter.dtype)
    for name, buffer in network.named_buffers():
        random = torch.rand(buffer.shape, generator=generator, dtype=torch.float64)
        if name.endswith("running_var"):
            buffer.copy_(random + 0.5)
        elif name.endswith("running_mean"):
            buffer.copy_(2 * random - 1)
