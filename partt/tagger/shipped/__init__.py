"""Shipped taggers: NAME.safetensors, and measured results in NAME.json."""

from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from partt.config import Record
from partt.errors import DataError

Purpose = Literal["training", "validation", "test"]


class Measured(Record):
    """A number with its standard error."""

    value: float
    error: float


class Facts(Record):
    """Training and results of a tagger; `benchmarks/tagger_card.py` writes them, and the model card."""

    format_version: Literal[1] = 1
    tagger_sha256: str
    training_jets: int
    validation_jets: int
    test_jets: int
    simulation_seeds: dict[Purpose, list[int]]
    accuracy: Measured  # of the test jets
    auc: Measured
    page: str  # the model card


def shipped_taggers() -> dict[str, Path]:
    """Return the files of the shipped taggers, by name."""
    folder = Path(str(resources.files("partt"))) / "tagger" / "shipped"
    return {file.stem: file for file in sorted(folder.glob("*.safetensors"))}


def tagger_facts(name: str) -> Facts:
    """Return training and results of a shipped tagger."""
    path = shipped_taggers()[name].with_suffix(".json")
    try:
        return Facts.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(f"cannot read {path}: {error}; is partt installed completely?") from error
