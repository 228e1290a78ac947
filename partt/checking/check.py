"""`partt check` as a function: check that files and data config fit together, and report what looks wrong.

Jets are read by the same functions as in a job.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from partt.checking.duplicate_jets import find_duplicates, jet_hashes
from partt.checking.findings import (
    CheckReport,
    CollectionSummary,
    DomainSummary,
    ParticleClassSummary,
    SampleSummary,
    ValueSummary,
)
from partt.checking.impossible_values import check_values
from partt.checking.physical_units import UnitCheck
from partt.data.config.data_config import CollectionInputs, DataConfig, load_data_config, with_input
from partt.data.config.input_map import InputMap
from partt.data.files.info import FileInfo
from partt.data.files.lists import InputFile, expand_files
from partt.data.jagged import Jagged
from partt.data.jet_files import inspect_again, open_jets
from partt.data.packing import pack
from partt.data.reading.jet_source import jet_weights
from partt.data.reweighting import fit_reweighting
from partt.data.standardization import fit_standardization, variables_to_fit
from partt.data.training_domain import Domain, count_outside, domain_values, warnings_of
from partt.data.variables import (
    Purpose,
    Variables,
    file_branches,
    labels_of,
    missing_branches,
    names_for,
    names_for_index,
    read_variables,
    renamed_branch,
    require_branches,
    scan,
    select,
    targets_of,
)
from partt.errors import ConfigError, DataError, ParttError
from partt.jobs.notebook_bar import notebook_progress
from partt.jobs.progress import Progress
from partt.tagger.tagger import Tagger

ENTRIES_PER_FILE = 2000  # that are read by default
MAX_CLASS_RATIO = 20.0

Files = str | Path | Sequence[str | Path]
OpenFile = tuple[str, FileInfo]  # with the name of its sample


def check(
    config: DataConfig | Tagger | str,
    train: Files,
    test: Files = (),
    *,
    purpose: Purpose = "train",
    input: InputMap | str | None = None,  # noqa: A002
    tree: str | None = None,
    limit: int | None = ENTRIES_PER_FILE,
    progress: Progress | None = None,
) -> CheckReport:
    """Check files against a data config, and the files to train on against those to test with.

    With a tagger instead of a config, check files to predict, and compare them with its training domain.

    `input`: an input map, its name or path, for files of events; "none": the files have one jet per entry.
    `tree`: the tree of files that are not given as FILE.root:TREE. `limit` is the number of entries that are
    read from each file; None reads everything. Problems of the files are not raised but listed in the report.
    """
    domain: Domain | None = None
    if isinstance(config, Tagger):
        domain, config, purpose = config.domain, config.data_config, "predict"
    config = load_data_config(config) if isinstance(config, str) else config
    config = with_input(config, input)
    sets = {"train": expand_files(_texts(train), tree), "test": expand_files(_texts(test), tree)}
    sets = {name: inputs for name, inputs in sets.items() if inputs}
    if not sets:
        raise ConfigError("no files to check: name some, for example 'data/*.root'")
    progress = progress or notebook_progress("checking", "files")
    report = CheckReport(inputs_by_group=_inputs_by_group(config))
    opened: dict[str, list[OpenFile]] = {}
    for name, inputs in sets.items():
        prefix = f"{name}: " if len(sets) > 1 else ""
        named = [replace(file, sample=f"{prefix}{file.sample or '(all)'}") for file in inputs]
        opened[name] = list(_open(config, named, purpose, limit, report))
    files = [file for pairs in opened.values() for _, file in pairs]
    to_fit = [file for _, file in next(iter(opened.values()))]  # a training fits to its own files
    if purpose == "predict":
        _check_observers(config, files, report)
    _compare_types(files, file_branches(config, names_for(config, purpose)), report)
    config = _fit(config, to_fit, purpose, report)
    if domain is not None:
        report.domain = {name: DomainSummary(known) for name, known in domain.quantiles.items()}
    units = UnitCheck()
    hashes: dict[str, npt.NDArray[np.uint64]] = {}
    done = 0
    for name, pairs in opened.items():
        parts = [np.empty(0, np.uint64)]
        for pair in pairs:
            parts.append(_check_file(config, pair, purpose, report, units))
            done += 1
            progress(done, len(files))
        hashes[name] = np.concatenate(parts)
    _check_totals(config, purpose, report, to_fit)
    _check_jets(config, report)
    check_values(report)
    units.report(report)
    _check_domain(domain, report)
    find_duplicates({name: [file for _, file in pairs] for name, pairs in opened.items()}, hashes, report)
    return report


def _inputs_by_group(config: DataConfig) -> dict[str, tuple[str, ...]]:
    """Return the variables of each collection, and of each group with one value per jet."""
    groups = {name: collection.groups for name, collection in config.collections.items()}
    groups |= {name: (group,) for name, group in config.jet_groups.items()}
    return {
        name: tuple(dict.fromkeys(variable.name for group in members for variable in group.variables))
        for name, members in groups.items()
    }


def _texts(files: Files) -> list[str]:
    return [str(file) for file in ([files] if isinstance(files, str | Path) else files)]


def _open(
    config: DataConfig, inputs: Sequence[InputFile], purpose: Purpose, limit: int | None, report: CheckReport
) -> Iterator[OpenFile]:
    """Yield the files that have all branches, cut to the entries that will be read."""
    for item in inputs:
        summary = report.samples.setdefault(item.sample, SampleSummary(item.sample))
        summary.num_files += 1
        try:
            file = open_jets(item, config)
            summary.num_entries += file.num_entries
            require_branches(config, _names(config, purpose, file), file)
        except DataError as error:
            report.error(item.url, str(error))
            continue
        if file.num_entries == 0:
            report.warn(item.url, "has no entries")
        if purpose == "train" and (missing := missing_branches(config, config.observers, file)):
            report.warn(item.url, f"lacks the observers {', '.join(missing)}: no prediction will have them")
        for name, label in config.particle_labels.items() if purpose == "train" else ():
            if missing := missing_branches(config, [label.value], file):
                text = f"lacks {', '.join(missing)}: no recipe with tasks.particles.{name} can use it"
                report.warn(item.url, text)
        if limit is not None and limit < file.num_entries:
            chunks = tuple((start, min(stop, limit)) for start, stop in file.chunks if start < limit)
            file = replace(file, num_entries=limit, chunks=chunks)
        yield item.sample, file


def _names(config: DataConfig, purpose: Purpose, file: FileInfo) -> set[str]:
    """Return the variables that a job reads from a file; some labels, or observers, are optional."""
    names = names_for(_with_known_labels(config, purpose, file), purpose)
    if purpose == "train":
        return names
    absent = {name for name in config.observers if missing_branches(config, [name], file)}
    return names - (absent - set(config.input_names) - names_for_index(config, purpose))


def _with_known_labels(config: DataConfig, purpose: Purpose, file: FileInfo) -> DataConfig:
    """Return the config with the classes of particles that a file has; prediction needs none."""
    labels = config.particle_labels if purpose == "train" else {}
    known = [name for name, label in labels.items() if not missing_branches(config, [label.value], file)]
    return config.with_particle_labels(known)


def _check_observers(config: DataConfig, files: Sequence[FileInfo], report: CheckReport) -> None:
    """Report missing observers: predictions lack those that no file has, and need the rest in every file."""
    in_no_file = []
    for name in config.observers:
        lacking = [file for file in files if missing_branches(config, [name], file)]
        if lacking and len(lacking) == len(files):
            in_no_file.append(name)
        elif lacking:
            for file in lacking:
                report.error(file.url, f"lacks the observer {name} that other files have; predict it alone")
    if in_no_file:
        report.warn("observers", f"{', '.join(in_no_file)}: in no file, so not in the predictions")


def _compare_types(files: Sequence[FileInfo], branches: Iterable[str], report: CheckReport) -> None:
    """Warn of branches whose type differs between files."""
    for name in sorted(branches):
        types: dict[str, str] = {}
        for file in files:
            if name in file.branches:
                types.setdefault(file.branches[name], file.url)
        if len(types) > 1:
            found = ", ".join(f"{kind} in {url}" for kind, url in types.items())
            report.warn(name, f"has different types: {found}")


def _fit(config: DataConfig, files: Sequence[FileInfo], purpose: Purpose, report: CheckReport) -> DataConfig:
    """Fit standardisation and weights; if that fails, continue with raw values and without weights.

    What fails for the first entries is tried again with all of them, as a job does.
    """
    fault = ""
    for is_last in (False, True):
        if is_last:
            files = [inspect_again(file) for file in files]
        try:
            fitted = fit_standardization(config, files)
            return fit_reweighting(fitted, files) if purpose == "train" else fitted
        except ParttError as error:
            fault = str(error)
    report.error("data config", fault)
    raw = {variable.name: replace(variable, to_fit=False) for variable in variables_to_fit(config)}
    return config.with_parameters(raw).replace(weights=None)


def _check_file(
    config: DataConfig, opened: OpenFile, purpose: Purpose, report: CheckReport, units: UnitCheck
) -> npt.NDArray[np.uint64]:
    """Read the entries of a file as a job would; return the hashes of the selected jets."""
    sample, file = opened
    hashes = [np.empty(0, np.uint64)]
    summary = report.samples[sample]
    names = _names(config, purpose, file)
    carried = () if purpose == "train" else config.observers
    carried = tuple(name for name in carried if name in names)
    config = _with_known_labels(config, purpose, file)
    try:
        for start, stop in file.chunks:
            variables = read_variables(config, names, file, start, stop)
            for name, column in variables.branches.items():
                kind = file.branches.get(renamed_branch(config, name), "set by file_magic")
                report.branches.setdefault(name, ValueSummary(name, kind)).add(column)
            summary.num_read += stop - start
            summary.num_jets += variables.num_jets
            selected = select(config, variables, purpose)
            summary.num_selected += selected.num_jets
            if purpose == "train":
                _add_labels(config, selected, summary, report)
                report.sum_weights += float(jet_weights(config, selected).sum(dtype=np.float64))
            hashes.append(_read_jets(config, selected, carried, report, units))
    except ParttError as error:
        report.error(file.url, str(error))
    return np.concatenate(hashes)


def _add_labels(
    config: DataConfig, variables: Variables, summary: SampleSummary, report: CheckReport
) -> None:
    targets = targets_of(config, variables)
    for name, column in zip(config.target_names, () if targets is None else targets.T, strict=True):
        report.targets.setdefault(name, ValueSummary(name)).add(column)
    if not config.class_names:
        return
    counts = np.bincount(labels_of(config, variables), minlength=len(config.class_names))
    for name, count in zip(config.class_names, counts.tolist(), strict=True):
        summary.jets_by_class[name] = summary.jets_by_class.get(name, 0) + count


def _read_jets(
    config: DataConfig, variables: Variables, carried: tuple[str, ...], report: CheckReport, units: UnitCheck
) -> npt.NDArray[np.uint64]:
    batch = pack(config, variables, particle_labels=config.particle_labels)
    for name, classes in batch.particle_labels.items():
        label = config.particle_labels[name]
        empty = ParticleClassSummary(name, label.collection, dict.fromkeys(label.names, 0))
        report.particle_classes.setdefault(name, empty).add(classes.numbers.numpy())
    for name in carried:
        variables[name]  # whether it can be computed
    _compare_with_domain(config, variables, report)
    for name in config.input_names:
        report.inputs.setdefault(name, ValueSummary(name)).add(variables[name])
    units.add(variables, batch)
    for name, collection in config.collections.items():
        new = CollectionSummary(name, collection.length, is_main=name == config.main.name)
        of_collection = report.collections.setdefault(name, new)
        column = variables[collection.first_variable]
        in_file = column.lengths if isinstance(column, Jagged) else np.empty(0, np.int64)
        of_collection.add(in_file, batch.inputs.collections[name].lengths.numpy())
    report.num_jets += len(batch)
    report.num_bad_jets += int(batch.bad.sum())
    if batch.bad.any() and report.first_bad_jet is None:
        report.first_bad_jet = f"{variables.url}, entry {int(batch.source_entry[batch.bad][0])}"
    return jet_hashes(variables)


def _compare_with_domain(config: DataConfig, variables: Variables, report: CheckReport) -> None:
    if not report.domain:
        return
    values = domain_values(config, variables)
    domain = Domain(num_jets=0, quantiles={name: found.training for name, found in report.domain.items()})
    for name, counted in count_outside(domain, values).items():
        report.domain[name].add(values[name], counted)


def _check_domain(domain: Domain | None, report: CheckReport) -> None:
    if domain is not None:
        counts = {name: found.excess for name, found in report.domain.items() if found.excess is not None}
        for text in warnings_of(domain, counts):
            report.warn("training domain", text)


def _check_totals(
    config: DataConfig, purpose: Purpose, report: CheckReport, files: Sequence[FileInfo]
) -> None:
    if report.num_jets == 0:
        if not report.num_errors:
            text = f"no jet passes the selection {config.selection!r}, or there are no entries"
            report.error("jets", text) if report.is_complete else report.warn("jets", text)
        return
    if purpose == "predict":
        return
    if not report.sum_weights > 0:
        report.error(
            "weights", f"the sum of the jets' weights is {report.sum_weights:g}; it must be positive"
        )
    if not config.class_names:
        _check_targets(config, report)
        return
    counts = {
        name: sum(sample.jets_by_class.get(name, 0) for sample in report.samples.values())
        for name in config.class_names
    }
    for name, count in counts.items():
        if count == 0:
            report.warn(f"class {name}", "has no jets among those read: a network cannot learn it")
    filled = {name: count for name, count in counts.items() if count}
    if not report.num_errors and len(filled) < 2 and (report.is_complete or _num_classes(config, files) < 2):
        report.error(
            "classes", f"all jets are {', '.join(filled)}: training needs jets of two classes or more"
        )
    if filled and max(filled.values()) > MAX_CLASS_RATIO * min(filled.values()):
        most, least = max(filled, key=filled.__getitem__), min(filled, key=filled.__getitem__)
        report.warn(
            "class balance",
            f"{most} has {filled[most]} jets, {least} only {filled[least]}; consider reweighting (`weights`)",
        )
    if config.weights is not None and not config.weights.use_precomputed_weights:
        left_out = set(config.label_variables) - set(config.weights.reweight_classes)
        if left_out and config.labels.flags:
            report.warn(
                "weights.reweight_classes",
                f"{', '.join(sorted(left_out))} are not listed: their jets get weight 0 and are never drawn",
            )


def _check_jets(config: DataConfig, report: CheckReport) -> None:
    for branch in report.branches.values():
        if branch.num_nan or branch.num_infinite:
            report.warn(
                branch.name,
                f"{branch.num_nan} NaN and {branch.num_infinite} infinite among {branch.num_values} values "
                "(NaN features become 0; infinite features, non-finite momenta and weights stop a job)",
            )
    if report.first_bad_jet is not None:
        report.error(
            report.first_bad_jet,
            f"an input is infinite or a momentum is not finite ({report.num_bad_jets} in all); correct "
            "the branch, keep these jets out with `selection`, or train with --on-bad-jet drop",
        )
    for classes in report.particle_classes.values():
        if not any(classes.by_class.values()):
            report.warn(f"labels.particles.{classes.name}", "is not known for any particle")
    for name, found in report.collections.items():
        _check_collection(config.collections[name], found, report)


def _check_collection(inputs: CollectionInputs, found: CollectionSummary, report: CheckReport) -> None:
    """Warn of missing particles; jets without any are normal, except in the main collection."""
    particles = "particles" if found.is_main else f"particles in {found.name}"
    if found.num_without == report.num_jets and not found.is_main:
        report.warn(found.name, "no jet has any")
    elif found.num_without and found.is_main:
        report.warn("jets", f"{found.num_without} of {report.num_jets} have no particles")
    if found.num_cut_jets:
        report.warn(
            "jets",
            f"{found.num_cut_jets / report.num_jets:.2%} have more than {found.limit} {particles} (up to "
            f"{found.longest}) and are cut; inputs.{inputs.features.name}.length sets the limit",
        )
    if inputs.mask_variable is not None and 0 < found.num_particles == found.num_masked:
        report.warn(
            inputs.mask_variable,
            f"is 0 for all of {found.num_particles} particles in {found.name}: none reaches the network",
        )


def _check_targets(config: DataConfig, report: CheckReport) -> None:
    """Warn of targets that are never known, and of those that may be class numbers."""
    for target in report.targets.values():
        if target.num_nan == target.num_values:
            report.warn(f"target {target.name}", "is not known for any jet")
    if config.labels.type != "custom":
        return
    first = report.targets[config.target_names[0]]
    if first.is_whole and 0 <= first.minimum <= first.maximum:
        report.warn(
            f"target {first.name}",
            f"has whole numbers up to {first.maximum:g}: unless `tasks` of the recipe lists it, training "
            "takes it as the class number; labels.names gives the classes names",
        )


def _num_classes(config: DataConfig, files: Sequence[FileInfo]) -> int:
    """Count the classes in all entries of the files, until there are two."""
    found: set[int] = set()
    for file in files:
        for selected in scan(config, inspect_again(file)):
            found.update(np.unique(labels_of(config, selected)).tolist())
            if len(found) > 1:
                return len(found)
    return len(found)
