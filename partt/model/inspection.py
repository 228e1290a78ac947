"""Attention and embeddings, jet by jet, of any network that has them; copies with parts switched off.

Attention is recorded by hooks while a network runs on one jet, so there is no padding, and no forward pass
has to know of it. A network takes part through `Backbone.attention_blocks` and `AttentionLayer`.

Axes: P particles of a jet, those of all collections in order, D width, H heads, L blocks with particles as
queries, K blocks with a token as query, E tokens before the particles (the class token), C classes.
"""

import copy
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, cast

import torch
from torch import Tensor, nn

from partt.errors import ConfigError
from partt.jet_inputs import JetInputs
from partt.model.attention_layer import AttentionLayer, AttentionTerms
from partt.model.config_types import CLASSES
from partt.model.network import Network


@dataclass(frozen=True, eq=False)
class JetInspection:
    """Logits, embedding and attention of one jet."""

    logits: Tensor  # (C,)
    embedding: Tensor  # (D,) what the head sees
    terms: dict[str, AttentionTerms]  # of each block
    num_particles: int

    @property
    def attention(self) -> Tensor:
        """From particle i (rows) to particle j (L, H, P, P)."""
        size = self.num_particles
        maps = [
            terms.weights[:, queries : queries + size, keys : keys + size]
            for terms in self.terms.values()
            for queries, keys in [terms.num_tokens]
            if terms.weights.shape[1] > queries
        ]
        return torch.stack(maps)

    @property
    def class_attention(self) -> Tensor:
        """From the class token to the tokens, itself first, and the particles (K, H, E + P)."""
        maps = [
            terms.weights[:, 0, : keys + self.num_particles]
            for terms in self.terms.values()
            for queries, keys in [terms.num_tokens]
            if queries
        ]
        return torch.stack(maps)

    @property
    def num_tokens(self) -> int:
        """Tokens before the particles in `class_attention`, E."""
        return max(terms.num_tokens[1] for terms in self.terms.values())


def has_attention(network: Network) -> bool:
    """Tell whether the attention of a network can be recorded."""
    return network.has_embeddings and bool(network.backbone.attention_blocks)


@torch.no_grad()
def inspect_jets(network: Network, inputs: JetInputs) -> Iterator[JetInspection]:
    """Yield logits, embedding and attention of every jet; the network must be in evaluation mode."""
    if not has_attention(network):
        raise ConfigError(f"{network.name} has no attention maps; Particle Transformers have them")
    if network.training:
        raise ValueError("inspect_jets needs network.eval(): dropout would blur the attention maps")
    return (_inspect(network, jet) for jet in single_jets(inputs))


@torch.no_grad()
def _inspect(network: Network, jet: JetInputs) -> JetInspection:
    layers = attention_layers(network)
    terms: dict[str, AttentionTerms] = {}

    def recorder(name: str) -> Any:
        return lambda layer, inputs: terms.__setitem__(name, layer.terms(*inputs))

    hooks = [layer.register_forward_pre_hook(recorder(name)) for name, layer in layers.items()]
    try:
        embedding = network.embed(jet)
    finally:
        for hook in hooks:
            hook.remove()
    logits = network.outputs(embedding)[CLASSES]
    in_order = {name: terms[name] for name in layers}
    return JetInspection(logits[0], embedding[0], in_order, int(jet.lengths[0]))


def attention_layers(network: Network) -> dict[str, AttentionLayer]:
    """Return the attention layer of every block that has one."""
    blocks = network.backbone.attention_blocks
    return {name: cast("AttentionLayer", block.attention) for name, block in blocks.items()}


def switched_off(
    network: Network,
    *,
    heads: Collection[tuple[str, int]] = (),
    blocks: Collection[str] = (),
    pair_bias: bool = False,
) -> Network:
    """Return a copy of a network without some heads (block, number), blocks, or its pair bias."""
    changed = copy.deepcopy(network)
    layers = attention_layers(changed)
    for block, head in heads:
        layers[block].silence(head)
    for block in blocks:
        changed.backbone.attention_blocks[block].register_forward_hook(_first_inputs)
    if pair_bias and changed.backbone.pair_bias is not None:
        changed.backbone.pair_bias.register_forward_hook(
            lambda _module, _inputs, bias: torch.zeros_like(bias)
        )
    return changed


def _first_inputs(_block: nn.Module, inputs: tuple[Any, ...], outputs: Any) -> Any:
    return inputs[: len(outputs)] if isinstance(outputs, tuple) else inputs[0]


def single_jets(inputs: JetInputs) -> Iterator[JetInputs]:
    """Yield the jets one by one."""
    for jet in range(len(inputs)):
        collections = {}
        for name, collection in inputs.collections.items():
            first, last = collection.offsets[jet : jet + 2].tolist()
            offsets = collection.offsets[jet : jet + 2] - first
            collections[name] = collection.with_rows(itemgetter(slice(first, last)), offsets)
        yield JetInputs(
            collections, {name: group[jet : jet + 1] for name, group in inputs.jet_features.items()}
        )
