"""Prediction files -> scores: of partt and of weaver, ROOT or parquet; only the columns that are needed."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partt.config import did_you_mean
from partt.data.files.access import is_remote, local_path
from partt.data.files.info import FileInfo, is_number_type
from partt.data.files.lists import expand_files
from partt.data.files.tables import inspect_file, read_columns
from partt.data.jagged import Array
from partt.errors import DataError
from partt.evaluation.jets import Chunk, JetCollector, Scores

MAX_CHUNK = 2**18  # entries
FINGERPRINT_ENTRIES = 10_000
_BOOKKEEPING = {"selected", "bad", "source_file", "source_entry", "_label_"}

Progress = Callable[[int, int], None]  # rows read, rows in all


@dataclass(frozen=True)
class ScoreFile:
    """A prediction file, and which of its columns are what."""

    info: FileInfo
    score_columns: Mapping[str, str]  # class -> column
    label_columns: tuple[str, ...]  # one for each class, or ("_label_",)
    observers: tuple[str, ...]


def open_score_files(arguments: Sequence[str]) -> list[tuple[ScoreFile, ...]]:
    """Return the prediction files that arguments stand for, by seed: files with the same jets are seeds."""
    files = [recognise(inspect_file(file.url, max_chunk=MAX_CHUNK)) for file in expand_files(arguments)]
    first = files[0]
    for file in files[1:]:
        if tuple(file.score_columns) != tuple(first.score_columns):
            raise DataError(
                f"{file.info.url} has scores of {', '.join(file.score_columns)}; {first.info.url} of "
                f"{', '.join(first.score_columns)}; compare models of different classes with --compare"
            )
    return _by_seed(files)


def recognise(info: FileInfo) -> ScoreFile:
    """Find the scores, labels and observers of a prediction file.

    partt writes score_<class> and label_<class>; weaver score_<label branch>, <label branch> and _label_.
    """
    columns = [name for name in info.branches if name.startswith("score_")]
    by_class = {name.removeprefix("score_").removeprefix("label_"): name for name in columns}
    if not by_class:
        hint = (
            "scores without class names: write them as ROOT"
            if "scores" in info.branches
            else "is it an output of partt predict?"
        )
        raise DataError(f"{info.where} has no score_<class> columns ({hint})")
    if len(by_class) < 2:
        raise DataError(
            f"{info.where} has scores of one class only, {next(iter(by_class))!r}; two are needed"
        )
    candidates = {
        name: [label for label in (f"label_{name}", column.removeprefix("score_")) if label in info.branches]
        for name, column in by_class.items()
    }
    missing = [name for name, found in candidates.items() if not found]
    if not missing:
        labels = tuple(found[0] for found in candidates.values())
    elif "_label_" in info.branches:
        labels = ("_label_",)
    elif len(missing) == len(candidates):
        raise DataError(
            f"{info.where} has no labels (label_{missing[0]}, ...): without the true classes there is "
            "nothing to evaluate; predict writes them if the input files have them"
        )
    else:
        raise DataError(f"{info.where} has labels of some classes, but no label_{missing[0]}")
    known = {*columns, *labels, *(label for found in candidates.values() for label in found), *_BOOKKEEPING}
    observers = tuple(
        name
        for name, kind in info.branches.items()
        if name not in known and is_number_type(kind) and not kind.endswith("[]")
    )
    return ScoreFile(info, by_class, labels, observers)


def read_scores(
    files: Sequence[ScoreFile],
    observers: Sequence[str] = (),
    weights: str | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Scores:
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
        has_flag = "selected" in info.branches
        wanted = [*file.score_columns.values(), *file.label_columns, *extra, *["selected"] * has_flag]
        for start, stop in info.chunks:
            columns = read_columns(
                info.url, list(dict.fromkeys(wanted)), start, stop, info.tree or None, identity=info.identity
            )
            flat = {name: _per_jet(info, name, column) for name, column in columns.items()}
            collector.add(
                Chunk(
                    where=info.url,
                    first=start,
                    scores=np.stack([flat[column] for column in file.score_columns.values()]),
                    labels=_labels(file, flat, start),
                    weights=flat[weights] if weights else None,
                    observers={name: flat[name].astype(np.float32, copy=False) for name in observers},
                    selected=flat["selected"] != 0 if has_flag else np.ones(stop - start, dtype=bool),
                )
            )
            done += stop - start
            progress(done, total)
    return collector.finish(tuple(file.info.url for file in files), _origin(files))


def _per_jet(info: FileInfo, name: str, column: Any) -> Array:
    if not isinstance(column, np.ndarray) or column.ndim != 1:
        raise DataError(f"{info.where}: column {name!r} is a list for each jet; one number is needed")
    return column


def _labels(file: ScoreFile, columns: Mapping[str, Array], first: int) -> Array:
    """Return the position of each jet's class (N,), -1 if none is set."""
    if file.label_columns == ("_label_",):
        return columns["_label_"].astype(np.int64)
    flags = np.stack([columns[name] != 0 for name in file.label_columns])
    num_set = np.count_nonzero(flags, axis=0)
    if (num_set > 1).any():
        entry = int(np.flatnonzero(num_set > 1)[0])
        both = [name for name, is_set in zip(file.label_columns, flags[:, entry], strict=True) if is_set]
        raise DataError(f"{file.info.where}: entry {first + entry} has several labels: {', '.join(both)}")
    return np.where(num_set == 1, flags.argmax(axis=0), -1)


def _by_seed(files: Sequence[ScoreFile]) -> list[tuple[ScoreFile, ...]]:
    """Deal out files: the k-th one with the same jets belongs to the k-th seed."""
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
    """Tell which jets a file holds by labels and observers; files of one class without any all differ."""
    names = sorted({*file.label_columns, *file.observers})
    stop = min(file.info.num_entries, FINGERPRINT_ENTRIES)
    columns = read_columns(file.info.url, names, 0, stop, file.info.tree or None)
    flat = {name: _per_jet(file.info, name, column) for name, column in columns.items()}
    labels = _labels(file, flat, 0)
    discriminants = [name for name in file.observers if "_vs_" in name]
    told_by = [name for name in names if name not in discriminants]
    if len(np.unique(labels)) < 2 and not set(told_by) - set(file.label_columns):
        return file.info.url
    digest = hashlib.sha256(f"{file.info.num_entries}".encode())
    for name in told_by:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(flat[name]).tobytes())
    return digest.hexdigest()


def _origin(files: Sequence[ScoreFile]) -> Mapping[str, Any]:
    """Return what predict noted beside the first file, in predict.json."""
    url = files[0].info.url
    if is_remote(url):
        return {}
    path = Path(local_path(url)).parent / "predict.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
