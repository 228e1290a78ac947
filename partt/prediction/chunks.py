"""Chunks of files: ranges of entries, in order, and the scores of one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from partt.data.config.data_config import DataConfig
from partt.data.jagged import Column, Jagged, Table, take
from partt.data.jet_files import read_jets, read_per_event
from partt.data.training_domain import Excess, count_outside, domain_values
from partt.data.variables import Variables, labels_of, passes_selection, targets_of
from partt.errors import DataError, ParttError, without_secrets
from partt.model.task_columns import task_columns
from partt.prediction.opened_files import OpenedFile
from partt.prediction.options import Options
from partt.scores.scores import EventsOfJets, Scores
from partt.tagger.inference import Each
from partt.tagger.tagger import Tagger

Targets: TypeAlias = npt.NDArray[np.float32]  # (N,)


@dataclass(frozen=True)
class ChunkTask:
    """A range of entries of one file."""

    number: int  # of the file
    file: OpenedFile
    start: int
    stop: int


class ChunkTasks(Iterator[ChunkTask]):
    """The chunks of all files in order, except those of files that were dropped meanwhile."""

    def __init__(self, files: Sequence[OpenedFile]) -> None:
        self._tasks = (
            ChunkTask(number, file, start, stop)
            for number, file in enumerate(files)
            for start, stop in file.chunks
        )
        self._dropped: set[int] = set()

    def __next__(self) -> ChunkTask:
        """Return the next chunk."""
        return next(task for task in self._tasks if task.number not in self._dropped)

    def drop_file(self, number: int) -> None:
        """Leave out the chunks of a file that have not been taken yet."""
        self._dropped.add(number)


def score_chunk(tagger: Tagger, options: Options, task: ChunkTask, each: Each = map) -> Scores:
    """Read and score the entries of a chunk; `each` computes batches like `map`."""
    config, file = tagger.data_config, task.file
    variables = tagger.read(file.info, task.start, task.stop, _others(config, file))
    kept = _read_kept(config, file, variables, task)
    num_removed = 0
    if options.apply_selection:
        passes = passes_selection(config, variables, "predict")
        num_removed, passed = int(np.count_nonzero(~passes)), np.flatnonzero(passes)
        variables = variables.take(passed)
        kept = {name: take(column, passed) for name, column in kept.items()}
    events = _events(file, variables, task)
    tagged = tagger.tag(variables, with_embeddings=options.embeddings, each=each)
    observers = {name: _per_entry(variables[name], variables.num_jets) for name in file.observers}
    if events is not None:
        observers, kept = _of_jets(file, {**observers, **kept}, events), {}
    return Scores(
        class_names=tagger.class_names,
        probabilities=tagged.probabilities,
        labels=labels_of(config, variables, strict=False) if file.has_labels else None,
        observers={**observers, **kept},
        selected=tagged.selected,
        bad=tagged.bad,
        source_file=without_secrets(file.info.url),
        source_entry=variables.entries,
        embeddings=tagged.embeddings,
        num_removed=num_removed,
        predictions=tagged.predictions,
        true_values=_true_values(tagger, file, variables),
        events=events,
        outside=_outside(tagger, variables, tagged.selected),
    )


def _events(file: OpenedFile, variables: Variables, task: ChunkTask) -> EventsOfJets | None:
    """Return the events of a chunk; None if its entries are jets."""
    if not file.jets:
        return None
    counts = np.bincount(variables.entries - task.start, minlength=task.stop - task.start)
    values = read_per_event(file.info, file.per_event, task.start, task.stop)
    return EventsOfJets(file.jets, np.concatenate([[0], np.cumsum(counts)]), task.start, values)


def _of_jets(file: OpenedFile, columns: Table, events: EventsOfJets) -> dict[str, Column]:
    """Return the columns with one value per jet, which outputs of events have as lists."""
    of_jets = {name: column for name, column in columns.items() if name not in events.values}
    for name, column in of_jets.items():
        if isinstance(column, Jagged):
            raise DataError(
                f"{file.info.url}: observer {name} is a list in each jet; outputs of events cannot have it"
            )
    return of_jets


def _outside(tagger: Tagger, variables: Variables, selected: npt.NDArray[np.bool_]) -> dict[str, Excess]:
    """Count the values of the selected jets that are outside of the training domain."""
    if tagger.domain is None:
        return {}
    jets = variables if selected.all() else variables.take(np.flatnonzero(selected))
    return count_outside(tagger.domain, domain_values(tagger.data_config, jets))


def attempt_chunk(tagger: Tagger, options: Options, task: ChunkTask, each: Each = map) -> Scores | ParttError:
    """Score a chunk; return errors instead of raising them: the caller decides what to do with a bad file."""
    try:
        return score_chunk(tagger, options, task, each)
    except ParttError as error:
        return error


def _others(config: DataConfig, file: OpenedFile) -> set[str]:
    """Return the variables that outputs have beside the predictions."""
    names = {*file.observers, *config.variables_of_targets(file.targets)}
    return names | set(config.label_variables) if file.has_labels else names


def _true_values(tagger: Tagger, file: OpenedFile, variables: Variables) -> dict[str, Targets]:
    """Return the targets that a file has, by column (N,)."""
    targets = targets_of(tagger.data_config, variables, file.targets)
    by_target = dict(zip(file.targets, () if targets is None else targets.T, strict=True))
    columns = {task.target: task_columns(task).true for task in tagger.regressions}
    return {columns[target]: values for target, values in by_target.items()}


def _read_kept(config: DataConfig, file: OpenedFile, variables: Variables, task: ChunkTask) -> Table:
    """Return the branches to keep; those already read are not read again."""
    known = {} if config.branch_magic else variables.branches
    missing = [name for name in file.keep if name not in known]
    columns = read_jets(file.info, missing, task.start, task.stop).columns if missing else {}
    return {name: known[name] if name in known else columns[name] for name in file.keep}


def _per_entry(column: Column, num_entries: int) -> Column:
    """Return a column with a value per entry, even if its formula is a constant."""
    return column if isinstance(column, Jagged) or np.ndim(column) else np.full(num_entries, column)
