"""ParticleNet (arXiv:1902.08570): the layers of weaver-core's module, run on packed particles and edges.

Several collections are joined as in weaver-core's ParticleNetTagger: a layer for each brings them to the same
number of features, and neighbours may be of any collection.

Axes: B jets, T particles of all jets, K neighbours of a particle, W channels, F features, D width of the
embedding; inside a group of jets of similar length: G jets, P particles (padded; mask True = real).
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from weaver.nn.model.ParticleNet import ParticleNet as WeaverParticleNet

from partt.config import Record
from partt.jet_inputs import InputShape, JetInputs, Layout, PaddedInputs, main_collection
from partt.model.config_types import MAX_LAYERS, Width, Widths
from partt.model.embeddings import batch_norm
from partt.model.grouping import JetGroup, group_jets, join_rows, sum_over_jets, take_rows
from partt.model.heads import HeadConfig, with_head
from partt.model.interleaving import interleave, side_by_side
from partt.model.network import Backbone, Embeddings
from partt.model.precision import full_precision

# In evaluation jets are independent; with this many at a time the edges fit the cache.
JETS_AT_A_TIME = {"cpu": 32}
JETS_AT_A_TIME_ELSEWHERE = 1024


class ParticleNetConfig(Record):
    """Shape of a ParticleNet; the defaults are the network published with JetClass."""

    num_neighbours: Width = 16
    convolutions: Annotated[tuple[Widths, ...], Field(strict=False, max_length=MAX_LAYERS)] = (
        (64, 64, 64),
        (128, 128, 128),
        (256, 256, 256),
    )
    fusion: bool = False
    """join the results of all convolutions, weaver's use_fusion, instead of taking the last"""
    feature_width: Width = 32
    """features of a particle after the first layer of its collection; only for several collections"""
    head: HeadConfig = HeadConfig(hidden_widths=(256,), dropout=0.1)

    @model_validator(mode="before")
    @classmethod
    def _read_older_keys(cls, settings: Any) -> Any:
        return with_head(settings, cls.model_fields["head"].default)

    @property
    def width(self) -> int:
        """Width of the embedding."""
        if not self.fusion:
            return self.convolutions[-1][-1]
        joined = sum(widths[-1] for widths in self.convolutions)
        return min(max(joined // 128 * 128, 128), 1024)  # as weaver-core chooses it


class FeatureLayer(nn.Module):
    """BatchNorm -> Linear -> BatchNorm -> ReLU on the features of a collection."""

    def __init__(self, num_features: int, width: int) -> None:
        super().__init__()
        self.input_norm = nn.BatchNorm1d(num_features)
        self.linear = nn.Linear(num_features, width, bias=False)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, features: Tensor) -> Tensor:
        """Return (..., W) from features (..., F)."""
        return batch_norm(self.linear(batch_norm(features, self.input_norm)), self.norm).relu()


class ParticleNet(Backbone):
    """Edge convolutions among the nearest neighbours of every particle.

    weaver-core's module owns the weights and is the reference. It pads every jet to the longest of the batch;
    here only real particles and their edges are computed and enter BatchNorm.
    """

    config: ParticleNetConfig
    needs_points = "ParticleNet needs coordinates"
    learned_with: ClassVar[tuple[str, ...]] = ("num_neighbours",)

    def __init__(self, config: ParticleNetConfig, shape: InputShape) -> None:
        super().__init__(config, config.width, config.head)
        self.token_width = self.width
        self.min_slots = config.num_neighbours + 1  # a particle and its neighbours
        collections = self.all_collections(shape)
        self.main = main_collection(shape)
        num_features = next(iter(collections.values())).num_features
        self.feature_layers = nn.ModuleDict()
        if len(collections) > 1:
            num_features = config.feature_width
            for name, collection in collections.items():
                self.feature_layers[name] = FeatureLayer(collection.num_features, num_features)
        self.weaver = _weaver_layers(config, num_features)

    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        """Return the mean of the particles after the last layer over each jet (B, D).

        On request also the particles after the last layer (T, D).
        """
        collections = interleave(inputs.collections)
        layout, points = collections.layout, collections.points
        features = collections.join(self._features(inputs))
        step = JETS_AT_A_TIME.get(layout.device.type, JETS_AT_A_TIME_ELSEWHERE)
        if self.training:
            step = layout.num_jets
        jets, tokens = [], []
        for start in range(0, layout.num_jets, step):
            rows, part = layout.part(start, start + step)
            x = self._convolve(features[rows], points[rows], part)
            jets.append(sum_over_jets(x, part.offsets) / part.lengths.clamp(min=1)[:, None])
            tokens += [x] if with_tokens else []
        if not with_tokens:
            return Embeddings(torch.cat(jets))
        packed = {name: collections.rows_of(name, torch.cat(tokens)) for name in inputs.collections}
        return Embeddings(torch.cat(jets), packed.pop(self.main), packed)

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the embeddings (B, D) of padded jets."""
        jets = side_by_side(inputs, self._features(inputs))
        points = cast("Tensor", jets.points).transpose(1, 2)
        embeddings: Tensor = self.weaver(points, jets.features.transpose(1, 2), jets.mask[:, None])
        return embeddings

    def _features(self, inputs: JetInputs | PaddedInputs) -> dict[str, Tensor]:
        """Return features of every collection (..., F), with the same F for all."""
        features = {name: collection.features for name, collection in inputs.collections.items()}
        return {name: layer(features[name]) for name, layer in self.feature_layers.items()} or features

    def _convolve(self, features: Tensor, points: Tensor, layout: Layout) -> Tensor:
        """Return the particles after the last layer (T, D)."""
        groups = group_jets(layout, min_length=self.min_slots)
        x = normalise(features, self.weaver.bn_fts)  # (T, F)
        outputs = []
        for block in self.weaver.edge_convs:
            neighbours = nearest_neighbours(points, layout, groups, self.config.num_neighbours)
            x = points = edge_convolution(block, x, neighbours)
            outputs.append(x)
        if not self.config.fusion:
            return x
        convolution, norm, _ = self.weaver.fusion_block
        return normalise(torch.cat(outputs, dim=1) @ convolution.weight.flatten(1).T, norm).relu()


def _weaver_layers(config: ParticleNetConfig, num_features: int) -> WeaverParticleNet:
    """Return weaver-core's module without its head."""
    with torch.random.fork_rng(devices=[]):  # the constructor also draws weights of a head
        module = WeaverParticleNet(
            num_features,
            num_classes=1,
            conv_params=[(config.num_neighbours, list(widths)) for widths in config.convolutions],
            fc_params=[(1, 0.0)],
            use_fusion=config.fusion,
            trim=False,
        )
    module.fc = nn.Identity()
    for layer in module.modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d):
            layer.reset_parameters()
    return module


@torch.no_grad()
def nearest_neighbours(
    points: Tensor, layout: Layout, groups: Sequence[JetGroup], num_neighbours: int
) -> Tensor:
    """Return the rows of each particle's neighbours (T, K), nearest first; T where the jet has no more.

    In mixed precision, too, distances have full precision: they are small differences of large numbers.
    """
    num_rows, points = len(points), points.float() if points.dtype == torch.bfloat16 else points
    found = []
    for group in groups:
        x = take_rows(points, group.rows)  # (G, P, W)
        squares = x.square().sum(dim=2)  # (G, P)
        with full_precision(points):
            distances = torch.baddbmm(squares[:, :, None] + squares[:, None], x, x.transpose(1, 2), alpha=-2)
        rows = group.rows[:, None].expand_as(distances)
        if group.mask is not None:
            distances.masked_fill_(~group.mask[:, None], torch.inf)
            rows = rows.masked_fill(~group.mask[:, None], num_rows)
        # The nearest one is the particle itself. Rounding gives some pairs a distance below zero.
        nearest = distances.clamp_(min=0).topk(num_neighbours + 1, largest=False).indices[..., 1:]
        found.append(rows.gather(2, nearest))  # (G, P, K)
    return join_rows(found, groups, layout)


def edge_convolution(block: nn.Module, x: Tensor, neighbours: Tensor) -> Tensor:
    """Return ReLU(shortcut(x) + mean over neighbours of MLP(x_i, x_j - x_i)) (T, W) from x (T, V).

    The first layer, U x_i + V (x_j - x_i) = (U - V) x_i + V x_j, is computed per particle, not per edge.
    """
    weights = [cast("Tensor", conv.weight).flatten(1) for conv in cast("nn.ModuleList", block.convs)]
    norms = list(cast("nn.ModuleList", block.bns))
    of_self, of_other = weights[0].chunk(2, dim=1)
    others = functional.pad(x @ of_other.T, (0, 0, 0, 1))  # (T + 1, W): the last one is a missing neighbour
    chosen = take_rows(others, neighbours)  # (T, K, W)
    edges = chosen + (x @ (of_self - of_other).T)[:, None]
    edges = functional.relu(normalise(edges.flatten(0, 1), norms[0]), inplace=True)
    for weight, norm in zip(weights[1:], norms[1:], strict=True):
        edges = functional.relu(normalise(edges @ weight.T, norm), inplace=True)
    mean = edges.view(*neighbours.shape, edges.shape[1]).mean(dim=1)
    shortcut = cast("nn.Conv1d | None", block.sc)
    if shortcut is not None:
        x = normalise(x @ shortcut.weight.flatten(1).T, cast("nn.BatchNorm1d", block.sc_bn))
    return functional.relu(x + mean)


def normalise(rows: Tensor, norm: nn.Module) -> Tensor:
    """Apply a BatchNorm of any dimension to rows (N, W); fewer than two have no variance: the running one."""
    norm = cast("nn.BatchNorm2d", norm)
    training = norm.training and len(rows) > 1
    if training and norm.num_batches_tracked is not None:
        norm.num_batches_tracked += 1
    momentum = 0.0 if norm.momentum is None else norm.momentum
    return functional.batch_norm(
        rows, norm.running_mean, norm.running_var, norm.weight, norm.bias, training, momentum, norm.eps
    )
