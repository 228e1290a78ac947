"""Prediction files -> scores by class: ROOT or parquet, only the columns that are needed."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partt.config import did_you_mean
from partt.data.files.access import is_remote, local_path
from partt.data.files.info import FileInfo
from partt.data.files.lists import expand_files
from partt.data.files.tables import inspect_file, read_columns
from partt.data.jagged import Array
from partt.errors import DataError
from partt.evaluation.jets import JetCollector, ScoredRows, ScoresByClass
from partt.evaluation.names import check_class_names
from partt.jobs.progress import Progress
from partt.scores.columns import SELECTED, ScoreFile, is_discriminant, recognise
from partt.scores.scores import SUMMARY_FILE

MAX_CHUNK = 2**18  # entries
FINGERPRINT_ENTRIES = 10_000


def open_score_files(arguments: Sequence[str]) -> list[tuple[ScoreFile, ...]]:
    """Return the prediction files that arguments name, by seed: files with the same jets are seeds."""
    files = [recognise(inspect_file(file.url, max_chunk=MAX_CHUNK)) for file in expand_files(arguments)]
    first = files[0]
    for file in files:
        check_class_names(tuple(file.score_columns))
    for file in files[1:]:
        if tuple(file.score_columns) != tuple(first.score_columns):
            raise DataError(
                f"{file.info.url} has scores of {', '.join(file.score_columns)}; {first.info.url} of "
                f"{', '.join(first.score_columns)}; compare models of different classes with --compare"
            )
    return _by_seed(files)


def read_scores(
    files: Sequence[ScoreFile],
    observers: Sequence[str] = (),
    weights: str | None = None,
    progress: Progress = lambda _done, _total: None,
) -> ScoresByClass:
    """Read the scores of all files; memory holds 4 bytes for each score and observer."""
    names = tuple(files[0].score_columns)
    collector = JetCollector(names, tuple(observers), weighted=weights is not None)
    total = sum(file.info.num_entries for file in files)
    extra = list(dict.fromkeys([*observers, *([weights] if weights else [])]))
    done = 0
    for file in files:
        info = file.info
        for name in extra:
            if name not in info.branches:
                raise DataError(
                    f"{info.where} has no column {name!r}{did_you_mean(name, file.observers)}; "
                    f"observers in it: {', '.join(file.observers) or 'none'}"
                )
        flag = [SELECTED] if file.has_selected else []
        wanted = list(dict.fromkeys([*file.score_columns.values(), *file.label_columns, *extra, *flag]))
        for start, stop in info.chunks:
            columns = read_columns(info.url, wanted, start, stop, info.tree or None, identity=info.identity)
            flat = {name: _per_jet(info, name, column) for name, column in columns.items()}
            collector.add(
                ScoredRows(
                    where=info.url,
                    first=start,
                    scores=np.stack([flat[column] for column in file.score_columns.values()]),
                    labels=file.labels(flat, start),
                    weights=flat[weights] if weights else None,
                    observers={name: _float32(flat[name]) for name in observers},
                    selected=flat[SELECTED] != 0 if flag else np.ones(stop - start, dtype=bool),
                )
            )
            done += stop - start
            progress(done, total)
    return collector.finish(tuple(file.info.url for file in files), _origin(files))


def _float32(values: Array) -> Array:
    with np.errstate(over="ignore"):  # larger numbers become infinite, and are in no bin
        return values.astype(np.float32, copy=False)


def _per_jet(info: FileInfo, name: str, column: Any) -> Array:
    if not isinstance(column, np.ndarray) or column.ndim != 1:
        raise DataError(f"{info.where}: column {name!r} is a list for each jet; one number is needed")
    return column


def _by_seed(files: Sequence[ScoreFile]) -> list[tuple[ScoreFile, ...]]:
    """Group files by seed: the k-th file with the same jets belongs to the k-th seed."""
    if len(files) == 1:
        return [tuple(files)]
    prints = [_fingerprint(file) for file in files]
    repeats = Counter(prints)
    num_seeds = max(repeats.values())
    if num_seeds > 1 and len(set(repeats.values())) > 1:
        few = files[prints.index(min(repeats, key=lambda key: repeats[key]))]
        raise DataError(
            f"some files hold the same jets {num_seeds} times (seeds of one model?), but {few.info.url} "
            f"comes {min(repeats.values())} times; give all files of each seed, or name models with --compare"
        )
    seeds: list[list[ScoreFile]] = [[] for _ in range(num_seeds)]
    seen: Counter[str] = Counter()
    for file, key in zip(files, prints, strict=True):
        seeds[seen[key]].append(file)
        seen[key] += 1
    return [tuple(seed) for seed in seeds]


def _fingerprint(file: ScoreFile) -> str:
    """Identify the jets of a file by labels and observers.

    Without observers and with a single class, jets cannot be told apart: then no two files are the same.
    """
    names = sorted({*file.label_columns, *file.observers})
    stop = min(file.info.num_entries, FINGERPRINT_ENTRIES)
    columns = read_columns(file.info.url, names, 0, stop, file.info.tree or None)
    flat = {name: _per_jet(file.info, name, column) for name, column in columns.items()}
    labels = file.labels(flat, 0)
    compared = [name for name in names if name not in file.observers or not is_discriminant(name)]
    if len(np.unique(labels)) < 2 and not set(compared) - set(file.label_columns):
        return file.info.url
    digest = hashlib.sha256(f"{file.info.num_entries}".encode())
    for name in compared:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(flat[name]).tobytes())
    return digest.hexdigest()


def _origin(files: Sequence[ScoreFile]) -> Mapping[str, Any]:
    """Return the contents of predict.json beside the first file."""
    url = files[0].info.url
    if is_remote(url):
        return {}
    path = Path(local_path(url)).parent / SUMMARY_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
