"""Branches of a file -> variables of a data config: new variables, selection, labels, weights."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from partt.data.config.data_config import DataConfig, branches_to_read
from partt.data.config.sections import MAX_NAME, matches
from partt.data.files.info import FileInfo
from partt.data.files.tables import bad_files_skipped
from partt.data.formulas.column_functions import LengthsDisagreeError
from partt.data.formulas.expressions import Formula, evaluate
from partt.data.jagged import Array, Column, Jagged, Table, take
from partt.data.jet_files import read_jets
from partt.errors import ConfigError, DataError, ParttError

Purpose = Literal["train", "predict"]
Entries = npt.NDArray[np.int64]

MAX_CLASSES = 10_000
SCAN_STEP = 500_000  # entries to read at once, if only a few values per jet are needed
WITHOUT_LABELS = "jets without labels are for predict, masked_particles and --teacher; otherwise "


class Variables(Mapping[str, Column]):
    """Entries of a file: their branches, and new variables, computed on demand."""

    def __init__(self, branches: Table, formulas: Mapping[str, Formula], url: str, entries: Entries) -> None:
        self.branches = branches
        self.formulas = formulas
        self.url = url
        self.entries = entries
        self._columns = dict(branches)

    def __getitem__(self, name: str) -> Column:
        """Return a branch or a new variable; as in weaver, a branch hides a formula of the same name."""
        if name not in self._columns:
            self._columns[name] = self.evaluate(self.formulas[name], name)
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._columns, **self.formulas})

    def __len__(self) -> int:
        return len({**self._columns, **self.formulas})

    @property
    def num_jets(self) -> int:
        """The number of entries."""
        return len(self.entries)

    def take(self, jets: npt.NDArray[np.int64]) -> "Variables":
        """Return the given jets."""
        kept = {name: take(column, jets) for name, column in self.branches.items()}
        return Variables(kept, self.formulas, self.url, self.entries[jets])

    def evaluate(self, formula: Formula, name: str) -> Column:
        """Evaluate a formula; `name` is its name in error messages."""
        try:
            return evaluate(formula, self)
        except LengthsDisagreeError as error:
            where = self.url if error.jet is None else f"{self.url}, entry {self.entries[error.jet]}"
            raise DataError(f"{where}: {name}: {error}") from error
        except RecursionError as error:
            raise ConfigError(f"{name}: its formula depends on too many others; make it simpler") from error
        except ParttError as error:
            raise type(error)(f"{self.url}: {name}: {error}") from error

    def per_jet(self, name: str, formula: Formula | None = None) -> Array:
        """Return a variable, or the value of a formula called `name`; it must have one value per jet."""
        column = self[name] if formula is None else self.evaluate(formula, name)
        if isinstance(column, Jagged) or np.shape(column) not in {(), (len(self.entries),)}:
            raise DataError(f"{self.url}: {name} must have one value per jet, not one per particle")
        return np.broadcast_to(column, (len(self.entries),))


def names_for(config: DataConfig, purpose: Purpose, *, with_labels: bool = True) -> set[str]:
    """Return the variables to read from every file; prediction needs observers, but no labels."""
    of_particles = [label.value for label in config.particle_labels.values()]
    others = config.observers if purpose == "predict" else (*config.target_variables, *of_particles)
    return {*config.input_names, *others} | names_for_index(config, purpose, with_labels=with_labels)


def names_for_index(config: DataConfig, purpose: Purpose, *, with_labels: bool = True) -> set[str]:
    """Return the variables of selection, labels and weights: which jets are used, and how often."""
    selection = config.selection_for(purpose)
    names = set(selection.names) if selection else set()
    if purpose == "predict":
        return names
    labels = config.label_variables if with_labels else ()
    return names | set(labels) | set(config.weight_variables)


def require_branches(config: DataConfig, names: Iterable[str], file: FileInfo) -> None:
    """Raise an error if a file lacks branches that the given variables need."""
    needed = file_branches(config, names)
    missing = sorted(needed - set(file.branches))
    if missing:
        nearest = [f"{name}{file.hint(name, others=needed)}" for name in missing]
        only_labels = file_branches(config, config.label_variables).issuperset(missing)
        raise DataError(
            f"{file.where} lacks branches that the data config needs: {', '.join(nearest)}; "
            f"{WITHOUT_LABELS if only_labels else ''}correct the names in the config, map them with "
            "branch_magic, or read files of events with --input"
        )


def missing_branches(config: DataConfig, names: Iterable[str], file: FileInfo) -> list[str]:
    """Return the branches that the given variables need and a file lacks."""
    return sorted(file_branches(config, names) - set(file.branches))


def file_branches(config: DataConfig, names: Iterable[str]) -> set[str]:
    """Return the branches that the given variables need, by their names in the files."""
    return set(_branch_names(config, names).values())


def renamed_branch(config: DataConfig, name: str) -> str:
    """Return the name of a branch in the files (`branch_magic`)."""
    for text, replacement in config.branch_magic.items():
        name = name.replace(text, replacement)
        if len(name) > MAX_NAME:
            raise ConfigError(
                f"branch_magic.{text[:60]}: a branch gets a name of {len(name)} characters; correct the "
                "replacements"
            )
    return name


def read_variables(
    config: DataConfig, names: Iterable[str], file: FileInfo, start: int, stop: int
) -> Variables:
    """Read the branches that the given variables need, for a range of entries (jets, or events with jets)."""
    branch_names = _branch_names(config, names)
    branches = sorted(set(branch_names.values()))
    found = read_jets(file, branches, start, stop)
    table: dict[str, Column] = {name: found.columns[branch] for name, branch in branch_names.items()}
    for name, rules in config.file_magic.items():
        value = next((value for pattern, value in rules.items() if matches(pattern, file.url)), 0)
        table[name] = np.full(len(found.entries), value)
    return Variables(table, config.formulas, file.url, found.entries)


def scan(
    config: DataConfig, file: FileInfo, purpose: Purpose = "train", *, with_labels: bool = True
) -> Iterator[Variables]:
    """Yield the variables for the index, of all selected jets of a file."""
    names = names_for_index(config, purpose, with_labels=with_labels)
    for start in range(0, file.num_entries, SCAN_STEP):
        stop = min(start + SCAN_STEP, file.num_entries)
        yield select(config, read_variables(config, names, file, start, stop), purpose)


def select(config: DataConfig, variables: Variables, purpose: Purpose) -> Variables:
    """Return the variables of the jets that pass the selection."""
    passed = passes_selection(config, variables, purpose)
    return variables if passed.all() else variables.take(np.flatnonzero(passed))


def passes_selection(config: DataConfig, variables: Variables, purpose: Purpose) -> npt.NDArray[np.bool_]:
    """Return which jets pass the selection (N,)."""
    selection = config.selection_for(purpose)
    if selection is None:
        return np.ones(variables.num_jets, dtype=bool)
    passed: npt.NDArray[np.bool_] = variables.per_jet("selection", selection) != 0
    return passed


def labels_of(config: DataConfig, variables: Variables, *, strict: bool = True) -> npt.NDArray[np.int64]:
    """Return each jet's class as a position in class_names (N,).

    A jet without a valid label is an error, or -1 if not strict.
    """
    if config.labels.class_number is not None:
        return _numbered_labels(config, config.labels.class_number, variables, strict=strict)
    flags = np.stack([variables.per_jet(name) for name in config.label_variables], axis=1)
    wrong = ((flags != 0) & (flags != 1)).any(axis=1) | ((flags == 1).sum(axis=1) != 1)
    if strict and wrong.any():
        jet = int(wrong.argmax())
        values = dict(zip(config.label_variables, flags[jet].tolist(), strict=True))
        found = ", ".join(f"{name} = {value:g}" for name, value in values.items() if value != 0)
        raise DataError(
            f"{variables.url}, entry {variables.entries[jet]}: exactly one label must be 1 and the others 0, "
            f"but {found or 'none is set'} ({int(wrong.sum())} of {len(wrong)} jets read together); "
            "correct the labels, or exclude these jets with `selection`"
        )
    return np.where(wrong, -1, flags.argmax(axis=1))


def class_numbers(values: Array, num_classes: int) -> npt.NDArray[np.int64]:
    """Return values that are numbers of classes, and -1 for all others."""
    is_number = np.isin(values, np.arange(num_classes))
    numbers = np.where(is_number, values, 0).astype(np.int64)
    numbers[~is_number] = -1  # not before: in a column without signs it would be 255
    return numbers


def targets_of(
    config: DataConfig, variables: Variables, names: Sequence[str] | None = None
) -> npt.NDArray[np.float32] | None:
    """Return targets of jets (N, R), by default all of the config, or None if there are none.

    NaN: not known.
    """
    names = config.target_names if names is None else names
    if not names:
        return None
    targets = np.empty((variables.num_jets, len(names)), dtype=np.float32)
    for name, column in zip(names, targets.T, strict=True):
        with np.errstate(over="ignore"):
            column[...] = variables.per_jet(name)
        column[~np.isfinite(column)] = np.nan
        if name in config.target_masks:
            column[variables.per_jet(config.target_masks[name]) == 0] = np.nan
    return targets


def name_classes(
    config: DataConfig,
    files: Iterable[FileInfo],
    names: Sequence[str] | None = None,
    *,
    skip_bad: bool = False,
) -> DataConfig:
    """Return a config without classes as one whose first target is the class number.

    Without names, the selected jets of the files are read for the largest number, and classes are called
    class_0, class_1, ... With `skip_bad`, files that cannot be read do not count.
    """
    number = config.labels.targets[0]
    if names is None:
        largest = -1
        for file in files:
            with bad_files_skipped(skip_bad):
                largest = max(largest, _largest_class(config, number, file))
        names = [f"class_{label}" for label in range(largest + 1)]
    if not names:
        raise DataError(f"no jet passes the selection {config.selection!r}, so {number} has no classes")
    return config.with_class_names(names)


def _largest_class(config: DataConfig, number: str, file: FileInfo) -> int:
    largest = -1
    names = names_for_index(config, "train") | {number}
    for start in range(0, file.num_entries, SCAN_STEP):
        stop = min(start + SCAN_STEP, file.num_entries)
        variables = select(config, read_variables(config, names, file, start, stop), "train")
        values = variables.per_jet(number)
        wrong = ~((values >= 0) & (values < MAX_CLASSES) & (values == np.floor(values)))
        if wrong.any():
            jet = int(wrong.argmax())
            raise DataError(
                f"{file.url}, entry {variables.entries[jet]}: {number} is {values[jet]}, but a class "
                f"number is a whole number from 0 to {MAX_CLASSES - 1}; if it is the target of a regression, "
                "list it in `tasks` of the recipe"
            )
        largest = max(largest, int(values.max(initial=0)) if len(values) else -1)
    return largest


def weights_of(config: DataConfig, variables: Variables) -> npt.NDArray[np.float32] | None:
    """Return the product of the config's `weight_branches` (N,), or None if it has none."""
    if config.weights is None or not config.weights.use_precomputed_weights:
        return None
    weights = np.ones(len(variables.entries), dtype=np.float32)
    for name in config.weights.weight_branches:
        weights = weights * variables.per_jet(name).astype(np.float32)
    wrong = ~np.isfinite(weights)
    if wrong.any():
        jet = int(wrong.argmax())
        raise DataError(
            f"{variables.url}, entry {variables.entries[jet]}: the weight "
            f"({' * '.join(config.weights.weight_branches)}) is {weights[jet]}; weights must be finite"
        )
    return weights


def _branch_names(config: DataConfig, names: Iterable[str]) -> dict[str, str]:
    """Map the branches that the given variables need to their names in the files (`branch_magic`)."""
    wanted = branches_to_read(config, names) - set(config.file_magic)
    return {name: renamed_branch(config, name) for name in sorted(wanted)}


def _numbered_labels(
    config: DataConfig, name: str, variables: Variables, *, strict: bool
) -> npt.NDArray[np.int64]:
    values = variables.per_jet(name)
    num_classes = len(config.class_names)
    labels = class_numbers(values, num_classes)
    wrong = labels < 0
    if strict and wrong.any():
        jet = int(wrong.argmax())
        raise DataError(
            f"{variables.url}, entry {variables.entries[jet]}: the label {name} is {values[jet]}; with "
            f"{num_classes} classes it must be a whole number from 0 to {num_classes - 1}"
        )
    return labels
