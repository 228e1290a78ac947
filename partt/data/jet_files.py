"""Files -> columns of jets: entries that are jets as they are, events through an input map.

The only module that knows of events. A file of events is an `EventFile`, a FileInfo whose branches are those
of jets and whose entries are events; every jet has the number of its event.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from partt.config import did_you_mean
from partt.data.config.input_map import InputMap, Link
from partt.data.files.info import FileInfo, is_number_type, make_chunks, share_offsets
from partt.data.files.lists import InputFile
from partt.data.files.tables import MAX_CHUNK, inspect_file, read_columns, read_events
from partt.data.formulas.column_functions import LengthsDisagreeError
from partt.data.formulas.expressions import evaluate, parse_formula
from partt.data.jagged import AnyColumn, Column, Jagged, Nested
from partt.data.linking import LinkedRows, LinkError, arranged, by_indices, by_references, by_table
from partt.errors import ConfigError, DataError, ParttError

if TYPE_CHECKING:  # evaluation, which reads files of events, does without torch
    from partt.data.config.data_config import DataConfig

Ints = npt.NDArray[np.int64]

MAX_EVENTS = 1024  # of a chunk: PFNano has 2000 candidates in an event
IDS = "fUniqueID"


@dataclass(frozen=True)
class EventFile(FileInfo):
    """A file of events as one of jets: `branches` are those of jets, entries and chunks those of events."""

    input_map: InputMap
    in_file: Mapping[str, str]  # name in formulas -> branch
    per_event: frozenset[str]  # branches with one value per event
    counter: str  # a branch with one value per jet

    def hint(self, name: str, others: Collection[str] = ()) -> str:
        """Say which branches of the file a variable of the map needs, and what is missing."""
        if name not in self.input_map.variables:
            return super().hint(name, others)
        missing = sorted(_raw_names(self.input_map, [name]) - self.in_file.keys())
        nearest = [f"{text}{did_you_mean(text, list(self.in_file))}" for text in missing]
        return f" (which the input map makes from {', '.join(nearest)})"


@dataclass(frozen=True, eq=False)
class JetRows:
    """Columns of jets, and the entry of each."""

    columns: dict[str, Column]
    entries: Ints  # (N,)


def open_jets(file: InputFile, config: "DataConfig", max_chunk: int = MAX_CHUNK) -> FileInfo:
    """Return what a file holds, seen through the input map of the config if there is one.

    The tree is that of the file argument, or else that of the map or the config.
    """
    of_map = None if config.input is None else config.input.tree
    return inspect_jets(file.url, file.tree or of_map or config.treename, config.input, max_chunk)


def inspect_jets(
    url: str, tree: str | None = None, input_map: InputMap | None = None, max_chunk: int = MAX_CHUNK
) -> FileInfo:
    """Return what a file holds: of events, what the map makes of it."""
    if input_map is None:
        return inspect_file(url, tree, max_chunk)
    info = inspect_file(url, tree, min(max_chunk, MAX_EVENTS))
    view = _view(input_map.key, tuple(info.branches.items()))
    if view.counter is None:
        known = sorted(
            {name.split("_")[0] for name, kind in view.in_file_types.items() if kind.endswith("[]")}
        )
        raise DataError(
            f"{info.where} has no collection {input_map.jets!r}, which the input map takes as jets"
            f"{did_you_mean(input_map.jets, known)}; its lists: {', '.join(known[:30]) or 'none'}"
        )
    return EventFile(
        info.url,
        info.tree,
        info.num_entries,
        view.branches,
        info.chunks,
        info.identity,
        input_map,
        view.in_file,
        view.per_event,
        view.counter,
    )


def inspect_again(file: FileInfo) -> FileInfo:
    """Return what a file holds, if some of its entries were left out."""
    input_map = file.input_map if isinstance(file, EventFile) else None
    return inspect_jets(file.url, file.tree or None, input_map)


def read_jets(file: FileInfo, names: Sequence[str], start: int, stop: int) -> JetRows:
    """Read branches of the jets in a range of entries."""
    if not isinstance(file, EventFile):
        columns = read_columns(file.url, names, start, stop, tree=file.tree or None, identity=file.identity)
        return JetRows(columns, np.arange(start, stop))
    return _EventReader(file, start, stop).read(names)


def read_per_event(file: FileInfo, names: Sequence[str], start: int, stop: int) -> dict[str, Column]:
    """Read branches of a file of events that have one value per event."""
    if not isinstance(file, EventFile) or not names:
        return {}
    found = read_events(file, [file.in_file[name] for name in names], start, stop)
    return {name: found[file.in_file[name]] for name in names}  # type: ignore[misc]


def count_jets(file: FileInfo) -> int:
    """Return the number of jets of a file, without a link or a formula."""
    if not isinstance(file, EventFile):
        return file.num_entries
    return sum(
        int(_EventReader(file, start, stop).jets[-1])
        for start, stop in make_chunks([0, file.num_entries], 10**6)
    )


# --- what a map makes of the branches of a file --------------------------------------------------------


@dataclass(frozen=True)
class _View:
    branches: Mapping[str, str]  # of jets: name -> type
    in_file: Mapping[str, str]  # name in formulas -> branch of the file
    in_file_types: Mapping[str, str]
    per_event: frozenset[str]
    counter: str | None  # a branch with a list of jets


@lru_cache(maxsize=64)
def _view(key: str, file_branches: tuple[tuple[str, str], ...]) -> _View:
    """Return what a map makes of branches; files with the same branches share the result."""
    input_map = InputMap.model_validate_json(key)
    in_file: dict[str, str] = {}
    types: dict[str, str] = {}
    for branch, kind in file_branches:
        name = branch.replace(".", "_")
        if name not in in_file or name == branch:
            in_file[name], types[name] = branch, kind
    levels = {name: level for name in types if (level := _level(input_map, name, types[name])) is not None}
    counter = next((name for name in levels if levels[name] == "jet"), None)
    empty: dict[str, Column] = {}
    for name, level in levels.items():
        values = np.empty(0, dtype=types[name].removesuffix("[]").removesuffix("[]"))
        empty[name] = Jagged(values, np.zeros(1, np.int64)) if level == "particle" else values
    branches = {
        name: types[name].replace("[]", "") + ("[]" if level == "particle" else "")
        for name, level in levels.items()
    }
    for name in input_map.variables:
        if _raw_names(input_map, [name]) <= levels.keys():
            branches[name] = _type_of(input_map, name, empty)
    per_event = frozenset(name for name, level in levels.items() if level == "event")
    return _View(branches, in_file, types, per_event - set(input_map.variables), counter)


def _level(input_map: InputMap, name: str, kind: str) -> str | None:
    """Return whether a branch has values per event, jet or particle; None: it belongs to something else."""
    if kind.endswith("[][]"):
        is_number = is_number_type(kind.removesuffix("[][]"))
        return "particle" if is_number and name.startswith(f"{input_map.jets}_") else None
    if not is_number_type(kind):
        return None
    if not kind.endswith("[]"):
        return "event"
    collections = {*input_map.particles, *(link.table for link in input_map.particles.values() if link.table)}
    if any(name.startswith(f"{collection}_") for collection in collections):
        return "particle"
    return "jet" if name.startswith(f"{input_map.jets}_") else None


def _type_of(input_map: InputMap, name: str, empty: Mapping[str, Column]) -> str:
    """Return the type of a variable, from its formula on no jets."""
    try:
        column = _Formulas(input_map, dict(empty), 0)[name]
    except (ParttError, LengthsDisagreeError):  # whoever reads it is told
        return "float32[]"
    values = column.contents if isinstance(column, Jagged) else column
    return values.dtype.name + ("[]" if isinstance(column, Jagged) else "")


def _raw_names(input_map: InputMap, names: Iterable[str]) -> set[str]:
    """Return the branches that variables of a map, and branches, need."""
    raw: set[str] = set()
    todo, seen = list(names), set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in input_map.formulas:
            raw.add(name)
            continue
        todo += input_map.formulas[name].names
        if prefix := input_map.rule_of(name):
            todo += input_map.names_in(prefix)
    return raw


class _Formulas(Mapping[str, Column]):
    """Branches of jets, and variables of a map, computed on demand and arranged by `lists` at the end."""

    def __init__(self, input_map: InputMap, columns: dict[str, Column], num_jets: int) -> None:
        self.input_map, self.columns, self.num_jets = input_map, columns, num_jets
        self._rows: dict[str, tuple[Ints, Ints, Ints]] = {}

    def __getitem__(self, name: str) -> Column:
        """Return a branch or a variable, as formulas see it."""
        if name not in self.columns:
            self.columns[name] = evaluate(self.input_map.formulas[name], self)
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.columns, **self.input_map.formulas})

    def __len__(self) -> int:
        return len({**self.columns, **self.input_map.formulas})

    def arranged(self, name: str) -> Column:
        """Return a branch or a variable; particles as their list has them."""
        column = self[name]
        prefix = self.input_map.rule_of(name) if name in self.input_map.variables else None
        if prefix is None or not isinstance(column, Jagged):
            return column
        if prefix not in self._rows:
            rule = self.input_map.lists[prefix]
            kept, by = (self._of_list(text, column, name) for text in (rule.select, rule.sort_by))
            self._rows[prefix] = (column.offsets, *arranged(column.offsets, kept, by))
        offsets, rows, new_offsets = self._rows[prefix]
        if not np.array_equal(offsets, column.offsets):
            raise DataError(f"{name} has different numbers of particles from the other variables {prefix}_*")
        return Jagged(column.contents[rows], new_offsets)

    def _of_list(self, text: str | None, column: Jagged, name: str) -> npt.NDArray[np.generic] | None:
        if text is None:
            return None
        found = evaluate(parse_formula(text), self)
        if not isinstance(found, Jagged) or not np.array_equal(found.offsets, column.offsets):
            raise ConfigError(f"input map: `{text}` must have one value for each particle of {name}")
        return found.contents


# --- reading events ------------------------------------------------------------------------------------


class _EventReader:
    """A range of events: branches that were read, and jets."""

    def __init__(self, file: EventFile, start: int, stop: int) -> None:
        self.file, self.input_map, self.start, self.stop = file, file.input_map, start, stop
        self._read: dict[str, AnyColumn] = {}
        self.jets: Ints = self._list(file.counter).offsets  # (E + 1,)

    def read(self, names: Sequence[str]) -> JetRows:
        """Return variables of the map, and branches, of the jets."""
        for name in names:
            if name not in self.file.branches:
                raise DataError(f"{self.file.where} has no branch {name!r}{self.file.hint(name)}")
        raw = sorted(_raw_names(self.input_map, names))
        links = self._links(raw)
        self._load([*raw, *(name for item in links.items() for name in self._link_names(*item))])
        linked = self._linked(links)
        columns = {name: self._with_sentinel(name, self._of_jets(name, linked)) for name in raw}
        formulas = _Formulas(self.input_map, columns, int(self.jets[-1]))
        found: dict[str, Column] = {}
        for name in names:
            try:
                found[name] = formulas.arranged(name)
            except LengthsDisagreeError as error:
                raise DataError(f"{self.file.url}: {name} of the input map: {error}") from error
            except ParttError as error:
                raise type(error)(f"{self.file.url}: {name} of the input map: {error}") from error
        entries = np.repeat(np.arange(self.start, self.stop), np.diff(self.jets))
        return JetRows(share_offsets(found), entries)  # type: ignore[arg-type]

    # --- branches ---

    def _load(self, names: Iterable[str]) -> None:
        wanted = [name for name in dict.fromkeys(names) if name not in self._read]
        for name in wanted:
            if name not in self.file.in_file:
                near = did_you_mean(name, list(self.file.in_file))
                raise DataError(f"{self.file.where} has no branch {name!r}{near}, which the input map needs")
        branches = [self.file.in_file[name] for name in wanted]
        found = read_events(self.file, branches, self.start, self.stop) if branches else {}
        self._read |= {name: found[branch] for name, branch in zip(wanted, branches, strict=True)}

    def _list(self, name: str) -> Jagged:
        self._load([name])
        column = self._read[name]
        if not isinstance(column, Jagged):
            raise DataError(f"{self.file.where}: branch {name!r} must be a list of numbers in each event")
        return column

    def _of_jets(self, name: str, linked: Mapping[str, LinkedRows]) -> Column:
        """Return a branch with one element per jet: repeated, flattened, or linked to its jets."""
        column = self._read[name]
        if isinstance(column, Nested):
            self._check_counts(name, column.offsets)
            return column.jets
        if not isinstance(column, Jagged):
            return np.repeat(column, np.diff(self.jets), axis=0)
        for collection, rows in linked.items():
            link = self.input_map.particles[collection]
            if name.startswith(f"{collection}_"):
                self._check_counts(name, column.offsets, self._counter(collection))
                return Jagged(column.contents[rows.rows], rows.offsets)
            if name.startswith(f"{link.table}_"):
                self._check_counts(name, column.offsets, f"{link.table}_{link.jet}")
                return Jagged(column.contents[rows.table_rows], rows.offsets)
        self._check_counts(name, column.offsets)
        return column.contents

    def _check_counts(self, name: str, offsets: Ints, counter: str | None = None) -> None:
        """Raise an error if a branch has other numbers of values than a counter, without one that of jets."""
        counter = counter or self.file.counter
        expected = self.jets if counter == self.file.counter else self._list(counter).offsets
        different = np.flatnonzero(offsets != expected)
        if len(different):
            event = int(different[0]) - 1
            counts = [int(np.diff(numbers)[event]) for numbers in (offsets, expected)]
            raise DataError(
                f"{self.file.url}, entry {self.start + event}: {name} has {counts[0]} values, but "
                f"{counter} has {counts[1]}; all branches of a collection need the same number of values"
            )

    def _with_sentinel(self, name: str, column: Column) -> Column:
        if name not in self.input_map.sentinels:
            return column
        sentinel, instead = self.input_map.sentinels[name]
        values = column.contents if isinstance(column, Jagged) else column
        changed = np.where(
            values == sentinel, np.asarray(instead, dtype=np.result_type(values, instead)), values
        )
        return Jagged(changed, column.offsets) if isinstance(column, Jagged) else changed

    # --- particles of jets ---

    def _links(self, raw: Iterable[str]) -> dict[str, Link]:
        """Return the links that branches need; collections that share references are linked together."""
        particles = self.input_map.particles
        prefixes = {name: (f"{name}_", f"{link.table}_") for name, link in particles.items()}
        needed = {
            collection
            for collection, starts in prefixes.items()
            if any(name.startswith(starts) for name in raw)
        }
        shared = {particles[name].references for name in needed} - {None}
        return {name: link for name, link in particles.items() if name in needed or link.references in shared}

    def _link_names(self, collection: str, link: Link) -> list[str]:
        jets = self.input_map.jets
        if link.table is not None:
            return [f"{link.table}_{part}" for part in (link.jet, link.particle) if part is not None]
        if link.references is not None:
            return [f"{jets}_{link.references}", f"{collection}_{IDS}"]
        return [f"{jets}_{name}" for name in link.indices]

    def _linked(self, links: Mapping[str, Link]) -> dict[str, LinkedRows]:
        """Return the particles of each jet, by collection."""
        linked: dict[str, LinkedRows] = {}
        lost: dict[str, npt.NDArray[np.bool_]] = {}  # references that no collection has
        for collection, link in links.items():
            try:
                if link.references is not None:
                    ids, name = self._list(self._counter(collection)), link.references
                    linked[collection], found = by_references(self._references(name), ids, self.jets)
                    lost[name] = lost.get(name, np.ones(len(found), dtype=bool)) & ~found
                else:
                    linked[collection] = self._linked_by_position(collection, link)
            except LinkError as error:
                where = f"{self.file.url}, entry {self.start + error.event}"
                raise DataError(f"{where}: particles.{collection} of the input map: {error}") from error
        for name, are_lost in lost.items():
            self._check_references(name, are_lost, list(linked))
        return linked

    def _linked_by_position(self, collection: str, link: Link) -> LinkedRows:
        particles = self._list(self._counter(collection)).offsets
        if link.table is None:
            names = [f"{self.input_map.jets}_{name}" for name in link.indices]
            return by_indices([np.asarray(self._of_jets(name, {})) for name in names], self.jets, particles)
        particle = None if link.particle is None else self._list(f"{link.table}_{link.particle}")
        return by_table(self._list(f"{link.table}_{link.jet}"), particle, self.jets, particles)

    def _counter(self, collection: str) -> str:
        """Return a branch whose lists are the particles of a collection; one that is needed, if possible."""
        if self.input_map.particles[collection].references is not None:
            return f"{collection}_{IDS}"
        for name in (*self._read, *self.file.in_file):
            if name.startswith(f"{collection}_"):
                return name
        raise DataError(f"{self.file.where} has no branches {collection}_*, which the input map needs")

    def _references(self, name: str) -> Jagged:
        branch = f"{self.input_map.jets}_{name}"
        column = self._of_jets(branch, {})
        if not isinstance(column, Jagged):
            raise DataError(f"{self.file.where}: branch {branch!r} must be lists of references")
        return column

    def _check_references(self, name: str, lost: npt.NDArray[np.bool_], collections: Sequence[str]) -> None:
        if lost.any():
            references = self._references(name)
            jet = int(np.searchsorted(references.offsets, np.flatnonzero(lost)[0], side="right")) - 1
            event = int(np.searchsorted(self.jets, jet, side="right")) - 1
            raise DataError(
                f"{self.file.url}, entry {self.start + event}: {int(lost.sum())} of {len(lost)} references "
                f"of {name} lead to no particle of {', '.join(collections)}; add their collection to "
                "`particles` of the input map"
            )
