"""`partt convert`: turn public datasets into ROOT files, without losing an event."""

import argparse
from pathlib import Path

from partt.cli.arguments import add_input, add_overwrite
from partt.cli.screen import progress_bar

FORMATS = {
    "toplandscape": "HDF5, doi 10.5281/zenodo.2603256; for the config top_landscape_kin",
    "quarkgluon": "NPZ, doi 10.5281/zenodo.3164691; for quark_gluon_kin, _kinpid and _kinpidplus",
    "jetclass-npz": "NPZ with momenta, points, mask and labels of padded JetClass jets; for jetclass_kin",
    "events": "ROOT or parquet, one entry per event, with --input; a branch for each variable of the map",
}

EPILOG = """\
formats:
  {formats}

examples:
  partt convert toplandscape train.h5 val.h5 test.h5 --out top
  partt convert quarkgluon QG_jets*.npz --out qg
  partt convert jetclass-npz jets.npz --out jets.root
  partt convert events nano_*.root --input pfnano-ak8 --out jets
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt convert`."""
    lines = "\n  ".join(f"{name:<14}{text}" for name, text in FORMATS.items())
    parser.epilog = EPILOG.format(formats=lines)
    parser.add_argument("format", metavar="FORMAT", choices=FORMATS, help=f"{', '.join(FORMATS)} (see below)")
    parser.add_argument("inputs", metavar="INPUT", nargs="+", type=Path, help="files to convert")
    parser.add_argument(
        "--out",
        metavar="FOLDER_OR_FILE",
        type=Path,
        required=True,
        help="NAME.root: one file with all jets; otherwise a folder, with a ROOT file for each input",
    )
    add_input(parser)
    add_overwrite(parser)


def run(options: argparse.Namespace) -> None:
    """Convert the files, and print what was written."""
    from partt.conversion.convert import convert

    with progress_bar("converting", unit="jets") as progress:
        written = convert(
            options.format,
            options.inputs,
            options.out,
            progress,
            input=options.input,
            tree=options.tree,
            overwrite=options.overwrite,
        )
    for path, num_jets in written.items():
        print(f"{path}: {num_jets:,} jets")
