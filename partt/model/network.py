"""The contract of networks: a backbone that turns jets into embeddings, and a head for each task.

A new architecture is a subclass of `Backbone`; everything else in partt (training, inference, export,
fine-tuning, import of weights) uses `Network` only.

Axes: B jets, T particles of a collection in all jets, D width of the embedding, O outputs of a head.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from partt.config import Record
from partt.errors import ConfigError
from partt.jet_inputs import CollectionShape, InputShape, JetInputs, PaddedInputs, main_collection
from partt.model.heads import Head, HeadConfig

Outputs: TypeAlias = dict[str, Tensor]  # head -> (B, O)
TOKENS, IS_TRIMMED = "{}/tokens", "{}/is_trimmed"  # of a collection, among the outputs


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Output of a backbone."""

    jets: Tensor  # (B, D)
    particles: Tensor | None = None  # (T, D') of the main collection, on request; zero if trimmed
    other_particles: Mapping[str, Tensor] = field(default_factory=dict)  # the same of other collections
    is_trimmed: Mapping[str, Tensor] = field(default_factory=dict)  # (T,) by collection, if any can be


class Backbone(nn.Module, ABC):
    """Jets -> embeddings: the part of a network that does not depend on the task."""

    needs_momenta: str = ""
    """why four-momenta are needed, for the error message; empty: they are not"""
    needs_points: str = ""
    """why coordinates are needed, for the error message; empty: they are not"""
    min_slots: int = 1
    """the fewest slots that a padded jet must have"""
    token_width: int = 0
    """D', the width of the embeddings of particles; 0: it has none"""
    takes_jet_features: bool = False
    """whether it uses jet-level features itself; else they are joined to its embeddings"""
    no_weight_decay: ClassVar[frozenset[str]] = frozenset()
    """parameters that never decay, beside the one-dimensional ones"""
    learned_with: ClassVar[tuple[str, ...]] = ()
    """settings that change the meaning of weights, but not their shapes: fine-tuning keeps the tagger's"""

    def __init__(self, config: Record, width: int, head: HeadConfig | None = None) -> None:
        super().__init__()
        self.config = config
        self.width = width  # D
        self.head = head or HeadConfig()  # of all heads on top of it

    @abstractmethod
    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        """Return the embeddings of jets, and on request those of their particles, if it has them."""

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the same embeddings (B, D) of padded jets, using only operations that can be exported."""
        raise NotImplementedError

    @property
    def has_padded_twin(self) -> bool:
        """Whether it has `embed_padded`, which export needs."""
        return type(self).embed_padded is not Backbone.embed_padded

    @property
    def attention_blocks(self) -> Mapping[str, nn.Module]:
        """The blocks with attention by name, in order; none by default.

        The `attention` of a block is an `AttentionLayer`. Its first input, which it changes, has the form of
        its output: without the block, the input takes the place of the output.
        """
        return {}

    @property
    def pair_bias(self) -> nn.Module | None:
        """The module whose outputs are added to the scores of the attention; None: there is none."""
        return None

    def initialise(self, heads: nn.ModuleDict) -> None:
        """Draw the initial weights of backbone and heads; by default they stay as torch drew them."""

    def all_collections(self, shape: InputShape) -> dict[str, CollectionShape]:
        """Return the shapes of the collections; check that there is one, and that each has what is needed."""
        if not shape.collections:
            raise ConfigError(
                f"{type(self).__name__} takes particles: add the input pf_features to the data config"
            )
        for name, collection in shape.collections.items():
            if not collection.num_features:
                raise ConfigError(
                    f"{type(self).__name__} takes features of particles: add the input {name}_features to "
                    "the data config"
                )
            if self.needs_momenta and not collection.has_momenta:
                raise ConfigError(f"{self.needs_momenta}: add the input {name}_vectors to the data config")
            if self.needs_points and not collection.num_coordinates:
                raise ConfigError(f"{self.needs_points}: add the input {name}_points to the data config")
        return dict(shape.collections)

    def only_collection(self, shape: InputShape) -> CollectionShape:
        """Return the shape of the only collection, for backbones that take one; check what they need."""
        if len(shape.collections) > 1:
            raise ConfigError(
                f"{type(self).__name__} takes one collection of particles, found "
                f"{', '.join(shape.collections)}; part, slim_s, particlenet and pfn take several"
            )
        return next(iter(self.all_collections(shape).values()))


class Network(nn.Module):
    """A backbone and the heads on its embedding, to which the jet-level features are joined."""

    has_embeddings = True

    def __init__(self, name: str, backbone: Backbone, shape: InputShape, heads: Mapping[str, int]) -> None:
        super().__init__()
        self.name = name  # in partt.model.registry
        self.backbone = backbone
        joined = 0 if backbone.takes_jet_features else sum(shape.jet_features.values())
        self.embedding_width = backbone.width + joined
        self.heads = nn.ModuleDict(
            {
                head: Head(self.embedding_width, num_outputs, backbone.head)
                for head, num_outputs in heads.items()
            }
        )
        if not any(parameter.is_meta for parameter in self.parameters()):  # which have no values
            backbone.initialise(self.heads)

    def forward(self, inputs: JetInputs) -> Outputs:
        """Return the outputs of all heads."""
        return self.outputs(self.embed(inputs))

    def outputs_and_tokens(self, inputs: JetInputs) -> Outputs:
        """Return the outputs of all heads, and the tokens of all particles, for `tokens_of`."""
        embeddings: Embeddings = self.backbone(inputs, with_tokens=True)
        tokens = dict(embeddings.other_particles)
        if embeddings.particles is not None:
            tokens[main_collection(inputs.shape)] = embeddings.particles
        return {
            **self.outputs(self._with_jet_features(embeddings.jets, inputs)),
            **{TOKENS.format(name): rows for name, rows in tokens.items()},
            **{IS_TRIMMED.format(name): rows for name, rows in embeddings.is_trimmed.items()},
        }

    def embed(self, inputs: JetInputs) -> Tensor:
        """Return the input of the heads (B, D): embeddings of jets, and their jet-level features."""
        embeddings: Embeddings = self.backbone(inputs)
        return self._with_jet_features(embeddings.jets, inputs)

    def tokens(self, inputs: JetInputs) -> Tensor:
        """Return an embedding of every particle of the main collection, `inputs.main` (T, D')."""
        tokens: Tensor | None = self.backbone(inputs, with_tokens=True).particles
        if tokens is None:
            raise ConfigError(f"{self.name} has no embeddings of particles; the Particle Transformer has")
        return tokens

    def outputs(self, embeddings: Tensor) -> Outputs:
        """Return the outputs of all heads from what `embed` returns (B, D)."""
        return {name: head(embeddings) for name, head in self.heads.items()}

    def forward_padded(self, inputs: PaddedInputs) -> Outputs:
        """Return the outputs of all heads for padded jets, using only operations that can be exported."""
        return self.outputs(self._with_jet_features(self.backbone.embed_padded(inputs), inputs))

    def _with_jet_features(self, embeddings: Tensor, inputs: JetInputs | PaddedInputs) -> Tensor:
        if self.backbone.takes_jet_features or not inputs.jet_features:
            return embeddings
        return torch.cat((embeddings, *inputs.jet_features.values()), dim=1)

    def for_export(self, example: JetInputs) -> "Network":
        """Return the network whose `forward_padded` is exported; `example`: some jets to try it with."""
        del example
        if not self.backbone.has_padded_twin:
            raise ConfigError(
                f"the network {self.name} cannot be exported: {type(self.backbone).__name__} has no method "
                "embed_padded(inputs) for padded jets"
            )
        return self

    def num_rows(self, inputs: JetInputs) -> Tensor:
        """Return how many particles of each jet it computes with (B,): batches are cut by their sum."""
        return inputs.lengths

    @property
    def config(self) -> Record:
        """The config that it was built from."""
        return self.backbone.config

    @property
    def head_sizes(self) -> dict[str, int]:
        """Head -> number of outputs."""
        return {name: head.output.out_features for name, head in self.heads.items()}  # type: ignore[union-attr, misc]

    @property
    def last_layers(self) -> dict[str, set[str]]:
        """Head -> the names of the parameters of its last layer."""
        return {head: {f"heads.{head}.output.{name}" for name in ("weight", "bias")} for head in self.heads}

    @property
    def num_parameters(self) -> int:
        """Number of parameters, frozen ones included."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.parameters()).device


def tokens_of(outputs: Outputs, collection: str) -> tuple[Tensor, Tensor]:
    """Return the tokens of a collection (T, D'), and which particles were trimmed (T,), with tokens of 0."""
    tokens = outputs.get(TOKENS.format(collection))
    if tokens is None:
        raise ConfigError(f"the network gives no tokens of the particles {collection}")
    is_trimmed = outputs.get(IS_TRIMMED.format(collection))
    none = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    return tokens, none if is_trimmed is None else is_trimmed
