"""The Particle Flow Network (arXiv:1810.05165), with the widths of arXiv:2202.03772.

Axes: B jets, T particles of all jets, P slots of a padded jet, F features, W width,
D width of the embedding.
"""

import torch
from torch import Tensor, nn

from partt.config import Record
from partt.jet_inputs import InputShape, JetInputs, PaddedInputs, main_collection
from partt.model.config_types import Widths
from partt.model.grouping import sum_over_jets
from partt.model.heads import HeadConfig
from partt.model.network import Backbone, Embeddings


class PFNConfig(Record):
    """Widths of the network Φ of each particle, and of the network F of their sum."""

    particle_widths: Widths = (128, 128, 128)
    jet_widths: Widths = (128, 128, 128)
    head: HeadConfig = HeadConfig()


class PFN(Backbone):
    """F(Σ Φ(particle)), independent of the order of the particles; every collection has a Φ of its own."""

    config: PFNConfig

    def __init__(self, config: PFNConfig, shape: InputShape) -> None:
        super().__init__(config, config.jet_widths[-1], config.head)
        self.token_width = config.particle_widths[-1]
        others = self.all_collections(shape)
        self.main = main_collection(shape)
        self.particle_network = mlp(others.pop(self.main).num_features, config.particle_widths)
        self.other_networks = nn.ModuleDict(
            {
                name: mlp(collection.num_features, config.particle_widths)
                for name, collection in others.items()
            }
        )
        self.jet_network = mlp(config.particle_widths[-1], config.jet_widths)

    @property
    def particle_networks(self) -> dict[str, nn.Module]:
        """The network Φ of every collection."""
        return {self.main: self.particle_network, **self.other_networks}

    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        """Return F (B, D), and on request Φ of every particle (T, W)."""
        xs = {name: phi(inputs.collections[name].features) for name, phi in self.particle_networks.items()}
        sums = [sum_over_jets(x, inputs.collections[name].offsets) for name, x in xs.items()]
        jets = self.jet_network(_total(sums))
        return Embeddings(jets, xs.pop(self.main), xs) if with_tokens else Embeddings(jets)

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the embeddings (B, D) of padded jets."""
        sums = []
        for name, phi in self.particle_networks.items():
            particles = inputs.collections[name]
            sums.append((phi(particles.features) * particles.mask[..., None]).sum(dim=1))  # (B, W)
        jets: Tensor = self.jet_network(_total(sums))
        return jets


def _total(sums: list[Tensor]) -> Tensor:
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum(dim=0)


def mlp(num_inputs: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Return Linear -> ReLU for each width."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip((num_inputs, *widths[:-1]), widths, strict=True):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers)
