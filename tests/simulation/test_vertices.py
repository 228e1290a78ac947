"""Secondary vertices: the fit against a slow one, unit pulls, and lifetimes and masses of known hadrons."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from simulate_helpers import simulated

from partt.simulation.ancestry import ParticleOrigin, origins
from partt.simulation.jetclass_tree import jet_constituents
from partt.simulation.vertices import decay_positions, find_vertices, fit_vertices

NUM_EVENTS = 100  # about fifty jets
K0S = 310


def tracks_of(label):
    result = simulated(label, NUM_EVENTS)
    matched = np.flatnonzero(result.matches.code > 0)
    tracks, jet, _ = jet_constituents(result.candidates, result.jets, matched)
    return result.events, tracks, jet


def test_the_fit_is_the_minimum_of_chi2():
    """Track by track, with derivatives of chi2 by differences: exact, since chi2 is a quadratic function."""
    events, tracks, jet = tracks_of("Hbb")
    vertices = fit_vertices(events, tracks, jet)
    assert len(vertices.jet) > 50
    truth = decay_positions(events, vertices.parent)
    for number in range(0, len(vertices.jet), 7):
        members = [
            row
            for row in np.flatnonzero((jet == vertices.jet[number]) & (tracks.d0_error > 0))
            if tracks.particle[row] >= 0 and comes_from(events, tracks.particle[row], truth[number])
        ]
        assert len(members) == vertices.num_tracks[number]

        def chi2(position, members=members, number=number):
            dx, dy, dz = position - truth[number]
            total = 0.0
            for row in members:
                particle = tracks.particle[row]
                px, py, pz = (getattr(events, name)[particle] for name in ("px", "py", "pz"))
                pt = np.hypot(px, py)
                d0 = (dx * py - dy * px) / pt
                dz_at_beam = dz - (dx * px + dy * py) / pt * pz / pt
                total += ((tracks.d0_shift[row] - d0) / tracks.d0_error[row]) ** 2
                total += ((tracks.dz_shift[row] - dz_at_beam) / tracks.dz_error[row]) ** 2
            return total

        best = vertices.position[number]
        assert chi2(best) == pytest.approx(vertices.chi2[number], rel=1e-4, abs=1e-4)
        step = 0.1 * np.eye(3)
        gradient = [(chi2(best + one) - chi2(best - one)) / 0.2 for one in step]
        curvature = np.array(
            [
                [
                    (chi2(best + a + b) - chi2(best + a - b) - chi2(best - a + b) + chi2(best - a - b)) / 0.04
                    for a in step
                ]
                for b in step
            ]
        )
        np.testing.assert_allclose(gradient, 0, atol=1e-5 * curvature.max())
        inverse = np.linalg.inv(vertices.covariance[number])
        np.testing.assert_allclose(curvature / 2, inverse, rtol=1e-4, atol=1e-4 * inverse.max())


def comes_from(events, particle, position):
    place = np.array([events.x[particle], events.y[particle], events.z[particle]])
    return np.linalg.norm(place - position) < 1e-3


def test_positions_are_unbiased_and_errors_are_right():
    events, tracks, jet = tracks_of("Hbb")
    pulls, squares = [], []
    for seed in range(20):
        random = np.random.default_rng(seed)
        noisy = replace(
            tracks,
            d0_shift=tracks.d0_error * random.standard_normal(len(tracks)),
            dz_shift=tracks.dz_error * random.standard_normal(len(tracks)),
        )
        vertices = fit_vertices(events, noisy, jet)
        truth = decay_positions(events, vertices.parent)
        distance, error = vertices.distance(3)
        pulls.append((distance - np.linalg.norm(truth, axis=1)) / error)
        shift = vertices.position - truth
        squares.append(np.einsum("vi,vij,vj->v", shift, np.linalg.inv(vertices.covariance), shift))
    pulls, squares = np.concatenate(pulls), np.concatenate(squares)
    precision = 4 / np.sqrt(len(pulls))  # four standard errors of a mean
    assert pulls.mean() == pytest.approx(0, abs=precision)
    assert pulls.std() == pytest.approx(1, abs=precision)
    assert squares.mean() == pytest.approx(3, abs=np.sqrt(6) * precision)


def test_lifetimes_of_b_and_c_hadrons():
    """Distance x mass / momentum of the hadron: c tau, 0.46 mm for b and 0.06 to 0.31 mm for c hadrons."""
    for label, origin, shortest, longest in (
        ("Hbb", ParticleOrigin.BOTTOM, 0.35, 0.6),
        ("Hcc", ParticleOrigin.CHARM, 0.1, 0.35),
    ):
        events, tracks, jet = tracks_of(label)
        vertices = fit_vertices(events, tracks, jet)
        parent = vertices.parent
        wanted = origins(events, events.first_daughter[parent]) == origin
        assert wanted.sum() > 25
        momentum = np.sqrt(events.px**2 + events.py**2 + events.pz**2)[parent]
        proper = vertices.distance(3)[0] * events.mass[parent] / momentum
        assert shortest < proper[wanted].mean() < longest
        assert (vertices.pointing[wanted & (vertices.distance(3)[0] > 10)] > 0.97).all()


def test_masses_of_vertices():
    """Two pions of a K0S have its mass; b hadrons lose neutral particles, and have more mass than c hadrons."""
    events, tracks, jet = tracks_of("Hbb")
    vertices = find_vertices(events, tracks, jet)
    kaons = (np.abs(events.pid[vertices.parent]) == K0S) & (vertices.num_tracks == 2)
    assert kaons.sum() > 5
    np.testing.assert_allclose(vertices.mass[kaons], 0.4976, atol=0.001)
    origin = origins(events, events.first_daughter[vertices.parent])
    bottom, charm = (
        vertices.mass[origin == kind] for kind in (ParticleOrigin.BOTTOM, ParticleOrigin.BOTTOM_TO_CHARM)
    )
    assert 1.0 < bottom.mean() < 2.5
    assert 0.7 < charm.mean() < 1.3
    assert charm.max() < 2.3
    assert bottom.max() < 5.4


def test_b_and_c_jets_have_vertices_and_light_jets_rarely():
    def with_vertex(label):
        extra = simulated(label, NUM_EVENTS).extra
        sv = {name: extra[f"sv_{name}"] for name in ("dxy", "mass")}
        near = (sv["dxy"].contents < 100) & (np.abs(sv["mass"].contents - 0.4976) > 0.001)  # not from a K0S
        jet = np.repeat(np.arange(len(sv["dxy"])), sv["dxy"].lengths)
        return len(np.unique(jet[near])) / len(sv["dxy"])

    assert with_vertex("Hbb") > 0.85
    assert with_vertex("Hcc") > 0.6
    assert with_vertex("QCD") < 0.25


@pytest.mark.parametrize("label", ["Hbb", "QCD", "Tbl"])
def test_definitions_of_the_branches(label):
    result = simulated(label, 30 if label == "Tbl" else NUM_EVENTS)
    table, extra = result.table, result.extra
    sv = {name: extra[name].contents.astype(float) for name in extra if name.startswith("sv_")}
    offsets = extra["sv_px"].offsets
    assert len(sv) == 14
    assert all(np.isfinite(values).all() for values in sv.values())
    np.testing.assert_array_equal(np.diff(offsets), extra["jet_nsv"])
    assert len(offsets) - 1 == len(table["jet_pt"])
    jet = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))

    assert (sv["sv_ntracks"] >= 2).all()
    assert (sv["sv_chi2"] > 0).all()
    assert (sv["sv_dxy"] <= sv["sv_d3d"]).all()
    significance = sv["sv_d3d"] / sv["sv_d3derr"]
    assert (significance > 2.999).all()
    for first, last in itertools.pairwise(offsets):
        assert (np.diff(significance[first:last]) <= 1e-4 * significance[first : last - 1]).all()
    px, py, pz, energy = (sv[f"sv_{name}"] for name in ("px", "py", "pz", "energy"))
    mass = np.sqrt(np.maximum(energy**2 - px**2 - py**2 - pz**2, 0))
    np.testing.assert_allclose(sv["sv_mass"], mass, atol=2e-3 * energy.max())
    eta, jet_eta = np.arcsinh(pz / np.hypot(px, py)), table["jet_eta"][jet]
    np.testing.assert_allclose(sv["sv_deta"], np.sign(jet_eta) * (eta - jet_eta), atol=1e-5)
    dphi = np.arctan2(py, px) - table["jet_phi"][jet]
    np.testing.assert_allclose(np.cos(sv["sv_dphi"]), np.cos(dphi), atol=1e-5)

    # no more tracks than the jet has displaced ones
    displaced = [
        (one > 0).sum() for one in np.split(extra["part_origin"].contents, extra["part_origin"].offsets[1:-1])
    ]
    assert (np.bincount(jet, sv["sv_ntracks"], minlength=len(displaced)) <= displaced).all()


def test_neutral_candidates_and_prompt_tracks_make_no_vertex():
    events, tracks, jet = tracks_of("QCD")
    prompt = tracks.take(origins(events, tracks.particle) <= ParticleOrigin.PRIMARY)
    assert len(find_vertices(events, prompt, jet[: len(prompt)]).jet) == 0
