"""Everything that was found out about a tagger.

Axes: B jets with attributions, C classes, F features of particles and jets.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.explanation.ablation import AblationStudy
from partt.explanation.attended_particles import RelativeAttention
from partt.explanation.attention_statistics import HeadStatistics
from partt.explanation.embedding_map import EmbeddingMap
from partt.explanation.jet_display import JetDisplay
from partt.explanation.permutation_importance import Importance
from partt.scores.passing import Floats


@dataclass(frozen=True, eq=False)
class GradientSummary:
    """Integrated gradients by class and feature: mean over jets of the sum of |IG| over particles."""

    features: tuple[str, ...]
    means: Floats  # (C, F)
    errors: Floats  # (C, F) of the means
    num_jets: npt.NDArray[np.int64]  # (C,)
    background: tuple[str, ...]
    completeness: Floats  # (B,) errors
    num_left_out: int  # jets whose sum is not complete
    num_steps: npt.NDArray[np.int64]  # (B,)


@dataclass(frozen=True, eq=False)
class AttentionSummary:
    """Attention over many jets."""

    heads: HeadStatistics
    attended: tuple[RelativeAttention, ...]  # by the class token
    subjets: tuple[RelativeAttention, ...]  # among particles
    num_jets: int


@dataclass(frozen=True, eq=False)
class EmbeddingSummary:
    """The map of embeddings, and what its points are coloured by."""

    map: EmbeddingMap
    labels: npt.NDArray[np.int64]  # (N,)
    colours: Mapping[str, Floats]  # (N,)


@dataclass(frozen=True, eq=False)
class Explanation:
    """All results of one tagger; None where it cannot give one, and `left_out` says why."""

    tagger: str
    network: str
    sha256: str
    class_names: tuple[str, ...]
    num_jets: Mapping[str, int]  # by class
    files: tuple[str, ...]
    accuracy: float
    area: float
    efficiencies: Mapping[str, float | None]  # discriminant -> signal efficiency of its rejection
    titles: Mapping[str, str]  # discriminant -> title
    importances: tuple[Importance, ...]
    gradients: GradientSummary | None
    attention: AttentionSummary | None
    ablations: AblationStudy | None
    num_ablation_jets: int
    embedding: EmbeddingSummary | None
    displays: tuple[JetDisplay, ...]
    left_out: Mapping[str, str]  # what -> why

    def __repr__(self) -> str:
        """Return what a prompt shows: the tagger, and how well it does."""
        jets = f"{sum(self.num_jets.values()):,} jets"
        return f"<Explanation of {self.tagger}: {jets}, accuracy {self.accuracy:.4f}, AUC {self.area:.4f}>"
