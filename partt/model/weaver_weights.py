"""Weights of weaver-core's ParticleTransformer and ParticleNet <-> weights of partt's networks.

Two dialects have the same shapes. weaver-core 0.4 scales heads with a contraction that also moves channel
h * (D / H) + d to d * H + h; weaver-core >= 0.5 does not move channels. Loading one as the other gives
random guesses without an error, so an import must know the dialect.
"""

import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from partt.errors import DataError
from partt.model.baselines.particlenet import ParticleNetConfig
from partt.model.heads import CLASSES, HeadConfig
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.regular_files import require_regular

State: TypeAlias = dict[str, Tensor]
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
    ("post_fc_norm", "feed_forward.hidden_norm"),
    ("fc2", "feed_forward.fc2"),
    ("w_resid", "feed_forward.residual_scale"),
)
BACKBONE, HEAD = "backbone.", f"heads.{CLASSES}."
_CONVOLUTION = re.compile(rf"{re.escape(BACKBONE)}pair_embedding\.linears\.\d+\.weight")
_PARTICLENET_HEAD = {"fc.0.0.": f"{HEAD}hidden.0.", "fc.1.": f"{HEAD}output."}


def import_particle_transformer(
    weaver_state: Mapping[str, Tensor], dialect: Dialect | None = None, *, pair_last_activation: bool = True
) -> tuple[ParticleTransformerConfig, State]:
    """Return the config and the state dict of the network in a weaver state dict.

    The config follows from the shapes, except for `pair_last_activation` (weaver's
    `use_pre_activation_pair=False`, as in the published networks, keeps the last activation).
    """
    weaver_state = strip_prefix(weaver_state)
    dialect = tell_dialect(weaver_state, dialect)
    config = _read_config(weaver_state, pair_last_activation=pair_last_activation)
    names = _names(config)
    state: State = {}
    for name, tensor in weaver_state.items():
        prefix, _, kind = name.replace("in_proj_", "in_proj.").rpartition(".")
        ours = names.get(f"{prefix}.{kind}") or (f"{names[prefix]}.{kind}" if prefix in names else None)
        ours = names.get(name, ours)
        if ours is None:
            raise DataError(
                f"unknown weight {name!r}: not the Particle Transformer of the published networks"
            )
        state[ours] = tensor[..., 0] if _CONVOLUTION.fullmatch(ours) else tensor
    token = f"{BACKBONE}class_token"
    state[token] = state[token].flatten()
    return config, _move_channels(state, config, to="0.5") if dialect == "0.4" else state


def export_particle_transformer(
    state: Mapping[str, Tensor], config: ParticleTransformerConfig, dialect: Dialect = "0.5"
) -> State:
    """Return the weaver state dict of a network: the inverse of the import."""
    if config.block != "normformer" or config.embedding != "mlp":
        raise DataError("weaver-core has no such network: only part and part_plain can be exported")
    state = dict(state)
    if dialect == "0.4":
        state = _move_channels(state, config, to="0.4")
    ours_to_weaver = {ours: weaver for weaver, ours in _names(config).items()}
    weaver_state: State = {}
    for name, tensor in state.items():
        prefix, _, kind = name.rpartition(".")
        weaver = ours_to_weaver.get(name) or f"{ours_to_weaver[prefix]}.{kind}"
        if dialect == "0.4":
            weaver = weaver.replace("in_proj.", "in_proj_")
        weaver_state[weaver] = tensor[..., None] if _CONVOLUTION.fullmatch(name) else tensor
    weaver_state["cls_token"] = weaver_state["cls_token"].view(1, 1, -1)
    return weaver_state


def import_particlenet(weaver_state: Mapping[str, Tensor]) -> tuple[ParticleNetConfig, State]:
    """Return the config and the state dict of the ParticleNet in a weaver state dict.

    The config follows from the shapes, except for the number of neighbours: 16, as published.
    """
    state = strip_prefix(weaver_state)
    widths: dict[int, list[int]] = {}
    for name, tensor in state.items():
        if match := re.fullmatch(r"edge_convs\.(\d+)\.convs\.(\d+)\.weight", name):
            widths.setdefault(int(match[1]), []).append(len(tensor))
    if not widths or "fc.0.0.weight" not in state:
        raise DataError("not a ParticleNet: edge_convs.* or fc.0.0.weight is missing; is --arch correct?")
    config = ParticleNetConfig(
        convolutions=tuple(tuple(widths[index]) for index in sorted(widths)),
        head=HeadConfig(hidden_widths=(len(state["fc.0.0.weight"]),), dropout=0.1),
    )
    return config, {_particlenet_name(name): tensor for name, tensor in state.items()}


def export_particlenet(state: Mapping[str, Tensor]) -> State:
    """Return the weaver state dict of a ParticleNet."""
    to_weaver = {ours: weaver for weaver, ours in _PARTICLENET_HEAD.items()}
    return {
        _with_start(name.removeprefix(f"{BACKBONE}weaver."), to_weaver): tensor
        for name, tensor in state.items()
    }


def _particlenet_name(weaver: str) -> str:
    ours = _with_start(weaver, _PARTICLENET_HEAD)
    return ours if ours != weaver else f"{BACKBONE}weaver.{weaver}"


def _with_start(name: str, starts: Mapping[str, str]) -> str:
    """Replace the prefix of a name."""
    for start, other in starts.items():
        if name.startswith(start):
            return other + name.removeprefix(start)
    return name


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
    except MemoryError:
        raise
    except Exception as error:  # a broken file can make its reader raise anything
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"cannot read {path} as a state dict: {detail}") from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items()
    ):
        raise DataError(f"{path} is not a state dict: it must map names to tensors")
    for name, tensor in state.items():
        if tensor.layout != torch.strided or not (tensor.is_floating_point() or tensor.dtype == torch.int64):
            raise DataError(f"{path}: the weight {name[:100]} is {tensor.layout} {tensor.dtype}, not numbers")
    return dict(state)


def strip_prefix(state: Mapping[str, Tensor]) -> State:
    """Remove the prefixes of wrappers: `module.` (DataParallel) and `mod.` (weaver's networks)."""
    names = list(state)
    for prefix in ("module.", "mod."):
        if names and all(name.startswith(prefix) for name in names):
            names = [name.removeprefix(prefix) for name in names]
    return dict(zip(names, state.values(), strict=True))


def tell_dialect(weaver_state: Mapping[str, Tensor], given: Dialect | None) -> Dialect:
    """Return the dialect of a Particle Transformer's weights, from their names or as given.

    Only 0.4 writes `attn.in_proj_weight`; 0.5 renames it when it loads a file. `attn.in_proj.weight` proves
    nothing: 0.5 writes it, also for weights that 0.4 trained.
    """
    if any(name.endswith("attn.in_proj_weight") for name in weaver_state):
        if given == "0.5":
            raise DataError(
                "these weights are in the dialect 0.4: only weaver-core 0.4 writes attn.in_proj_weight"
            )
        return "0.4"
    if given is None and any(name.endswith("c_attn") for name in weaver_state):
        raise DataError(
            "the names of the weights do not show whether weaver-core 0.4 or 0.5 trained them, and the wrong "
            "choice gives wrong scores: use --dialect 0.5 if weaver-core >= 0.5 trained them, or "
            "--dialect 0.4 if an older version trained them and a newer one saved them again"
        )
    return given or "0.5"


def _names(config: ParticleTransformerConfig) -> dict[str, str]:
    """Return weaver's names -> partt's, of modules and of parameters outside of modules."""
    names = {"cls_token": "class_token", "norm": "norm"}
    names["embed.input_bn"] = "particle_embedding.input_norm"
    for index in range(len(config.embedding_widths) + 1):
        names[f"embed.embed.{3 * index}"] = f"particle_embedding.norms.{index}"
        names[f"embed.embed.{3 * index + 1}"] = f"particle_embedding.linears.{index}"
    if config.pair_widths is not None:
        names["pair_embed.embed.0"] = "pair_embedding.input_norm"
        for index in range(len(config.pair_widths) + 1):
            names[f"pair_embed.embed.{3 * index + 1}"] = f"pair_embedding.linears.{index}"
            names[f"pair_embed.embed.{3 * index + 2}"] = f"pair_embedding.norms.{index}"
    for kind, ours, count in (
        ("blocks", "blocks", config.num_blocks),
        ("cls_blocks", "class_blocks", config.num_class_blocks),
    ):
        for index in range(count):
            for part, our_part in _BLOCK_PARTS:
                names[f"{kind}.{index}.{part}"] = f"{ours}.{index}.{our_part}"
    return {weaver: f"{BACKBONE}{ours}" for weaver, ours in names.items()} | {"fc.0": f"{HEAD}output"}


def _read_config(state: Mapping[str, Tensor], *, pair_last_activation: bool) -> ParticleTransformerConfig:
    """Return the config that follows from the shapes of the weights."""

    def widths(pattern: str) -> list[int]:
        found = {int(match[1]): state[name] for name in state if (match := re.fullmatch(pattern, name))}
        return [len(tensor) for _, tensor in sorted(found.items()) if tensor.ndim > 1]

    embedding = widths(r"embed\.embed\.(\d+)\.weight")
    pair = widths(r"pair_embed\.embed\.(\d+)\.weight")
    num_blocks = len(widths(r"blocks\.(\d+)\.fc1\.weight"))
    num_class_blocks = len(widths(r"cls_blocks\.(\d+)\.fc1\.weight"))
    needed = ("cls_token", "blocks.0.c_attn", "blocks.0.fc1.weight", "fc.0.weight")
    missing = [name for name in needed if name not in state]
    if missing or not embedding or not num_class_blocks:
        what = ", ".join(missing) or "embed.embed.*, cls_blocks.*"
        raise DataError(f"not a published Particle Transformer: {what} is missing; is --arch correct?")
    return ParticleTransformerConfig(
        width=state["cls_token"].shape[-1],
        num_heads=len(state["blocks.0.c_attn"]),
        num_blocks=num_blocks,
        num_class_blocks=num_class_blocks,
        feed_forward_width=len(state["blocks.0.fc1.weight"]),
        embedding_widths=tuple(embedding[:-1]),
        pair_widths=tuple(pair[:-1]) if pair else None,
        pair_last_activation=pair_last_activation,
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
