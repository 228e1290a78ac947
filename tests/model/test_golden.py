"""Contracts frozen as data: losses of 20 steps, parameter counts, names and shapes of all weights.

`python tests/model/test_golden.py` writes them anew: only when a change of the networks is meant.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from partt.model.registry import build_network, network_config, network_names
from small_networks import jets_for, logits_of, packed_jets

GOLDEN = Path(__file__).parent / "golden"
# Small, so that 20 steps in float64 take a second; without dropout, whose random numbers depend on torch.
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
SMALL_PART = {**NO_DROPOUT, "width": 32, "num_heads": 4, "num_blocks": 2, "num_class_blocks": 1}
SMALL_PART |= {"feed_forward_width": 64, "embedding_widths": (32, 64)}
TRAINED = {
    "part": {**SMALL_PART, "pair_widths": (16, 16)},
    "part_plain": SMALL_PART,
    "part_xs": NO_DROPOUT,
    "part_v2": {**SMALL_PART, "pair_widths": (16, 16)},
    "part_v3": {**SMALL_PART, "pair_widths": (16, 16), "drop_path": 0.0},
    "slim_xs": {"num_blocks": 2},
    "mlp": {"widths": (16, 16), "dropout": 0.0},
    "particlenet": {"convolutions": ((8, 8), (16, 16)), "hidden_width": 16, "dropout": 0.0},
    "pfn": {},
    "pcnn": {"unit_widths": (16, 16), "dropout": 0.0},
    "recurrent": {"width": 16, "dropout": 0.0},
}


def inputs_of(name, lengths):
    return jets_for("mlp, jet", lengths) if name == "mlp" else packed_jets(lengths)


def describe(name):
    """Return the number of parameters and the shapes of all weights of a network as published."""
    network = build_network(name, network_config(name), inputs_of(name, [1]).shape, {"classes": 10})
    return {
        "num_parameters": sum(parameter.numel() for parameter in network.parameters()),
        "state_dict": {key: list(tensor.shape) for key, tensor in network.state_dict().items()},
    }


def losses_of_20_steps(name):
    """Return the losses of a small network of a kind, trained in float64 on made-up jets."""
    shape = inputs_of(name, [1]).shape
    network = build_network(name, network_config(name, TRAINED[name]), shape, {"classes": 10})
    network = network.double().train()
    random = np.random.default_rng(0)
    for parameter in network.parameters():  # by numpy: torch's random numbers may change with its version
        if parameter.ndim > 1:
            scale = 1 / np.sqrt(parameter[0].numel())
            parameter.data = torch.tensor(random.normal(0, scale, parameter.shape))
        else:
            parameter.data = torch.tensor(random.uniform(0.5, 1, parameter.shape))
    jets = inputs_of(name, random.integers(1, 20, 16))
    labels = torch.tensor(random.integers(0, 10, 16))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3 if name == "pfn" else 0.05)
    losses = []
    for _ in range(20):
        loss = functional.cross_entropy(logits_of(network, jets), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def frozen(file):
    return json.loads((GOLDEN / file).read_text())


@pytest.mark.parametrize("name", network_names())
def test_weights_have_their_names_shapes_and_number(name):
    assert describe(name) == frozen("networks.json")[name]


@pytest.mark.parametrize("name", TRAINED)
def test_losses_of_20_steps(name):
    losses = losses_of_20_steps(name)
    assert losses == pytest.approx(frozen("losses.json")[name], rel=1e-6)
    assert losses[-1] < losses[0]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for file, contents in (
        ("networks.json", {name: describe(name) for name in network_names()}),
        ("losses.json", {name: losses_of_20_steps(name) for name in TRAINED}),
    ):
        (GOLDEN / file).write_text(json.dumps(contents, indent=1) + "\n")
