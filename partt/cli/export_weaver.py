"""partt export-weaver: a tagger file -> weights that weaver-core loads."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("file", metavar="TAGGER", help="a tagger file, a run folder, or a shipped name")
    parser.add_argument(
        "--dialect", choices=("0.4", "0.5"), default="0.5", help="for which weaver-core (default 0.5)"
    )
    parser.add_argument("--out", required=True, metavar="FILE.pt")
    parser.epilog = "example:\n  partt export-weaver tagger.safetensors --out tagger_weaver.pt"


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from partt.tagger.weaver import export_weaver

    num_tensors = export_weaver(arguments.file, arguments.out, arguments.dialect)
    print(f"{arguments.out}: {num_tensors} tensors")
