"""Weights of weaver-core -> taggers, and taggers -> weights for weaver-core."""

import io
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from partt.atomic_files import atomic_path, refuse_foreign
from partt.config import Record, parse_yaml, shipped_names
from partt.data.config.data_config import DataConfig, branches_to_read, load_data_config
from partt.data.files.lists import expand_files
from partt.data.jagged import Table
from partt.data.jet_files import open_jets
from partt.data.made_up_jets import made_up_jets
from partt.data.variables import read_variables
from partt.errors import ConfigError, DataError
from partt.jobs.output_folder import writing_to
from partt.model.baselines.particlenet import ParticleNet
from partt.model.config_types import CLASSES
from partt.model.particle_transformer import ParticleTransformer
from partt.model.registry import build_network
from partt.model.weaver_architecture import State, WeaverArchitecture, recognise
from partt.model.weaver_weights import (
    EXPORTED,
    Dialect,
    export_particle_transformer,
    export_particlenet,
    import_particle_transformer,
    import_particlenet,
    read_weaver_file,
)
from partt.regular_files import has_contents
from partt.tagger.loading import find_tagger, load_torch_tagger
from partt.tagger.tagger_file import TorchTagger, new_tagger

NUM_REFERENCE_JETS = 8


def import_weaver(
    path: str | Path,
    data_config: str,
    dialect: Dialect | None = None,
    *,
    settings: Sequence[str] = (),
    jets: str | None = None,
) -> TorchTagger:
    """Return a tagger from a state dict of weaver-core.

    `data_config` is a name or path; `settings` ("self_pairs=false") are those of the network that weights do
    not show; `jets` is a file with some jets, needed unless the inputs are branches of JetClass.
    """
    config = load_data_config(data_config)
    weaver_state = read_weaver_file(path)
    architecture = _recognised(path, weaver_state)
    shape, num_classes = config.input_shape, len(config.class_names)
    if not _fits(architecture, config):
        counts = " + ".join(str(item.num_features) for item in shape.collections.values())
        raise DataError(
            f"{path} looks like {architecture}: the data config {data_config} does not fit, with {counts} "
            f"features and {num_classes} classes; {fitting_configs(architecture)}"
        )
    collections, options = tuple(shape.collections), _parsed(settings)
    network_config: Record
    try:
        if architecture.kind == "part":
            network_config, state = import_particle_transformer(weaver_state, dialect, collections, options)
        else:
            network_config, state = import_particlenet(weaver_state, collections, options)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"{path}: its weights have shapes that do not fit together: {detail}") from error
    try:
        network = build_network(architecture.network, network_config, shape, {CLASSES: num_classes})
        network.load_state_dict(state)
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error
    except RuntimeError as error:
        detail = str(error).splitlines()[1].strip()
        raise DataError(f"{path}: its weights do not fit the network: {detail}") from error
    return new_tagger(network, config, _reference_jets(config, data_config, jets))


def describe_weaver_file(path: str | Path) -> tuple[WeaverArchitecture, str]:
    """Return which network a state dict of weaver-core holds, and which shipped data configs fit it."""
    architecture = _recognised(path, read_weaver_file(path))
    return architecture, fitting_configs(architecture)


def fitting_configs(architecture: WeaverArchitecture) -> str:
    """Say which of the data configs that partt ships fit a network."""
    names = [name for name in shipped_names("data_configs") if _fits(architecture, load_data_config(name))]
    return f"shipped data configs that fit: {', '.join(names) or 'none'}"


def _recognised(path: str | Path, weaver_state: State) -> WeaverArchitecture:
    try:
        return recognise(weaver_state)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"{path}: its weights have shapes that do not fit together: {detail}") from error


def _fits(architecture: WeaverArchitecture, config: DataConfig) -> bool:
    features = tuple(item.num_features for item in config.input_shape.collections.values())
    return features == architecture.num_features and len(config.class_names) == architecture.num_classes


def _parsed(settings: Sequence[str]) -> dict[str, object]:
    """Return settings of a network, KEY=VALUE each."""
    parsed = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not (name and equals):
            raise ConfigError(f"--set {setting}: should be KEY=VALUE, like self_pairs=false")
        parsed[name] = parse_yaml(text or "null", f"--set {setting}")[0]
    return parsed


def _reference_jets(config: DataConfig, name: str, jets: str | None) -> Table:
    if jets is not None:
        file = open_jets(expand_files([jets])[0], config)
        count = min(NUM_REFERENCE_JETS, file.num_entries)
        return read_variables(config, set(config.input_names), file, 0, count).branches
    made_up = made_up_jets()
    missing = sorted(branches_to_read(config, config.input_names) - made_up.keys())
    if missing:
        raise ConfigError(
            f"the data config {name} needs branches that JetClass does not have ({', '.join(missing[:5])}): "
            "give a file with such jets, --jets FILE"
        )
    return made_up


def export_weaver(
    tagger: str | Path, out: str | Path, dialect: Dialect = "0.5", *, overwrite: bool = False
) -> int:
    """Write the weights of a tagger for weaver-core; return the number of tensors.

    A file of other contents is replaced only with `overwrite`.
    """
    loaded = load_torch_tagger(tagger)
    loaded.require_predictions()
    if loaded.regressions:
        names = ", ".join(task.name for task in loaded.regressions)
        raise DataError(f"{tagger} has regressions ({names}), and weaver-core's networks only classes")
    weights, backbone = loaded.network.state_dict(), loaded.network.backbone
    collections = tuple(loaded.data_config.input_shape.collections)
    try:
        if isinstance(backbone, ParticleTransformer):
            state = export_particle_transformer(weights, backbone.config, dialect, collections)
        elif isinstance(backbone, ParticleNet):
            state = export_particlenet(weights, backbone.config, collections)
        else:
            raise DataError(f"weaver-core has no such network: only {EXPORTED} can be exported")
    except DataError as error:
        raise DataError(f"{tagger} ({loaded.network_name}): {error}") from error
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
    refuse_foreign(out, maker, lambda path: has_contents(path, contents), overwrite=overwrite)
    with writing_to(out.parent, [out]), atomic_path(out) as temporary:
        temporary.write_bytes(contents)
