"""`partt import-weaver`: weights of weaver-core -> tagger file."""

import argparse

from partt.cli.arguments import add_overwrite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt import-weaver`."""
    parser.add_argument("file", metavar="FILE.pt", help="state dict saved by weaver-core")
    inputs = parser.add_mutually_exclusive_group()
    inputs.add_argument(
        "--data-config",
        metavar="CONFIG",
        help="the data config of the training, a YAML file or the name of a shipped one; without it, the "
        "network in the file is only described",
    )
    inputs.add_argument(
        "--features",
        choices=("full", "kin", "kinpid"),
        help="the same as --data-config jetclass_FEATURES",
    )
    parser.add_argument(
        "--arch",
        choices=("part", "particlenet"),
        help="stop if the file holds another kind of network",
    )
    parser.add_argument(
        "--dialect",
        choices=("0.4", "0.5"),
        help="version of weaver-core that trained it: 0.4 (or older) or 0.5 (or newer); needed only if the "
        "weights do not show it",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the network that weights do not show: pair_last_activation=false for weaver's "
        "use_pre_activation_pair, self_pairs=false for remove_self_pair, num_neighbours of a ParticleNet",
    )
    parser.add_argument(
        "--jets",
        metavar="FILE",
        help="a file with jets for the data config, of which the tagger keeps a few; needed unless it reads "
        "the branches of JetClass",
    )
    parser.add_argument(
        "--out", metavar="TAGGER.safetensors", help="the tagger file; needed with a data config"
    )
    add_overwrite(parser)
    parser.epilog = (
        "examples:\n"
        "  partt import-weaver ParT_full.pt\n"
        "  partt import-weaver ParT_full.pt --data-config jetclass_full --out ParT_full.safetensors"
    )


def run(arguments: argparse.Namespace) -> None:
    """Import, and print a summary."""
    from partt.errors import ConfigError, DataError
    from partt.tagger.weaver import describe_weaver_file, import_weaver, write_new

    architecture, fitting = describe_weaver_file(arguments.file)
    if arguments.arch not in {None, architecture.kind}:
        raise DataError(f"{arguments.file} looks like {architecture}; is --arch correct?")
    data_config = arguments.data_config or (arguments.features and f"jetclass_{arguments.features}")
    if data_config is None:
        print(f"{arguments.file}: {architecture}; {fitting}")
        return
    if arguments.out is None:
        raise ConfigError("--out TAGGER.safetensors is missing")
    tagger = import_weaver(
        arguments.file, data_config, arguments.dialect, settings=arguments.set, jets=arguments.jets
    )
    maker = f"partt import-weaver from {arguments.file}"
    write_new(arguments.out, tagger.to_bytes(), maker, arguments.file, overwrite=arguments.overwrite)
    print(f"{arguments.out}: {architecture}, {tagger.network.num_parameters:,} parameters")
