"""`partt check`: check files against a data config, and summarise their contents."""

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from partt.cli.arguments import add_input, add_network, positive
from partt.cli.screen import fitting_tables, make_console, make_table, print_table, progress_bar
from partt.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from partt.checking.findings import CheckReport, Finding, ValueSummary
    from partt.tagger.tagger import Tagger

EXAMPLES = """\
examples:
  partt check jetclass_full 'data/*.root'
  partt check my_config.yaml --train QCD:'train/qcd_*.root' Top:'train/top_*.root' --test 'test/*.root' --deep
  partt check jetclass_kin new_jets.root --for predict
  partt check --for jetclass-200k 'nano/*.root' --input pfnano-ak8

exit code: 0 if a job with these files would run, 3 if not
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt check`."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "config",
        metavar="CONFIG",
        help="a data config: a YAML file, or the name of one that partt ships; none with --for TAGGER",
    )
    parser.add_argument(
        "files", metavar="FILES", nargs="*", help="files to train on: NAME:GLOB, GLOB, @LIST or URL"
    )
    parser.add_argument("--train", metavar="FILES", nargs="+", action="extend", default=[], help="like FILES")
    parser.add_argument(
        "--test",
        metavar="FILES",
        nargs="+",
        action="extend",
        default=[],
        help="files that must not share jets with FILES",
    )
    parser.add_argument(
        "--for",
        dest="purpose",
        metavar="train|predict|TAGGER",
        default="train",
        help="predict: labels are not needed; TAGGER: a tagger file, a run folder or a shipped tagger, whose "
        "data config is used and whose training domain is compared with the files (default: train)",
    )
    add_network(parser)
    add_input(parser)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "--deep", action="store_true", help="read every entry, not only the first ones of each file"
    )
    amount.add_argument(
        "--limit",
        metavar="N",
        type=positive,
        default=2000,
        help="entries to read from each file (default: 2000)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(options: argparse.Namespace) -> int:
    """Check the files and print the report; exit code 3 if there are errors."""
    from partt.checking.check import check

    tagger: Tagger | None = None
    files, purpose = options.files, options.purpose
    if purpose not in {"train", "predict"}:
        tagger, files = _tagger(purpose, options), [options.config, *files]
        purpose = "predict"
    with progress_bar("checking", unit="files", show=not options.json) as progress:
        report = check(
            tagger or options.config,
            [*files, *options.train],
            options.test,
            purpose=purpose,
            input=options.input,
            tree=options.tree,
            limit=None if options.deep else options.limit,
            progress=progress,
        )
    if options.json:
        print(json.dumps(_as_json(report), indent=2))
    else:
        _print(report, make_console())
        if tagger is not None and tagger.domain is None:
            print(f"{options.purpose} does not say which values it was trained on: nothing to compare with")
    return DataError.exit_code if report.num_errors else 0


def _tagger(name: str, options: argparse.Namespace) -> "Tagger":
    """Load the tagger of --for."""
    from partt.config import shipped_names
    from partt.tagger.loading import load_tagger

    if options.config in shipped_names("data_configs") or options.config.endswith((".yaml", ".yml")):
        raise ConfigError(f"--for {name}: the data config is that of the tagger; leave out {options.config}")
    return load_tagger(name, network_file=options.network)


def _print(report: "CheckReport", console: Console) -> None:
    for table in _tables(report, console):
        print_table(console, table)
        console.print()
    for (severity, text), places in sorted(_by_text(report.findings).items(), key=lambda item: item[0][0]):
        others = f" (and {len(places) - 1:,} more)" if len(places) > 1 else ""
        console.print(f"[{'red' if severity == 'error' else 'yellow'}]{severity}[/] ", end="")
        console.print(f"{places[0]}{others}: {text}", markup=False, highlight=False, soft_wrap=True)
    if report.num_errors:
        console.print(
            f"[red]not ready[/]: {report.num_errors} error{'s' * (report.num_errors > 1)} would stop a job"
        )
    elif report.is_complete:
        console.print("[green]ready[/]: every entry was read")
    else:
        console.print("[green]ready[/], judging by the first entries of each file; --deep reads them all")


def _by_text(findings: "Iterable[Finding]") -> "dict[tuple[str, str], list[str]]":
    """Return (severity, text) -> places, so that a fault of many files is one line."""
    places: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        where = finding.where
        rest = finding.text[len(where) :] if finding.text.startswith(where) else f": {finding.text}"
        entry, _, text = rest.partition(": ")  # "a.root: text", or "a.root, entry 7: text"
        places.setdefault((finding.severity, text), []).append(f"{where}{entry}")
    return places


def _tables(report: "CheckReport", console: Console) -> "Iterator[Table]":
    yield _sample_table(report)
    yield from _class_tables(report, console)
    if len(report.collections) > 1 or any(found.num_masked for found in report.collections.values()):
        yield _collection_table(report)
    if report.branches:
        yield _value_table("branches", report.branches.values())
    for group, names in report.inputs_by_group.items():
        computed = [report.inputs[name] for name in names if name in report.inputs.keys() - report.branches]
        of_group = f" of {group}" if len(report.inputs_by_group) > 1 else ""
        if computed:
            yield _value_table(f"inputs{of_group} computed from them, before standardisation", computed)
    if report.targets:
        yield _target_table(report)
    if report.domain:
        yield _domain_table(report)
    if report.particle_classes:
        yield _particle_class_table(report)


def _sample_table(report: "CheckReport") -> Table:
    samples = report.samples.values()
    columns = {
        "files": [sample.num_files for sample in samples],
        "entries": [sample.num_entries for sample in samples],
        "read": [sample.num_read for sample in samples],
        "jets read": [sample.num_jets for sample in samples],
        "selected": [sample.num_selected for sample in samples],
    }
    if columns["jets read"] == columns["read"]:  # an entry is a jet
        del columns["jets read"]
    table = make_table("", title="files", numbers=list(columns))
    for sample, *counts in zip(samples, *columns.values(), strict=True):
        table.add_row(escape(sample.name), *(f"{count:,}" for count in counts))
    return table


def _class_tables(report: "CheckReport", console: Console) -> "Iterator[Table]":
    """Yield the jets of each class, by sample: classes as columns, as many as fit."""
    samples = list(report.samples.values())
    classes = list(dict.fromkeys(name for sample in samples for name in sample.jets_by_class))
    columns = [(name, [f"{sample.jets_by_class.get(name, 0):,}" for sample in samples]) for name in classes]
    title = "selected jets by class, of those read"
    yield from fitting_tables(console, [sample.name for sample in samples], columns, title)


def _collection_table(report: "CheckReport") -> Table:
    headings = ("most", "limit", "jets without any", "jets cut", "left out by mask")
    table = make_table("particles", title="particles per jet", numbers=headings)
    for found in report.collections.values():
        limit = "" if found.limit is None else str(found.limit)
        masked = f"{found.num_masked / found.num_particles:.1%}" if found.num_masked else ""
        jets = (found.num_without, found.num_cut_jets)
        table.add_row(found.name, str(found.longest), limit, *(f"{number:,}" for number in jets), masked)
    return table


def _target_table(report: "CheckReport") -> Table:
    headings = ("smallest", "median", "largest", "not known")
    table = make_table("target", title="targets, of the selected jets", numbers=headings)
    for values in report.targets.values():
        numbers = (f"{number:.4g}" for number in (values.minimum, values.median, values.maximum))
        table.add_row(escape(values.name), *numbers, f"{values.num_nan / max(values.num_values, 1):.2%}")
    return table


def _particle_class_table(report: "CheckReport") -> Table:
    title = "particles of the selected jets by class"
    table = make_table("label", "class", title=title, numbers=("number", "fraction"))
    for found in report.particle_classes.values():
        counts = {**found.by_class, "(not known)": found.num_unknown}
        for name, count in counts.items():
            table.add_row(
                escape(found.name), escape(name), f"{count:,}", f"{count / max(sum(counts.values()), 1):.2%}"
            )
    return table


def _domain_table(report: "CheckReport") -> Table:
    from partt.data.training_domain import HIGH, LOW, MEDIAN

    headings = ("training: 0.1 %", "median", "99.9 %", "here: median", "outside")
    table = make_table("variable", title="values of the training, and of these files", numbers=headings)
    for name, found in report.domain.items():
        training = (f"{found.training[position]:.3g}" for position in (LOW, MEDIAN, HIGH))
        if found.excess is None:
            table.add_row(escape(name), *training)
            continue
        table.add_row(
            escape(name), *training, f"{found.quantiles[MEDIAN]:.3g}", f"{found.excess.fraction:.1%}"
        )
    return table


def _value_table(title: str, summaries: "Iterable[ValueSummary]") -> Table:
    """Return ranges of values; columns that would be empty are left out."""
    values = list(summaries)
    columns = {
        "type": [one.type for one in values],
        "smallest": [f"{one.minimum:.4g}" for one in values],
        "median": [f"{one.median:.4g}" for one in values],
        "largest": [f"{one.maximum:.4g}" for one in values],
        "NaN": [f"{one.num_nan:,}" if one.num_nan else "" for one in values],
        "inf": [f"{one.num_infinite:,}" if one.num_infinite else "" for one in values],
    }
    filled = {heading: cells for heading, cells in columns.items() if any(cells)}
    texts = [heading for heading in filled if heading == "type"]
    table = make_table("variable", *texts, title=title, numbers=[name for name in filled if name != "type"])
    for one, *cells in zip(values, *filled.values(), strict=True):
        table.add_row(escape(one.name), *map(escape, cells))
    return table


def _as_json(report: "CheckReport") -> dict[str, Any]:
    def values(summaries: "Mapping[str, ValueSummary]") -> dict[str, Any]:
        return {
            name: {
                "type": summary.type,
                "values": summary.num_values,
                "nan": summary.num_nan,
                "infinite": summary.num_infinite,
                "minimum": summary.minimum if summary.num_finite else None,
                "median": summary.median if summary.num_finite else None,
                "maximum": summary.maximum if summary.num_finite else None,
            }
            for name, summary in summaries.items()
        }

    main = [found for found in report.collections.values() if found.is_main]
    return {
        "ready": report.num_errors == 0,
        "groups": [asdict(sample) for sample in report.samples.values()],
        "jets": {
            "selected": report.num_jets,
            "without_particles": sum(found.num_without for found in main),
            "cut": sum(found.num_cut_jets for found in main),
            "bad": report.num_bad_jets,
            "longest": sum(found.longest for found in main),
        },
        "collections": [asdict(collection) for collection in report.collections.values()],
        "branches": values(report.branches),
        "inputs": values(report.inputs),
        "targets": values(report.targets),
        "domain": {
            name: {
                "training": found.training,
                "here": None if found.excess is None else found.quantiles,
                "outside": None if found.excess is None else found.excess.fraction,
            }
            for name, found in report.domain.items()
        },
        "particle_classes": [asdict(found) for found in report.particle_classes.values()],
        "findings": [asdict(finding) for finding in report.findings],
    }
