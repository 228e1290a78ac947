"""Files of events -> jets, through an input map: every variable of the map becomes a branch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partt.conversion.dataset import Dataset
from partt.data.config.input_map import InputMap
from partt.data.files.lists import expand_files
from partt.data.jagged import Table
from partt.data.jet_files import count_jets, inspect_jets, read_jets
from partt.errors import DataError


@contextmanager
def open_events(path: Path, input_map: InputMap, tree: str | None = None) -> Iterator[Dataset]:
    """Yield the jets of a file of events, chunk by chunk."""
    (named,) = expand_files([str(path)], tree)
    file = inspect_jets(named.url, named.tree or input_map.tree, input_map)
    missing = [f"{name}{file.hint(name)}" for name in input_map.variables if name not in file.branches]
    if missing:
        raise DataError(f"{file.where} lacks branches for {', '.join(missing)}")

    def tables() -> Iterator[Table]:
        for start, stop in file.chunks or ((0, 0),):
            yield read_jets(file, list(input_map.variables), start, stop).columns

    yield Dataset(count_jets(file), tables())
