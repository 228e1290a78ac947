"""What an attention layer can be asked beside its output; see `inspection`.

Axes: H heads, Q queries, K keys of one jet.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class AttentionTerms:
    """The terms of the scores of one jet, before the softmax over keys."""

    content: Tensor  # (H, Q, K): q k / sqrt(d)
    bias: Tensor | None = None  # (H, Q, K), added to the content: of pairs, or hiding padding
    num_tokens: tuple[int, int] = (0, 0)  # queries and keys that are no particles: they come first

    @property
    def weights(self) -> Tensor:
        """The attention (H, Q, K)."""
        return (self.content if self.bias is None else self.content + self.bias).softmax(-1)


class AttentionLayer(nn.Module, ABC):
    """Attention that can be recorded, and whose heads can be switched off one by one."""

    num_heads: int

    @abstractmethod
    def terms(self, *inputs: Any, **named: Any) -> AttentionTerms:
        """Return the terms of the scores of one jet, from the inputs of `forward`."""

    @abstractmethod
    def silence(self, head: int) -> None:
        """Switch a head off for good: its outputs become 0."""
