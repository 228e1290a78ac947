"""Prediction files -> scores by class: ROOT or parquet, only the columns that are needed."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from partt.config import did_you_mean
from partt.data.config.input_map import InputMap
from partt.data.files.info import FileInfo
from partt.data.files.lists import InputFile, expand_files
from partt.data.files.tables import inspect_file
from partt.data.jagged import Array
from partt.data.jet_files import inspect_jets, read_jets
from partt.errors import DataError, without_secrets
from partt.evaluation.jets import JetCollector, ScoredRows, ScoresByClass, needed_columns
from partt.jobs.progress import Progress
from partt.model.tasks import Task
from partt.pages.names import check_class_names, check_regressions
from partt.scores.columns import SELECTED, ScoreFile, columns_of_jets, recognise
from partt.scores.origin import Provenance, read_provenance, sum_of

MAX_CHUNK = 2**18  # entries
FINGERPRINT_ENTRIES = 10_000


def open_score_files(arguments: Sequence[str], tree: str | None = None) -> list[tuple[ScoreFile, ...]]:
    """Return the prediction files that arguments name, by seed: files with the same jets are seeds."""
    files = [_open(file) for file in expand_files(arguments, tree)]
    first = files[0]
    for file in files:
        check_class_names(tuple(file.score_columns))
        check_regressions(file.info.url, file.regressions)
    for file in files[1:]:
        if tuple(file.score_columns) != tuple(first.score_columns):
            raise DataError(
                f"{file.info.url} has scores of {', '.join(file.score_columns) or 'no classes'}; "
                f"{first.info.url} of {', '.join(first.score_columns) or 'no classes'}; compare models of "
                "different classes with --compare"
            )
    filled = [file for file in files if file.info.num_entries]  # those without jets are all the same
    seeds = _by_seed(filled or files)
    _check_taggers(seeds)
    return seeds


def _open(file: InputFile) -> ScoreFile:
    provenance = read_provenance(file.url)
    info = inspect_file(file.url, file.tree, MAX_CHUNK)
    if provenance is not None and provenance.origin.jets:
        columns = columns_of_jets(info, provenance)
        info = inspect_jets(file.url, file.tree, InputMap(jets=provenance.origin.jets, variables=columns))
    return recognise(info, provenance)


def read_scores(
    files: Sequence[ScoreFile],
    observers: Sequence[str] = (),
    weights: str | None = None,
    progress: Progress = lambda _done, _total: None,
) -> ScoresByClass:
    """Read the scores and regressions of all files; memory holds 4 bytes for each number of a jet."""
    names = tuple(files[0].score_columns)
    regressions, notes = _evaluable(files)
    needed = [name for task in regressions for name in needed_columns(task)]
    observers = list(dict.fromkeys([*observers, *needed]))
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
            rows = read_jets(info, wanted, start, stop)
            flat = {name: _per_jet(info, name, column) for name, column in rows.columns.items()}
            num_rows = len(rows.entries)
            collector.add(
                ScoredRows(
                    where=info.url,
                    first=start,
                    scores=_stacked([flat[column] for column in file.score_columns.values()], num_rows),
                    labels=file.labels(flat, start),
                    weights=flat[weights] if weights else None,
                    observers={name: _float32(flat[name]) for name in observers},
                    selected=flat[SELECTED] != 0 if flag else np.ones(num_rows, dtype=bool),
                )
            )
            done += stop - start
            progress(done, total)
    names = tuple(without_secrets(file.info.url) for file in files)
    found = collector.finish(names, _origin(files))
    return replace(found, regressions=tuple(regressions), notes=tuple(notes))


def _evaluable(files: Sequence[ScoreFile]) -> tuple[list[Task], list[str]]:
    """Return the regressions whose columns all files have, and what is missing of the others."""
    regressions, notes = [], []
    for task in files[0].regressions:
        missing = [
            (file, name) for file in files for name in needed_columns(task) if name not in file.observers
        ]
        if not missing:
            regressions.append(task)
            continue
        file, name = missing[0]
        notes.append(f"{task.name}: no result, because {without_secrets(file.info.url)} has no column {name}")
    if not files[0].score_columns and not regressions:
        raise DataError(
            f"nothing to evaluate: {'; '.join(notes)}; predict writes true values if the input has them"
        )
    return regressions, notes


def _stacked(columns: Sequence[Array], num_rows: int) -> Array:
    return np.stack(columns) if columns else np.empty((0, num_rows), dtype=np.float32)


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
    columns = read_jets(file.info, names, 0, stop).columns
    flat = {name: _per_jet(file.info, name, column) for name, column in columns.items()}
    labels = file.labels(flat, 0)
    compared = [name for name in names if name not in file.predicted]
    if len(np.unique(labels)) < 2 and not set(compared) - set(file.label_columns):
        return file.info.url
    digest = hashlib.sha256(f"{file.info.num_entries}".encode())
    for name in compared:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(flat[name]).tobytes())
    return digest.hexdigest()


def _check_taggers(seeds: Sequence[Sequence[ScoreFile]]) -> None:
    """Raise an error if the files of a seed are of two taggers, or the seeds of two networks."""
    known = [
        [(file.info.url, file.provenance) for file in seed if file.provenance is not None] for seed in seeds
    ]
    firsts = [notes[0] for notes in known if notes]
    pairs = [(notes[0], other) for notes in known for other in notes[1:]]
    for (url, one), (other_url, other) in pairs:
        if one.origin.tagger_sha256 != other.origin.tagger_sha256:
            raise _two_models(url, one, other_url, other)
    for other_url, other in firsts[1:]:
        url, one = firsts[0]
        if one.network and other.network and one.network != other.network:
            raise _two_models(url, one, other_url, other)


def _two_models(url: str, one: Provenance, other_url: str, other: Provenance) -> DataError:
    return DataError(
        f"{url} has the scores of the tagger {one.tagger}, {other_url} of {other.tagger}: these are not one "
        "model; compare them with --compare NAME=SCORES"
    )


def _origin(files: Sequence[ScoreFile]) -> Mapping[str, Any]:
    """Return what the files' own notes say of their tagger, where they agree; nothing if one has no note."""
    notes = [file.provenance for file in files if file.provenance is not None]
    if len(notes) < len(files):
        return {}
    facts = [
        {
            "tagger": note.tagger_name or None,
            "network": note.network or None,
            "tagger_sha256": note.origin.tagger_sha256,
            "class_names": note.origin.class_names,
            "options": note.origin.options,
            "versions": note.versions or None,
        }
        for note in notes
    ]
    agreed = {
        key: value
        for key, value in facts[0].items()
        if value is not None and all(other[key] == value for other in facts)
    }
    return {
        **agreed,
        "inputs": [note.origin.input for note in notes],
        "balance": sum_of([note.balance for note in notes]).model_dump(),
    }
