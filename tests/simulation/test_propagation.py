"""Trajectories against a step-by-step integration of the Lorentz force."""

import numpy as np
import pytest

from partt.simulation.card import Solenoid
from partt.simulation.detector.propagation import propagate

SOLENOID = Solenoid(field=3.8, radius=1290.0, half_length=3000.0)
STEP = 1.0  # mm


def integrate(charge, vertex, momentum, step, num_steps):
    """Follow dp/ds = 0.2998e-3 q p/|p| x B (GeV, mm, T) by Runge-Kutta; return all points and directions."""
    size = np.linalg.norm(momentum)
    bend = 0.299792458e-3 * charge * SOLENOID.field / size

    def turn(direction):
        return bend * np.array([direction[1], -direction[0], 0.0])

    point, direction = np.array(vertex, dtype=float), np.array(momentum) / size
    points, directions = [point], [direction]
    for _ in range(num_steps):
        k1 = turn(direction)
        k2 = turn(direction + step / 2 * k1)
        k3 = turn(direction + step / 2 * k2)
        k4 = turn(direction + step * k3)
        point = point + step * direction + step**2 / 6 * (k1 + k2 + k3)
        direction = direction + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        points.append(point)
        directions.append(direction)
        if step > 0 and (
            np.hypot(point[0], point[1]) > SOLENOID.radius or abs(point[2]) > SOLENOID.half_length
        ):
            break
    return np.array(points), np.array(directions)


def crossing(points):
    """Interpolate the last step to the surface of the cylinder."""
    before, after = points[-2], points[-1]
    fractions = [1.0]
    if abs(after[2]) > SOLENOID.half_length:
        fractions.append((SOLENOID.half_length - abs(before[2])) / (abs(after[2]) - abs(before[2])))
    radii = np.hypot(before[0], before[1]), np.hypot(after[0], after[1])
    if radii[1] > SOLENOID.radius:
        fractions.append((SOLENOID.radius - radii[0]) / (radii[1] - radii[0]))
    return before + min(fractions) * (after - before)


# Each: the charge, the vertex in mm, the pT in GeV, then phi and eta.
CASES = [
    (1, (0, 0, 0), 50.0, 0.3, 0.5),
    (-1, (0, 0, 0), 5.0, 2.9, -1.2),
    (1, (3, -2, 10), 1.2, -2.0, 0.1),
    (-1, (30, 10, -50), 0.9, 1.0, -2.1),  # leaves through the end cap
    (1, (1, 1, 5), 0.4, 0.5, 1.0),  # a curler: its circle stays inside the barrel
    (-1, (-100, 250, 300), 0.3, -0.5, -0.7),  # a displaced curler
    (1, (400, -300, 100), 2.0, 2.2, 0.8),  # points inwards: the closest approach lies ahead
    (1, (0.5, 0.1, 0), 0.75, 0.0, 0.2),
    (0, (200, 100, -400), 3.0, -1.0, 0.9),
    (0, (0, 0, 0), 3.0, 1.5, -2.5),
]


@pytest.mark.parametrize(("charge", "vertex", "pt", "phi", "eta"), CASES)
def test_helix_against_integration(charge, vertex, pt, phi, eta):
    momentum = np.array([pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)])
    points, _ = integrate(charge, vertex, momentum, STEP, 200_000)
    end = crossing(points)
    found = propagate(
        SOLENOID, np.array([float(charge)]), np.array([vertex], dtype=float).T, momentum[:, None]
    )

    assert found.reaches_detector[0]
    radius = np.hypot(end[0], end[1])
    assert found.end_eta[0] == pytest.approx(np.arcsinh(end[2] / radius), abs=2e-5)
    assert np.cos(found.end_phi[0] - np.arctan2(end[1], end[0])) == pytest.approx(1, abs=1e-8)

    # The point of closest approach: forwards and backwards, at most half a turn.
    half_turn = np.pi * np.linalg.norm(momentum) / (0.299792458e-3 * 3.8) if charge else 3000.0
    num_steps = int(min(half_turn, 1500.0) / 0.25)
    points, directions = (
        np.concatenate(parts)
        for parts in zip(
            *(integrate(charge, vertex, momentum, step, num_steps) for step in (0.25, -0.25)), strict=True
        )
    )
    closest = np.hypot(points[:, 0], points[:, 1]).argmin()
    (x, y, z), (px, py, _) = points[closest], directions[closest] * np.linalg.norm(momentum)
    assert found.d0[0] == pytest.approx((x * py - y * px) / pt, abs=0.02)
    assert found.dz[0] == pytest.approx(z, abs=0.2 * (1 + abs(np.sinh(eta))))
    if charge:
        assert np.cos(found.direction[0] - np.arctan2(py, px)) == pytest.approx(1, abs=1e-6)


def test_particles_born_outside_or_along_the_beam_do_not_reach_the_detector():
    vertex = np.array([[1300.0, 0, 0], [0, 0, 3001.0], [0, 0, 0], [0, 0, 0]]).T
    momentum = np.array([[1.0, 0, 0], [1.0, 0, 0], [0, 0, 7.0], [1.0, 0, 0]]).T
    found = propagate(SOLENOID, np.array([1.0, 0, 1, 0]), vertex, momentum)
    assert found.reaches_detector.tolist() == [False, False, False, True]


def test_a_circle_inside_the_barrel_never_ends():
    found = propagate(SOLENOID, np.array([1.0]), np.zeros((3, 1)), np.array([[0.3], [0.0], [0.0]]))
    assert not found.reaches_detector[0]


def test_without_a_field_charged_particles_go_straight():
    random = np.random.default_rng(1)
    vertex, momentum = random.normal(0, 20, (3, 100)), random.normal(0, 3, (3, 100))
    no_field = Solenoid(field=0.0, radius=1290.0, half_length=3000.0)
    charged = propagate(no_field, np.ones(100), vertex, momentum)
    neutral = propagate(SOLENOID, np.zeros(100), vertex, momentum)
    np.testing.assert_allclose(charged.end_eta, neutral.end_eta)
    np.testing.assert_allclose(charged.d0, neutral.d0)


def test_rotation_about_the_beam_and_reflection():
    random = np.random.default_rng(2)
    charge = random.choice([-1.0, 0.0, 1.0], 300)
    vertex, momentum = random.normal(0, 50, (3, 300)), random.normal(0, 2, (3, 300))
    found = propagate(SOLENOID, charge, vertex, momentum)
    angle = 0.7
    rotation = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    rotated = propagate(SOLENOID, charge, rotation @ vertex, rotation @ momentum)
    np.testing.assert_allclose(rotated.d0, found.d0, atol=1e-9)
    np.testing.assert_allclose(rotated.end_eta, found.end_eta, atol=1e-9)
    np.testing.assert_allclose(np.cos(rotated.end_phi - found.end_phi - angle), 1, atol=1e-9)
    mirrored = propagate(SOLENOID, charge, vertex * [[1], [1], [-1]], momentum * [[1], [1], [-1]])
    np.testing.assert_allclose(mirrored.dz, -found.dz, atol=1e-9)
    np.testing.assert_allclose(mirrored.end_eta, -found.end_eta, atol=1e-9)
