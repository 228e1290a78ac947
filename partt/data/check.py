"""Prove, before a long job, that files and data config fit together, and point at what looks wrong.

Axes: N jets, T particles of all jets together.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from partt.data.check_report import CheckReport, GroupSummary, ValueSummary
from partt.data.columns import (
    Purpose,
    Variables,
    file_branches,
    labels_of,
    missing_branches,
    names_for,
    read_variables,
    select,
)
from partt.data.data_config import DataConfig
from partt.data.file_lists import InputFile
from partt.data.jet_batch import JetBatch
from partt.data.jet_source import Progress
from partt.data.packing import pack
from partt.data.reweighting import fit_reweighting
from partt.data.root_files import FileInfo, inspect_file
from partt.data.standardization import fit_standardization, variables_to_fit
from partt.errors import DataError, ParttError

ENTRIES_PER_FILE = 2000  # looked at if not told otherwise
BEAM_ENERGY = 7000.0  # GeV: no jet of the LHC has more, so a larger typical pT is in MeV
FINEST_ERROR = 0.007  # mm: trackers measure impact parameters no better, so a smaller typical error is in cm
MAX_CLASS_RATIO = 20.0


def check_files(
    config: DataConfig,
    sets: Mapping[str, Sequence[InputFile]],
    *,
    purpose: Purpose = "train",
    limit: int | None = ENTRIES_PER_FILE,
    progress: Progress | None = None,
) -> CheckReport:
    """Check sets of files ("train", "test", ...), each against the config and all against each other.

    `limit` is the number of entries that are read of each file; None reads everything. Nothing is raised for
    what is wrong with the files: it is in the report.
    """
    report = CheckReport()
    fingerprints: dict[str, npt.NDArray[np.uint64]] = {}
    opened: dict[str, list[tuple[str, FileInfo]]] = {}
    num_files, done = sum(map(len, sets.values())), 0
    for set_name, inputs in sets.items():
        opened[set_name] = list(_open(config, inputs, purpose, limit, report))
    files = [file for pairs in opened.values() for _, file in pairs]
    _compare_types(files, file_branches(config, names_for(config, purpose)), report)
    config = _fit(config, files, purpose, report)
    for set_name, pairs in opened.items():
        jets = []
        for group, file in pairs:
            jets.append(_check_file(config, group, file, purpose, report))
            done += 1
            if progress:
                progress(done, num_files)
        fingerprints[set_name] = np.concatenate(jets) if jets else np.empty(0, np.uint64)
    if purpose == "train":
        _check_balance(config, report)
    _check_values(config, report)
    _check_units(report)
    _find_duplicates(opened, fingerprints, report)
    return report


def _open(
    config: DataConfig, inputs: Sequence[InputFile], purpose: Purpose, limit: int | None, report: CheckReport
) -> Iterator[tuple[str, FileInfo]]:
    """Yield the files that have all branches, shortened to the entries that are to be read."""
    for item in inputs:
        summary = report.groups.setdefault(item.group, GroupSummary(item.group))
        summary.num_files += 1
        try:
            file = inspect_file(item.url, config.treename)
        except DataError as error:
            report.error(item.url, str(error))
            continue
        summary.num_entries += file.num_entries
        if file.num_entries == 0:
            report.warn(item.url, "has no entries")
        missing = missing_branches(config, names_for(config, purpose), file)
        if missing:
            report.error(
                file.url,
                f"tree {file.tree!r} lacks {', '.join(missing)}; correct the names in the config, or map "
                "them with branch_magic",
            )
            continue
        if limit is not None and limit < file.num_entries:
            chunks = tuple((start, min(stop, limit)) for start, stop in file.chunks if start < limit)
            file = replace(file, num_entries=limit, chunks=chunks)
        yield item.group, file


def _fit(config: DataConfig, files: Sequence[FileInfo], purpose: Purpose, report: CheckReport) -> DataConfig:
    """Fit what the config leaves open; if that fails, go on with raw values."""
    try:
        config = fit_standardization(config, files)
        return fit_reweighting(config, files) if purpose == "train" else config
    except ParttError as error:
        report.error("data config", str(error))
        raw = {variable.name: replace(variable, to_fit=False) for variable in variables_to_fit(config)}
        return config.with_parameters(raw)


def _check_file(
    config: DataConfig, group: str, file: FileInfo, purpose: Purpose, report: CheckReport
) -> npt.NDArray[np.uint64]:
    """Read a file's entries as a job would; return a fingerprint of each selected jet."""
    fingerprints = [np.empty(0, np.uint64)]
    try:
        for start, stop in file.chunks:
            variables = read_variables(config, names_for(config, purpose), file, start, stop)
            for name, column in variables.branches.items():
                kind = file.branches.get(name, "set by file_magic")
                report.branches.setdefault(name, ValueSummary(name, kind)).add(column)
            summary = report.groups[group]
            summary.num_read += stop - start
            selected = select(config, variables, purpose)
            summary.num_selected += len(selected.entries)
            if purpose == "train":
                counts = np.bincount(labels_of(config, selected), minlength=len(config.class_names))
                for name, count in zip(config.class_names, counts.tolist(), strict=True):
                    summary.jets_by_class[name] = summary.jets_by_class.get(name, 0) + count
            fingerprints.append(_check_jets(config, selected, report))
    except ParttError as error:
        report.error(file.url, str(error))
    return np.concatenate(fingerprints)


def _check_jets(config: DataConfig, variables: Variables, report: CheckReport) -> npt.NDArray[np.uint64]:
    batch = pack(config, variables)
    for name in dict.fromkeys(variable.name for group in config.groups for variable in group.variables):
        report.inputs.setdefault(name, ValueSummary(name)).add(variables[name])
    full_lengths = batch.lengths + batch.num_cut
    report.num_jets += len(batch)
    report.num_without_particles += int((full_lengths == 0).sum())
    report.num_cut_jets += int((batch.num_cut > 0).sum())
    report.num_bad_jets += int(batch.bad.sum())
    report.longest_jet = max(report.longest_jet, int(full_lengths.max()) if len(batch) else 0)
    if batch.bad.any() and report.first_bad_jet is None:
        report.first_bad_jet = f"{variables.url}, entry {int(batch.source_entry[batch.bad][0])}"
    if batch.momenta is not None:
        report.jet_pt.add(_jet_pt(batch))
    return _fingerprints(batch)


def _jet_pt(batch: JetBatch) -> npt.NDArray[np.float64]:
    """Return the transverse momentum of each jet with particles, in the files' unit."""
    assert batch.momenta is not None  # noqa: S101 - for mypy
    jet_of_row = np.repeat(np.arange(len(batch)), batch.lengths.numpy())
    px, py = (np.bincount(jet_of_row, batch.momenta[:, axis].numpy(), len(batch)) for axis in (0, 1))
    return np.hypot(px, py)[batch.lengths.numpy() > 0]


def _fingerprints(batch: JetBatch) -> npt.NDArray[np.uint64]:
    """Return a number per jet with particles that two jets share only if they are copies.

    Made of the bits of the first particle's momentum, and of the number of particles.
    """
    rows = batch.particles if batch.momenta is None else batch.momenta
    lengths = batch.lengths.numpy()
    first_rows = rows.numpy()[batch.offsets.numpy()[:-1][lengths > 0]]
    bits = np.ascontiguousarray(first_rows, dtype=np.float32).view(np.uint32).astype(np.uint64)
    result = lengths[lengths > 0].astype(np.uint64)
    for column in bits.T:
        result = (result ^ column) * np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio spreads the bits
        result ^= result >> np.uint64(29)
    return result


def _compare_types(files: Sequence[FileInfo], names: Iterable[str], report: CheckReport) -> None:
    """Warn of branches whose type differs between files."""
    for name in sorted(names):
        types: dict[str, str] = {}
        for file in files:
            if name in file.branches:
                types.setdefault(file.branches[name], file.url)
        if len(types) > 1:
            found = ", ".join(f"{kind} in {url}" for kind, url in types.items())
            report.warn(name, f"has different types: {found}")


def _check_balance(config: DataConfig, report: CheckReport) -> None:
    counts = {
        name: sum(group.jets_by_class.get(name, 0) for group in report.groups.values())
        for name in config.class_names
    }
    for name, count in counts.items():
        if count == 0 and report.num_jets > 0:
            report.warn(f"class {name}", "has no jets among those read: a network cannot learn it")
    filled = {name: count for name, count in counts.items() if count}
    if filled and max(filled.values()) > MAX_CLASS_RATIO * min(filled.values()):
        most, least = max(filled, key=filled.__getitem__), min(filled, key=filled.__getitem__)
        report.warn(
            "class balance",
            f"{most} has {filled[most]} jets, {least} only {filled[least]}; consider reweighting (`weights`)",
        )


def _check_values(config: DataConfig, report: CheckReport) -> None:
    for branch in report.branches.values():
        if branch.num_nan or branch.num_infinite:
            report.warn(
                branch.name,
                f"{branch.num_nan} NaN and {branch.num_infinite} infinite among {branch.num_values} values "
                "(NaN features become 0; jets with infinite features or momenta stop a training)",
            )
    if report.first_bad_jet is not None:
        report.error(
            report.first_bad_jet,
            f"an input is infinite or a momentum is not finite ({report.num_bad_jets} such jets); correct "
            "the branch, keep these jets out with `selection`, or train with --on-bad-jet drop",
        )
    if report.num_without_particles:
        report.warn("jets", f"{report.num_without_particles} of {report.num_jets} have no particles")
    if report.num_cut_jets:
        fraction = report.num_cut_jets / report.num_jets
        report.warn(
            "jets",
            f"{fraction:.2%} have more than {config.particles.length} particles (up to {report.longest_jet}) "
            "and are cut; inputs.pf_features.length sets where",
        )


def _check_units(report: CheckReport) -> None:
    jet_pt = report.jet_pt.median
    if jet_pt > BEAM_ENERGY:
        report.warn("momenta", f"the median jet pT is {jet_pt:.4g}: these look like MeV; partt expects GeV")
    elif 0 < jet_pt < 2:
        report.warn("momenta", f"the median jet pT is {jet_pt:.4g}: these look like TeV; partt expects GeV")
    for name, branch in report.branches.items():
        if re.search(r"(d0|dz|dxy|ip).*err", name, re.IGNORECASE) and branch.sample:
            values = np.concatenate(branch.sample)
            typical = float(np.median(values[values > 0])) if (values > 0).any() else np.inf
            if typical < FINEST_ERROR:
                report.warn(name, f"its median is {typical:.2g}: this looks like cm; the configs expect mm")


def _find_duplicates(
    opened: Mapping[str, Sequence[tuple[str, FileInfo]]],
    fingerprints: Mapping[str, npt.NDArray[np.uint64]],
    report: CheckReport,
) -> None:
    for (first, first_files), (second, second_files) in combinations(opened.items(), 2):
        copies = {file.identity: file.url for _, file in first_files}
        for _, file in second_files:
            if file.identity in copies:
                report.error(file.url, f"is in {second} and, as {copies[file.identity]}, in {first}")
        shared = np.intersect1d(fingerprints[first], fingerprints[second])
        if len(shared):
            report.error(
                "jets", f"{len(shared)} jets are both in {first} and in {second}: results would be too good"
            )
    for name, jets in fingerprints.items():
        num_copies = len(jets) - len(np.unique(jets))
        if num_copies:
            report.warn("jets", f"{num_copies} of {len(jets)} jets in {name} are copies of others")
