"""Files -> some thousand labelled jets in memory, with everything that an explanation looks at.

Axes: N jets, T values of a column in all jets.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from partt.config import did_you_mean
from partt.data.config.data_config import DataConfig
from partt.data.files.lists import expand_files
from partt.data.files.tables import FileInfo
from partt.data.formulas.expressions import Formula, parse_formula
from partt.data.jagged import Array, Column, Jagged, concatenate
from partt.data.reading.jet_source import BadFilePolicy, open_files
from partt.data.variables import (
    Variables,
    labels_of,
    missing_branches,
    passes_selection,
    read_variables,
    require_branches,
)
from partt.errors import ConfigError, DataError, without_secrets
from partt.tagger.inference import Each
from partt.tagger.loading import load_tagger
from partt.tagger.tagger import Tagger

MAX_SLICES = 8  # of a file, from its beginning to its end: a file may be sorted by class


@dataclass(frozen=True, eq=False)
class LabelledJets:
    """Jets that were selected and have finite scores."""

    variables: Variables  # branches, and the columns of the inputs
    labels: npt.NDArray[np.int64]  # (N,) position in the classes; -1: not known
    probabilities: npt.NDArray[np.float64]  # (N, C)
    files: tuple[str, ...]
    file_of_jet: npt.NDArray[np.int64]  # (N,)
    entries: npt.NDArray[np.int64]  # (N,) in that file

    def __len__(self) -> int:
        """Return the number of jets."""
        return len(self.labels)

    def take(self, jets: npt.NDArray[np.int64]) -> "LabelledJets":
        """Return some of the jets."""
        return LabelledJets(
            self.variables.take(jets),
            self.labels[jets],
            self.probabilities[jets],
            self.files,
            self.file_of_jet[jets],
            self.entries[jets],
        )

    def per_jet(self, name: str) -> Array | None:
        """Return a column with one number per jet (N,); None if there is none."""
        if name not in self.variables:
            return None
        column = self.variables[name]
        return None if isinstance(column, Jagged) or np.ndim(column) != 1 else column


def tagger_to_explain(tagger: str | Path | Tagger, network_file: str | Path | None = None) -> Tagger:
    """Return a tagger, loaded if need be; it must have scores of classes, and one network."""
    found = tagger if isinstance(tagger, Tagger) else load_tagger(tagger, network_file=network_file)
    found.require_predictions()
    if not found.class_names:
        raise ConfigError("only scores of classes can be explained; this tagger has regressions only")
    if found.num_networks > 1:
        raise ConfigError(f"{found.network_name}: its members may have different inputs; give one of them")
    return found


def read_jets(
    tagger: Tagger,
    arguments: Sequence[str],
    *,
    max_jets: int,
    further: Callable[[FileInfo], Iterable[str]],
    selection: str | None = None,
    each: Each = map,
) -> LabelledJets:
    """Read up to `max_jets` jets, spread over all files, and score them.

    `further` names columns to read from a file beside the inputs, if it has them; `selection` is a formula
    that jets must pass beside the selection of the data config.
    """
    config = tagger.data_config
    found, _ = open_files(expand_files(list(arguments)), config, tagger.require, BadFilePolicy())
    infos = [info for _, info in found]
    formula = None if selection is None else parse_formula(selection)
    extra = _common([set(further(info)) for info in infos])
    names = {*tagger.needed_names, *extra, *config.label_variables}
    parts: list[LabelledJets] = []
    for number, (info, share) in enumerate(zip(infos, shares(infos, max_jets), strict=True)):
        _require_labels(config, info)
        if formula is not None:
            _require_names(formula, config, info)
        for start, stop in slices(info.num_entries, share):
            wanted = names | set(formula.names if formula else ())
            variables = read_variables(config, wanted, info, start, stop)
            parts.append(_scored(tagger, variables, formula, number, each))
    return _joined(parts, tagger, extra, tuple(without_secrets(info.url) for info in infos))


def read_entries(
    tagger: Tagger,
    argument: str,
    entries: Sequence[int],
    *,
    further: Callable[[FileInfo], Iterable[str]],
    selection: str | None = None,
    each: Each = map,
) -> LabelledJets:
    """Read some entries of a file, or, without entries, the first jet that passes a selection.

    Labels are optional. Jets that cannot be scored are an error.
    """
    config = tagger.data_config
    found, _ = open_files(expand_files([argument]), config, tagger.require, BadFilePolicy())
    if len(found) != 1:
        raise ConfigError(f"{argument}: {len(found)} files; give only one")
    ((_, info),) = found
    extra = set(further(info))
    with_labels = not missing_branches(config, config.label_variables, info)
    formula = None if selection is None else parse_formula(selection)
    if formula is not None:
        _require_names(formula, config, info)
    names = {*tagger.needed_names, *extra, *(config.label_variables if with_labels else ())}
    names |= set(formula.names if formula else ())
    for entry in entries:
        if entry >= info.num_entries:
            raise DataError(f"{info.where} has no entry {entry}: it has {info.num_entries:,}, counted from 0")
    ranges = [(entry, entry + 1) for entry in dict.fromkeys(entries)] or info.chunks
    parts: list[LabelledJets] = []
    for start, stop in ranges:
        variables = read_variables(config, names, info, start, stop)
        if formula is not None:
            passing = np.flatnonzero(variables.per_jet("--selection", formula) != 0)
            if not len(passing):
                continue
            variables = variables.take(passing[:1])
        part = _scored(tagger, variables, None, 0, each, with_labels=with_labels, strict=False)
        if not len(part):
            raise DataError(
                f"{info.where}, entry {variables.entries[0]}: this jet has no scores; it is not selected, or "
                "an input is not finite"
            )
        parts.append(part)
        if formula is not None:
            break
    if not parts:
        raise DataError(f"{info.where}: no jet passes --selection {selection!r}")
    return _joined(parts, tagger, extra, (without_secrets(info.url),))


def shares(files: Sequence[FileInfo], max_jets: int) -> list[int]:
    """Return how many entries to read of each file: all, or a share in proportion to its entries."""
    total = sum(file.num_entries for file in files)
    if total <= max_jets:
        return [file.num_entries for file in files]
    return [max(1, max_jets * file.num_entries // total) if file.num_entries else 0 for file in files]


def slices(num_entries: int, share: int) -> list[tuple[int, int]]:
    """Return ranges of entries, spread over a file, that have `share` entries together."""
    if share >= num_entries:
        return [(0, num_entries)] if num_entries else []
    num_slices = min(MAX_SLICES, share)
    starts = [number * num_entries // num_slices for number in range(num_slices)]
    sizes = [
        share * (number + 1) // num_slices - share * number // num_slices for number in range(num_slices)
    ]
    return [(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def _require_labels(config: DataConfig, info: FileInfo) -> None:
    if missing_branches(config, config.label_variables, info):
        raise DataError(
            f"{info.where} has no labels ({', '.join(config.label_variables[:3])}, ...): an explanation "
            "needs jets whose class is known; `partt show` draws jets without labels"
        )


def _require_names(formula: Formula, config: DataConfig, info: FileInfo) -> None:
    unknown = [name for name in formula.names if name not in config.formulas and name not in info.branches]
    if unknown:
        raise ConfigError(
            f"--selection: {info.where} has no {unknown[0]!r}{did_you_mean(unknown[0], list(info.branches))}"
        )
    require_branches(config, formula.names, info)


def _scored(
    tagger: Tagger,
    variables: Variables,
    formula: Formula | None,
    file: int,
    each: Each,
    *,
    with_labels: bool = True,
    strict: bool = True,
) -> LabelledJets:
    """Return the jets that are selected and can be scored; if strict, only those with a label."""
    config = tagger.data_config
    passes = passes_selection(config, variables, "predict")
    if formula is not None:
        passes = passes & (variables.per_jet("--selection", formula) != 0)
    variables = variables.take(np.flatnonzero(passes))
    labels = labels_of(config, variables, strict=False) if with_labels else np.full(variables.num_jets, -1)
    probabilities = tagger.tag(variables, each=each).probabilities
    kept = np.isfinite(probabilities).all(axis=1) & ((labels >= 0) | (not strict))
    jets = LabelledJets(
        variables,
        labels,
        probabilities,
        (),
        np.full(variables.num_jets, file),
        variables.entries,
    )
    return jets.take(np.flatnonzero(kept))


def _joined(
    parts: Sequence[LabelledJets], tagger: Tagger, extra: Iterable[str], files: tuple[str, ...]
) -> LabelledJets:
    num_jets = sum(map(len, parts))
    if num_jets == 0:
        raise DataError(f"{', '.join(files[:3])}: no jet is selected and has finite inputs")
    filled = [part for part in parts if len(part)]
    # Columns of the inputs are computed here, once: changing one of them then changes no other.
    names = {*filled[0].variables.branches, *tagger.data_config.input_names, *extra}
    columns: dict[str, Column] = {}
    for name in sorted(names):
        found = [_with_axis(part.variables[name], len(part)) for part in filled]
        columns[name] = concatenate(found)
    url = files[0] if len(files) == 1 else f"{len(files)} files"
    joined = Variables(columns, tagger.data_config.formulas, url, np.arange(num_jets))
    return LabelledJets(
        joined,
        np.concatenate([part.labels for part in filled]),
        np.concatenate([part.probabilities for part in filled]),
        files,
        np.concatenate([part.file_of_jet for part in filled]),
        np.concatenate([part.entries for part in filled]),
    )


def _with_axis(column: Column, num_jets: int) -> Column:
    return column if isinstance(column, Jagged) or np.ndim(column) else np.full(num_jets, column)


def _common(sets: Sequence[set[str]]) -> set[str]:
    return set.intersection(*sets) if sets else set()
