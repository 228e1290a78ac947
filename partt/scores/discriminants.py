"""Discriminants of classes against others: s_S / (s_S + s_B), made of scores.

Axes: N jets, C classes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.config import did_you_mean
from partt.errors import ConfigError

AGAINST = "_vs_"


@dataclass(frozen=True)
class Discriminant:
    """Some classes against others, by their positions."""

    name: str  # of the column
    signal: tuple[int, ...]
    background: tuple[int, ...]

    def values(self, probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the discriminant (N,) of scores (N, C); NaN where they are NaN."""
        signal = probabilities[:, self.signal].sum(axis=1)
        background = probabilities[:, self.background].sum(axis=1)
        with np.errstate(invalid="ignore"):
            values: npt.NDArray[np.float64] = signal / (signal + background)
        return values


def parse_discriminant(text: str, class_names: Sequence[str]) -> Discriminant:
    """Read "Hbb_vs_QCD", or "Hbb+Hcc_vs_QCD": the scores of classes that stand together are added."""
    sides = text.split(AGAINST)
    if len(sides) != 2 or not all(sides):
        raise ConfigError(f"discriminant {text!r}: should be SIGNAL{AGAINST}BACKGROUND, like Hbb_vs_QCD")
    signal, background = (_positions(text, side, class_names) for side in sides)
    if set(signal) & set(background):
        raise ConfigError(f"discriminant {text!r}: a class cannot stand on both sides")
    return Discriminant(re.sub(r"\W", "_", text, flags=re.ASCII), signal, background)


def _positions(text: str, side: str, class_names: Sequence[str]) -> tuple[int, ...]:
    names = side.split("+")
    for name in names:
        if name not in class_names:
            raise ConfigError(
                f"discriminant {text!r}: the tagger has no class {name!r}{did_you_mean(name, class_names)}; "
                f"its classes: {', '.join(class_names)}"
            )
    return tuple(class_names.index(name) for name in names)
