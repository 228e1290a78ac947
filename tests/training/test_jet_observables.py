"""Observables of whole jets, against loops over their particles."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from partt.jet_inputs import Collection, CollectionShape
from partt.training.objectives.jet_observables import (
    NUM_HARDEST,
    POWERS,
    ObservablesHead,
    num_observables,
    observables,
)
from small_networks import packed_jets, with_particles

LENGTHS = [4, 0, 7, 1, 30, 10]


def by_hand(features: np.ndarray, momenta: np.ndarray | None) -> list[float]:
    """Return the observables of a jet with these features (n, F) and momenta (n, 4)."""
    plain = [*features.mean(axis=0), *np.sqrt((features**2).mean(axis=0))]
    if momenta is None:
        return [math.log(len(features)), *plain]
    px, py, pz, energy = momenta.sum(axis=0)
    pt = np.hypot(momenta[:, 0], momenta[:, 1])
    share = pt / pt.sum()
    mass = math.sqrt(max(energy**2 - px**2 - py**2 - pz**2, 0))
    hardest = np.argsort(-pt)[:NUM_HARDEST]
    y = 0.5 * np.log((momenta[:, 3] + momenta[:, 2]) / (momenta[:, 3] - momenta[:, 2]))
    phi = np.arctan2(momenta[:, 1], momenta[:, 0])

    def distance(i: int, j: int) -> float:
        return math.hypot(y[i] - y[j], math.remainder(phi[i] - phi[j], 2 * math.pi))

    found = [math.log(len(features)), math.log(math.hypot(px, py) + 1), math.log(mass + 1)]
    found += [math.log((share**2).sum() + 1e-6), share[hardest[0]], share[hardest[:3]].sum()]
    for power in POWERS:
        pairs = {(i, j): distance(i, j) ** power for i, j in product(hardest, repeat=2)}
        two = sum(share[i] * share[j] * far for (i, j), far in pairs.items())
        three = sum(
            share[i] * share[j] * share[k] * pairs[i, j] * pairs[j, k] * pairs[i, k]
            for i, j, k in product(hardest, repeat=3)
        )
        harder = sum((share[i] * share[j]) ** 2 * far for (i, j), far in pairs.items())
        found += [math.log(number + 1e-6) for number in (two, three, harder)]
    return [*found, *plain, *(share @ features), *np.sqrt(share @ features**2)]


@pytest.mark.parametrize("with_momenta", [True, False])
def test_observables_by_hand(with_momenta):
    particles = packed_jets(LENGTHS).main
    assert max(LENGTHS) > NUM_HARDEST
    if not with_momenta:
        particles = Collection(particles.features, particles.offsets)
    found = observables(particles)
    start = 0
    for jet, length in enumerate(LENGTHS):
        rows = slice(start, start + length)
        start += length
        if length:
            momenta = particles.momenta[rows].double().numpy() if with_momenta else None
            expected = by_hand(particles.features[rows].double().numpy(), momenta)
            np.testing.assert_allclose(found[jet], expected, rtol=2e-3, atol=2e-3)
    assert found.isfinite().all()
    shape = CollectionShape(particles.features.shape[1], with_momenta)
    assert found.shape[1] == sum(num_observables(shape))


def test_the_order_of_particles_means_nothing():
    inputs = packed_jets([30, 5])
    order = torch.cat((torch.arange(30).flip(0), 30 + torch.arange(5).flip(0)))
    rows = {name: getattr(inputs.main, name)[order] for name in ("features", "momenta", "points")}
    turned = observables(with_particles(inputs, **rows).main)
    torch.testing.assert_close(turned, observables(inputs.main), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("momenta", [
    [[0, 0, 0, 0]], [[0, 0, 5, 5], [0, 0, -5, 1]], [[3, 4, 0, 0], [3, 4, 12, 13], [3, 4, 12, 13]],
    [[1e12, 0, 1e13, 2e13], [1e-12, 0, 0, 1e-12]],
])  # fmt: skip
def test_odd_momenta_have_finite_observables(momenta):
    momenta = torch.tensor(momenta, dtype=torch.float32)
    features = torch.zeros(len(momenta), 2)
    assert observables(Collection(features, torch.tensor([0, len(momenta)]), momenta)).isfinite().all()


def test_observables_are_standardised_over_all_jets_so_far():
    """With their mean and width, however they came in batches; jets without particles do not count."""
    head = ObservablesHead(3, (1, 1))
    values = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [3.0, 0.01]
    ) + torch.tensor([5.0, -1.0])
    values[[7, 30]] = 1e4
    counted = torch.ones(50)
    counted[[7, 30]] = 0
    for part in (slice(0, 1), slice(1, 20), slice(20, 20), slice(20, 50)):
        last = head._standardised(values[part], counted[part])
    real = values[counted > 0]
    torch.testing.assert_close(head.mean, real.mean(dim=0))
    torch.testing.assert_close(head.variance, real.var(dim=0, unbiased=False))
    assert float(head.num_jets) == 48
    expected = (values[20:] - real.mean(dim=0)) / real.std(dim=0, unbiased=False)
    torch.testing.assert_close(last, expected.clamp(-5, 5), rtol=1e-4, atol=1e-4)
    head.eval()
    before = {name: buffer.clone() for name, buffer in head.named_buffers()}
    head._standardised(values[:3] + 100, counted[:3])
    assert all(torch.equal(before[name], buffer) for name, buffer in head.named_buffers())


def test_momenta_and_features_count_alike():
    particles = packed_jets([5, 8], dtype=torch.float32).main
    numbers = num_observables(CollectionShape(particles.features.shape[1], has_momenta=True))
    head = ObservablesHead(3, numbers).eval()
    head.mean, head.variance = observables(particles)[0], torch.ones(sum(numbers))
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.zero_()
        head.linear.bias[: numbers[0]] = 2.0  # a distance of 1.5
        assert head(torch.zeros(2, 3), particles)[0].item() == pytest.approx(0.75)
        head.linear.bias[numbers[0] :] = 3.0  # 2.5
        assert head(torch.zeros(2, 3), particles)[0].item() == pytest.approx(0.75 + 1.25)


def test_without_momenta_all_observables_count_alike():
    """The number of particles, which is easy to learn, is one of many."""
    head = ObservablesHead(3, num_observables(CollectionShape(4)))
    assert head.shares.tolist() == pytest.approx([1 / 9] * 9)
