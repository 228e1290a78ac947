"""The run folder: definition, environment and results of a run.

run.json            everything that decides the result, which --resume requires to be the same; the
                    network's size
recipe.yaml         the recipe with all keys; data_config.yaml: the data config with fitted values
network.py          a copy of the user's own network file, if the network is from one
environment.json    versions, machine and git state of each start
metrics.jsonl       losses and metrics; tensorboard/ has the same
checkpoints/        the newest checkpoints, and the one of the best epoch
best.safetensors    the tagger of the best epoch
curves.png          losses and metrics against the epoch
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

from partt.atomic_files import remove_leftovers, write_text
from partt.errors import ConfigError, OutputError
from partt.jobs.folder_lock import keep_lock, opened_folder, try_lock
from partt.jobs.metrics_file import METRICS_FILE
from partt.regular_files import read_json
from partt.tagger.loading import BEST_OF_RUN, seed_folders
from partt.training.job import with_defaults

LOCK = "lock"
NETWORK_COPY = "network.py"
RECIPE_COPY = "recipe.yaml"
MAX_DIFFERENCES = 10  # listed in an error


@dataclass(frozen=True)
class RunFolder:
    """Paths in a run folder."""

    path: Path
    lock: int | None = None  # descriptor of the locked file, in the process that writes

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def tagger(self) -> Path:
        """The tagger of the best epoch."""
        return self.path / BEST_OF_RUN

    @property
    def metrics(self) -> Path:
        """Losses and metrics, a JSON object on each line."""
        return self.path / METRICS_FILE

    @property
    def definition(self) -> Path:
        """Everything that decides the result."""
        return self.path / "run.json"

    @property
    def environment(self) -> Path:
        """Versions, machine and git state of each start."""
        return self.path / "environment.json"

    @property
    def tensorboard(self) -> Path:
        """Events for TensorBoard."""
        return self.path / "tensorboard"

    @property
    def curves(self) -> Path:
        """Curves of losses and metrics."""
        return self.path / "curves.png"

    def keep_lock(self) -> None:
        """Raise an error if another process has started to train here, since the file `lock` was removed."""
        if self.lock is not None and not keep_lock(self.lock, self.path / LOCK):
            raise OutputError(
                f"{self.path / LOCK} was removed, and another process is training in {self.path} since; this "
                "one stops, and saves nothing more"
            )

    def files(self, texts: Iterable[str]) -> list[Path]:
        """Return all files that a run replaces, those for the user (`texts`) included."""
        others = [self.definition, self.environment, self.metrics, self.tagger, self.curves]
        return [*(self.path / name for name in texts), *others]


@contextmanager
def locked_run_folder(path: str | Path) -> Iterator[RunFolder]:
    """Yield a run folder with a lock, so that no other process uses it; the lock ends with the process.

    On a file system without locks, go ahead without one.
    """
    with opened_folder(Path(path), LOCK) as descriptor:
        folder = RunFolder(Path(path), descriptor)
        if not try_lock(descriptor, if_unsupported=True):
            raise ConfigError(
                f"another process is training in {path}; wait for it, or choose another folder with --out"
            )
        is_file = S_ISREG(os.fstat(descriptor).st_mode)  # reading a pipe may never end
        if not is_file or not re.fullmatch(rb"(\S+ \d+\n)?", os.read(descriptor, 1000)):
            raise ConfigError(f"{folder.path / LOCK} is not partt's; move it, or choose another --out")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.uname().nodename} {os.getpid()}\n".encode(), 0)
        yield folder


def start_or_resume(
    folder: RunFolder,
    definition: Mapping[str, Any],
    texts: Mapping[str, str],
    notes: Mapping[str, Any],
    *,
    resume: bool,
    epochs_done: Callable[[], int] = lambda: 0,
) -> None:
    """Write the definition of a new run, or check that it equals that of the run in the folder.

    `texts`: further files to write, by name, and `notes`: further keys of run.json, both for the user only.
    A run that has done all its epochs (`epochs_done`) may go on with more of them: they become part of its
    definition. Files of a folder without a run are never replaced. The lock of the folder must be held:
    temporary files of killed processes are removed.
    """
    for path in folder.files(texts):
        remove_leftovers(path)
    if not folder.definition.exists():
        _refuse_foreign_files(folder, texts)
        write_text(folder.definition, json.dumps({**definition, **notes}, indent=1))
        _write_missing(folder, texts)
        return
    if not resume:
        raise ConfigError(
            f"{folder.path} already contains a run; add --resume to continue it, or choose another --out"
        )
    before = read_json(folder.definition, error_type=ConfigError)
    if isinstance(before, dict):
        before = {key: value for key, value in before.items() if key not in notes}
    known, wanted = with_defaults(before), json.loads(json.dumps(definition))
    differences = list(_differences(known, wanted))
    if differences and _is_longer(known, wanted) and epochs_done() >= known["recipe"]["epochs"]:
        write_text(folder.definition, json.dumps({**definition, **notes}, indent=1))
        write_text(folder.path / RECIPE_COPY, texts[RECIPE_COPY])
        differences = []
    if differences:
        lines = [f"  {line}" for line in differences[:MAX_DIFFERENCES]]
        if len(differences) > MAX_DIFFERENCES:
            lines.append(f"  and {len(differences) - MAX_DIFFERENCES} more")
        raise ConfigError(
            f"{folder.path}: --resume continues the same run only, but this one differs; undo the changes, "
            "or start a new run with another --out:\n" + "\n".join(lines)
        )
    _write_missing(folder, texts)


def _is_longer(before: Any, now: Mapping[str, Any]) -> bool:
    """Tell whether two definitions differ only in that the second has more epochs."""
    try:
        done, wanted = before["recipe"]["epochs"], now["recipe"]["epochs"]
        same = {**before, "recipe": {**before["recipe"], "epochs": wanted}}
        return bool(wanted > done) and not list(_differences(same, now))
    except (KeyError, TypeError):  # no epochs, or somebody changed run.json
        return False


def _refuse_foreign_files(folder: RunFolder, texts: Iterable[str]) -> None:
    """Raise an error if the folder of a new run has files that the run would replace, use or hide."""
    if seeds := seed_folders(folder.path):
        raise ConfigError(
            f"{folder.path} has {len(seeds)} trainings that differ in their seed: add --seeds to continue "
            "them, or choose another --out"
        )
    existing = [path for path in folder.files(texts) if os.path.lexists(path)]
    existing += [path for path in (folder.checkpoints,) if path.is_dir() and any(path.iterdir())]
    if existing:
        raise ConfigError(
            f"{existing[0]} already exists, but {folder.path} contains no run: training would replace it; "
            "choose another folder with --out"
        )


def _write_missing(folder: RunFolder, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        if not os.path.lexists(folder.path / name):
            write_text(folder.path / name, text)


def append_environment(folder: RunFolder, environment: Mapping[str, Any]) -> None:
    """Add the environment of a start to environment.json."""
    path = folder.environment
    starts = read_json(path, error_type=ConfigError) if path.exists() else []
    if not isinstance(starts, list):
        raise ConfigError(f"{path} is not partt's: it should be a list; move it away")
    write_text(path, json.dumps([*starts, environment], indent=1))


def _differences(before: Any, now: Any, key: str = "") -> Iterator[str]:
    if key.endswith(".files") and isinstance(before, dict) and isinstance(now, dict):
        files = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if files:
            yield f"{key}: {len(files):,} of {len({**before, **now}):,} differ, the first is {files[0]}"
    elif isinstance(before, dict) and isinstance(now, dict):
        for name in [*before, *(name for name in now if name not in before)]:
            inner = f"{key}.{name}" if key else str(name)
            yield from _differences(before.get(name, _ABSENT), now.get(name, _ABSENT), inner)
    elif before != now:
        yield f"{key}: {_short(before)} before, {_short(now)} now"


_ABSENT = "(none)"


def _short(value: Any) -> str:
    text = value if value == _ABSENT else json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
