"""`partt download`: fetch a public dataset, resumed and verified."""

import argparse
from pathlib import Path

from partt.cli.arguments import add_overwrite
from partt.cli.screen import progress_bar

EPILOG = """\
examples:
  partt download top_landscape --out top
  partt download jetclass --out jetclass --only test
  partt download jetclass --out jetclass --only 'JetClass_Pythia_train_100M_part[01].tar' val
  partt download quark_gluon --out qg

The same command continues an interrupted download. A file gets its final name once its checksum matches the
published one. To fetch a dataset of your own, copy a list in the folder public_datasets and change it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = EPILOG
    parser.add_argument("dataset", metavar="DATASET",
                        help="jetclass, top_landscape, quark_gluon, or a YAML list of files")  # fmt: skip
    parser.add_argument("--out", metavar="FOLDER", type=Path, required=True, help="folder for the files")
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="PART",
                        help="train, val or test, or names or globs of files (default: all)")  # fmt: skip
    add_overwrite(parser)


def run(options: argparse.Namespace) -> None:
    """Download, and print what was done and what comes next."""
    from partt.downloading.download import download
    from partt.jobs.stop_signals import stop_on_signal

    with stop_on_signal(), progress_bar("downloading", unit="MB") as progress:
        result = download(
            options.dataset, options.out, only=options.only, overwrite=options.overwrite, progress=progress
        )
    print(
        f"{result.folder}: {result.files_fetched} files downloaded ({result.bytes_fetched / 1e6:,.1f} MB), "
        f"{result.files_kept} kept"
    )
    print(f"next: {result.next_command}")
