"""Columns of prediction files: how partt writes them, and how partt's and weaver's are recognised.

| column | |
|---|---|
| `score_<class>` | of each class |
| `<S>_vs_<B>` | discriminants |
| `label_<class>` | 1 for jets of the class, else 0; in labelled files |
| `NAME` | of each regression, in the target's unit: value, mean, or the quantile nearest to the median |
| `NAME_low`, `NAME_high` | mean - width and mean + width, or the lowest and the highest quantile |
| `NAME_q<percent>` | other quantiles: `NAME_q25`, `NAME_q97_5` |
| `NAME_<class>` | `NAME` if the jet is of this class; of regressions per class |
| `<variable>_corrected` | `NAME` x the variable that the target is a factor of; the variable is there, too |
| `true_<target>` | the true value, NaN if not known; in files that have it |
| observers, kept branches | under their own names |
| `embedding` | if asked for |
| `selected`, `bad`, `source_file`, `source_entry` | |

In outputs of events, a row is an event; columns of jets are lists, called `FatJet_score_<class>` after the
collection of jets, unless their names begin like that, and `nFatJet` is the length of the lists.

weaver writes `score_<label branch>` (`score_label_QCD`), the label branches, `_label_` (the position of the
true class) and observers. `partt.model.task_columns` has the names of the columns of regressions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.data.files.info import FileInfo, is_number_type
from partt.data.jagged import Array, Column, Jagged, Table
from partt.errors import ConfigError, DataError
from partt.model.task_columns import SCORE, SOFTMAX, TRUE, column_name, task_columns
from partt.model.tasks import Task
from partt.scores.discriminants import VS, Discriminant
from partt.scores.origin import Provenance
from partt.scores.scores import EventsOfJets, Scores

LABEL = "label_"  # + class
EMBEDDING = "embedding"
SELECTED = "selected"
BAD = "bad"
SOURCE_FILE = "source_file"
SOURCE_ENTRY = "source_entry"
WEAVER_LABEL = "_label_"
MAX_SHOWN = 200  # characters of a name in a message
WEAVER_SCORES = "scores"  # of its parquet files: lists of scores, without class names
_NOT_OBSERVERS = {SELECTED, BAD, SOURCE_FILE, SOURCE_ENTRY, WEAVER_LABEL}


# --- written ------------------------------------------------------------------------------------------


def score_columns(class_names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns with the scores of each class."""
    names = tuple(f"{SCORE}{column_name(name)}" for name in class_names)
    for column in names:
        same = [name for name, other in zip(class_names, names, strict=True) if other == column]
        if len(same) > 1:
            raise ConfigError(
                f"the classes {' and '.join(map(repr, same))} would share the column {column}; rename one"
            )
    return names


def label_columns(class_names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns with the labels of each class."""
    return tuple(f"{LABEL}{column_name(name)}" for name in class_names)


def discriminant_column(discriminant: Discriminant) -> str:
    """Return the name of the column of a discriminant."""
    return column_name(discriminant.name)


def regression_columns(tasks: Sequence[Task], class_names: Sequence[str]) -> list[str]:
    """Return the names of the columns of all regressions; a true value is written once."""
    names = [task_columns(task, class_names) for task in tasks if task.is_regression]
    corrected = [item.corrected for item in names if item.corrected is not None]
    true_values = dict.fromkeys(item.true for item in names)
    return [*(name for item in names for name in item.predicted), *corrected, *true_values]


def check_regression_columns(
    tasks: Sequence[Task], class_names: Sequence[str], observers: Sequence[str]
) -> None:
    """Raise an error if a column of a regression would have the name of another one, or of an observer."""
    columns = regression_columns(tasks, class_names)
    variables = [task.factor_of for task in tasks if task.factor_of]
    others = {*own_columns(class_names, (), embeddings=True), *class_names, *variables, SOFTMAX}
    for name in columns:
        if name in observers:
            what = "of an observer of the data config"
        elif name in others or columns.count(name) > 1:
            what = "of something else in the outputs"
        elif name.startswith((SCORE, LABEL)):
            what = "of a score or a label"
        else:
            continue
        raise ConfigError(
            f"tasks.regressions: {name}, a column of the predictions, has the name {what}; rename the "
            "regression, the target or the observer"
        )


def own_columns(
    class_names: Sequence[str],
    discriminants: Sequence[Discriminant],
    *,
    embeddings: bool,
    tasks: Sequence[Task] = (),
) -> list[str]:
    """Return the names of all columns that prediction may add, besides observers and kept branches."""
    return [
        *score_columns(class_names),
        *map(discriminant_column, discriminants),
        *label_columns(class_names),
        *regression_columns(tasks, class_names),
        *([EMBEDDING] if embeddings else []),
        SELECTED,
        BAD,
        SOURCE_FILE,
        SOURCE_ENTRY,
    ]


def output_table(scores: Scores, discriminants: Sequence[Discriminant]) -> Table:
    """Return the columns that are written to a file, in their order."""
    by_class = scores.probabilities.T  # (C, N)
    table: dict[str, Column] = {
        name: values.astype(np.float32)
        for name, values in zip(score_columns(scores.class_names), by_class, strict=True)
    }
    for discriminant in discriminants:
        values = discriminant.values(by_class, scores.class_names)
        table[discriminant_column(discriminant)] = values.astype(np.float32)
    if scores.labels is not None:
        for number, name in enumerate(label_columns(scores.class_names)):
            table[name] = (scores.labels == number).astype(np.int32)
    table |= {name: values.astype(np.float32) for name, values in scores.predictions.items()}
    table |= scores.true_values
    table |= scores.observers
    if scores.embeddings is not None:
        table[EMBEDDING] = scores.embeddings
    table[SELECTED] = scores.selected
    table[BAD] = scores.bad
    if scores.events is not None:
        return _by_event(table, scores.events, scores.source_file)
    table[SOURCE_FILE] = np.full(len(scores), scores.source_file)
    table[SOURCE_ENTRY] = scores.source_entry
    return table


def event_column(collection: str, name: str) -> str:
    """Return the name of a column of jets in an output of events."""
    return name if name.startswith(f"{collection}_") else f"{collection}_{name}"


def _by_event(table: Table, events: EventsOfJets, source_file: str) -> Table:
    """Return columns of jets as lists, one for each event, and the values of events."""
    lists: dict[str, Column] = {
        event_column(events.collection, name): Jagged(np.asarray(column), events.offsets)
        for name, column in table.items()
    }
    num_events = len(events.offsets) - 1
    own = {
        f"n{events.collection}": np.diff(events.offsets).astype(np.int32),
        SOURCE_FILE: np.full(num_events, source_file),
        SOURCE_ENTRY: np.arange(events.first, events.first + num_events),
    }
    return {**lists, **events.values, **own}


def columns_of_jets(info: FileInfo, provenance: Provenance) -> dict[str, str]:
    """Return the columns of jets in an output of events: their names in outputs of jets -> in the file."""
    origin = provenance.origin
    start = f"{origin.jets}_"
    return {
        name.removeprefix(start): name
        for name in info.branches
        if name.startswith(start) and name not in origin.carried
    }


# --- recognised ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreFile:
    """A prediction file, and what its columns are."""

    info: FileInfo
    score_columns: Mapping[str, str]  # class -> column
    label_columns: tuple[str, ...]  # one for each class, or weaver's _label_ alone
    observers: tuple[str, ...]  # discriminants and columns of regressions among them
    regressions: tuple[Task, ...] = ()
    provenance: Provenance | None = None  # if partt made it

    @property
    def has_selected(self) -> bool:
        """Whether the file has the column `selected`; without it, all jets are selected."""
        return SELECTED in self.info.branches

    @property
    def predicted(self) -> set[str]:
        """The columns, besides scores, that come from the tagger: others tell which jets a file has."""
        classes = self.provenance.origin.class_names if self.provenance else ()
        names = [task_columns(task, classes) for task in self.regressions]
        return {
            *(name for name in self.observers if is_discriminant(name)),
            *(name for item in names for name in (*item.predicted, item.corrected) if name is not None),
        }

    def labels(self, columns: Mapping[str, Array], first: int) -> npt.NDArray[np.int64]:
        """Return the position of each jet's class (N,), -1 if it has none; `first` is the entry of row 0.

        Without classes, all jets are at 0.
        """
        if not self.label_columns:
            return np.zeros(len(next(iter(columns.values()))), dtype=np.int64)
        if self.label_columns == (WEAVER_LABEL,):
            with np.errstate(invalid="ignore"):
                return np.where(np.isfinite(columns[WEAVER_LABEL]), columns[WEAVER_LABEL], -1).astype(
                    np.int64
                )
        flags = np.stack([columns[name] != 0 for name in self.label_columns])
        num_set = np.count_nonzero(flags, axis=0)
        if (num_set > 1).any():
            entry = int(np.flatnonzero(num_set > 1)[0])
            both = [name for name, is_set in zip(self.label_columns, flags[:, entry], strict=True) if is_set]
            raise DataError(f"{self.info.where}: entry {first + entry} has several labels: {', '.join(both)}")
        return np.where(num_set == 1, flags.argmax(axis=0), -1)


def recognise(info: FileInfo, provenance: Provenance | None = None) -> ScoreFile:
    """Find the scores, labels, regressions and observers of a prediction file of partt or weaver.

    `provenance` is its note. In files without one, columns x and true_x are a regression.
    """
    columns = [name for name in info.branches if name.startswith(SCORE)]
    by_class = {_class_of(name.removeprefix(SCORE), info): name for name in columns}
    regressions = _regressions(info, provenance)
    if not by_class and regressions:
        return ScoreFile(info, {}, (), _numbers(info, _NOT_OBSERVERS), regressions, provenance)
    if not by_class:
        hint = (
            "its scores have no class names: write them as ROOT"
            if WEAVER_SCORES in info.branches
            else "is it an output of partt predict?"
        )
        raise DataError(f"{info.where} has no {SCORE}<class> columns ({hint})")
    if len(by_class) < 2:
        raise DataError(
            f"{info.where} has scores of one class only, {next(iter(by_class))!r}; two are needed"
        )
    candidates = {
        name: [label for label in (f"{LABEL}{name}", column.removeprefix(SCORE)) if label in info.branches]
        for name, column in by_class.items()
    }
    missing = [name[:MAX_SHOWN] for name, found in candidates.items() if not found]
    if not missing:
        labels = tuple(found[0] for found in candidates.values())
    elif WEAVER_LABEL in info.branches:
        labels = (WEAVER_LABEL,)
    elif len(missing) == len(candidates):
        raise DataError(
            f"{info.where} has no labels ({LABEL}{missing[0]}, ...): evaluation needs the true classes; "
            "predict writes them if the input files have them"
        )
    else:
        raise DataError(f"{info.where} has labels of some classes, but no {LABEL}{missing[0]}")
    known = {*columns, *(label for found in candidates.values() for label in found), *_NOT_OBSERVERS}
    return ScoreFile(info, by_class, labels, _numbers(info, known), regressions, provenance)


def _numbers(info: FileInfo, known: set[str]) -> tuple[str, ...]:
    """Return the columns with one number for each jet that are not known otherwise."""
    return tuple(
        name
        for name, kind in info.branches.items()
        if name not in known and is_number_type(kind) and not kind.endswith("[]")
    )


def _regressions(info: FileInfo, provenance: Provenance | None) -> tuple[Task, ...]:
    if provenance is not None:
        return tuple(task for task in provenance.tasks if task.is_regression and task.name in info.branches)
    names = [name for name in _numbers(info, _NOT_OBSERVERS) if name == column_name(name)]
    return tuple(Task(name=name, kind="value", target=name) for name in names if f"{TRUE}{name}" in names)


def _class_of(name: str, info: FileInfo) -> str:
    """Return the class of a score column without score_: weaver names it after the label branch, label_QCD.

    partt's columns of a class called label_QCD are score_label_QCD and label_label_QCD.
    """
    return name if f"{LABEL}{name}" in info.branches else name.removeprefix(LABEL)


def is_discriminant(column: str) -> bool:
    """Tell whether a column is a discriminant, by its name."""
    return VS in column
