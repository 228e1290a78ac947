"""Reader of metrics.jsonl, the log of a training run: one JSON object per line."""

import json
from pathlib import Path
from typing import Any

from partt.errors import DataError

METRICS_FILE = "metrics.jsonl"  # in a run folder


def read_metrics(path: str | Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the lines, or those of one kind; a torn last line (the run was killed) is left out."""
    try:
        texts = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; is this a run folder?") from error
    lines: list[dict[str, Any]] = []
    for text in texts:
        try:
            line = json.loads(text)
        except ValueError:
            break
        if kind in {None, line.get("kind")}:
            lines.append(line)
    return lines
