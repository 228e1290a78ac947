"""`partt show`: pictures of jets, with scores and attention."""

import argparse
from pathlib import Path

from partt.cli.arguments import add_network, add_overwrite, count

EPILOG = """\
examples:
  partt show jetclass-200k jets.root --entry 7
  partt show runs/first jets.root --entry 7 12 --out pictures
  partt show runs/first jets.root --selection '(jet_pt > 800) & (jet_sdmass > 150)'

Each jet becomes FILE_ENTRY.png and FILE_ENTRY.pdf; several jets of one event are numbered. The jets need no
labels.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt show`."""
    parser.epilog = EPILOG
    parser.add_argument(
        "tagger",
        metavar="TAGGER",
        help="a tagger file, a run folder, an exported tagger (.onnx), or a name listed by `partt taggers`",
    )
    parser.add_argument("file", metavar="FILE", help="a file with jets, or a URL")
    parser.add_argument(
        "--entry",
        metavar="N",
        type=count,
        nargs="+",
        action="extend",
        default=[],
        help="draw these entries of the file, counted from 0",
    )
    parser.add_argument("--selection", metavar="FORMULA", help="draw the first jet that passes")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", default=Path(), help="folder for the pictures (default: here)"
    )
    add_overwrite(parser)
    add_network(parser)


def run(options: argparse.Namespace) -> int:
    """Draw jets and print the names of the pictures."""
    from partt.explanation.displayed_jets import show

    paths = show(
        options.tagger,
        options.file,
        options.entry,
        out=options.out,
        selection=options.selection,
        network_file=options.network,
        overwrite=options.overwrite,
    )
    print("\n".join(map(str, paths)))
    return 0
