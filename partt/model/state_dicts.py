"""Names in state dicts: prefixes, and the names of partt 0.1, before networks had a backbone and heads."""

import re
from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor

from partt.model.config_types import CLASSES

Item = TypeVar("Item")

# prefix of a name in format 1 -> prefix now; the first match counts
_STARTS = (
    (re.compile(r"head\.(?=weight|bias)"), f"heads.{CLASSES}.output."),
    (re.compile(r"head\.0\."), f"heads.{CLASSES}.hidden.0."),  # P-CNN
    (re.compile(r"head\.3\."), f"heads.{CLASSES}.output."),
    (re.compile(r"weaver\.fc\.0\.0\."), f"heads.{CLASSES}.hidden.0."),  # ParticleNet
    (re.compile(r"weaver\.fc\.1\."), f"heads.{CLASSES}.output."),
    (re.compile(r""), "backbone."),
)


def with_prefix(prefix: str, items: Mapping[str, Item]) -> dict[str, Item]:
    """Return tensors or numbers with a prefix before their names."""
    return {f"{prefix}{name}": item for name, item in items.items()}


def without_prefix(prefix: str, items: Mapping[str, Item]) -> dict[str, Item]:
    """Return the tensors or numbers whose names start with the prefix, without it."""
    return {name.removeprefix(prefix): item for name, item in items.items() if name.startswith(prefix)}


def renamed_from_format_1(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a file of format 1 with current names."""
    return {_renamed(name): tensor for name, tensor in weights.items()}


def _renamed(name: str) -> str:
    start, now = next((match, now) for pattern, now in _STARTS if (match := pattern.match(name)))
    return now + name[start.end() :]
