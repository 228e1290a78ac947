"""Heads: embedding of a jet -> outputs of one task.

Axes: B jets, D width of the embedding, O outputs.
"""

from torch import Tensor, nn

from partt.config import Record
from partt.model.config_types import Probability, Widths

CLASSES = "classes"  # name of the head whose outputs are the logits of the classes


class HeadConfig(Record):
    """Hidden layers of a head; none: one linear layer."""

    hidden_widths: Widths = ()
    dropout: Probability = 0.0
    """after each hidden layer"""


class Head(nn.Module):
    """Linear -> ReLU -> dropout for each hidden layer, then one linear layer."""

    def __init__(self, width: int, num_outputs: int, config: HeadConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for hidden in config.hidden_widths:
            layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(config.dropout)]
            width = hidden
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(width, num_outputs)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return outputs (B, O) from embeddings (B, D)."""
        outputs: Tensor = self.output(self.hidden(embeddings))
        return outputs
