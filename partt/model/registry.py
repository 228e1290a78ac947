"""Networks by name: sizes of the Particle Transformer and of L-GATr-slim, baselines, plug-ins.

A plug-in is an entry point in `partt.models` that refers to a `NetworkKind`:

    [project.entry-points."partt.models"]
    my_network = "my_package.network:KIND"

or is known to this process after `register_network("my_network", KIND)`.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, cast

import torch
from pydantic import ValidationError

from partt.config import MAX_MESSAGES, Record, did_you_mean
from partt.errors import ConfigError, ParttError
from partt.jet_inputs import InputShape
from partt.model.lgatr_slim_config import SLIM_PRESETS, LGATrSlimConfig
from partt.model.network import Backbone, Network
from partt.model.particle_transformer_config import PRESETS, ParticleTransformerConfig

ENTRY_POINT_GROUP = "partt.models"
MAX_PARAMETERS = 10**9


@dataclass(frozen=True)
class NetworkKind:
    """A config class and the backbone that is built from it.

    `backbone` takes the config and the shape of the inputs; `preset`: settings of this name that differ from
    the defaults of the config; `network`: a subclass of Network that joins backbone and heads in its own way.
    """

    config_type: type[Record]
    backbone: Callable[[Any, InputShape], Backbone]
    preset: Mapping[str, object] = field(default_factory=dict)
    network: type[Network] = Network
    can_be_sized: bool = True  # on torch's meta device, before it takes memory


# name -> (module, config class, backbone), imported on demand
_BASELINES = {
    "mlp": ("mlp", "MLPConfig", "MLP"),
    "particlenet": ("particlenet", "ParticleNetConfig", "ParticleNet"),
    "pfn": ("pfn", "PFNConfig", "PFN"),
    "pcnn": ("pcnn", "PCNNConfig", "PCNN"),
    "recurrent": ("recurrent", "RecurrentConfig", "Recurrent"),
}


_registered: dict[str, NetworkKind] = {}  # in this process, by `register_network`


def register_network(name: str, kind: NetworkKind) -> None:
    """Make a network known to this process, in recipes and in tagger files."""
    if name in {*PRESETS, *SLIM_PRESETS, *_BASELINES}:
        raise ConfigError(f"{name!r} is a network of partt: choose another name")
    _registered[name] = kind


def network_names() -> list[str]:
    """Return the names of all networks: partt's, installed plug-ins, registered ones."""
    installed = (point.name for point in entry_points(group=ENTRY_POINT_GROUP))
    return [*PRESETS, *SLIM_PRESETS, *_BASELINES, *installed, *_registered]


def network_kind(name: str) -> NetworkKind:
    """Return the kind of network with this name."""
    if name in PRESETS:
        from partt.model.particle_transformer import ParticleTransformer  # noqa: PLC0415

        return NetworkKind(ParticleTransformerConfig, ParticleTransformer, PRESETS[name])
    if name in SLIM_PRESETS:
        from partt.model.lgatr_slim import LGATrSlim  # noqa: PLC0415

        return NetworkKind(LGATrSlimConfig, LGATrSlim, SLIM_PRESETS[name])
    if name in _BASELINES:
        module_name, config_type, backbone = _BASELINES[name]
        module = importlib.import_module(f"partt.model.baselines.{module_name}")
        return NetworkKind(getattr(module, config_type), getattr(module, backbone))
    if name in _registered:
        return _registered[name]
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return cast("NetworkKind", point.load())
    raise unknown_network(name)


def unknown_network(name: str) -> ConfigError:
    """Return the error about a name that no network has; it says how to get plug-ins."""
    known = network_names()
    return ConfigError(
        f"no network {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}. If it is a plug-in, "
        f"install the package that has it (its entry point is in {ENTRY_POINT_GROUP}) into this environment, "
        "or call register_network before"
    )


def network_config(
    name: str, options: Mapping[str, object] | None = None, kind: NetworkKind | None = None
) -> Record:
    """Return the config of a network with some settings changed; `kind`: if it is not known by its name."""
    kind = kind or network_kind(name)
    try:
        return kind.config_type.model_validate({**kind.preset, **(options or {})})
    except ValidationError as error:
        faults = []
        for fault in error.errors()[:MAX_MESSAGES]:
            key, text = ".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")
            faults.append(f"{key}: {text}" if key else text)
        raise ConfigError(f"network {name}: {'; '.join(faults)}") from error


def build_network(
    name: str,
    config: Record,
    shape: InputShape,
    heads: Mapping[str, int],
    kind: NetworkKind | None = None,
) -> Network:
    """Build a network with new weights, drawn with torch's global generator.

    `heads`: name -> outputs; `kind`: if it is not known by its name.
    """
    kind = kind or network_kind(name)
    try:
        if kind.can_be_sized:
            with torch.random.fork_rng(devices=[]), torch.device("meta"):  # without memory for the weights
                size = kind.network(name, kind.backbone(config, shape), shape, heads).num_parameters
            if size > MAX_PARAMETERS:
                raise ConfigError(
                    f"network {name}: {size} parameters; at most {MAX_PARAMETERS} are supported"
                )
        return kind.network(name, kind.backbone(config, shape), shape, heads)
    except (ParttError, MemoryError):
        raise
    except Exception as error:  # settings that are valid by themselves, but do not fit together
        raise ConfigError(f"network {name} cannot be built: {' '.join(str(error).split())}") from error
