"""Log of a run: metrics.jsonl and TensorBoard events."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Self

from torch.utils.tensorboard import SummaryWriter

from partt.atomic_files import write_text
from partt.errors import OutputError
from partt.jobs.metrics_file import read_metrics
from partt.training.run_folder import RunFolder
from partt.training.state import RunState

Values = Mapping[str, Any]


class MetricsLog(AbstractContextManager["MetricsLog"]):
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
        try:
            self._events = SummaryWriter(str(folder.tensorboard), purge_step=first_step + 1)
        except OSError as error:
            raise OutputError(f"cannot write {folder.tensorboard}: {error.strerror or error}") from error

    def write(self, kind: str, step: int, values: Values) -> None:
        """Append a line to metrics.jsonl, and its numbers to TensorBoard's events."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
            for name, value in values.items():
                if isinstance(value, float):
                    self._events.add_scalar(f"{kind}/{name}", value, step)
            if kind == "epoch":
                self._events.flush()
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._events.close()
