"""What goes into the outputs of a prediction."""

from dataclasses import dataclass
from typing import Any, Literal

from partt.data.config.input_map import InputMap
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
    input: InputMap | Literal["none"] | None = None  # None: as in the tagger's data config

    def describe(self) -> dict[str, Any]:
        """Return the options as they appear in provenance and predict.json."""
        described = {
            "discriminants": [discriminant_column(discriminant) for discriminant in self.discriminants],
            "keep": list(self.keep),
            "embeddings": self.embeddings,
            "apply_selection": self.apply_selection,
            "format": self.format,
        }
        if self.input is not None:
            described["input"] = self.input.digest if isinstance(self.input, InputMap) else self.input
        return described
