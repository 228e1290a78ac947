"""Predictions of regressions with known answers, in columns as partt predict writes them."""

from pathlib import Path

import numpy as np

from partt.data.files.tables import write_table
from partt.model.tasks import Task
from toy_scores import CLASSES, provenance, score_table

MASSES = {"QCD": (60.0, 40.0), "Hbb": (125.0, 0.5), "Tbl": (170.0, 2.0)}  # peak, width
RESOLUTION = 0.08  # of the prediction
MASS = Task(name="mass", kind="gaussian", target="mass_factor", factor_of="jet_mass")
PT = Task(name="pt", kind="quantiles", target="pt_true", quantiles=(0.16, 0.5, 0.84), unit="GeV")
CLASS_TASK = Task(name="classes", kind="classes", num_classes=3)


def regression_table(num_jets: int, seed: int = 0, resolution: float = RESOLUTION, **options):
    """Return the columns of a tagger with classes and the regressions MASS and PT.

    The response of the mass is 1 + `resolution` x a normal number, the true value of pT is predicted with its
    right quantiles.
    """
    table = score_table(num_jets, seed, **options)
    random = np.random.default_rng(77 + options.get("jets_seed", seed))
    labels = np.argmax([table[f"label_{name}"] for name in CLASSES], axis=0)
    peaks = np.array([MASSES[name] for name in CLASSES])[labels]
    true_mass = np.abs(random.normal(peaks[:, 0], peaks[:, 1])) + 1
    jet_mass = true_mass * np.exp(random.normal(0.1, 0.25, num_jets))
    sdmass = true_mass * np.exp(random.normal(-0.02, 0.12, num_jets))
    true_pt = table["jet_pt"] * random.normal(1.02, 0.1, num_jets)
    own = np.random.default_rng(99 + seed)
    factor = true_mass / jet_mass * (1 + resolution * own.normal(size=num_jets))
    width = 0.08 * factor
    pt = true_pt + 40 * own.normal(size=num_jets)
    columns = {
        "mass": factor,
        "mass_low": factor - width,
        "mass_high": factor + width,
        "jet_mass": jet_mass,
        "jet_mass_corrected": factor * jet_mass,
        "true_mass_factor": np.where(np.arange(num_jets) % 50 == 0, np.nan, true_mass / jet_mass),
        "pt": pt,
        "pt_low": pt - 39.778,
        "pt_high": pt + 39.778,
        "true_pt_true": true_pt,
        "jet_sdmass": sdmass,
        "jet_nparticles": random.integers(10, 80, num_jets),
    }
    return table | {name: np.asarray(values, dtype=np.float32) for name, values in columns.items()}


def write_regressions(
    path: Path, num_jets: int = 1500, *, classes: bool = True, tagger: str = "abc", **options
):
    """Write a prediction file, with its note; with or without classes."""
    table = regression_table(num_jets, **options)
    tasks = (CLASS_TASK, MASS, PT) if classes else (MASS, PT)
    if not classes:
        table = {name: values for name, values in table.items() if not name.startswith(("score_", "label_"))}
    note = provenance(path, tagger, classes=CLASSES if classes else ()).model_copy(update={"tasks": tasks})
    write_table(path, table, note=note.model_dump_json)
    return str(path)
