"""Arguments that several verbs share: numbers, --overwrite."""

import argparse


def count(text: str) -> int:
    """Return a whole number, 0 included."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Return a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)


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
        help="also replace files that partt would otherwise refuse to replace",
    )
