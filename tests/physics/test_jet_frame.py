"""The frame of a jet: its rapidity and azimuth become 0, masses stay, odd jets stay in the lab."""

import torch

from partt.physics.four_vectors import azimuth, mass_squared, rapidity
from partt.physics.jet_frame import jet_frame
from small_networks import packed_jets


def as_momenta(vectors):
    return vectors[..., [1, 2, 3, 0]]


def test_a_jet_has_neither_rapidity_nor_azimuth_in_its_frame():
    momenta = packed_jets([40]).main.momenta
    momenta = torch.stack((momenta, momenta * torch.tensor([-1.0, 1, -1, 1]))).float()  # two jets
    total = momenta.double().sum(dim=1)
    frame = jet_frame(total)
    moved = as_momenta(frame.vectors(momenta))
    assert moved.dtype == torch.float64
    again = moved.sum(dim=1)
    torch.testing.assert_close(rapidity(again), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(azimuth(again), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-12)
    # differences of rapidity, transverse momenta and masses are those of the lab
    lab = momenta.double()
    torch.testing.assert_close(rapidity(moved), rapidity(lab) - rapidity(total)[:, None], rtol=0, atol=1e-9)
    torch.testing.assert_close(moved[..., :2].norm(dim=-1), lab[..., :2].norm(dim=-1))
    torch.testing.assert_close(mass_squared(moved), mass_squared(lab), rtol=0, atol=1e-9)


def test_jets_without_a_frame_stay_in_the_lab():
    odd = [[0.0, 0, 0, 0], [0, 0, 5, 5], [0, 0, -5, 1], [0, 0, 3, -4]]
    odd = torch.tensor(odd, requires_grad=True)
    vectors = jet_frame(odd).vectors(odd[:, None])
    assert torch.equal(as_momenta(vectors)[:, 0], odd.double())
    vectors.sum().backward()
    assert odd.grad.isfinite().all()
