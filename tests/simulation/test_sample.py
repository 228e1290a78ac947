"""The bundled sample: all classes, small, and jets that look like their class."""

import subprocess
import sys

import numpy as np

import partt
from partt.data.files.tables import inspect_file, read_columns
from partt.simulation.processes import PROCESSES


def test_all_classes_in_less_than_2_mb():
    files = partt.sample_files()
    assert sorted(path.name for path in files) == sorted(f"{p.file_prefix}_000.root" for p in PROCESSES)
    assert sum(path.stat().st_size for path in files) < 2_000_000
    for path in files:
        assert inspect_file(str(path)).num_entries == 90


def test_masses_lie_near_those_of_the_resonances():
    """Soft drop keeps 60 to 100 % of the mass; QCD jets have little; leptonic decays lose the neutrino."""
    median = {}
    for process in PROCESSES:
        (path,) = (p for p in partt.sample_files() if p.name.startswith(f"{process.file_prefix}_"))
        table = read_columns(str(path), ["jet_sdmass", "jet_pt", f"label_{process.label}"])
        assert (table[f"label_{process.label}"] == 1).all()
        assert ((table["jet_pt"] > 500) & (table["jet_pt"] < 1000)).all()
        median[process.label] = float(np.median(table["jet_sdmass"]))
    for label, mass in {
        "Hbb": 125,
        "Hcc": 125,
        "Hgg": 125,
        "H4q": 125,
        "Zqq": 91,
        "Wqq": 80,
        "Tbqq": 173,
    }.items():
        assert 0.85 * mass < median[label] < 1.05 * mass, label
    assert median["QCD"] < 50
    assert median["Hqql"] < 110
    assert median["Tbl"] < 150


def test_the_package_finds_its_sample_without_loading_anything_heavy():
    code = "import sys, partt; partt.sample_files(); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "uproot", "awkward", "numpy", "pythia8mc"} & set(loaded)
