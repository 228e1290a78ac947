"""A figure of the report with its title and caption."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure, and what the report shows with it."""

    name: str  # of its files
    title: str
    caption: str
    figure: Figure
    hover: Sequence[dict[str, Any]] = ()  # axes and points that the page shows under the pointer
    model: str = ""  # the only one that it shows; then the page can switch between models

    @property
    def width(self) -> float:
        """Width in inches."""
        return float(self.figure.get_figwidth())
