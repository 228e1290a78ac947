"""Reader of metrics.jsonl, the log of a training run: one JSON object per line."""

import json
from pathlib import Path
from typing import Any

from partt.errors import DataError

METRICS_FILE = "metrics.jsonl"  # in a run folder
MAX_BYTES = 2**28  # a line has some 300
LARGEST = 1e30  # of a number that is drawn
CURVES = ("train_", "validation_")  # how the names of metrics begin


def read_metrics(path: str | Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the lines, or those of one kind; a torn last line (the run was killed) is left out."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"cannot read {path}: not a regular file; is this a run folder?")
        if path.stat().st_size > MAX_BYTES:
            raise DataError(
                f"cannot read {path}: more than {MAX_BYTES:,} bytes; this is not the log of a training"
            )
        texts = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; is this a run folder?") from error
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(texts, start=1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            if number == len(texts):
                break
            raise _fault(path, number, "not JSON") from error
        if fault := _fault_of(line):
            raise _fault(path, number, fault)
        if kind in {None, line["kind"]}:
            lines.append(line)
    return lines


def _fault(path: Path, number: int, what: str) -> DataError:
    return DataError(
        f"{path}, line {number}: {what}; the log of a run was changed: restore it, or remove the line"
    )


def _fault_of(line: Any) -> str:
    """Return what is wrong with a line, or nothing."""
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return "not an object with a kind"
    for key in ("step", "epoch"):
        if type(line.get(key)) is not int or not 0 <= line[key] < LARGEST:
            return f"{key!r} should be a whole number"
    if line["kind"] == "epoch" and not isinstance(line.get("is_best"), bool):
        return "'is_best' should be true or false"
    for key, value in line.items():
        is_number = type(value) in {int, float} and not abs(value) > LARGEST  # NaN is a number here
        if key.startswith(CURVES) and value is not None and not is_number:
            return f"{key[:40]!r} should be a number"
    return ""
