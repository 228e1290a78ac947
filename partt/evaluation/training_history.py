"""The losses and metrics that a training wrote into its run folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from partt.errors import DataError


def read_epochs(folder: str | Path) -> tuple[Mapping[str, Any], ...]:
    """Return the epochs in metrics.jsonl of a run folder; a torn last line is left out."""
    path = Path(folder) / "metrics.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; is this a run folder?") from error
    epochs = []
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:
            break
        if values.get("kind") == "epoch":
            epochs.append(values)
    return tuple(epochs)
