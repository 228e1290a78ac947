"""`partt export`: tagger -> ONNX file, for programs that use onnxruntime; several taggers -> one ensemble."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from partt.cli.arguments import add_network, add_overwrite, positive
from partt.cli.screen import make_console, make_table, print_table
from partt.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from partt.exporting.export import ExportResult
    from partt.tagger.onnx_file import OnnxHeader

EXAMPLES = """\
examples:
  partt export runs/first --out tagger.onnx
  partt export tagger.safetensors --out cmssw/tagger.onnx --inputs standardised
  partt export runs/a runs/b runs/c --out ensemble.safetensors
  partt predict --engine onnx --tagger tagger.onnx 'jets/*.root' --out scores

raw: one input per branch that the data config needs (jets x particles, or jets), and num_particles (jets);
one output score_<class> (jets) per class, and the predictions of regressions, named like the columns of
`partt predict`. Formulas, standardisation and pair features are inside.

standardised: weaver-core's interface (pf_features, pf_vectors, pf_mask -> softmax), with preprocess.json.

The file is written only if its scores equal those of torch; docs/how-to/deploy.md shows how to run it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt export`."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "taggers",
        metavar="TAGGER",
        nargs="+",
        help="a tagger file, a run folder, or the name of a shipped tagger; several for an ensemble",
    )
    add_network(parser)
    parser.add_argument(
        "--out",
        metavar="MODEL.onnx",
        type=Path,
        required=True,
        help="the ONNX file, or a .safetensors file for an ensemble",
    )
    add_overwrite(parser)
    parser.add_argument(
        "--inputs",
        choices=["raw", "standardised"],
        default="raw",
        help="what the file takes: branches, or the inputs of weaver-core's exports (default: raw)",
    )
    parser.add_argument(
        "--opset", metavar="N", type=positive, help="version of the ONNX operators (default: 20)"
    )


def run(options: argparse.Namespace) -> None:
    """Export, and print the inputs of the file."""
    from partt.exporting.export import export
    from partt.exporting.tracing import DEFAULT_OPSET
    from partt.tagger.loading import load_torch_tagger

    console = make_console()
    if options.out.suffix == ".safetensors":
        _export_ensemble(options, console)
        return
    if len(options.taggers) > 1:
        raise ConfigError(
            f"{len(options.taggers)} taggers are an ensemble, which is a .safetensors file, not {options.out}"
        )
    with console.status("tracing the network, then comparing with torch"):
        result = export(
            load_torch_tagger(options.taggers[0], options.network),
            options.out,
            inputs=options.inputs,
            opset=options.opset or DEFAULT_OPSET,
            overwrite=options.overwrite,
        )
    print_table(console, _table(result))
    others = f" and {result.preprocess_json}" if result.preprocess_json else ""
    text = f"{result.path} ({result.num_bytes / 1e6:.1f} MB){others}: {_proof(result.header)}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _export_ensemble(options: argparse.Namespace, console: "Console") -> None:
    from partt.tagger.ensemble_file import save_ensemble
    from partt.tagger.loading import load_tagger

    members = [load_tagger(name, network_file=options.network) for name in options.taggers]
    ensemble = save_ensemble(options.out, members, overwrite=options.overwrite)
    text = f"{options.out} ({options.out.stat().st_size / 1e6:.1f} MB): {ensemble.network_name}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _proof(header: "OnnxHeader") -> str:
    """Say how nearly outputs are torch's."""
    parts = []
    if header.class_names:
        parts.append(f"scores equal torch's to {header.largest_difference:.1e}")
    if header.largest_relative_difference is not None:
        parts.append(f"predictions equal torch's to {header.largest_relative_difference:.1e} of their size")
    return ", ".join(parts)


def _table(result: "ExportResult") -> Table:
    table = make_table("input (float32)", "axes", "unit", title="exported")
    for name, axes in result.input_axes.items():
        table.add_row(escape(name), " x ".join(map(str, axes)), result.header.units.get(name, "1"))
    return table
