"""Every network gives the same outputs for padded jets, as exported, and packed jets."""

import pytest
import torch

from small_networks import ALL, jets_for, logits_of, small_network


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("num_slots", [40, 53])
def test_padded_is_packed(name, num_slots):
    jets = jets_for(name, (5, 0, 1, 40, 17, 2, 0, 33), num_features=7)
    network = small_network(name, jets, num_classes=4).eval()
    with torch.inference_mode():
        expected = logits_of(network, jets)
        logits = network.forward_padded(jets.padded(num_slots))["classes"]
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-8)
