"""The branches of JetClass: names, types, definitions."""

import numpy as np
import pytest
from simulate_helpers import simulated

from partt.data.files.tables import inspect_file, write_table
from partt.data.jagged import Jagged
from partt.simulation.processes import LABELS

CLASSES = ["QCD", "Hbb", "Hgg", "Tbl"]
FLOATS = ["px", "py", "pz", "energy", "deta", "dphi", "d0val", "d0err", "dzval", "dzerr", "charge"]
KINDS = ["isChargedHadron", "isNeutralHadron", "isPhoton", "isElectron", "isMuon"]
JET = ["pt", "eta", "phi", "energy", "nparticles", "sdmass", "tau1", "tau2", "tau3", "tau4"]
AUX = ["genpart_eta", "genpart_phi", "genpart_pid", "genpart_pt", "truth_match"]


def test_names_and_types_are_those_of_real_files(reference, tmp_path):
    """Compare with a file written by ROOT in the layout of the real files."""
    counted = inspect_file(str(reference / "jetclass_vector_layout.root")).branches
    real = {name: kind for name, kind in counted.items() if not name.startswith("npart")}
    path = tmp_path / "jets.root"
    write_table(path, simulated("Hbb").table)
    ours = dict(inspect_file(str(path)).branches)  # files with the same branches share the mapping
    assert ours.pop("npart") == "int32"  # uproot's counter
    assert {name: ours[name] for name in real} == real
    assert set(ours) - set(real) <= {f"aux_{name}" for name in AUX}


def test_all_branches_in_the_order_of_the_real_files():
    names = [f"part_{name}" for name in FLOATS + KINDS] + [f"label_{label}" for label in LABELS]
    names += [f"jet_{name}" for name in JET] + [f"aux_{name}" for name in AUX]
    assert list(simulated("Hbb").table) == names


def per_jet(table, name):
    column = table[name]
    assert isinstance(column, Jagged)
    return np.split(column.contents.astype(float), column.offsets[1:-1])


@pytest.mark.parametrize("label", CLASSES)
def test_definitions_of_the_branches(label):
    table = simulated(label).table
    kinds = [per_jet(table, f"part_{name}") for name in KINDS]
    columns = {name: per_jet(table, f"part_{name}") for name in FLOATS}
    for jet in range(len(table["jet_pt"])):
        px, py, pz, energy, deta, dphi, d0, d0err, dz, dzerr, charge = (columns[name][jet] for name in FLOATS)
        pt, jet_eta = np.hypot(px, py), table["jet_eta"][jet]
        assert len(px) == table["jet_nparticles"][jet]
        assert (np.diff(pt) <= 1e-5 * pt[:-1]).all()
        eta = np.arcsinh(pz / pt)
        np.testing.assert_allclose(deta, np.sign(jet_eta) * (eta - jet_eta), atol=1e-5)
        np.testing.assert_allclose(
            np.cos(dphi), np.cos(np.arctan2(py, px) - table["jet_phi"][jet]), atol=1e-5
        )
        assert (np.abs(dphi) <= np.pi + 1e-6).all()
        assert (energy**2 >= (pt**2 + pz**2) * (1 - 1e-5)).all()
        # jet_pt is that of the constituents' sum; eta and energy are not quite
        assert np.hypot(px.sum(), py.sum()) == pytest.approx(table["jet_pt"][jet], rel=1e-4)
        assert energy.sum() == pytest.approx(table["jet_energy"][jet], rel=0.2)
        charged_hadron, neutral_hadron, photon, electron, muon = (kind[jet] for kind in kinds)
        np.testing.assert_array_equal(sum(kind[jet] for kind in kinds), 1)
        np.testing.assert_array_equal(np.abs(charge), charged_hadron + electron + muon)
        neutral = neutral_hadron + photon == 1
        for values in (d0, d0err, dz, dzerr):
            assert not values[neutral].any()


def test_tracks_carry_the_eta_of_their_end_point():
    """Some eta of the constituents' sum differ from jet_eta; neutral particles keep their own direction."""
    result = simulated("Hbb")
    candidates = result.candidates
    eta = np.arcsinh(candidates.pz / np.hypot(candidates.px, candidates.py))
    neutral = candidates.charge == 0
    np.testing.assert_allclose(candidates.end_eta[neutral], eta[neutral], atol=1e-9)
    assert np.abs(candidates.end_eta - eta)[~neutral].max() > 0.01


def test_displaced_tracks_of_b_hadrons():
    """Hbb has far more tracks with a significant d0 than Hgg."""

    def displaced(label):
        table = simulated(label).table
        d0, error, px, py = (table[f"part_{name}"].contents for name in ("d0val", "d0err", "px", "py"))
        tracks = (error > 0) & (np.hypot(px, py) > 2)
        return (np.abs(d0[tracks]) > 5 * error[tracks]).mean()

    assert displaced("Hbb") > 2 * displaced("Hgg")
