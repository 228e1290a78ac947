"""Discriminants of signal against background classes: s_S / (s_S + s_B).

Axes: N jets, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.config import did_you_mean
from partt.data.jagged import Array
from partt.errors import ConfigError

VS = "_vs_"  # in names of discriminants


@dataclass(frozen=True)
class Discriminant:
    """s_S / (s_S + s_B): s_S is the sum of signal scores, s_B that of background scores times fractions."""

    signals: tuple[str, ...]
    backgrounds: Mapping[str, float]  # class -> fraction

    @property
    def name(self) -> str:
        """The name in files."""
        return f"{'_'.join(self.signals)}{VS}{'_'.join(self.backgrounds)}"

    @property
    def title(self) -> str:
        """The name in tables and figures, with the fractions if they differ."""
        fractions = set(self.backgrounds.values())
        parts = [
            name if len(fractions) == 1 else f"{fraction:g} {name}"
            for name, fraction in self.backgrounds.items()
        ]
        return f"{' + '.join(self.signals)} vs {' + '.join(parts)}"

    def values(self, scores: Array, class_names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the discriminant (N,) of scores (C, N).

        0/0 is 0: a jet whose scores are finite and all 0 is not signal. NaN only where a score is NaN.
        """
        signal = np.zeros(scores.shape[1])
        for name in self.signals:
            signal += scores[class_names.index(name)]
        total = signal.copy()
        for name, fraction in self.backgrounds.items():
            total += fraction * scores[class_names.index(name)].astype(np.float64)
        ratio: npt.NDArray[np.float64] = np.divide(signal, total, out=np.zeros_like(signal), where=total != 0)
        return ratio


def parse_discriminant(text: str, class_names: Sequence[str]) -> Discriminant:
    """Read "Hbb_vs_QCD", or "Hbb+Hcc_vs_QCD": scores of classes on one side are added."""
    sides = text.split(VS)
    if len(sides) != 2 or not all(sides):
        raise ConfigError(f"discriminant {text!r}: should be SIGNAL{VS}BACKGROUND, like Hbb{VS}QCD")
    signals, backgrounds = (side.split("+") for side in sides)
    names = [*signals, *backgrounds]
    for name in names:
        if name not in class_names:
            raise ConfigError(
                f"discriminant {text!r}: the tagger has no class {name!r}{did_you_mean(name, class_names)}; "
                f"its classes: {', '.join(class_names)}"
            )
    if len(set(names)) < len(names):
        raise ConfigError(f"discriminant {text!r}: a class can be named only once")
    return Discriminant(tuple(signals), dict.fromkeys(backgrounds, 1.0))
