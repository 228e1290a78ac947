"""Pair features against a loop per pair in plain Python, their symmetries, and awkward momenta."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from partt.physics.four_vectors import azimuth, mass_squared, rapidity, transverse_momentum, wrap_angle
from partt.physics.pair_features import PAIR_FEATURE_SETS, PAIR_FEATURES, pair_features

EPSILON = 1e-8


def some_momenta(count=12, seed=0):
    random = np.random.default_rng(seed)
    pt, eta, phi = (
        random.exponential(10, count) + 0.5,
        random.normal(0, 1, count),
        random.uniform(-4, 4, count),
    )
    px, py, pz = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    return torch.tensor(np.stack([px, py, pz, np.sqrt(px**2 + py**2 + pz**2 + 0.02)], axis=1))


def all_pairs(count):
    return torch.arange(count).repeat_interleave(count), torch.arange(count).repeat(count)


def slow_pair(a, b):
    """Return the features of one pair, from the definitions of arXiv:2202.03772."""
    (px1, py1, pz1, e1), (px2, py2, pz2, e2) = a, b
    y1, y2 = (0.5 * math.log((e + pz) / (e - pz)) for e, pz in ((e1, pz1), (e2, pz2)))
    dphi = math.remainder(math.atan2(py1, px1) - math.atan2(py2, px2), 2 * math.pi)
    delta = math.hypot(y1 - y2, dphi)
    pt1, pt2 = math.hypot(px1, py1), math.hypot(px2, py2)
    m2 = (e1 + e2) ** 2 - (px1 + px2) ** 2 - (py1 + py2) ** 2 - (pz1 + pz2) ** 2
    values = (min(pt1, pt2) * delta, min(pt1, pt2) / (pt1 + pt2), delta, m2)
    return [math.log(max(value, EPSILON)) for value in values]


def test_equal_a_loop_over_pairs():
    momenta = some_momenta()
    features = pair_features(momenta, *all_pairs(12))
    slow = [slow_pair(a, b) for a in momenta.tolist() for b in momenta.tolist()]
    torch.testing.assert_close(features, torch.tensor(slow, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    assert PAIR_FEATURES == ("ln_kt", "ln_z", "ln_delta", "ln_m2")


def computed(name, momenta, first, second):
    """Return the features of a set, for particles of one jet."""
    features = PAIR_FEATURE_SETS[name]
    jets = [momenta.sum(dim=0).expand_as(momenta)] if features.of_jet else []
    return features.compute(momenta, first, second, *jets)


def slow_pair_and_jet(a, b, jet):
    ln_kt, ln_z, ln_delta, ln_m2 = slow_pair(a, b)
    px, py, pz, energy = jet
    ln_m2_jet = math.log(energy**2 - px**2 - py**2 - pz**2)
    return [ln_kt, ln_kt - math.log(math.hypot(px, py)) + 7.5, ln_z, ln_delta, ln_m2, ln_m2 - ln_m2_jet + 10]


def slow_angle(a, b):
    cross = np.linalg.norm(np.cross(a[:3], b[:3]))
    return math.atan2(cross, np.dot(a[:3], b[:3]))


def slow_lepton_pair(a, b, _):
    angle, sizes = slow_angle(a, b), sorted(math.hypot(*p[:3]) for p in (a, b))
    kt, jade = sizes[0] * math.sin(angle), a[3] * b[3] * (1 - math.cos(angle))
    logs = [math.log(max(value, EPSILON)) for value in (kt, sizes[0] / sum(sizes), jade)]
    return [slow_pair(a, b)[3], math.cos(angle), math.sin(angle), *logs]


def slow_positions(a, b, _):
    d, angle = np.subtract(a, b), slow_angle(a, b)
    return [math.log(max(d[:3] @ d[:3], EPSILON)), math.cos(angle), math.sin(angle), math.asinh(d[3]), *d[:3]]


@pytest.mark.parametrize(
    ("name", "slow"), [("pp_jet", slow_pair_and_jet), ("ee", slow_lepton_pair), ("xyzt", slow_positions)]
)
def test_other_sets_equal_a_loop_over_pairs(name, slow):
    momenta = some_momenta()
    jet = momenta.sum(dim=0).tolist()
    expected = [slow(a, b, jet) for a in momenta.tolist() for b in momenta.tolist()]
    features = computed(name, momenta, *all_pairs(12))
    torch.testing.assert_close(features, torch.tensor(expected, dtype=torch.float64), rtol=1e-7, atol=1e-7)
    assert features.shape[1] == len(PAIR_FEATURE_SETS[name].names)


@pytest.mark.parametrize("name", PAIR_FEATURE_SETS)
def test_are_symmetric_where_they_say_so(name):
    first, second = all_pairs(12)
    momenta = some_momenta()
    there, back = computed(name, momenta, first, second), computed(name, momenta, second, first)
    assert torch.allclose(there, back, rtol=0, atol=1e-12) == PAIR_FEATURE_SETS[name].symmetric


def test_self_pairs():
    features = pair_features(some_momenta(), torch.arange(12), torch.arange(12))
    ln_epsilon = math.log(EPSILON)
    expected = torch.tensor([ln_epsilon, math.log(0.5), ln_epsilon], dtype=torch.float64)
    torch.testing.assert_close(features[:, :3], expected.expand(12, 3))


def rotated(momenta, angle):
    px, py, pz, energy = momenta.unbind(-1)
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.stack((cos * px - sin * py, sin * px + cos * py, pz, energy), dim=-1)


def boosted(momenta, boost):
    px, py, pz, energy = momenta.unbind(-1)
    cosh, sinh = math.cosh(boost), math.sinh(boost)
    return torch.stack((px, py, cosh * pz + sinh * energy, sinh * pz + cosh * energy), dim=-1)


@given(angle=st.floats(-10, 10), boost=st.floats(-2, 2), seed=st.integers(0, 1000))
def test_rotations_about_z_and_boosts_along_z_change_nothing(angle, boost, seed):
    momenta = some_momenta(8, seed)
    pairs = all_pairs(8)
    moved = pair_features(boosted(rotated(momenta, angle), boost), *pairs)
    torch.testing.assert_close(moved, pair_features(momenta, *pairs), rtol=1e-6, atol=1e-6)


def test_a_rotation_about_x_changes_them():
    momenta = some_momenta()
    pairs = all_pairs(12)
    changed = pair_features(momenta[:, [0, 2, 1, 3]], *pairs)
    assert (changed - pair_features(momenta, *pairs)).abs().max() > 0.1


AWKWARD = [
    [0, 0, 0, 0],  # nothing
    [0, 0, 5, 5],  # along the beam, massless
    [0, 0, -5, 5],
    [0, 0, -5, 1],  # E < |p|
    [0, 0, 5, 1],
    [3, 4, 0, 0],  # E = 0
    [3, 4, 0, 4.9],  # m2 < 0
    [1e-20, 0, 0, 1e-20],
    [3, 4, 12, 13],
    [3, 4, 12, 13],  # twice
    [1e4, -1e4, 1e5, 2e5],
    [-0.0, -0.0, 1, 2],
]


@pytest.mark.parametrize("name", PAIR_FEATURE_SETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_awkward_momenta_give_finite_features_and_gradients(dtype, name):
    momenta = torch.tensor(AWKWARD, dtype=dtype, requires_grad=True)
    features = computed(name, momenta, *all_pairs(len(AWKWARD)))
    assert features.isfinite().all()
    features.sum().backward()
    assert momenta.grad.isfinite().all()


@pytest.mark.parametrize("name", PAIR_FEATURE_SETS)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=8, max_size=8))
def test_any_momenta_give_finite_features_and_gradients(name, numbers):
    momenta = torch.tensor(numbers, dtype=torch.float32).view(2, 4).requires_grad_(True)
    features = computed(name, momenta, *all_pairs(2))
    features.sum().backward()
    assert features.isfinite().all()
    assert momenta.grad.isfinite().all()


def test_dense_jets_equal_jets_one_by_one():
    jets = torch.stack([some_momenta(seed=seed) for seed in range(3)])
    pairs = all_pairs(12)
    assert torch.equal(pair_features(jets, *pairs), torch.stack([pair_features(jet, *pairs) for jet in jets]))


def test_kinematics_of_a_known_particle():
    momenta = torch.tensor([3.0, 4.0, 12.0, 14.0], dtype=torch.float64)
    assert transverse_momentum(momenta).item() == pytest.approx(5)
    assert rapidity(momenta).item() == pytest.approx(0.5 * math.log(26 / 2))
    assert azimuth(momenta).item() == pytest.approx(math.atan2(4, 3))
    assert mass_squared(momenta).item() == pytest.approx(14**2 - 13**2)


def test_angles_wrap():
    angles = torch.tensor([0.0, math.pi, -math.pi, 3.5, -3.5, 7.0], dtype=torch.float64)
    expected = torch.tensor([0.0, -math.pi, -math.pi, 3.5 - 2 * math.pi, 2 * math.pi - 3.5, 7 - 2 * math.pi])
    torch.testing.assert_close(wrap_angle(angles), expected.double(), rtol=0, atol=1e-6)
