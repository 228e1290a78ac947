"""Weights of weaver-core's networks <-> weights of partt's networks.

ParticleTransformer (versions 1, 2, 3) and ParticleNet of one collection; ParticleTransformerTagger and
ParticleNetTagger of several.

Two dialects of version 1 have the same shapes. weaver-core 0.4 scales heads with a contraction that also
moves channel h * (D / H) + d to d * H + h; weaver-core >= 0.5 does not move channels. Loading one as the
other gives random guesses without an error, so an import must know the dialect.
"""

import pickle
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import Tensor

from partt.errors import DataError
from partt.jet_inputs import CollectionShape, InputShape, main_collection
from partt.model.baselines.particlenet import ParticleNetConfig
from partt.model.config_types import CLASSES
from partt.model.heads import HeadConfig
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.model.registry import network_config
from partt.model.weaver_architecture import State, WeaverArchitecture, plain_names, recognise, widths_of
from partt.physics.pair_features import PAIR_FEATURE_SETS
from partt.regular_files import require_regular

MAX_BYTES = 2**32

Dialect: TypeAlias = Literal["0.4", "0.5"]

_BLOCK_PARTS = (  # weaver's name inside a block, partt's
    ("pre_attn_norm", "norm"),
    ("attn.in_proj", "attention.in_proj"),
    ("attn.out_proj", "attention.out_proj"),
    ("c_attn", "attention.head_scale"),
    ("post_attn_norm", "attention_norm"),
    ("pre_fc_norm", "feed_forward.norm"),
    ("fc1", "feed_forward.fc1"),
    ("fc1_g", "feed_forward.gate"),
    ("post_fc_norm", "feed_forward.hidden_norm"),
    ("fc2", "feed_forward.fc2"),
    ("w_resid", "feed_forward.residual_scale"),
)
BACKBONE, HEAD = "backbone.", f"heads.{CLASSES}."
EXPORTED = "part, part_plain, part_v2, part_v3 and particlenet"
DEFAULT_COLLECTIONS = ("pf", "sv")
HEAD_DROPOUT = 0.1  # the weights do not tell it; of the published networks
_CONVOLUTION = re.compile(
    rf"{re.escape(BACKBONE)}(pair_embedding\.linears\.\d+|feature_layers\.\w+\.linear)\.weight"
)


def import_particle_transformer(
    weaver_state: Mapping[str, Tensor],
    dialect: Dialect | None = None,
    collections: Sequence[str] = DEFAULT_COLLECTIONS,
    settings: Mapping[str, object] | None = None,
) -> tuple[ParticleTransformerConfig, State]:
    """Return the config and the state dict of the network in a weaver state dict.

    `collections` are the names of the collections in the data config, in order. The config follows from the
    shapes, except for `settings`: `pair_last_activation` and `self_pairs` (weaver's `use_pre_activation_pair`
    and `remove_self_pair`), `pair_features` if there are six, `num_heads` of versions 2 and 3 without pair
    features, dropouts.
    """
    state = plain_names(weaver_state)
    architecture = recognise(weaver_state)
    if architecture.kind != "part":
        raise DataError(f"not a Particle Transformer: it looks like {architecture}; is --arch correct?")
    dialect = tell_dialect(state, dialect)
    config = _read_config(state, architecture, settings or {})
    collections = _named(collections, architecture)
    renamed = _renamed(state, dict(_names(config, collections)))
    token = f"{BACKBONE}class_token"
    renamed[token] = renamed[token].flatten()
    return config, _move_channels(renamed, config, to="0.5") if dialect == "0.4" else renamed


def export_particle_transformer(
    state: Mapping[str, Tensor],
    config: ParticleTransformerConfig,
    dialect: Dialect = "0.5",
    collections: Sequence[str] = ("pf",),
) -> State:
    """Return the weaver state dict of a network: the inverse of the import."""
    if config.embedding != "mlp" or config.pair_features == "pp_jet":
        raise DataError(f"weaver-core has no such network: only {EXPORTED} can be exported")
    if config.block != "normformer" and dialect == "0.4":
        raise DataError("weaver-core 0.4 has no such network: use --dialect 0.5")
    state = dict(state)
    _check_export(collections, state, config.width)
    if dialect == "0.4":
        state = _move_channels(state, config, to="0.4")
    weaver_state = _renamed(state, {ours: weaver for weaver, ours in _names(config, collections)})
    weaver_state["cls_token"] = weaver_state["cls_token"].view(1, 1, -1)
    if dialect == "0.4":
        weaver_state = {name.replace("in_proj.", "in_proj_"): tensor for name, tensor in weaver_state.items()}
    return _tagger_names(weaver_state, "part", len(collections))


def import_particlenet(
    weaver_state: Mapping[str, Tensor],
    collections: Sequence[str] = DEFAULT_COLLECTIONS,
    settings: Mapping[str, object] | None = None,
) -> tuple[ParticleNetConfig, State]:
    """Return the config and the state dict of the ParticleNet in a weaver state dict.

    The config follows from the shapes, except for `settings`: `num_neighbours` (16, as published), dropouts.
    """
    state = plain_names(weaver_state)
    architecture = recognise(weaver_state)
    if architecture.kind != "particlenet":
        raise DataError(f"not a ParticleNet: it looks like {architecture}; is --arch correct?")
    collections = _named(collections, architecture)
    found: dict[str, Any] = {
        "convolutions": _convolution_widths(state),
        "fusion": "fusion_block.0.weight" in state,
        "head": _head(architecture),
    }
    if len(collections) > 1:
        found["feature_width"] = len(state["bn_fts.weight"])
    config = cast("ParticleNetConfig", network_config("particlenet", {**found, **(settings or {})}))
    return config, _renamed(state, dict(_particlenet_names(state, config, collections)))


def export_particlenet(
    state: Mapping[str, Tensor], config: ParticleNetConfig, collections: Sequence[str] = ("pf",)
) -> State:
    """Return the weaver state dict of a ParticleNet."""
    state = dict(state)
    _check_export(collections, state, config.width)
    weaver = {name.removeprefix(f"{BACKBONE}weaver."): tensor for name, tensor in state.items()}
    to_weaver = {ours: theirs for theirs, ours in _particlenet_names(weaver, config, collections)}
    return _tagger_names(_renamed(state, to_weaver), "pn", len(collections))


def read_weaver_file(path: str | Path) -> State:
    """Read a .pt file with a state dict to the CPU; only tensors are accepted, so no code can run."""
    require_regular(path, max_bytes=MAX_BYTES)
    try:
        with warnings.catch_warnings():  # about foreign pickles, which are refused anyway
            warnings.filterwarnings("ignore", "Detected pickle protocol")
            state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{path} is damaged, or contains more than tensors and could execute code; save only the state "
            "dict, with torch.save(model.state_dict(), file)"
        ) from error
    except MemoryError as error:
        size = f"{Path(path).stat().st_size} bytes"
        raise DataError(
            f"{path}: reading these {size} takes more memory than there is; the file may be damaged"
        ) from error
    except Exception as error:  # a broken file can make its reader raise anything
        raise DataError(f"{path} is damaged, or not a state dict that torch.save has written") from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items()
    ):
        raise DataError(f"{path} is not a state dict: it must map names to tensors")
    for name, tensor in state.items():
        if tensor.layout != torch.strided or not (tensor.is_floating_point() or tensor.dtype == torch.int64):
            raise DataError(f"{path}: the weight {name[:100]} is {tensor.layout} {tensor.dtype}, not numbers")
    return dict(state)


def tell_dialect(weaver_state: Mapping[str, Tensor], given: Dialect | None) -> Dialect:
    """Return the dialect of a Particle Transformer's weights, from their names or as given.

    Only 0.4 writes `attn.in_proj_weight`; 0.5 renames it when it loads a file. `attn.in_proj.weight` proves
    nothing: 0.5 writes it, also for weights that 0.4 trained.
    """
    if any(name.endswith("attn.in_proj_weight") for name in weaver_state):
        if given == "0.5":
            raise DataError(
                "these weights are those of weaver-core 0.4: later versions write no attn.in_proj_weight"
            )
        return "0.4"
    if given is None and any(name.endswith("c_attn") for name in weaver_state):
        raise DataError(
            "the names of the weights do not show whether weaver-core 0.4 or 0.5 trained them, and the wrong "
            "choice gives wrong scores: use --dialect 0.5 if weaver-core >= 0.5 trained them, or "
            "--dialect 0.4 if an older version trained them and a newer one saved them again"
        )
    return given or "0.5"


def _names(config: ParticleTransformerConfig, collections: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return weaver's names and partt's, of modules and of parameters outside of modules."""
    yield "cls_token", f"{BACKBONE}class_token"
    yield "norm", f"{BACKBONE}norm"
    main = main_collection(InputShape(dict.fromkeys(collections, CollectionShape(1))))
    for number, name in enumerate(collections):
        ours = f"{BACKBONE}" + ("particle_embedding" if name == main else f"other_embeddings.{name}")
        yield f"embeds.{number}.input_bn", f"{ours}.input_norm"
        for index in range(len(config.embedding_widths) + 1):
            yield f"embeds.{number}.embed.{3 * index}", f"{ours}.norms.{index}"
            yield f"embeds.{number}.embed.{3 * index + 1}", f"{ours}.linears.{index}"
    if config.pair_widths is not None:
        yield "pair_embed.embed.0", f"{BACKBONE}pair_embedding.input_norm"
        for index in range(len(config.pair_widths) + 1):
            yield f"pair_embed.embed.{3 * index + 1}", f"{BACKBONE}pair_embedding.linears.{index}"
            yield f"pair_embed.embed.{3 * index + 2}", f"{BACKBONE}pair_embedding.norms.{index}"
    for kind, ours, count in (
        ("blocks", "blocks", config.num_blocks),
        ("cls_blocks", "class_blocks", config.num_class_blocks),
    ):
        for index in range(count):
            for part, our_part in _BLOCK_PARTS:
                yield f"{kind}.{index}.{part}", f"{BACKBONE}{ours}.{index}.{our_part}"
    yield from _head_names(config.head)


def _particlenet_names(
    state: State, config: ParticleNetConfig, collections: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Return weaver's names and partt's, of modules; the state has weaver's names below `weaver.`."""
    yield from _head_names(config.head)
    for number, name in enumerate(collections if len(collections) > 1 else ()):
        for index, layer in enumerate(("input_norm", "linear", "norm")):
            yield f"feature_convs.{number}.conv.{index}", f"{BACKBONE}feature_layers.{name}.{layer}"
    for name in state:
        if name.startswith(("bn_fts.", "edge_convs.", "fusion_block.")):
            module = name.rpartition(".")[0]
            yield module, f"{BACKBONE}weaver.{module}"


def _head_names(head: HeadConfig) -> Iterator[tuple[str, str]]:
    count = len(head.hidden_widths)
    for index in range(count):
        yield f"fc.{index}.0", f"{HEAD}hidden.{3 * index}"
    yield f"fc.{count}", f"{HEAD}output"


def _named(collections: Sequence[str], architecture: WeaverArchitecture) -> Sequence[str]:
    """Return a name for each collection of the network."""
    count = len(architecture.num_features)
    if count > len(collections):
        raise DataError(f"it takes {count} collections, not {len(collections)} ({', '.join(collections)})")
    return collections[:count]


def _renamed(state: State, names: Mapping[str, str]) -> State:
    """Rename weights, by names of modules or of the weights themselves; convolutions <-> matrices."""
    renamed: State = {}
    for name, tensor in state.items():
        module, _, kind = name.replace("in_proj_", "in_proj.").rpartition(".")
        new = names.get(name) or (f"{names[module]}.{kind}" if module in names else None)
        if new is None:
            raise DataError(f"unknown weight {name[:100]!r}: not a network of weaver-core that partt knows")
        if _CONVOLUTION.fullmatch(new):
            tensor = tensor[..., 0]  # noqa: PLW2901
        elif _CONVOLUTION.fullmatch(name):
            tensor = tensor[..., None]  # noqa: PLW2901
        renamed[new] = tensor
    return renamed


def _tagger_names(state: State, network: str, num_collections: int) -> State:
    """Return weights with the names of weaver-core's network of one collection, or of its tagger of two."""
    if num_collections == 1:
        return {re.sub(r"^embeds\.0\.", "embed.", name): tensor for name, tensor in state.items()}
    renamed = {}
    for name, tensor in state.items():
        match = re.match(r"(embeds|feature_convs)\.(\d)\.", name)
        if match is None:
            renamed[f"{network}.{name}"] = tensor
        else:
            kind = "embed" if match[1] == "embeds" else "conv"
            renamed[f"{DEFAULT_COLLECTIONS[int(match[2])]}_{kind}.{name[match.end() :]}"] = tensor
    return renamed


def _check_export(collections: Sequence[str], state: State, width: int) -> None:
    if len(collections) > len(DEFAULT_COLLECTIONS):
        raise DataError(f"weaver-core's taggers take two collections, this one {len(collections)}")
    first_layer = state.get(f"{HEAD}hidden.0.weight", state[f"{HEAD}output.weight"])
    if first_layer.shape[1] != width:
        raise DataError("weaver-core's networks take no jet-level features")


def _head(architecture: WeaverArchitecture, *, bias: bool = True) -> HeadConfig:
    dropout = HEAD_DROPOUT if architecture.head_widths else 0.0
    return HeadConfig(hidden_widths=architecture.head_widths, dropout=dropout, bias=bias)


def _convolution_widths(state: State) -> tuple[tuple[int, ...], ...]:
    blocks = sorted({int(name.split(".")[1]) for name in state if name.startswith("edge_convs.")})
    return tuple(tuple(widths_of(state, rf"edge_convs\.{block}\.convs\.(\d+)\.weight")) for block in blocks)


def _read_config(
    state: State, architecture: WeaverArchitecture, settings: Mapping[str, object]
) -> ParticleTransformerConfig:
    """Return the config that follows from the shapes of the weights, and from settings."""
    embedding = widths_of(state, r"embeds\.0\.embed\.(\d+)\.weight")
    pair = widths_of(state, r"pair_embed\.embed\.(\d+)\.weight")
    found: dict[str, Any] = {
        "width": state["cls_token"].shape[-1],
        "num_blocks": len(widths_of(state, r"blocks\.(\d+)\.fc1\.weight")),
        "num_class_blocks": len(widths_of(state, r"cls_blocks\.(\d+)\.fc1\.weight")),
        "feed_forward_width": len(state["blocks.0.fc1.weight"]),
        "embedding_widths": tuple(embedding[:-1]),
        "pair_widths": tuple(pair[:-1]) if pair else None,
        "head": _head(architecture, bias=architecture.block != "swiglu_rms"),
    }
    if pair:
        found["num_heads"] = pair[-1]
        if "pair_features" not in settings:
            found["pair_features"] = _pair_features(architecture.num_pair_features)
    elif "blocks.0.c_attn" in state:
        found["num_heads"] = len(state["blocks.0.c_attn"])
    config = network_config(architecture.network, {**found, **settings})
    return cast("ParticleTransformerConfig", config)


def _pair_features(count: int) -> str:
    """Return the set of pair features with this many."""
    names = [name for name, features in PAIR_FEATURE_SETS.items() if len(features.names) == count]
    if len(names) == 1:
        return names[0]
    known = ", ".join(names) or "none"
    raise DataError(
        f"{count} pair features: say which with --set pair_features=NAME; known with {count}: {known}"
    )


def _move_channels(state: Mapping[str, Tensor], config: ParticleTransformerConfig, to: Dialect) -> State:
    """Fold the head scales into out_proj and permute its rows, which is exact."""
    num_heads = config.num_heads
    head_dim = config.width // num_heads
    order = torch.arange(config.width).view(num_heads, head_dim).T.flatten()
    if to == "0.4":
        order = order.argsort()
    moved = dict(state)
    for name in state:
        if name.endswith(".head_scale"):
            scale = state[name].repeat_interleave(head_dim)
            out_proj = name.removesuffix("head_scale") + "out_proj"
            moved[f"{out_proj}.weight"] = (scale[:, None] * state[f"{out_proj}.weight"])[order]
            moved[f"{out_proj}.bias"] = (scale * state[f"{out_proj}.bias"])[order]
            moved[name] = torch.ones_like(state[name])
    return moved
