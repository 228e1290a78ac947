"""`partt export-weaver`: tagger file -> weights for weaver-core."""

import argparse

from partt.cli.arguments import add_overwrite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt export-weaver`."""
    parser.add_argument(
        "file", metavar="TAGGER", help="a tagger file, a run folder, or the name of a shipped tagger"
    )
    parser.add_argument(
        "--dialect",
        choices=("0.4", "0.5"),
        default="0.5",
        help="version of weaver-core that will load the weights (default: 0.5)",
    )
    parser.add_argument("--out", required=True, metavar="FILE.pt", help="the weights, a state dict")
    add_overwrite(parser)
    parser.epilog = (
        "Networks that weaver-core has, and that can be exported: part, part_plain, part_v2, part_v3 and\n"
        "particlenet, with classes only (no regressions).\n\n"
        "example:\n  partt export-weaver tagger.safetensors --out tagger_weaver.pt"
    )


def run(arguments: argparse.Namespace) -> None:
    """Export, and print a summary."""
    from partt.tagger.weaver import export_weaver

    num_tensors = export_weaver(
        arguments.file, arguments.out, arguments.dialect, overwrite=arguments.overwrite
    )
    print(f"{arguments.out}: {num_tensors} tensors")
