"""Heads: embedding of a jet -> outputs of one task.

Axes: B jets, D width of the embedding, O outputs.
"""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from partt.config import Record
from partt.model.config_types import MAX_LAYERS, Probability, Widths


class HeadConfig(Record):
    """Hidden layers of a head; none: one linear layer."""

    hidden_widths: Widths = ()
    dropout: Probability | Annotated[tuple[Probability, ...], Field(strict=False, max_length=MAX_LAYERS)] = (
        0.0
    )
    """after each hidden layer; a list: after the first, the second, ..."""
    bias: bool = True
    """of the hidden layers"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if isinstance(self.dropout, tuple) and len(self.dropout) != len(self.hidden_widths):
            raise ValueError(f"{len(self.dropout)} dropouts for {len(self.hidden_widths)} hidden layers")
        return self

    @property
    def layers(self) -> list[tuple[int, float]]:
        """Width and dropout of every hidden layer."""
        dropout = self.dropout
        each = dropout if isinstance(dropout, tuple) else (dropout,) * len(self.hidden_widths)
        return list(zip(self.hidden_widths, each, strict=True))


class Head(nn.Module):
    """Linear -> ReLU -> dropout for each hidden layer, then one linear layer."""

    def __init__(self, width: int, num_outputs: int, config: HeadConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for hidden, dropout in config.layers:
            layers += [nn.Linear(width, hidden, bias=config.bias), nn.ReLU(), nn.Dropout(dropout)]
            width = hidden
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(width, num_outputs)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return outputs (B, O) from embeddings (B, D)."""
        outputs: Tensor = self.output(self.hidden(embeddings))
        return outputs


def with_head(settings: Any, default: HeadConfig) -> Any:
    """Return settings of a network whose head was described by the keys `hidden_width` and `dropout`."""
    if not isinstance(settings, dict) or not settings.keys() & {"hidden_width", "dropout"}:
        return settings
    if "head" in settings:
        raise ValueError("give head.hidden_widths and head.dropout, or hidden_width and dropout, not both")
    others = {key: value for key, value in settings.items() if key not in {"hidden_width", "dropout"}}
    width = settings.get("hidden_width", default.hidden_widths[0])
    head = {"hidden_widths": (width,), "dropout": settings.get("dropout", default.dropout)}
    return others | {"head": head}
