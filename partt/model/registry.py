"""Networks by name: the Particle Transformer and its sizes, its rivals, and a user's own.

A user's network is found through an entry point of the group `partt.models` that gives a `NetworkKind`:

    [project.entry-points."partt.models"]
    my_network = "my_package.network:KIND"
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

from pydantic import ValidationError
from torch import Tensor, nn

from partt.config import Record, did_you_mean
from partt.errors import ConfigError
from partt.model.cpu.allocator import keep_freed_memory
from partt.model.particle_transformer_config import PRESETS, ParticleTransformerConfig

ENTRY_POINT_GROUP = "partt.models"


class Network(Protocol):
    """What every network is: an nn.Module with a config that is called like this.

    It turns particles (T, F), momenta (T, 4) in GeV if `needs_momenta`, offsets (B + 1), and points
    (T, 2) if `needs_points`, into logits (B, C).
    """

    config: Record
    needs_momenta: bool
    needs_points: bool

    def __call__(
        self, particles: Tensor, momenta: Tensor | None, offsets: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """Return the logits."""
        ...


@dataclass(frozen=True)
class NetworkKind:
    """A config class and the function that builds its network.

    `build` takes the config, the number of features and the number of classes; `preset` are keys of the
    config that differ from its defaults under this name.
    """

    config_type: type[Record]
    build: Callable[[Any, int, int], nn.Module]
    preset: Mapping[str, object] = field(default_factory=dict)


# name -> (module, config class, network class): imported when asked for
_BASELINES = {
    "particlenet": ("particlenet", "ParticleNetConfig", "ParticleNet"),
    "pfn": ("pfn", "PFNConfig", "PFN"),
    "pcnn": ("pcnn", "PCNNConfig", "PCNN"),
    "recurrent": ("recurrent", "RecurrentConfig", "Recurrent"),
}


def network_names() -> list[str]:
    """Return the names of all networks, installed plug-ins included."""
    return [*PRESETS, *_BASELINES, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))]


def network_kind(name: str) -> NetworkKind:
    """Return the kind of network with this name."""
    if name in PRESETS:
        from partt.model.particle_transformer import ParticleTransformer  # noqa: PLC0415

        return NetworkKind(ParticleTransformerConfig, ParticleTransformer, PRESETS[name])
    if name in _BASELINES:
        module_name, config_type, network_type = _BASELINES[name]
        module = importlib.import_module(f"partt.model.baselines.{module_name}")
        return NetworkKind(getattr(module, config_type), getattr(module, network_type))
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return cast("NetworkKind", point.load())
    known = network_names()
    raise ConfigError(f"no network {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}")


def network_config(name: str, options: Mapping[str, object] | None = None) -> Record:
    """Return the config of a named network with some of its keys changed."""
    kind = network_kind(name)
    try:
        return kind.config_type.model_validate({**kind.preset, **(options or {})})
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise ConfigError(f"network {name}: {'; '.join(faults)}") from error


def build_network(name: str, config: Record, num_features: int, num_classes: int) -> nn.Module:
    """Build a network with new weights, drawn from torch's random numbers."""
    keep_freed_memory()
    return network_kind(name).build(config, num_features, num_classes)
