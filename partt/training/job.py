"""A training job: recipe, opened and indexed files, seed, objective; everything that decides the result."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from pydantic import ValidationError

from partt.config import did_you_mean, parse_record
from partt.data.config.data_config import DataConfig
from partt.data.files.lists import InputFile
from partt.data.files.tables import bad_files_skipped
from partt.data.jagged import Jagged, Table
from partt.data.jet_batch import concatenate
from partt.data.packing import pack
from partt.data.reading.jet_index import JetIndex, build_index, build_indexes
from partt.data.reading.jet_source import JetSource, open_source
from partt.data.reading.read_plan import Chunk, spread_jets
from partt.data.reading.splitting import Split
from partt.data.training_domain import Domain, domain_values, measure_domain
from partt.data.variables import Variables, read_variables, require_branches, select, targets_of
from partt.errors import ConfigError, DataError, ParttError, without_secrets
from partt.jet_inputs import JetInputs
from partt.jobs.progress import Progress
from partt.model.network import Network
from partt.model.network_file import NetworkCode, NetworkFile
from partt.model.registry import build_network, network_config, network_kind
from partt.model.tasks import Task
from partt.tagger.tagger import Tagger
from partt.tagger.weaver_inputs import weaver_inputs
from partt.training.objectives.classification import Classification
from partt.training.objectives.file_loss import FileLoss
from partt.training.objectives.objective import Metric, Objective
from partt.training.objectives.tasks_of_recipe import (
    Targets,
    make_objective,
    with_feature_scales,
    with_fitted_scales,
)
from partt.training.recipe import DistillationChoice, Recipe, Tasks
from partt.training.teacher import make_teacher

NUM_REFERENCE_JETS = 8
NUM_TYPICAL_JETS = 128
NUM_FIT_JETS = 10_000  # to which scales of targets are fitted
NUM_DOMAIN_CHUNKS, NUM_DOMAIN_JETS = 20, 500  # that the training domain is measured with: jets of a chunk
NOT_DECISIVE = {"data_config", "checkpoint_minutes", "keep_checkpoints"}  # keys of a recipe


@dataclass(frozen=True)
class TrainingJob:
    """What to learn from which jets."""

    recipe: Recipe
    train: JetSource
    train_index: JetIndex
    validation: JetSource
    validation_index: JetIndex
    seed: int
    objective: Objective
    initial_tagger: str = ""  # sha256 of the tagger to start from
    network_code: NetworkCode | None = None  # of a network file
    teacher: str = ""  # sha256 of the tagger that is learned from

    @property
    def network_file(self) -> NetworkFile | None:
        """The file that the network comes from, if it is the user's own."""
        return None if self.network_code is None else self.network_code.file

    def new_network(self) -> Network:
        """Build the network with new weights, drawn with torch's global generator."""
        model, config, code = self.recipe.model, self.train.config, self.network_code
        kind = network_kind(model.name) if code is None else code.kind(weaver_inputs(config))
        settings = network_config(model.name, model.settings, kind)
        return build_network(model.name, settings, config.input_shape, self.objective.heads, kind)

    @property
    def metric(self) -> Metric:
        """The validation metric that decides which epoch is the best."""
        return self.objective.metric(self.recipe.metric)

    @property
    def validation_jets_per_epoch(self) -> int:
        """Number of validation jets after each epoch."""
        return min(self.recipe.validation_jets_per_epoch or 10**18, self.validation_index.num_jets)

    @property
    def notices(self) -> list[str]:
        """What users should know before the run starts."""
        return self.objective.notices(
            jets_by_class(self.train, self.train_index), jets_by_class(self.validation, self.validation_index)
        )

    def definition(self, num_processes: int) -> dict[str, Any]:
        """Return everything that decides the result, as JSON values."""
        recipe, file = self.recipe.model_dump(mode="json"), self.network_file
        recipe["model"]["file"] = None if file is None else file.path.name  # wherever it is now
        return {
            "format_version": 1,
            "recipe": {key: value for key, value in recipe.items() if key not in NOT_DECISIVE},
            "seed": self.seed,
            "objective": type(self.objective).__name__,
            "processes": num_processes,
            "initial_tagger": self.initial_tagger,
            "teacher": self.teacher,
            "network_file": None if file is None else {"name": file.path.name, "sha256": file.sha256},
            "data_config": yaml.safe_load(self.train.config.to_yaml()),
            "train": _files(self.train, self.train_index),
            "validation": _files(self.validation, self.validation_index),
        }


def with_defaults(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the definition of a run with the keys that were added since its partt version."""
    try:
        recipe = Recipe.model_validate({"data_config": "", **definition["recipe"]}).model_dump(mode="json")
        config = parse_record(yaml.safe_dump(definition["data_config"]), DataConfig, "run.json (data config)")
        files = {  # partt 0.1 wrote URLs with their secrets
            part: {**definition[part], "files": _by_public_name(definition[part]["files"])}
            for part in ("train", "validation")
        }
    except (ParttError, ValidationError, KeyError, TypeError, AttributeError):
        return definition  # the comparison shows what is wrong with it
    if definition.get("initial_tagger") and "standardisation" not in definition["recipe"].get(
        "fine_tuning", {}
    ):
        recipe["fine_tuning"]["standardisation"] = "config"  # as runs were before there was a choice
    kept = {key: value for key, value in recipe.items() if key not in NOT_DECISIVE}
    added = {"objective": Classification.__name__, "network_file": None, "teacher": ""}
    return {**added, **definition, **files, "recipe": kept, "data_config": yaml.safe_load(config.to_yaml())}


@dataclass(frozen=True)
class ReadingOptions:
    """How to read files, and what to do with bad files and jets."""

    on_bad_file: Literal["error", "skip"] = "error"
    max_bad_fraction: float = 0.05
    on_bad_jet: Literal["error", "drop"] = "error"
    cache: Path | None = None


def open_job(
    recipe: Recipe,
    config: DataConfig,
    train_files: Sequence[InputFile],
    validation: Sequence[InputFile] | float,
    *,
    seed: int,
    reading: ReadingOptions | None = None,
    objective: Objective | None = None,
    initial_tagger: str = "",
    network_code: NetworkCode | None = None,
    teacher: Tagger | None = None,
    progress: Progress | None = None,
) -> TrainingJob:
    """Open and index all files; `validation`: files, or the fraction of the training entries to set aside.

    Scales and weights that the config leaves to a fit are fitted to the training files. The default objective
    is that of the recipe's tasks, or the loss of the network file if that has one. A `teacher` gives jets
    soft labels, which the objective of the recipe then learns.
    """
    if teacher is not None:
        if recipe.masked_particles is not None:
            raise ConfigError("--teacher: masked_particles learns from the jets alone; remove one of the two")
        recipe = recipe.replace(distillation=recipe.distillation or DistillationChoice())
    elif recipe.distillation is not None:
        raise ConfigError("distillation: there is no teacher; give one with --teacher, or remove this key")
    labeller = None if teacher is None else make_teacher(teacher, config.class_names)
    reading = reading or ReadingOptions()
    objective = objective or _file_loss(recipe, config, network_code)
    is_from_recipe = objective is None
    objective = objective or make_objective(recipe, config)
    needs_labels = objective.needs_labels
    recipe = recipe.replace(metric=objective.metric(recipe.metric).name)
    config = config.with_particle_labels(objective.particle_labels)  # others need not be in the files

    def opened(files: Sequence[InputFile], data_config: DataConfig) -> JetSource:
        return open_source(
            files,
            data_config,
            reweighting=recipe.reweighting,
            on_bad_jet="mark" if reading.on_bad_jet == "drop" else "error",
            on_bad_file=reading.on_bad_file,
            max_bad_fraction=reading.max_bad_fraction,
            cache=reading.cache,
            needs_labels=needs_labels,
            teacher=labeller,
            progress=progress,
        )

    _check_names(train_files, config)
    source = opened(train_files, config)
    if isinstance(validation, float):
        train = replace(source, split=Split("train", validation, seed))
        validation_source = replace(source, split=Split("validation", validation, seed))
        train_index, validation_index = build_indexes([train, validation_source], progress)
    else:
        both = {file.url for file in train_files} & {file.url for file in validation}
        if both:
            raise DataError(
                f"{min(both)} is given for training and for validation; remove it from one of them"
            )
        train, validation_source = source, opened(validation, source.config)
        train_index, validation_index = build_index(train, progress), build_index(validation_source, progress)
    if is_from_recipe:
        recipe = with_fitted_scales(recipe, source.config, lambda: _some_targets(train, train_index))
        recipe = with_feature_scales(recipe, source.config, lambda: typical_jets(train, train_index))
        objective = make_objective(recipe, source.config)
    _check_classes(train, train_index)
    for file in train.files:
        require_branches(config, [task.factor_of for task in objective.tasks if task.factor_of], file)
    objective.check_training(jets_by_class(train, train_index))
    job = TrainingJob(
        recipe,
        train,
        train_index,
        validation_source,
        validation_index,
        seed,
        objective,
        initial_tagger,
        network_code,
        "" if labeller is None else labeller.tagger.sha256,
    )
    objective.check_validation(validation_index, job.metric.name)
    return job


def _file_loss(recipe: Recipe, config: DataConfig, code: NetworkCode | None) -> FileLoss | None:
    loss = None if code is None else code.loss(recipe.model.settings, weaver_inputs(config))
    if code is None or loss is None:
        return None
    path, weights = code.file.path, config.weights
    if recipe.label_smoothing:
        raise ConfigError(f"label_smoothing: {path} has a loss of its own; remove this key, or get_loss")
    if recipe.distillation is not None:
        raise ConfigError(f"--teacher: {path} has a loss of its own; remove its get_loss")
    if recipe.tasks != Tasks():
        raise ConfigError(f"tasks: {path} has a loss of its own; remove this key, or get_loss")
    has_weights = weights is not None and (weights.use_precomputed_weights or recipe.reweighting == "loss")
    return FileLoss(len(config.class_names), loss, path, has_weights=has_weights)


def jets_by_class(source: JetSource, index: JetIndex) -> dict[str, int]:
    """Return the number of jets of each class; none if there are no labels."""
    if not source.has_labels:
        return {}
    return dict(zip(source.config.class_names, index.class_counts.sum(axis=0).tolist(), strict=True))


def reference_jets(source: JetSource, index: JetIndex, tasks: Sequence[Task]) -> Table:
    """Return the branches of a few selected jets, for the tagger file; what a target is a factor of, too."""
    factors = [task.factor_of for task in tasks if task.factor_of]
    chunks = [chunk for chunk in index.chunks if chunk.num_jets]
    selected = _of_first_good(source, chunks, lambda chunk: _selected(source, chunk, chunk.stop, factors))
    if selected is None:
        raise DataError(
            "every file is bad; `partt check` shows why" if chunks else "no jet passes the selection"
        )
    for task in tasks:
        if task.factor_of:
            selected.per_jet(task.factor_of)  # or an error
    chosen = list(range(min(NUM_REFERENCE_JETS, selected.num_jets)))
    for column in selected.branches.values():  # vertices are rare: add a jet that has some
        if isinstance(column, Jagged) and not column.lengths[chosen].any():
            chosen += np.flatnonzero(column.lengths)[:1].tolist()
    return selected.take(np.array(chosen)).branches


def typical_jets(source: JetSource, index: JetIndex) -> JetInputs:
    """Return the inputs of a few selected jets of every sample and class, each with its share."""
    total = sum(chunk.expected for chunk in index.chunks if chunk.num_jets)
    jets = []
    for chunks in _by_stratum(index):
        num_jets = max(1, round(NUM_TYPICAL_JETS * sum(chunk.expected for chunk in chunks) / total))
        found = _of_first_good(source, chunks, partial(_first_jets, source, num_jets=num_jets))
        if found is not None:
            jets.append(pack(source.config, found))
    if not jets:
        raise DataError("every file is bad; `partt check` shows why")
    return concatenate(jets).inputs


def training_domain(source: JetSource, index: JetIndex) -> Domain:
    """Measure the inputs of some selected jets, spread over samples, classes and files."""
    by_stratum = _by_stratum(index)
    per_stratum = -(-NUM_DOMAIN_CHUNKS // max(len(by_stratum), 1))
    parts, num_jets = [], 0
    for chunks in by_stratum:
        for chunk in chunks[:: -(-len(chunks) // per_stratum)]:
            with bad_files_skipped(source.on_bad_file.skip):
                found = _first_jets(source, chunk, NUM_DOMAIN_JETS)
                parts.append(domain_values(source.config, found))
                num_jets += found.num_jets
    return measure_domain(parts, num_jets)


def _some_targets(source: JetSource, index: JetIndex) -> Targets:
    """Read the targets of some selected jets, spread over classes and files (N, R)."""
    config, targets = source.config, []
    selection = config.selection_for("train")
    names = {*config.target_variables, *(selection.names if selection else ())}
    for chunk, num_jets in zip(index.chunks, spread_jets(index.chunks, NUM_FIT_JETS), strict=True):
        if not num_jets:
            continue
        with bad_files_skipped(source.on_bad_file.skip):
            variables = read_variables(config, names, source.files[chunk.file], chunk.start, chunk.stop)
            found = targets_of(config, select(config, variables, "train"))
            if found is not None:
                targets.append(found[:num_jets])
    return np.concatenate(targets) if targets else np.empty((0, len(config.target_names)))


def _by_stratum(index: JetIndex) -> list[list[Chunk]]:
    """Return the chunks with selected jets, together those of one sample and class."""
    by_stratum: dict[str, list[Chunk]] = {}
    for chunk in index.chunks:
        if chunk.num_jets:
            by_stratum.setdefault(chunk.stratum, []).append(chunk)
    return list(by_stratum.values())


def _of_first_good(
    source: JetSource, chunks: Iterable[Chunk], read: Callable[[Chunk], Variables]
) -> Variables | None:
    """Return what is read of the first chunk that can be, if bad files are left out; None: of none."""
    for chunk in chunks:
        with bad_files_skipped(source.on_bad_file.skip):
            return read(chunk)
    return None


def _first_jets(source: JetSource, chunk: Chunk, num_jets: int) -> Variables:
    """Read the inputs of the first selected jets of a chunk."""
    size = chunk.stop - chunk.start
    probably = min(size, -(-2 * num_jets * size // chunk.num_jets))  # entries that have so many selected jets
    selected = _selected(source, chunk, chunk.start + probably)
    if selected.num_jets < num_jets:
        selected = _selected(source, chunk, chunk.stop)
    return selected.take(np.arange(min(num_jets, selected.num_jets)))


def _selected(source: JetSource, chunk: Chunk, stop: int, others: Sequence[str] = ()) -> Variables:
    """Read inputs, and other variables, of the selected jets of a chunk, up to an entry."""
    config = source.config
    selection = config.selection_for("train")
    names = {*config.input_names, *others, *(selection.names if selection else ())}
    variables = read_variables(config, names, source.files[chunk.file], chunk.start, stop)
    return select(config, variables, "train")


def _files(source: JetSource, index: JetIndex) -> dict[str, Any]:
    return {
        "split": None if source.split is None else source.split.describe(),
        "files": _by_public_name(
            {
                file.url: [sample, file.identity, file.num_entries, num_jets]
                for file, sample, num_jets in zip(
                    source.files, source.samples, index.jets_by_file, strict=True
                )
            }
        ),
    }


def _by_public_name(files: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of files by their URL without secrets; URLs that differ in those are numbered."""
    named: dict[str, Any] = {}
    for url, facts in files.items():
        name = public = without_secrets(url)
        number = 1
        while name in named:
            number += 1
            name = f"{public} ({number})"
        named[name] = facts
    return named


def _check_names(files: Sequence[InputFile], config: DataConfig) -> None:
    """Raise an error for a sample whose name is nearly that of a class."""
    for name in dict.fromkeys(file.sample for file in files):
        same_letters = [known for known in config.class_names if known.lower() == name.lower()]
        hint = did_you_mean(name, config.class_names) or "".join(
            f" (it is {known})" for known in same_letters
        )
        if hint and not name.startswith(config.class_names):
            raise ConfigError(f"{name!r} is not a class{hint}; classes: {', '.join(config.class_names)}")


def _check_classes(source: JetSource, index: JetIndex) -> None:
    """Raise an error for a file of a sample named after a class that has no jets of this class."""
    names = source.config.class_names
    for file, sample, counts in zip(source.files, source.samples, index.class_counts, strict=True):
        if sample in names and counts.sum() and not counts[names.index(sample)]:
            found = ", ".join(name for name, count in zip(names, counts, strict=True) if count)
            raise DataError(f"{file.url} is given as {sample}, but its jets are {found}")
