"""`partt convert` as a function: files of a public dataset -> ROOT files with every event."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from partt.conversion.dataset import Dataset
from partt.data.files.tables import inspect_file, write_table
from partt.data.jagged import Table, num_jets
from partt.errors import ConfigError, DataError, OutputError

Reader = Callable[[Path], AbstractContextManager[Dataset]]
Progress = Callable[[int, int], None]  # jets written, jets of all files


def convert(
    reader: Reader, inputs: Sequence[Path], out: Path, progress: Progress = lambda _done, _total: None
) -> dict[Path, int]:
    """Convert files; return the jets of each ROOT file.

    `out` ends in .root: one file with the jets of all inputs, one after another. Otherwise it is a folder,
    with a ROOT file for each input.
    """
    plan = {out: list(inputs)} if out.suffix == ".root" else _one_each(inputs, out)
    total = sum(_count(reader, path) for path in inputs)  # also sees, before any work, that all can be read
    done = 0

    def count(jets: int) -> None:
        nonlocal done
        done += jets
        progress(done, total)

    return {path: _convert(reader, parts, path, count) for path, parts in plan.items()}


def _one_each(inputs: Sequence[Path], out: Path) -> Mapping[Path, list[Path]]:
    plan: dict[Path, list[Path]] = {}
    for path in inputs:
        target = out / f"{path.stem}.root"
        if target in plan:
            raise ConfigError(f"{plan[target][0]} and {path} would both become {target}; rename one of them")
        plan[target] = [path]
    return plan


def _count(reader: Reader, path: Path) -> int:
    with reader(path) as dataset:
        return dataset.num_jets


def _convert(reader: Reader, inputs: Sequence[Path], out: Path, count: Callable[[int], None]) -> int:
    """Write one ROOT file; it gets its name only if it has every jet."""
    expected = 0

    def tables() -> Iterator[Table]:
        nonlocal expected
        done = 0
        for path in inputs:
            with reader(path) as dataset:
                expected += dataset.num_jets
                for table in dataset.tables:
                    yield table
                    done += num_jets(table)
                    count(num_jets(table))
            if done != expected:
                raise DataError(f"{path}: {expected - done} jets are missing")

    write_table(out, tables())
    found = inspect_file(str(out)).num_entries
    if found != expected:
        out.unlink()
        raise OutputError(f"{out}: {expected} jets were written, {found} are there; is the disk sound?")
    return found
