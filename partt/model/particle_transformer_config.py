"""Config and sizes of the Particle Transformer (arXiv:2202.03772)."""

from typing import Literal, Self

from pydantic import model_validator

from partt.config import Record
from partt.model.config_types import NumLayers, Probability, Width, Widths
from partt.model.heads import HeadConfig
from partt.physics.pair_features import PAIR_FEATURE_SETS


class ParticleTransformerConfig(Record):
    """Shape of a Particle Transformer; the defaults are the published network."""

    width: Width = 128
    num_heads: Width = 8
    num_blocks: NumLayers = 8
    num_class_blocks: NumLayers = 2
    block: Literal["normformer", "swiglu", "swiglu_rms"] = "normformer"
    """swiglu_rms: with RMSNorm, and linear layers without biases, those of the pair embedding included"""
    feed_forward_width: Width = 512
    embedding: Literal["mlp", "linear"] = "mlp"
    embedding_widths: Widths = (128, 512)
    """widths before the last, which is `width`; only for embedding: mlp"""
    pair_features: Literal["pp", "pp_jet", "ee", "xyzt"] = "pp"
    """pp: published; pp_jet: two more, relative to the jet (GloParT); ee: for e+e-; xyzt: of positions"""
    pair_widths: Widths | None = (64, 64, 64)
    """widths before the last, which is `num_heads`; null: no pair bias"""
    pair_last_activation: bool = True
    """false: weaver's use_pre_activation_pair"""
    self_pairs: bool = True
    """false: the bias of a particle with itself is 0, weaver's remove_self_pair"""
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.1
    activation_dropout: Probability = 0.1
    drop_path: Probability = 0.0
    """in training, leave out the attention or the feed-forward of a block for some jets"""
    trim: bool = False
    """in training, drop random particles of jets above a random quantile of the multiplicities of a batch,
    in each collection"""
    head: HeadConfig = HeadConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.width % self.num_heads:
            raise ValueError(f"width {self.width} must be a multiple of num_heads {self.num_heads}")
        if not self.self_pairs and not PAIR_FEATURE_SETS[self.pair_features].symmetric:
            raise ValueError(f"self_pairs: false is not possible with pair_features: {self.pair_features}")
        return self


def small(
    width: int, num_heads: int, num_blocks: int, num_class_blocks: int, pair_width: int
) -> dict[str, object]:
    """Return the settings of a size of arXiv:2608.02735: pre-norm SwiGLU blocks, linear embedding."""
    return {
        "width": width,
        "num_heads": num_heads,
        "num_blocks": num_blocks,
        "num_class_blocks": num_class_blocks,
        "block": "swiglu",
        "feed_forward_width": 2 * width,
        "embedding": "linear",
        "pair_widths": (pair_width,) * 3,
    }


PRESETS: dict[str, dict[str, object]] = {
    "part": {},
    "part_plain": {"pair_widths": None},
    "part_v2": {"block": "swiglu"},
    "part_v3": {
        "block": "swiglu_rms",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "drop_path": 0.1,
        "head": {"bias": False},
    },
    "part_xs": small(32, 4, 3, 1, 16),
    "part_s": small(64, 4, 5, 1, 32),
    "part_m": small(128, 8, 6, 2, 64),
}
"""name -> settings that differ from the published network"""
