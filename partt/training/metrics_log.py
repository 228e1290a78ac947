"""Log of a run: metrics.jsonl and TensorBoard events."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from partt.atomic_files import write_text
from partt.errors import OutputError
from partt.jobs.metrics_file import read_metrics
from partt.training.run_folder import RunFolder
from partt.training.state import RunState
from partt.training.tensorboard_events import TensorboardFile

Values = Mapping[str, Any]


class MetricsLog:
    """Appends to the log of a run; lines after the state to resume from are removed, to be written again."""

    def __init__(self, folder: RunFolder, state: RunState) -> None:
        first_step = state.step
        kept = [
            line
            for line in (read_metrics(folder.metrics) if folder.metrics.exists() else [])
            if (line["epoch"] < state.epoch if line["kind"] == "epoch" else line["step"] <= first_step)
        ]
        write_text(folder.metrics, "".join(f"{json.dumps(line)}\n" for line in kept))
        self._path = folder.metrics
        with _errors_naming(folder.tensorboard):
            self._events = TensorboardFile(folder.tensorboard, first_step + 1)

    def write(self, kind: str, step: int, values: Values) -> None:
        """Append a line to metrics.jsonl, and its numbers to TensorBoard's events."""
        with _errors_naming(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
        numbers = {f"{kind}/{name}": each for name, each in values.items() if isinstance(each, float)}
        with _errors_naming(self._events.path):
            self._events.write(step, numbers)


@contextmanager
def _errors_naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
