"""partt export-weaver: a tagger file -> weights that weaver-core loads."""

import argparse

from partt.errors import DataError


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
    import torch

    from partt.atomic_files import atomic_path
    from partt.model.baselines.particlenet import ParticleNet
    from partt.model.particle_transformer import ParticleTransformer
    from partt.model.weaver_weights import export_particle_transformer, export_particlenet
    from partt.tagger.tagger_file import load_tagger

    model = load_tagger(arguments.file).model
    if isinstance(model, ParticleTransformer):
        state = export_particle_transformer(model.state_dict(), model.config, arguments.dialect)
    elif isinstance(model, ParticleNet):
        state = export_particlenet(model.state_dict())
    else:
        raise DataError(f"{arguments.file}: weaver-core has no network of this kind ({type(model).__name__})")
    with atomic_path(arguments.out) as temporary:
        torch.save(state, temporary)
    print(f"{arguments.out}: {len(state)} tensors")
