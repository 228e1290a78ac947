"""partt import-weaver: a network that weaver-core trained -> a tagger file."""

import argparse

from partt.errors import DataError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("file", metavar="FILE.pt", help="state dict, as weaver-core saves it")
    parser.add_argument("--arch", required=True, choices=("part", "particlenet"))
    parser.add_argument(
        "--features",
        required=True,
        choices=("full", "kin", "kinpid"),
        help="the JetClass features that it was trained on",
    )
    parser.add_argument(
        "--dialect",
        choices=("0.4", "0.5"),
        help="which weaver-core trained it, 0.4 or older, 0.5 or newer; needed where the file does not tell",
    )
    parser.add_argument("--out", required=True, metavar="TAGGER.safetensors")
    parser.epilog = (
        "example:\n  partt import-weaver ParT_full.pt --arch part --features full --out ParT_full.safetensors"
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from partt.data.config.data_config import load_data_config
    from partt.data.made_up_jets import made_up_jets
    from partt.model.registry import build_network
    from partt.model.weaver_weights import import_particle_transformer, import_particlenet, read_weaver_file
    from partt.tagger.tagger_file import new_tagger, save_tagger

    data_config = load_data_config(f"jetclass_{arguments.features}")
    weaver_state = read_weaver_file(arguments.file)
    try:
        config, state = (
            import_particle_transformer(weaver_state, arguments.dialect)
            if arguments.arch == "part"
            else import_particlenet(weaver_state)
        )
    except DataError as error:
        raise DataError(f"{arguments.file}: {error}") from error
    num_features, num_classes = len(data_config.particles.variables), len(data_config.class_names)
    model = build_network(arguments.arch, config, num_features, num_classes)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(
            f"{arguments.file} does not fit --features {arguments.features} ({num_features} features, "
            f"{num_classes} classes): {str(error).splitlines()[1].strip()}"
        ) from error
    save_tagger(arguments.out, new_tagger(arguments.arch, model, data_config, made_up_jets()))
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{arguments.out}: {arguments.arch}, {num_parameters:,} parameters, {num_classes} classes")
