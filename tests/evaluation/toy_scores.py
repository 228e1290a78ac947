"""Scores with known answers: Gaussian toys, and prediction files as partt and weaver write them."""

from pathlib import Path

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from partt.data.files.tables import write_table
from partt.evaluation.jets import ScoresByClass, scores_from_arrays
from partt.scores.origin import Balance, Origin, Provenance

CLASSES = ("QCD", "Hbb", "Tbl")


def gaussian_scores(num_jets: int, distance: float, seed: int, weights: bool = False) -> ScoresByClass:
    """Return scores of signal S and background B whose log-odds are Gaussians `distance` widths apart."""
    random = np.random.default_rng(seed)
    labels = np.repeat([0, 1], num_jets)
    signal = expit(random.normal(distance * (labels - 0.5)))
    weight = random.exponential(1.0, len(labels)) if weights else None
    return scores_from_arrays(["B", "S"], np.stack([1 - signal, signal], axis=1), labels, weight)


def gaussian_rejection(efficiency: float, distance: float) -> float:
    return float(1 / norm.sf(norm.isf(efficiency) + distance))


def random_scores(num_jets: int, seed: int = 0, classes=CLASSES, sharpness: float = 1.5):
    """Return probabilities (N, C) and labels (N,) of a mediocre tagger."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, len(classes), num_jets)
    logits = random.normal(size=(num_jets, len(classes)))
    logits[np.arange(num_jets), labels] += sharpness
    odds = np.exp(logits)
    return (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32), labels


def score_table(num_jets: int, seed: int = 0, classes=CLASSES, jets_seed: int | None = None, **changes):
    """Return the columns that `partt predict` writes; `jets_seed` fixes the jets, `seed` the tagger."""
    probabilities, labels = random_scores(num_jets, seed, classes)
    random = np.random.default_rng(1000 + (seed if jets_seed is None else jets_seed))
    if jets_seed is not None:
        order = random.integers(0, len(classes), num_jets)
        probabilities = np.stack(
            [np.roll(row, new - old) for row, old, new in zip(probabilities, labels, order, strict=True)]
        )
        labels = order
    table = {f"score_{name}": probabilities[:, i].copy() for i, name in enumerate(classes)}
    table |= {f"label_{name}": (labels == i).astype(np.int32) for i, name in enumerate(classes)}
    table |= {
        "jet_pt": random.uniform(500, 1000, num_jets).astype(np.float32),
        "jet_eta": random.uniform(-2, 2, num_jets).astype(np.float32),
        "jet_sdmass": random.gamma(3, 30, num_jets).astype(np.float32),
        "weight": random.exponential(1, num_jets).astype(np.float32),
        "selected": np.ones(num_jets, dtype=bool),
        "source_entry": np.arange(num_jets),
    }
    return table | changes


def provenance(path: Path, tagger: str, network: str = "part", classes=CLASSES) -> Provenance:
    """Return the note of a file that a tagger with this SHA-256 has made."""
    origin = Origin(
        input=f"/jets/{path.name}",
        input_identity="1",
        tagger_sha256=tagger,
        class_names=list(classes),
        options={"embeddings": False},
        carried=[],
    )
    return Provenance(origin=origin, balance=Balance(), rows=0, network=network)


def write_scores(path: Path, num_jets: int = 600, tagger: str = "", network: str = "part", **options) -> str:
    """Write a prediction file; with a note if a tagger is given."""
    note = provenance(path, tagger, network).model_dump_json if tagger else None
    write_table(path, score_table(num_jets, **options), note=note)
    return str(path)
