"""What a prediction is asked for: options, files, and which columns each file can give."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from partt.config import did_you_mean
from partt.data.config.data_config import DataConfig
from partt.data.files.info import FileInfo, is_number_type
from partt.data.files.lists import InputFile
from partt.data.files.tables import MAX_CHUNK
from partt.data.reading.jet_source import BadFile, BadFilePolicy, Progress, check_losses, open_files
from partt.data.variables import missing_branches, names_for_index, require_branches
from partt.errors import ConfigError, DataError
from partt.scores.discriminants import Discriminant
from partt.scores.scores import column_names, own_columns

CHUNK_ENTRIES = MAX_CHUNK  # that are read, sorted by length and scored together


@dataclass(frozen=True)
class Options:
    """What goes into the outputs."""

    discriminants: tuple[Discriminant, ...] = ()
    keep: tuple[str, ...] = ()  # patterns of further branches
    embeddings: bool = False
    apply_selection: bool = False  # leave out the jets that are not selected
    format: Literal["root", "parquet"] = "root"

    def describe(self) -> dict[str, Any]:
        """Return the options as they stand in records."""
        return {
            "discriminants": [item.name for item in self.discriminants],
            "keep": list(self.keep),
            "embeddings": self.embeddings,
            "apply_selection": self.apply_selection,
            "format": self.format,
        }


@dataclass(frozen=True)
class InputPlan:
    """A file to predict, and what is taken from it."""

    file: FileInfo
    group: str  # the name that it was given with
    observers: tuple[str, ...]  # variables that are carried along
    keep: tuple[str, ...]  # branches that are carried along
    has_labels: bool
    weight_branches: tuple[str, ...]  # that weight its jets

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """Entry ranges, one even of a file without entries: its output has columns too."""
        return self.file.chunks or ((0, 0),)


@dataclass(frozen=True)
class ChunkTask:
    """A range of entries of one file."""

    number: int  # of the file
    plan: InputPlan
    start: int
    stop: int


@dataclass(frozen=True)
class OpenedInputs:
    """The files that can be predicted, the others, and what is not carried along though it was asked for."""

    plans: tuple[InputPlan, ...]
    bad_files: tuple[BadFile, ...]
    left_out: tuple[str, ...]  # "name (why)"


def open_inputs(
    inputs: Sequence[InputFile],
    config: DataConfig,
    options: Options,
    policy: BadFilePolicy,
    progress: Progress | None = None,
) -> OpenedInputs:
    """Open all files and see what they can give.

    What the network needs, and what selects jets, must be in every file. What is carried along must be in
    every file that is read if one of them has it; observers that none has are left out.
    """
    needed = {*config.input_names} | names_for_index(config, "predict")
    good, bad = open_files(inputs, config, needed, policy, max_chunk=CHUNK_ENTRIES, progress=progress)
    files = [info for _, info in good]
    taken = own_columns(config.class_names, options.discriminants, labels=True, embeddings=options.embeddings)
    observers, absent = _observers(config, files)
    kept, unreadable = _kept(options.keep, files)
    carried = {name: "a column of the output has this name" for name in [*observers, *kept] if name in taken}
    labels = {f"label_{name}" for name in column_names(config.class_names)}
    left_out = absent | unreadable | {name: why for name, why in carried.items() if name not in labels}
    observers = [name for name in observers if name not in taken]
    kept = [name for name in kept if name not in [*taken, *observers]]

    plans: list[InputPlan] = []
    for group, file in good:
        try:
            _require(config, observers, kept, file)
        except DataError as error:
            if not policy.skip:
                raise
            bad.append(BadFile(file.url, str(error)))
            continue
        plans.append(_plan(config, file, group, observers, kept))
    check_losses(inputs, [(plan.group, plan.file) for plan in plans], bad, policy)
    return OpenedInputs(tuple(plans), tuple(bad), tuple(f"{name} ({why})" for name, why in left_out.items()))


def chunk_tasks(plans: Sequence[InputPlan], leave_out: Container[int] = ()) -> Iterator[ChunkTask]:
    """Yield the chunks of all files in order; files may be added to `leave_out` meanwhile."""
    for number, plan in enumerate(plans):
        for start, stop in plan.chunks:
            if number not in leave_out:
                yield ChunkTask(number, plan, start, stop)


def _observers(config: DataConfig, files: Sequence[FileInfo]) -> tuple[list[str], dict[str, str]]:
    """Return the variables to carry along that some file has, and those that none has."""
    wanted = list(dict.fromkeys([*config.observers, *_weight_branches(config)]))
    found = [name for name in wanted if any(not missing_branches(config, [name], file) for file in files)]
    return found, {name: "in no file" for name in config.observers if name not in found and files}


def _kept(patterns: Sequence[str], files: Sequence[FileInfo]) -> tuple[list[str], dict[str, str]]:
    """Return the branches that patterns match, and those that cannot be read."""
    types = {name: kind for file in reversed(files) for name, kind in file.branches.items()}
    kept: list[str] = []
    unreadable: dict[str, str] = {}
    for pattern in patterns:
        names = [name for name in types if fnmatchcase(name, pattern)]
        if not names and files:
            raise ConfigError(f"--keep {pattern!r} matches no branch{did_you_mean(pattern, list(types))}")
        if pattern in names and not is_number_type(types[pattern]):
            raise ConfigError(
                f"--keep {pattern!r}: {types[pattern]}; only numbers and lists of them can be kept"
            )
        kept += [name for name in names if is_number_type(types[name])]
        unreadable |= {name: types[name] for name in names if not is_number_type(types[name])}
    return list(dict.fromkeys(kept)), unreadable


def _require(config: DataConfig, observers: Sequence[str], kept: Sequence[str], file: FileInfo) -> None:
    require_branches(config, observers, file)
    lacking = [name for name in kept if name not in file.branches]
    if lacking:
        raise DataError(f"{file.where} lacks branches that --keep asks for: {', '.join(lacking)}")


def _plan(
    config: DataConfig, file: FileInfo, group: str, observers: Sequence[str], kept: Sequence[str]
) -> InputPlan:
    weights = _weight_branches(config)
    return InputPlan(
        file,
        group,
        tuple(observers),
        tuple(kept),
        has_labels=not missing_branches(config, config.label_variables, file),
        weight_branches=() if missing_branches(config, weights, file) else weights,
    )


def _weight_branches(config: DataConfig) -> tuple[str, ...]:
    precomputed = config.weights is not None and config.weights.use_precomputed_weights
    return config.weights.weight_branches if config.weights is not None and precomputed else ()
