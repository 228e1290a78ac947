"""Config and sizes of L-GATr-slim (arXiv:2512.17011)."""

from typing import Literal, Self

from pydantic import PositiveFloat, model_validator

from partt.config import Record
from partt.model.config_types import NumLayers, Width
from partt.model.heads import HeadConfig

MIN_HEAD_SCALARS = 4


class LGATrSlimConfig(Record):
    """Shape of an L-GATr-slim; the defaults are `slim_m`."""

    vector_channels: Width = 32
    scalar_channels: Width = 128
    num_blocks: NumLayers = 8
    num_heads: Width = 8
    mlp_ratio: Width = 2
    """channels inside the feed-forward of a block, relative to those outside"""
    spurions: bool = True
    """tell the network the directions of beam and time; false: with invariant features, logits do not change
    by any Lorentz transformation"""
    frame: Literal["lab", "jet"] = "lab"
    """lab: published; jet: beam and time are those of the frame that moves along the beam with the jet, so
    that boosts along the beam change features only"""
    momentum_unit: PositiveFloat = 20.0
    """GeV"""
    head: HeadConfig = HeadConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key in ("vector_channels", "scalar_channels"):
            if getattr(self, key) % self.num_heads:
                raise ValueError(
                    f"{key} {getattr(self, key)} must be a multiple of num_heads {self.num_heads}"
                )
        if self.scalar_channels < MIN_HEAD_SCALARS * self.num_heads:
            raise ValueError(
                f"scalar_channels {self.scalar_channels} must be at least {MIN_HEAD_SCALARS} x num_heads"
            )
        return self


def _size(vector_channels: int, scalar_channels: int, num_blocks: int, num_heads: int) -> dict[str, object]:
    """Return the settings of a size of arXiv:2608.02735."""
    return {
        "vector_channels": vector_channels,
        "scalar_channels": scalar_channels,
        "num_blocks": num_blocks,
        "num_heads": num_heads,
    }


SLIM_PRESETS: dict[str, dict[str, object]] = {
    "slim_xs": _size(8, 32, 4, 4),
    "slim_s": _size(16, 64, 6, 4),
    "slim_m": _size(32, 128, 8, 8),
    "slim_l": _size(64, 256, 12, 8),
}
"""name -> settings"""
