"""Which network a state dict of weaver-core holds, from the names and shapes of its weights.

weaver-core's taggers of several collections wrap the same networks; here all get the names of one form:

    embeds.N.*         embedding of collection N of a Particle Transformer
    feature_convs.N.*  first layer of collection N of a ParticleNet, if there are several collections
    everything else    as in weaver-core's ParticleTransformer or ParticleNet
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torch import Tensor

from partt.errors import DataError

State: TypeAlias = dict[str, Tensor]
Block: TypeAlias = Literal["normformer", "swiglu", "swiglu_rms"]

_WRAPPERS = ("module.", "mod.", "_orig_mod.")  # DataParallel, networks in weaver's files, torch.compile
_COLLECTIONS = {"pf": 0, "sv": 1}  # in the names of weaver-core's taggers
_VERSIONS = {"normformer": 1, "swiglu": 2, "swiglu_rms": 3}


@dataclass(frozen=True)
class WeaverArchitecture:
    """What the weights say about the network."""

    kind: Literal["part", "particlenet"]
    num_features: tuple[int, ...]  # of each collection
    num_classes: int
    head_widths: tuple[int, ...]
    num_pair_features: int = 0
    block: Block = "normformer"

    @property
    def network(self) -> str:
        """The name of the network in partt."""
        if self.kind == "particlenet":
            return "particlenet"
        if self.block == "normformer":
            return "part" if self.num_pair_features else "part_plain"
        return f"part_v{_VERSIONS[self.block]}"

    def __str__(self) -> str:
        """Describe it in a line."""
        name = "ParticleNet" if self.kind == "particlenet" else "Particle Transformer"
        parts = [f"{name} ({self.network})"]
        parts += [f"{' + '.join(map(str, self.num_features))} features"]
        if self.num_pair_features:
            parts += [f"{self.num_pair_features} pair features"]
        if self.head_widths:
            parts += [f"head with hidden layers of {', '.join(map(str, self.head_widths))}"]
        return ", ".join([*parts, f"{self.num_classes} classes"])


def recognise(state: Mapping[str, Tensor]) -> WeaverArchitecture:
    """Return the architecture of a state dict with any of weaver-core's names."""
    state = plain_names(state)
    if "cls_token" in state:
        return _recognise_particle_transformer(state)
    if any(name.startswith("edge_convs.") for name in state):
        return _recognise_particlenet(state)
    some = ", ".join(list(state)[:3]) or "nothing"
    raise DataError(
        "neither a Particle Transformer (cls_token is missing) nor a ParticleNet (edge_convs.* is missing): "
        f"its weights are {some[:200]}"
    )


def plain_names(state: Mapping[str, Tensor]) -> State:
    """Return the weights with the names above: without prefixes of wrappers and taggers."""
    state = strip_prefix(state)
    return {_plain_name(name): tensor for name, tensor in state.items()}


def strip_prefix(state: Mapping[str, Tensor]) -> State:
    """Remove the prefixes of wrappers, in any order, where all names have them."""
    names = list(state)
    while prefix := next(
        (prefix for prefix in _WRAPPERS if names and all(name.startswith(prefix) for name in names)), None
    ):
        names = [name.removeprefix(prefix) for name in names]
    return dict(zip(names, state.values(), strict=True))


def widths_of(state: Mapping[str, Tensor], pattern: str) -> list[int]:
    """Return the outputs of the matrices whose names match, in the order of the number in the pattern."""
    found = {int(match[1]): state[name] for name in state if (match := re.fullmatch(pattern, name))}
    return [len(tensor) for _, tensor in sorted(found.items()) if tensor.ndim > 1]


def _plain_name(name: str) -> str:
    if match := re.match(r"(pf|sv)_(embed|conv)\.", name):
        kind = "embeds" if match[2] == "embed" else "feature_convs"
        return f"{kind}.{_COLLECTIONS[match[1]]}.{name[match.end() :]}"
    if match := re.match(r"input_embeds\.(\d{1,3})\.", name):  # CMS's GloParT
        return f"embeds.{match[1]}.{name[match.end() :]}"
    if name.startswith("embed."):
        return f"embeds.0.{name.removeprefix('embed.')}"
    return re.sub(r"^(part|pn)\.", "", name)


def _recognise_particle_transformer(state: State) -> WeaverArchitecture:
    needed = ("blocks.0.fc1.weight", "cls_blocks.0.fc1.weight", "embeds.0.input_bn.weight", "norm.weight")
    if missing := [name for name in needed if name not in state]:
        raise DataError(
            f"a Particle Transformer without {', '.join(missing)}: only networks with class attention and an "
            "embedding are supported"
        )
    foreign = [name for name in state if re.search(r"gate_proj|q_norm|c_mask|fts_embed|conv_embed", name)]
    if foreign:
        raise DataError(
            f"{foreign[0][:100]}: weaver-core's experimental versions 3.5 and 3.6, scale_attn_mask, "
            "use_conv_embed and pair_extra_dim are not supported"
        )
    gated, scaled = "blocks.0.fc1_g.weight" in state, "blocks.0.c_attn" in state
    if gated == scaled:
        raise DataError("its blocks match no version of weaver-core: 1 has c_attn, 2 and 3 have fc1_g")
    block: Block = "normformer"
    if gated:
        block = "swiglu" if "blocks.0.fc1.bias" in state else "swiglu_rms"
    pair_norm = state.get("pair_embed.embed.0.weight")
    return WeaverArchitecture(
        kind="part",
        num_features=_num_features(state, r"embeds\.(\d+)\.input_bn\.weight"),
        num_classes=_num_classes(state),
        head_widths=tuple(widths_of(state, r"fc\.(\d+)\.0\.weight")),
        num_pair_features=0 if pair_norm is None else len(pair_norm),
        block=block,
    )


def _recognise_particlenet(state: State) -> WeaverArchitecture:
    if "bn_fts.weight" not in state:
        raise DataError("this ParticleNet has no bn_fts: use_fts_bn=False is not supported")
    several = _num_features(state, r"feature_convs\.(\d+)\.conv\.0\.weight")
    return WeaverArchitecture(
        kind="particlenet",
        num_features=several or (len(state["bn_fts.weight"]),),
        num_classes=_num_classes(state),
        head_widths=tuple(widths_of(state, r"fc\.(\d+)\.0\.weight")),
    )


def _num_features(state: State, pattern: str) -> tuple[int, ...]:
    found = {int(match[1]): len(state[name]) for name in state if (match := re.fullmatch(pattern, name))}
    if sorted(found) != list(range(len(found))):
        raise DataError(f"its collections are numbered {', '.join(map(str, sorted(found)))}, not 0, 1, ...")
    return tuple(found[number] for number in sorted(found))


def _num_classes(state: State) -> int:
    outputs = widths_of(state, r"fc\.(\d+)\.weight")
    if len(outputs) != 1:
        raise DataError("it has no fully connected head (fc.*): fc_params=None is not supported")
    return outputs[0]
