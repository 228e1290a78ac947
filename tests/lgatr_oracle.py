"""lgatr 1.4.4's own L-GATr-slim with the weights of one of ours, for tests and benchmarks."""

import torch
from torch import Tensor

from partt.jet_inputs import JetInputs
from partt.model.config_types import CLASSES
from partt.model.network import Network

SPURIONS = ((1.0, 0.0, 0.0, 1.0), (1.0, 0.0, 0.0, -1.0), (1.0, 0.0, 0.0, 0.0))  # E, px, py, pz


def theirs_by_ours(network: Network) -> dict[str, str]:
    """Return their name of every weight, by ours."""
    config = network.config
    names = {"embedding": "linear_in"}
    for number in range(config.num_blocks):
        last = number == config.num_blocks - 1
        ours, theirs = "last_block" if last else f"blocks.{number}", f"blocks.{number}"
        names |= {
            f"{ours}.attention.linear_in": f"{theirs}.attention.linear_in",
            f"{ours}.attention.linear_out": f"{theirs}.attention.linear_out",
            f"{ours}.feed_forward.linear_in": f"{theirs}.mlp.layers.0.linear",
            f"{ours}.feed_forward.linear_out": f"{theirs}.mlp.layers.1",
        }
    weights = {
        "vectors.weight": "weight_v",
        "scalars.weight": "linear_s.weight",
        "scalars.bias": "linear_s.bias",
    }
    pairs = {
        f"backbone.{ours}.{a}": f"{theirs}.{b}" for ours, theirs in names.items() for a, b in weights.items()
    }
    heads = {f"heads.{CLASSES}.output.{name}": f"linear_out.linear_s.{name}" for name in ("weight", "bias")}
    return pairs | heads


def heads_fastest(network: Network, name: str, weight: Tensor) -> Tensor:
    """Return a weight, or its gradient, with the channels of queries, keys and values in their order."""
    if "attention.linear_in" not in name:
        return weight
    return weight.unflatten(0, (3, network.config.num_heads, -1)).transpose(1, 2).flatten(0, 2)


def new_lgatr(network: Network) -> torch.nn.Module:
    """Return lgatr's module of the shape of a network of one collection, with weights of its own."""
    from lgatr.nets.lgatr_slim import LGATrSlim

    config, layer = network.config, network.heads[CLASSES].output
    return LGATrSlim(
        in_v_channels=1,
        out_v_channels=0,
        hidden_v_channels=config.vector_channels,
        in_s_channels=network.backbone.embedding.scalars.in_features,
        out_s_channels=layer.out_features,
        hidden_s_channels=config.scalar_channels,
        num_blocks=config.num_blocks,
        num_heads=config.num_heads,
        mlp_ratio=config.mlp_ratio,
    ).to(layer.weight.dtype)


def lgatr_twin(network: Network) -> torch.nn.Module:
    """Return lgatr's module with the weights of a network of one collection."""
    twin = new_lgatr(network)
    ours, theirs = network.state_dict(), dict(twin.state_dict())
    for name, their_name in theirs_by_ours(network).items():
        theirs[their_name] = heads_fastest(network, name, ours[name])
    twin.load_state_dict(theirs)
    return twin


def lgatr_inputs(network: Network, inputs: JetInputs) -> tuple[Tensor, Tensor, Tensor]:
    """Return vectors (B, P, 1, 4), scalars (B, P, F + 1) and the mask of the attention (B, 1, 1, P).

    The momenta are those of the lab: no frame is changed.
    """
    jets = inputs.padded().main
    num_jets, unit = len(inputs), network.config.momentum_unit
    spurions = (
        torch.tensor(SPURIONS, dtype=jets.momenta.dtype) if network.config.spurions else jets.momenta[0, :0]
    )
    extra = torch.cat((torch.zeros(1, 4, dtype=jets.momenta.dtype), spurions))
    vectors = torch.cat((extra.expand(num_jets, -1, -1), jets.momenta[..., [3, 0, 1, 2]] / unit), dim=1)
    scalars = torch.nn.functional.pad(jets.features, (0, 1, len(extra), 0))
    scalars[:, 0, -1] = 1
    mask = torch.nn.functional.pad(jets.mask, (len(extra), 0), value=True)
    return vectors[:, :, None], scalars, mask[:, None, None]


def lgatr_logits(twin: torch.nn.Module, vectors: Tensor, scalars: Tensor, mask: Tensor) -> Tensor:
    return twin(vectors, scalars, attn_mask=mask)[1][:, 0]
