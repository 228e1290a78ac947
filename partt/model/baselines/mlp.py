"""A multilayer perceptron of jet-level features, for data configs without particles.

Axes: B jets, G features of a jet, D width of the embedding.
"""

import itertools

import torch
from torch import Tensor, nn

from partt.config import Record
from partt.errors import ConfigError
from partt.jet_inputs import InputShape, JetInputs, PaddedInputs
from partt.model.config_types import Probability, Widths
from partt.model.heads import HeadConfig
from partt.model.network import Backbone, Embeddings


class MLPConfig(Record):
    """Widths of the hidden layers, and dropout after each."""

    widths: Widths = (128, 128, 128)
    dropout: Probability = 0.1
    head: HeadConfig = HeadConfig()


class MLP(Backbone):
    """Linear -> ReLU -> dropout for each width."""

    config: MLPConfig
    takes_jet_features = True

    def __init__(self, config: MLPConfig, shape: InputShape) -> None:
        num_features = sum(shape.jet_features.values())
        if shape.collections or not num_features:
            found = ", ".join(shape.collections) or "no input"
            raise ConfigError(f"mlp takes jet-level inputs only, found {found}; choose another network")
        widths = (num_features, *config.widths)
        super().__init__(config, widths[-1], config.head)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(config.dropout)]
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        """Return the last hidden layer (B, D)."""
        del with_tokens  # there are no particles
        return Embeddings(self._embed(inputs))

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the embeddings (B, D); there is nothing to pad."""
        return self._embed(inputs)

    def _embed(self, inputs: JetInputs | PaddedInputs) -> Tensor:
        embeddings: Tensor = self.layers(torch.cat(list(inputs.jet_features.values()), dim=1))
        return embeddings
