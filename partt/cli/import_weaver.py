"""`partt import-weaver`: weights of weaver-core -> tagger file."""

import argparse

from partt.cli.arguments import add_overwrite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt import-weaver`."""
    parser.add_argument("file", metavar="FILE.pt", help="state dict saved by weaver-core")
    parser.add_argument("--arch", required=True, choices=("part", "particlenet"))
    parser.add_argument(
        "--features",
        required=True,
        choices=("full", "kin", "kinpid"),
        help="the JetClass features that it was trained with",
    )
    parser.add_argument(
        "--dialect",
        choices=("0.4", "0.5"),
        help="version of weaver-core that trained it: 0.4 (or older) or 0.5 (or newer); needed only if the "
        "file does not show it",
    )
    parser.add_argument("--out", required=True, metavar="TAGGER.safetensors")
    add_overwrite(parser)
    parser.epilog = (
        "example:\n  partt import-weaver ParT_full.pt --arch part --features full --out ParT_full.safetensors"
    )


def run(arguments: argparse.Namespace) -> None:
    """Import, and print a summary."""
    from partt.tagger.weaver import import_weaver, write_new

    tagger = import_weaver(arguments.file, arguments.arch, arguments.features, arguments.dialect)
    maker = f"partt import-weaver from {arguments.file}"
    write_new(arguments.out, tagger.to_bytes(), maker, arguments.file, overwrite=arguments.overwrite)
    num_parameters, num_classes = tagger.network.num_parameters, len(tagger.class_names)
    print(f"{arguments.out}: {arguments.arch}, {num_parameters:,} parameters, {num_classes} classes")
