"""The module of a weaver network file as a network of partt: jets are padded exactly as in weaver-core.

Axes: B jets, V variables of an input group, P slots of a padded jet, O outputs.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict
from torch import Tensor, nn
from torch.nn import functional

from partt.config import Record, did_you_mean
from partt.errors import ConfigError
from partt.jet_inputs import Collection, InputShape, JetInputs, PaddedCollection, PaddedInputs
from partt.model.config_types import CLASSES
from partt.model.device_numbers import numbers_like
from partt.model.foreign_code import blamed_on, importing_beside, seeded_by_torch
from partt.model.network import Backbone, Embeddings, Network, Outputs

SCORES_TOLERANCE = 1e-4  # of a score, when the two forms of a network are compared


class WeaverDataConfig:
    """Stands in for weaver-core's DataConfig, with the attributes that network files use."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.__dict__.update(copy.deepcopy(dict(attributes)))

    def __getattr__(self, name: str) -> Any:
        known = sorted(vars(self))
        raise AttributeError(
            f"partt's data_config has no {name!r}{did_you_mean(name, known)}; it has {', '.join(known)}"
        )


@dataclass(frozen=True)
class PaddedGroup:
    """An input group as weaver-core pads it: (B, V, length); (B, V) or (B,) for jets without a length."""

    name: str
    collection: str | None  # None: a group of jet-level features
    tensor: str  # features, momenta, points or mask of the collection, or another of its groups
    length: int | None  # None in a collection: as many slots as the longest jet of the batch has
    pad_values: tuple[float, ...]  # (V)
    wraps: bool = False  # the padding repeats the particles

    def pad(self, inputs: PaddedInputs) -> Tensor:
        """Return the argument of the module, from jets that are padded in any way."""
        if self.collection is not None:
            particles = inputs.collections[self.collection]
            rows, is_real = _rows(particles, self.tensor), particles.mask[..., None].to(particles.features)
            return self._fill(_slots(rows, self.length), _slots(is_real, self.length)).transpose(1, 2)
        values = inputs.jet_features[self.name]  # (B, V)
        if self.length is None:
            return values if values.shape[1] > 1 else values[:, 0]
        rows = values[:, None]  # as if the jet had one particle
        is_real = torch.ones_like(rows[..., :1])
        return self._fill(_slots(rows, self.length), _slots(is_real, self.length)).transpose(1, 2)

    def _fill(self, rows: Tensor, is_real: Tensor) -> Tensor:
        """Fill the padding of rows (B, P, V); is_real (B, P, 1) is 1 or 0."""
        if not self.wraps:
            return torch.where(is_real != 0, rows, numbers_like(rows, self.pad_values))
        num_rows = is_real.sum(dim=1).clamp(min=1).long()  # (B, 1)
        slots = torch.arange(rows.shape[1], device=rows.device) % num_rows  # (B, P)
        return rows.gather(1, slots[..., None].expand_as(rows))


def _rows(particles: PaddedCollection, tensor: str) -> Tensor:
    if tensor in particles.others:
        return particles.others[tensor]
    if tensor == "mask":
        return particles.mask[..., None].to(particles.features)
    rows: Tensor = getattr(particles, tensor)
    return rows


def _slots(rows: Tensor, length: int | None) -> Tensor:
    """Return rows (B, P, V) with `length` slots; added ones are 0."""
    return rows if length is None else functional.pad(rows, (0, 0, 0, length))[:, :length]


@dataclass(frozen=True)
class WeaverInputs:
    """What a weaver network file is told about the jets, and how it gets them."""

    attributes: Mapping[str, Any]  # of weaver-core's DataConfig
    groups: tuple[PaddedGroup, ...]  # in the order of the module's arguments

    @property
    def data_config(self) -> WeaverDataConfig:
        """A new stand-in for weaver-core's DataConfig, which the file may change."""
        return WeaverDataConfig(self.attributes)


class WeaverSettings(Record):
    """Network options: the keyword arguments of get_model and get_loss."""

    model_config = ConfigDict(extra="allow")

    @property
    def options(self) -> dict[str, Any]:
        """A copy of all options, which the file may change."""
        return copy.deepcopy(self.model_extra or {})


class WeaverModule(Backbone):
    """The module of a weaver network file, in the place of a backbone: its embeddings are its outputs."""

    config: WeaverSettings
    takes_jet_features = True

    def __init__(
        self, config: WeaverSettings, path: Path, get_model: Callable[..., Any], inputs: WeaverInputs
    ) -> None:
        super().__init__(config, width=0)
        self.path = path
        self.get_model = get_model
        self.inputs = inputs
        self.module = self._new_module()
        with blamed_on(path):
            never: Any = getattr(self.module, "no_weight_decay", frozenset)()
            self.no_weight_decay = frozenset(f"module.{name}" for name in never)  # type: ignore[misc]

    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        """Return the outputs of the module; it has no embeddings of particles."""
        del with_tokens
        return Embeddings(self.embed_padded(inputs.padded()))

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the outputs of the module."""
        arguments = [group.pad(inputs) for group in self.inputs.groups]
        if self.training or torch.compiler.is_exporting():
            return self._run(arguments)
        try:
            return self._run(arguments)
        except ConfigError:
            # Modules that cut the slots that no jet fills may have too few for their nearest neighbours.
            full_jet = [torch.ones_like(argument[:1]) for argument in arguments]
            with suppress(ConfigError):
                return self._run([torch.cat(pair) for pair in zip(arguments, full_jet, strict=True)])[:-1]
            raise

    def _run(self, arguments: Sequence[Tensor]) -> Tensor:
        seeded: AbstractContextManager[None] = seeded_by_torch() if self.training else nullcontext()
        with blamed_on(self.path), seeded:
            outputs = self.module(*arguments)
        if not isinstance(outputs, Tensor):
            raise ConfigError(
                f"{self.path}: the module should return one tensor, found {type(outputs).__name__}"
            )
        return outputs

    def for_inference(self) -> "WeaverModule":
        """Return its twin with the same weights, with the option for_inference, as weaver-core exports it."""
        config = WeaverSettings.model_validate({**self.config.options, "for_inference": True})
        with torch.random.fork_rng(devices=[]):
            twin = WeaverModule(config, self.path, self.get_model, self.inputs)
        with blamed_on(self.path):
            twin.module.load_state_dict(self.module.state_dict())
        return twin

    def _new_module(self) -> nn.Module:
        with blamed_on(self.path), importing_beside(self.path), seeded_by_torch():
            made = self.get_model(self.inputs.data_config, **self.config.options)
        module = made[0] if isinstance(made, tuple | list) and made else made
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"{self.path}: get_model should return a torch module and model_info, found "
                f"{type(module).__name__}"
            )
        _save_all_buffers(module)
        return module


def _save_all_buffers(module: nn.Module) -> None:
    """Make every buffer a part of the state dict: weaver-core's trimmer counts its calls in another one."""
    saved = module.state_dict().keys()
    for prefix, part in module.named_modules():
        for name, buffer in list(part.named_buffers(recurse=False)):
            if (f"{prefix}.{name}" if prefix else name) not in saved:
                part.register_buffer(name, buffer)


class WeaverNetwork(Network):
    """A network from a weaver network file: the outputs of the module are those of its one head."""

    has_embeddings = False
    backbone: WeaverModule

    def __init__(
        self, name: str, backbone: WeaverModule, shape: InputShape, heads: Mapping[str, int]
    ) -> None:
        super().__init__(name, backbone, shape, {})
        self.shape = shape
        if len(heads) != 1:
            raise ConfigError(
                f"{backbone.path}: a weaver network has one head, but {', '.join(heads) or 'none'} are needed"
            )
        ((self.head, self.num_outputs),) = heads.items()
        self.heads = nn.ModuleDict({self.head: nn.Identity()})

    def forward(self, inputs: JetInputs) -> Outputs:
        """Return the outputs of the module."""
        embeddings: Embeddings = self.backbone(inputs)
        return self.outputs(embeddings.jets)

    def forward_padded(self, inputs: PaddedInputs) -> Outputs:
        """Return the outputs of the module for padded jets."""
        return self.outputs(self.backbone.embed_padded(inputs))

    def outputs(self, embeddings: Tensor) -> Outputs:
        """Return the outputs of the module (B, O) under the name of the head; another shape is an error."""
        if embeddings.shape[1:] != (self.num_outputs,):
            raise ConfigError(
                f"{self.backbone.path}: its module should return [jets, {self.num_outputs}], a column "
                f"for each of the {self.head}, found {list(embeddings.shape)}"
            )
        return {self.head: embeddings}

    def embed(self, inputs: JetInputs) -> Tensor:  # noqa: ARG002
        """Raise an error: nobody knows what inside the module is an embedding."""
        raise ConfigError(f"{self.name}, a weaver network from {self.backbone.path.name}, has no embeddings")

    def for_export(self, example: JetInputs) -> Network:
        """Return the network as weaver-core exports it, if the file knows the option for that."""
        try:
            twin = WeaverNetwork(self.name, self.backbone.for_inference(), self.shape, self.head_sizes)
        except ConfigError:
            return self
        twin = twin.to(self.device).eval()
        with torch.inference_mode():
            logits, outputs = self(example)[self.head], twin(example)[self.head]
        scores = logits.softmax(dim=1)
        gives_scores = self.head == CLASSES and torch.allclose(outputs, scores, rtol=0, atol=SCORES_TOLERANCE)
        return _ExportedNetwork(self, twin.backbone, gives_scores=gives_scores).eval()

    def num_rows(self, inputs: JetInputs) -> Tensor:
        """Return the number of slots of each jet (B,), whether they are filled or not."""
        num_rows = inputs.lengths
        for name, collection in inputs.collections.items():
            length = next(
                (group.length for group in self.backbone.inputs.groups if group.collection == name), None
            )
            num_rows = num_rows if length is None else num_rows - collection.lengths + length
        return num_rows

    @property
    def head_sizes(self) -> dict[str, int]:
        """Head -> number of outputs."""
        return {self.head: self.num_outputs}

    @property
    def last_layers(self) -> dict[str, set[str]]:
        """Its head -> the names of the parameters of the last layer with as many outputs."""
        layers = [
            name
            for name, part in self.named_modules()
            if isinstance(part, nn.Linear | nn.Conv1d) and len(part.weight) == self.num_outputs
        ]
        names = {name for name, _ in self.named_parameters() if name.rpartition(".")[0] in layers[-1:]}
        return {self.head: names}


class _ExportedNetwork(WeaverNetwork):
    """The network as weaver-core exports it: scores are turned into logits.

    Exported attention may give NaN for jets without particles, whose logits are those of torch.
    """

    of_empty_jet: Tensor | None

    def __init__(self, network: WeaverNetwork, backbone: WeaverModule, *, gives_scores: bool) -> None:
        super().__init__(network.name, backbone, network.shape, network.head_sizes)
        self.gives_scores = gives_scores
        empty: Tensor | None = None
        if not network.shape.jet_features:  # all jets without particles are alike
            with torch.no_grad():
                empty = network(_empty_jet(network.shape))[network.head]
        self.register_buffer("of_empty_jet", empty)

    def forward_padded(self, inputs: PaddedInputs) -> Outputs:
        outputs = super().forward_padded(inputs)[self.head]
        logits = outputs.log() if self.gives_scores else outputs
        if self.of_empty_jet is not None:
            masks = [collection.mask for collection in inputs.collections.values()]
            has_particles = torch.stack([mask.any(dim=1) for mask in masks]).any(dim=0)
            logits = torch.where(has_particles[:, None], logits, self.of_empty_jet)
        return {self.head: logits}


def _empty_jet(shape: InputShape) -> JetInputs:
    def rows(size: int) -> Tensor:
        return torch.zeros(0, size)

    return JetInputs(
        {
            name: Collection(
                features=rows(item.num_features),
                offsets=torch.zeros(2, dtype=torch.int64),
                momenta=rows(4) if item.has_momenta else None,
                points=rows(item.num_coordinates) if item.num_coordinates else None,
                others={part: rows(size) for part, size in item.others.items()},
            )
            for name, item in shape.collections.items()
        }
    )
