"""Arguments that several verbs share, and the numbers that they take."""

import argparse
from pathlib import Path

MAX_COUNT = 10**12
MAX_THREADS = 1024  # threads or processes of one machine


def count(text: str) -> int:
    """Return a whole number, 0 included."""
    return _whole_number(text, 0, 2**63 - 1)


def positive(text: str) -> int:
    """Return a whole number above 0."""
    return _whole_number(text, 1, MAX_COUNT)


def few(text: str) -> int:
    """Return a number of threads or processes, 0 included."""
    return _whole_number(text, 0, MAX_THREADS)


def few_positive(text: str) -> int:
    """Return a number of threads or processes above 0."""
    return _whole_number(text, 1, MAX_THREADS)


def _whole_number(text: str, least: int, most: int) -> int:
    number = int(text) if text.isdecimal() and len(text) <= 30 else -1
    if number < least:
        above = " above 0" if least else ""
        raise argparse.ArgumentTypeError(f"must be a whole number{above}, not {text[:60]!r}")
    if number > most:
        raise argparse.ArgumentTypeError(f"must be at most {most}, not {text}")
    return number


def fraction(text: str) -> float:
    """Return a number between 0 and 1, both excluded."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1, not {text!r}")
    return value


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Declare --overwrite."""
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace existing files, whoever made them",
    )


def add_bad_files(parser: argparse.ArgumentParser) -> None:
    """Declare --on-bad-file and --max-bad-fraction, for long jobs."""
    parser.add_argument(
        "--on-bad-file",
        choices=["error", "skip"],
        default="error",
        help="what to do with files that cannot be read: stop, or leave them out (default: error)",
    )
    parser.add_argument(
        "--max-bad-fraction",
        metavar="F",
        type=fraction,
        default=0.05,
        help="largest fraction of files to leave out (default: 0.05)",
    )


def add_network(parser: argparse.ArgumentParser) -> None:
    """Declare --network, for verbs that load a tagger."""
    parser.add_argument(
        "--network",
        metavar="FILE.py",
        type=Path,
        help="network file of a tagger that was trained with one; its code is run",
    )


def add_tree(parser: argparse.ArgumentParser) -> None:
    """Declare --tree, for verbs that read files."""
    parser.add_argument(
        "--tree", metavar="NAME", help="the tree to read, in all files (FILE.root:NAME: in one file)"
    )


def add_input(parser: argparse.ArgumentParser) -> None:
    """Declare --tree and --input, for verbs that read jets."""
    add_tree(parser)
    parser.add_argument(
        "--input",
        metavar="MAP",
        help="input map for files of events: a YAML file, or the name of a shipped one (pfnano-ak8, "
        "delphes); none: every entry is a jet (default: as in the data config)",
    )
