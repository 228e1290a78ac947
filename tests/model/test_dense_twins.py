"""Every network on padded jets, as it is exported, is the network on packed jets."""

import pytest
import torch
from make_jets import make_jets, randomise

from partt.model.registry import build_network, network_config

SMALL = {"width": 16, "num_heads": 2, "num_blocks": 1, "num_class_blocks": 1, "feed_forward_width": 32}
NETWORKS = {
    "part": ("part", {**SMALL, "embedding_widths": (16,), "pair_widths": (8,)}),
    "part_plain": ("part_plain", {**SMALL, "embedding_widths": (16,)}),
    "part_xs": ("part_xs", {"num_blocks": 1}),
    "particlenet": ("particlenet", {"convolutions": ((8, 8), (12,)), "hidden_width": 8}),
    "pfn": ("pfn", {}),
    "pcnn": ("pcnn", {"unit_widths": (8, 8, 12)}),
    "gru": ("recurrent", {"width": 8}),
    "lstm": ("recurrent", {"width": 8, "cell": "lstm"}),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("num_slots", [40, 53])
def test_padded_is_packed(name, num_slots):
    kind, settings = NETWORKS[name]
    network = build_network(kind, network_config(kind, settings), 7, 4).double().eval()
    randomise(network)
    jets = make_jets((5, 0, 1, 40, 17, 2, 0, 33), num_features=7)
    particles, momenta, mask = jets.padded(num_slots)
    points = torch.zeros(*mask.shape, 2, dtype=torch.float64)
    points[mask] = jets.points
    with torch.inference_mode():
        expected = network(*jets.inputs)
        logits = network.forward_dense(particles, momenta, mask, points)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-8)
