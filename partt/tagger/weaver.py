"""Weights of weaver-core -> taggers, and taggers -> weights for weaver-core."""

import io
import os
from pathlib import Path
from typing import Literal

import torch

from partt.atomic_files import atomic_path, refuse_foreign
from partt.data.config.data_config import load_data_config
from partt.data.made_up_jets import made_up_jets
from partt.errors import ConfigError, DataError
from partt.jobs.output_folder import writing_to
from partt.model.baselines.particlenet import ParticleNet
from partt.model.heads import CLASSES
from partt.model.particle_transformer import ParticleTransformer
from partt.model.registry import build_network
from partt.model.weaver_weights import (
    Dialect,
    export_particle_transformer,
    export_particlenet,
    import_particle_transformer,
    import_particlenet,
    read_weaver_file,
)
from partt.tagger.loading import find_tagger, load_torch_tagger
from partt.tagger.tagger_file import TorchTagger, new_tagger


def import_weaver(
    path: str | Path,
    arch: Literal["part", "particlenet"],
    features: Literal["full", "kin", "kinpid"],
    dialect: Dialect | None = None,
) -> TorchTagger:
    """Return a tagger from a state dict of weaver-core; `features`: which features of JetClass."""
    data_config = load_data_config(f"jetclass_{features}")
    weaver_state = read_weaver_file(path)
    try:
        config, state = (
            import_particle_transformer(weaver_state, dialect)
            if arch == "part"
            else import_particlenet(weaver_state)
        )
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"{path}: its weights have shapes that do not fit together: {detail}") from error
    num_classes = len(data_config.class_names)
    try:
        network = build_network(arch, config, data_config.input_shape, {CLASSES: num_classes})
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(
            f"{path} does not fit --features {features} ({len(data_config.particles.variables)} features, "
            f"{num_classes} classes): {str(error).splitlines()[1].strip()}"
        ) from error
    return new_tagger(network, data_config, made_up_jets())


def export_weaver(
    tagger: str | Path, out: str | Path, dialect: Dialect = "0.5", *, overwrite: bool = False
) -> int:
    """Write the weights of a tagger for weaver-core; return the number of tensors.

    A file of other contents is replaced only with `overwrite`.
    """
    network = load_torch_tagger(tagger).network
    weights, backbone = network.state_dict(), network.backbone
    if isinstance(backbone, ParticleTransformer):
        state = export_particle_transformer(weights, backbone.config, dialect)
    elif isinstance(backbone, ParticleNet):
        state = export_particlenet(weights)
    else:
        raise DataError(f"{tagger}: weaver-core has no such network ({type(backbone).__name__})")
    buffer = io.BytesIO()
    torch.save(state, buffer)
    maker = f"partt export-weaver from {tagger}"
    write_new(out, buffer.getvalue(), maker, find_tagger(tagger), overwrite=overwrite)
    return len(state)


def write_new(
    out: str | Path, contents: bytes, maker: str, source: str | Path, *, overwrite: bool = False
) -> None:
    """Write a file; `source` is never replaced, a file of other contents only with `overwrite`."""
    out = Path(out)
    if os.path.realpath(out) == os.path.realpath(source):
        raise ConfigError(f"{out} is the input and would be replaced; choose another --out")
    refuse_foreign(out, maker, lambda path: path.read_bytes() == contents, overwrite=overwrite)
    with writing_to(out.parent, [out]), atomic_path(out) as temporary:
        temporary.write_bytes(contents)
