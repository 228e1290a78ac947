"""Files to predict: which can be read, and which columns each contributes."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from partt.config import did_you_mean
from partt.data.config.data_config import DataConfig, with_input
from partt.data.files.info import FileInfo, is_number_type
from partt.data.files.lists import InputFile
from partt.data.files.tables import MAX_CHUNK
from partt.data.jet_files import EventFile
from partt.data.reading.jet_source import BadFile, BadFilePolicy, check_losses, open_files
from partt.data.variables import missing_branches, require_branches
from partt.errors import ConfigError, DataError
from partt.jobs.progress import Progress
from partt.prediction.options import Options
from partt.scores.columns import event_column, label_columns, own_columns
from partt.tagger.tagger import Tagger

EVENT_IDS, MOMENTUM = ("run", "luminosityBlock", "event"), ("pt", "eta", "phi", "mass")  # of NanoAOD
CHUNK_ENTRIES = MAX_CHUNK  # that are read, sorted by length and scored together


@dataclass(frozen=True)
class OpenedFile:
    """A file to predict, and what is taken from it."""

    info: FileInfo
    sample: str  # NAME in NAME:GLOB
    observers: tuple[str, ...]  # variables to copy
    keep: tuple[str, ...]  # branches to copy
    has_labels: bool
    targets: tuple[str, ...] = ()  # of the tagger's regressions, whose true values it has
    tree: str = ""  # if it was named

    @property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """Entry ranges; one even for an empty file: its output has columns too."""
        return self.info.chunks or ((0, 0),)

    @property
    def jets(self) -> str:
        """The collection of jets, if entries are events."""
        return self.info.input_map.jets if isinstance(self.info, EventFile) else ""

    @property
    def per_event(self) -> tuple[str, ...]:
        """Observers and branches to keep with one value per event."""
        names = self.info.per_event if isinstance(self.info, EventFile) else ()
        return tuple(name for name in dict.fromkeys([*self.observers, *self.keep]) if name in names)


@dataclass(frozen=True)
class OpenedFiles:
    """All files that can be predicted, the bad ones, and columns that cannot be copied."""

    files: tuple[OpenedFile, ...]
    bad_files: tuple[BadFile, ...]
    left_out: tuple[str, ...]  # "name (why)"


def open_inputs(
    inputs: Sequence[InputFile],
    tagger: Tagger,
    options: Options,
    policy: BadFilePolicy,
    progress: Progress | None = None,
) -> OpenedFiles:
    """Open all files and find out what they contain.

    Every file must have the inputs of the network and of the selection, and what targets are factors of.
    Observers and kept branches that one file has must be in all of them; observers that no file has are left
    out.
    """
    config, class_names = with_input(tagger.data_config, options.input), tagger.class_names
    if config.input is not None:
        _refuse_for_events(options)
    good, bad = open_files(inputs, config, tagger.require, policy, max_chunk=CHUNK_ENTRIES, progress=progress)
    infos = [info for _, info in good]
    trees = {file.url: file.tree or "" for file in inputs}
    taken = own_columns(class_names, options.discriminants, embeddings=options.embeddings, tasks=tagger.tasks)
    if config.input is not None:
        taken += [event_column(config.input.jets, name) for name in taken]
    observers, absent = _observers(tagger, infos)
    kept, unreadable = _kept(options.keep, infos)
    kept += [name for name in _identifying(infos) if name not in kept]
    observers, kept = (_fewer_lists(names, infos, unreadable) for names in (observers, kept))
    clashes = {name: "a column of the output has this name" for name in [*observers, *kept] if name in taken}
    labels = label_columns(class_names)
    left_out = absent | unreadable | {name: why for name, why in clashes.items() if name not in labels}
    observers = [name for name in observers if name not in taken]
    kept = [name for name in kept if name not in [*taken, *observers]]

    files: list[OpenedFile] = []
    for sample, info in good:
        try:
            _require(config, observers, kept, info)
        except DataError as error:
            if not policy.skip:
                raise
            bad.append(BadFile(info.url, str(error)))
            continue
        has_labels = bool(class_names) and not missing_branches(config, config.label_variables, info)
        targets = _targets(tagger, info)
        tree = trees[info.url]
        files.append(OpenedFile(info, sample, tuple(observers), tuple(kept), has_labels, targets, tree))
    check_losses(inputs, [(file.sample, file.info) for file in files], bad, policy)
    return OpenedFiles(tuple(files), tuple(bad), tuple(f"{name} ({why})" for name, why in left_out.items()))


def _refuse_for_events(options: Options) -> None:
    """Raise an error for what outputs of events cannot have."""
    if options.apply_selection:
        raise ConfigError(
            "--apply-selection: an event keeps all its jets, in order; those that are not selected get NaN"
        )
    if options.embeddings:
        raise ConfigError("--embeddings: outputs of events have single numbers of jets only")


def _identifying(infos: Sequence[FileInfo]) -> list[str]:
    """Return the branches by which others know events and their jets; outputs of events have them."""
    events = [info for info in infos if isinstance(info, EventFile)]
    wanted = [*EVENT_IDS, *(f"{events[0].input_map.jets}_{name}" for name in MOMENTUM)] if events else []
    return [name for name in wanted if all(name in info.branches for info in events)]


def _fewer_lists(names: Sequence[str], infos: Sequence[FileInfo], left_out: dict[str, str]) -> list[str]:
    """Return the names without lists of particles, which outputs of events cannot have."""
    lists = {
        name
        for info in infos
        if isinstance(info, EventFile)
        for name in names
        if info.branches.get(name, "").endswith("[]")
    }
    left_out |= dict.fromkeys(lists, "a list of particles for each jet")
    return [name for name in names if name not in lists]


def _targets(tagger: Tagger, info: FileInfo) -> tuple[str, ...]:
    """Return the targets of a tagger's regressions whose true values can be computed from a file."""
    config = tagger.data_config
    return tuple(
        target
        for target in dict.fromkeys(task.target for task in tagger.regressions)
        if not missing_branches(config, config.variables_of_targets([target]), info)
    )


def _observers(tagger: Tagger, infos: Sequence[FileInfo]) -> tuple[list[str], dict[str, str]]:
    """Return the observers, weights and factors that some file has, and the observers that none has."""
    config = tagger.data_config
    wanted = list(dict.fromkeys([*config.observers, *_weight_branches(config), *tagger.factors]))
    found = [name for name in wanted if any(not missing_branches(config, [name], info) for info in infos)]
    return found, {name: "in no file" for name in config.observers if name not in found and infos}


def _kept(patterns: Sequence[str], infos: Sequence[FileInfo]) -> tuple[list[str], dict[str, str]]:
    """Return the branches that patterns match, and those that cannot be read."""
    types = {name: kind for info in reversed(infos) for name, kind in info.branches.items()}
    kept: list[str] = []
    unreadable: dict[str, str] = {}
    for pattern in patterns:
        names = [name for name in types if fnmatchcase(name, pattern)]
        if not names and infos:
            raise ConfigError(f"--keep {pattern!r} matches no branch{did_you_mean(pattern, list(types))}")
        if pattern in names and not is_number_type(types[pattern]):
            raise ConfigError(
                f"--keep {pattern!r}: {types[pattern]}; only numbers and lists of numbers can be kept"
            )
        kept += [name for name in names if is_number_type(types[name])]
        unreadable |= {name: types[name] for name in names if not is_number_type(types[name])}
    return list(dict.fromkeys(kept)), unreadable


def _require(config: DataConfig, observers: Sequence[str], kept: Sequence[str], info: FileInfo) -> None:
    require_branches(config, observers, info)
    missing = [name for name in kept if name not in info.branches]
    if missing:
        raise DataError(f"{info.where} lacks branches that --keep asks for: {', '.join(missing)}")


def _weight_branches(config: DataConfig) -> tuple[str, ...]:
    precomputed = config.weights is not None and config.weights.use_precomputed_weights
    return config.weights.weight_branches if config.weights is not None and precomputed else ()
