"""Awkward arrays of jets, or of events with jets -> variables of a data config; results are nested like them.

The branch `part_px` is the field `part_px`, or the field `px` of the field `part`, at any depth.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import awkward as ak
import numpy as np

from partt.config import did_you_mean
from partt.data.config.data_config import DataConfig, branches_to_read
from partt.data.jagged import Array, Column, from_awkward
from partt.data.variables import Variables, renamed_branch
from partt.errors import DataError

FieldPath = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class EventJets:
    """The jets of all events, flattened."""

    variables: Variables
    counts: tuple[Array, ...]  # lengths of the lists that contain the jets, outermost first
    known: Array | None = None  # positions of the entries that are not None, if some are
    num_entries: int = 0  # with those that are None

    def nest(self, columns: Mapping[str, Array]) -> ak.Array:
        """Return values per jet as records, nested like the events.

        Entries that are None stay None if they are events, and are NaN if they are jets.
        """
        if self.known is not None and not self.counts:
            columns = {
                name: _filled(values, self.known, self.num_entries) for name, values in columns.items()
            }
        nested = ak.zip(dict(columns))
        for counts in reversed(self.counts):
            nested = ak.unflatten(nested, counts)
        if self.known is not None and self.counts:
            places = np.full(self.num_entries, -1)
            places[self.known] = np.arange(len(self.known))
            nested = nested[ak.mask(ak.Array(places), places >= 0)]
        return nested


def _filled(values: Array, known: Array, num_entries: int) -> Array:
    filled = np.full(num_entries, np.nan, dtype=values.dtype)
    filled[known] = values
    return filled


def jets_of_events(config: DataConfig, names: Iterable[str], events: ak.Array) -> EventJets:
    """Find the branches of the given variables in an array whose innermost lists are particles.

    Values per event, or of any other level above jets, are repeated for each jet. If the config has no
    particles, the innermost values are those of jets.
    """
    wanted = sorted(branches_to_read(config, names) - set(config.file_magic))
    if not isinstance(events, ak.Array) or not events.fields:
        raise DataError(
            "the events must be an awkward array of records with the fields that the data config needs "
            f"({', '.join(wanted)}), not {type(events).__name__}"
        )
    paths = _find(list(_paths(events)), {name: renamed_branch(config, name) for name in wanted})
    found = {name: _field(events, path) for name, path in paths.items()}
    known = np.ones(len(events), dtype=bool)
    for array in found.values():
        known &= ~ak.to_numpy(ak.is_none(array, axis=0))
    arrays = {name: _without_none(array[known], paths[name]) for name, array in found.items()}
    depth = max(array.ndim for array in arrays.values())
    if depth < 2 and config.collections:
        raise DataError(f"the events have no list of particles: {', '.join(wanted)} are single numbers")
    deepest = next(name for name, array in arrays.items() if array.ndim == depth)
    counts: list[Array] = []
    jets = arrays[deepest]
    while jets.ndim > (2 if config.collections else 1):
        counts.append(ak.to_numpy(ak.num(jets, axis=1)))
        jets = ak.flatten(jets, axis=1)
    columns = {name: _of_jets(name, array, counts, deepest) for name, array in arrays.items()}
    columns |= {name: np.zeros(len(jets)) for name in config.file_magic}  # no file name to match
    variables = Variables(columns, config.formulas, "the events", np.arange(len(jets)))
    present = None if known.all() else np.flatnonzero(known)
    return EventJets(variables, tuple(counts), present, len(events))


def _paths(array: ak.Array) -> Iterator[FieldPath]:
    for name in array.fields:
        inside = list(_paths(array[name]))
        yield from ((name, *path) for path in inside) if inside else [(name,)]


def _find(paths: Sequence[FieldPath], branches: Mapping[str, str]) -> dict[str, FieldPath]:
    """Return the path of each branch; a path whose parts join to the whole name is preferred."""
    found: dict[str, FieldPath] = {}
    known = ["_".join(path[start:]) for path in paths for start in range(len(path))]
    unused = [name for name in known if name not in branches.values()]
    missing = [f"{name}{did_you_mean(name, unused)}" for name in branches.values() if name not in known]
    if missing:
        raise DataError(f"the events lack fields that the tagger's data config needs: {', '.join(missing)}")
    for name, branch in branches.items():
        whole = [path for path in paths if "_".join(path) == branch]
        ends = [path for path in paths if branch in {"_".join(path[start:]) for start in range(len(path))}]
        found[name], *others = whole or ends
        if others:
            both = f"{'.'.join(found[name])} and {'.'.join(others[0])}"
            raise DataError(f"the events have {both} for {branch!r}; pass an array with one of them")
    return found


def _field(events: ak.Array, path: FieldPath) -> ak.Array:
    array = events
    for part in path:
        array = array[part]
    return array


def _without_none(array: ak.Array, path: FieldPath) -> ak.Array:
    if any(ak.any(ak.is_none(array, axis=axis)) for axis in range(array.ndim)):
        raise DataError(f"{'.'.join(path)} of the events has missing values (None); fill or drop them")
    array = ak.drop_none(array)
    is_untyped = str(array.type).endswith("unknown")  # awkward's type of an array without values
    return ak.values_astype(array, np.float32, including_unknown=True) if is_untyped else array


def _of_jets(name: str, array: ak.Array, counts: Sequence[Array], deepest: str) -> Column:
    """Flatten a field to one element per jet."""
    for number in counts:
        if array.ndim == 1:
            array = ak.Array(np.repeat(ak.to_numpy(array), number))
            continue
        if not np.array_equal(ak.to_numpy(ak.num(array, axis=1)), number):
            raise DataError(f"the events have different numbers of jets in {name!r} and in {deepest!r}")
        array = ak.flatten(array, axis=1)
    try:
        return from_awkward(array)
    except TypeError as error:
        raise DataError(f"{name!r} of the events: {error}") from error
