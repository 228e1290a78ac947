"""`partt convert` as a function: files of a public dataset -> ROOT files with every event."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from partt.atomic_files import refuse_foreign
from partt.conversion.dataset import Dataset
from partt.conversion.event_files import open_events
from partt.conversion.jetclass_npz import open_jetclass_npz
from partt.conversion.quark_gluon import open_quark_gluon
from partt.data.config.input_map import InputMap, asked_input_map
from partt.data.files.tables import inspect_file, read_note, write_table
from partt.data.jagged import Table, num_jets
from partt.errors import ConfigError, DataError, OutputError
from partt.jobs.output_folder import writing_to

DatasetFormat: TypeAlias = Literal["toplandscape", "quarkgluon", "jetclass-npz", "events"]
Progress = Callable[[int, int], None]  # jets written, jets in all files
MAKER = "partt convert"
_Opener: TypeAlias = Callable[[Path], AbstractContextManager[Dataset]]


def convert(
    dataset_format: DatasetFormat,
    inputs: Sequence[Path],
    out: Path,
    progress: Progress = lambda _done, _total: None,
    *,
    input: InputMap | str | None = None,  # noqa: A002
    tree: str | None = None,
    overwrite: bool = False,
) -> dict[Path, int]:
    """Convert files; return the number of jets in each ROOT file.

    Files of events need an input map, its name or path; `tree` is another tree than that of the map.

    If `out` ends in .root, it becomes one file with the jets of all inputs, in order. Otherwise it is a
    folder, with a ROOT file for each input. Files that were not made by `convert` are replaced only with
    `overwrite`, inputs never.
    """
    open_dataset = _opener(dataset_format, input, tree)
    sources = {out: _different(inputs)} if out.suffix == ".root" else _one_output_each(inputs, out)
    for path in sources:
        if os.path.realpath(path) in map(os.path.realpath, inputs):
            raise ConfigError(f"{path} is an input and would be replaced; choose another --out")
        refuse_foreign(path, MAKER, _is_converted, overwrite=overwrite)
    total = sum(_count_jets(open_dataset, path) for path in inputs)  # also finds unreadable files at once
    done = 0

    def add_progress(jets: int) -> None:
        nonlocal done
        done += jets
        progress(done, total)

    with writing_to(out.parent if out.suffix == ".root" else out, list(sources)):
        return {path: _write(open_dataset, parts, path, add_progress) for path, parts in sources.items()}


def _different(inputs: Sequence[Path]) -> list[Path]:
    """Return the inputs of a single file, or an error: jets of a repeated one would be there twice."""
    given: set[str] = set()
    for path in inputs:
        if os.path.realpath(path) in given:
            raise ConfigError(f"{path} is given twice, so its jets would be written twice; give it once")
        given.add(os.path.realpath(path))
    return list(inputs)


def _is_converted(path: Path) -> bool:
    return bool(json.loads(read_note(str(path)) or "{}").get("made_by") == MAKER)


def _opener(dataset_format: DatasetFormat, asked: InputMap | str | None, tree: str | None) -> _Opener:
    if dataset_format == "events":
        input_map = asked_input_map(asked)
        if not isinstance(input_map, InputMap):
            raise ConfigError("events need an input map: --input pfnano-ak8, or --input MAP.yaml")
        return partial(open_events, input_map=input_map, tree=tree)
    if asked is not None or tree is not None:
        raise ConfigError(f"--input and --tree are for events, not for {dataset_format}")
    if dataset_format == "quarkgluon":
        return open_quark_gluon
    if dataset_format == "jetclass-npz":
        return open_jetclass_npz
    try:
        from partt.conversion.top_landscape import open_top_landscape  # noqa: PLC0415 - h5py is optional
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'partt[convert]'") from error
    return open_top_landscape


def _one_output_each(inputs: Sequence[Path], folder: Path) -> Mapping[Path, list[Path]]:
    sources: dict[Path, list[Path]] = {}
    for path in inputs:
        target = folder / f"{path.stem}.root"
        if target in sources:
            both = f"{sources[target][0]} and {path}"
            raise ConfigError(f"{both} would both become {target}; rename one of them")
        sources[target] = [path]
    return sources


def _count_jets(open_dataset: _Opener, path: Path) -> int:
    with open_dataset(path) as dataset:
        return dataset.num_jets


def _write(
    open_dataset: _Opener, inputs: Sequence[Path], out: Path, add_progress: Callable[[int], None]
) -> int:
    """Write one ROOT file, and compare the number of jets with that of the inputs."""
    expected = 0

    def tables() -> Iterator[Table]:
        nonlocal expected
        done = 0
        for path in inputs:
            with open_dataset(path) as dataset:
                expected += dataset.num_jets
                for table in dataset.tables:
                    yield table
                    done += num_jets(table)
                    add_progress(num_jets(table))
            if done != expected:
                raise DataError(f"{path}: {expected - done} jets are missing")

    note = json.dumps({"made_by": MAKER, "inputs": [str(path) for path in inputs]})
    write_table(out, tables(), note=lambda: note)
    found = inspect_file(str(out)).num_entries
    if found != expected:
        out.unlink()
        raise OutputError(f"{out}: {expected} jets were written, {found} found; is the disk faulty?")
    return found
