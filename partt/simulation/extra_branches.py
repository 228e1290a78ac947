"""Branches beyond those of JetClass: secondary vertices and generator truth."""

from collections.abc import Collection

import numpy as np

from partt.data.jagged import Column, Jagged, Table
from partt.simulation.ancestry import origins
from partt.simulation.detector.response import Candidates
from partt.simulation.generator import Events, Integers
from partt.simulation.generator_jets import match_generator_jets
from partt.simulation.jet_finding import Jets
from partt.simulation.jetclass_tree import jet_constituents, signed_deta
from partt.simulation.truth_labels import Matches, wrap
from partt.simulation.vertices import find_vertices

GENERATOR_PT_FRACTION = 0.5  # lowest pT of generator-level jets, as a fraction of that of the jets


def extra_branches(
    events: Events,
    candidates: Candidates,
    jets: Jets,
    matches: Matches,
    *,
    extras: Collection[str],
    pt_min: float,
) -> Table:
    """Return the branches of these extras, for the jets that match their class."""
    matched = np.flatnonzero(matches.code > 0)
    table: dict[str, Column] = {}
    if "vertices" in extras:
        table |= _vertex_branches(events, candidates, jets, matched)
    if "generator" in extras:
        table |= _generator_branches(events, candidates, jets, matches, pt_min)
    return table


def _vertex_branches(
    events: Events, candidates: Candidates, jets: Jets, matched: Integers
) -> dict[str, Column]:
    """Return sv_*, by decreasing significance of the flight distance, and jet_nsv."""
    tracks, jet, _ = jet_constituents(candidates, jets, matched)
    vertices = find_vertices(events, tracks, jet)
    num_vertices = np.bincount(vertices.jet, minlength=len(matched))
    offsets = np.concatenate([[0], np.cumsum(num_vertices)])

    px, py, pz = vertices.momentum.T
    eta, phi = np.arcsinh(pz / np.hypot(px, py)), np.arctan2(py, px)
    dxy, dxy_error = vertices.distance(2)
    d3d, d3d_error = vertices.distance(3)
    columns = {
        "sv_px": px,
        "sv_py": py,
        "sv_pz": pz,
        "sv_energy": vertices.energy,
        "sv_deta": signed_deta(eta, jets.eta[matched][vertices.jet]),
        "sv_dphi": wrap(phi - jets.phi[matched][vertices.jet]),
        "sv_mass": vertices.mass,
        "sv_ntracks": vertices.num_tracks,
        "sv_chi2": vertices.chi2,
        "sv_dxy": dxy,
        "sv_dxyerr": dxy_error,
        "sv_d3d": d3d,
        "sv_d3derr": d3d_error,
        "sv_costheta": vertices.pointing,
    }
    return {
        **{name: Jagged(values.astype(np.float32), offsets) for name, values in columns.items()},
        "jet_nsv": num_vertices.astype(np.float32),
    }


def _generator_branches(
    events: Events, candidates: Candidates, jets: Jets, matches: Matches, pt_min: float
) -> dict[str, Column]:
    """Return part_origin, gen_jet_* and gen_resonance_mass; NaN if there is no such jet or resonance."""
    matched = np.flatnonzero(matches.code > 0)
    parts, _, offsets = jet_constituents(candidates, jets, matched)
    generated = match_generator_jets(
        events, jets.event[matched], jets.eta[matched], jets.phi[matched], GENERATOR_PT_FRACTION * pt_min
    )
    resonance = matches.row[matched]
    columns = {
        "gen_jet_pt": generated.pt,
        "gen_jet_eta": generated.eta,
        "gen_jet_phi": generated.phi,
        "gen_jet_mass": generated.mass,
        "gen_jet_sdmass": generated.soft_drop_mass,
        "gen_jet_nparticles": generated.num_particles,
        "gen_resonance_mass": np.where(resonance >= 0, events.mass[resonance], np.nan),
    }
    return {
        "part_origin": Jagged(origins(events, parts.particle).astype(np.int32), offsets),
        **{name: values.astype(np.float32) for name, values in columns.items()},
    }
