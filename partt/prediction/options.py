"""What goes into the outputs of a prediction."""

from dataclasses import dataclass
from typing import Any, Literal

from partt.scores.columns import discriminant_column
from partt.scores.discriminants import Discriminant


@dataclass(frozen=True)
class Options:
    """What goes into the outputs."""

    discriminants: tuple[Discriminant, ...] = ()
    keep: tuple[str, ...] = ()  # patterns of further branches
    embeddings: bool = False
    apply_selection: bool = False  # leave out jets that are not selected
    format: Literal["root", "parquet"] = "root"

    def describe(self) -> dict[str, Any]:
        """Return the options as they appear in provenance and predict.json."""
        return {
            "discriminants": [discriminant_column(discriminant) for discriminant in self.discriminants],
            "keep": list(self.keep),
            "embeddings": self.embeddings,
            "apply_selection": self.apply_selection,
            "format": self.format,
        }
