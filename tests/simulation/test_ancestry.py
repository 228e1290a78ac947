"""Origins of particles against Pythia's own event record."""

import numpy as np
import pytest
from simulate_helpers import HARD_PT_MIN, SEED, simulated

from partt.simulation.ancestry import ParticleOrigin, displaced_parents, origins
from partt.simulation.detector.response import charges
from partt.simulation.generator import Generator
from partt.simulation.processes import BY_LABEL

NUM_EVENTS = 6


@pytest.mark.parametrize("label", ["Hbb", "Hcc"])
def test_parents_decay_where_the_particle_is_produced(label):
    """Pythia knows where a particle decays, vDec, from its lifetime; and who is whose ancestor."""
    events = simulated(label).events
    generator = Generator(BY_LABEL[label], SEED, HARD_PT_MIN)
    kinds = set()
    for number in range(NUM_EVENTS):
        generator._pythia.next()
        event = generator._pythia.event
        first, last = events.offsets[number : number + 2]
        assert event.size() == last - first  # the same event again
        rows = first + np.flatnonzero(
            (events.status[first:last] > 0) & (charges(events.pid[first:last]) != 0)
        )
        flying = [index for index in range(event.size()) if flies(event[index])]
        parents, kind = displaced_parents(events, rows), origins(events, rows)
        kinds |= set(kind.tolist())
        for row, parent, origin in zip(rows - first, parents - first, kind, strict=True):
            particle = event[int(row)]
            flavours = {flavour(event[index]) for index in flying if particle.isAncestor(index)}
            if origin == ParticleOrigin.PRIMARY:
                assert parent < 0
                assert not flavours
                continue
            mother = event[int(parent)]
            assert particle.isAncestor(int(parent))
            assert distance(mother.vDec(), particle.vProd()) < 0.1  # a pi0 flies a few micrometres
            expected = ORIGINS[flavour(mother)]
            if expected == ParticleOrigin.CHARM and "b" in flavours:
                expected = ParticleOrigin.BOTTOM_TO_CHARM
            assert origin == expected
    assert kinds >= {
        ParticleOrigin.PRIMARY,
        ParticleOrigin.STRANGE,
        ParticleOrigin.BOTTOM_TO_CHARM if label == "Hbb" else ParticleOrigin.CHARM,
    }


ORIGINS = {
    "b": ParticleOrigin.BOTTOM,
    "c": ParticleOrigin.CHARM,
    "s": ParticleOrigin.STRANGE,
    "tau": ParticleOrigin.TAU,
}


def flies(particle):
    """Whether a particle decays away from where it was produced, and has a flavour."""
    decayed = particle.status() < 0
    return decayed and flavour(particle) is not None and distance(particle.vDec(), particle.vProd()) > 1e-3


def flavour(particle):
    """Return the heaviest quark of a hadron, by the digits of its PDG code, or tau; None for others."""
    code = particle.idAbs()
    if code == 15:
        return "tau"
    if not particle.isHadron():
        return None
    quarks = {code // 10 % 10, code // 100 % 10, code // 1000 % 10}
    return next((name for digit, name in ((5, "b"), (4, "c"), (3, "s")) if digit in quarks), None)


def distance(one, other):
    return (one - other).pAbs()


def test_neutral_candidates_have_no_origin():
    result = simulated("Hbb")
    origin, charge = result.extra["part_origin"], result.table["part_charge"]
    np.testing.assert_array_equal(origin.offsets, charge.offsets)
    np.testing.assert_array_equal(origin.contents == ParticleOrigin.UNKNOWN, charge.contents == 0)
    assert origin.contents.dtype == np.int32


def test_displaced_tracks_have_large_impact_parameters():
    result = simulated("Hbb")
    origin = result.extra["part_origin"].contents
    d0, error = (result.table[f"part_{name}"].contents for name in ("d0val", "d0err"))
    significance = np.abs(d0) / np.where(error > 0, error, np.inf)
    assert np.median(significance[origin == ParticleOrigin.PRIMARY]) < 1
    assert (
        np.median(significance[np.isin(origin, (ParticleOrigin.BOTTOM, ParticleOrigin.BOTTOM_TO_CHARM))]) > 3
    )
