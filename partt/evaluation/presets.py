"""Which signals are told from which backgrounds, at which efficiencies: presets, and what users ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from partt.config import did_you_mean
from partt.errors import ConfigError
from partt.evaluation.jets import ClassJets
from partt.evaluation.passing import Floats

DEFAULT_EFFICIENCIES = (0.5,)


@dataclass(frozen=True)
class Discriminant:
    """s_S / (s_S + s_B); with several backgrounds s_B is the sum of their scores, each times its fraction."""

    signal: str
    backgrounds: Mapping[str, float]
    efficiencies: tuple[float, ...] = DEFAULT_EFFICIENCIES  # at which the results table quotes rejections

    @property
    def name(self) -> str:
        """The name that it has in files."""
        return f"{self.signal}_vs_{'_'.join(self.backgrounds)}"

    @property
    def title(self) -> str:
        """The name that people read."""
        fractions = set(self.backgrounds.values())
        parts = [
            name if len(fractions) == 1 else f"{fraction:g} {name}"
            for name, fraction in self.backgrounds.items()
        ]
        return f"{self.signal} vs {' + '.join(parts)}"

    def values(self, jets: ClassJets, class_names: Sequence[str]) -> Floats:
        """Return the discriminant (n,) of jets; 0 where all of its scores are 0."""
        signal = jets.scores[class_names.index(self.signal)].astype(np.float64)
        total = signal.copy()
        for name, fraction in self.backgrounds.items():
            total += fraction * jets.scores[class_names.index(name)].astype(np.float64)
        ratio: Floats = np.divide(signal, total, out=np.zeros_like(signal), where=total > 0)
        return ratio


@dataclass(frozen=True)
class Preset:
    """How the results of a data set are usually quoted."""

    background: str
    efficiencies: tuple[float, ...]
    signals: tuple[str, ...]
    special: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # signal -> its efficiencies


PRESETS = {
    "jetclass": Preset(
        background="QCD",
        efficiencies=(0.5,),
        signals=("Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl"),
        special={"Hqql": (0.99,), "Tbl": (0.995,)},
    ),
    "top": Preset(background="QCD", efficiencies=(0.3, 0.5), signals=("Top",)),
    "qg": Preset(background="G", efficiencies=(0.3, 0.5), signals=("Q",)),
}
_ALIASES = {"t": "top", "quark": "q", "gluon": "g"}


def choose_discriminants(
    class_names: Sequence[str],
    preset: str | None = None,
    signals: Sequence[str] = (),
    backgrounds: Mapping[str, float] | None = None,
) -> tuple[Discriminant, ...]:
    """Return what is asked for, or what fits the classes: a preset that they match, or all against one.

    That one is the class called QCD, or the last one.
    """
    chosen = _find_preset(class_names, preset)
    if backgrounds:
        against = {find_class(name, class_names): fraction for name, fraction in backgrounds.items()}
    elif chosen is not None:
        against = {_match(chosen.background, class_names): 1.0}
    else:
        by_habit = [name for name in class_names if plain_name(name) == "qcd"]
        against = {by_habit[0] if by_habit else class_names[-1]: 1.0}
    if signals:
        wanted = [find_class(name, class_names) for name in signals]
    elif chosen is not None:
        matches = [_match(name, class_names) for name in chosen.signals]
        wanted = [name for name in matches if name not in against]
    else:
        wanted = [name for name in class_names if name not in against]
    for name in wanted:
        if name in against:
            raise ConfigError(f"{name!r} is both signal and background; choose another --background")
    if not wanted:
        raise ConfigError(f"no signal: the only class is {class_names[0]!r}")
    return tuple(Discriminant(name, against, _efficiencies(name, chosen)) for name in wanted)


def find_class(name: str, class_names: Sequence[str]) -> str:
    """Return the class that a user names."""
    if name in class_names:
        return name
    raise ConfigError(
        f"no class {name!r} in the scores{did_you_mean(name, class_names)}; classes: {', '.join(class_names)}"
    )


def _efficiencies(signal: str, preset: Preset | None) -> tuple[float, ...]:
    if preset is None:
        return DEFAULT_EFFICIENCIES
    special = {plain_name(name): values for name, values in preset.special.items()}
    return special.get(plain_name(signal), preset.efficiencies)


def _find_preset(class_names: Sequence[str], name: str | None) -> Preset | None:
    if name is not None:
        if name not in PRESETS:
            raise ConfigError(
                f"no preset {name!r}{did_you_mean(name, list(PRESETS))}; known: {', '.join(PRESETS)}"
            )
        return PRESETS[name]
    plain = {plain_name(known) for known in class_names}
    for preset in PRESETS.values():
        if plain == {plain_name(known) for known in (preset.background, *preset.signals)}:
            return preset
    return None


def _match(wanted: str, class_names: Sequence[str]) -> str:
    for name in class_names:
        if plain_name(name) == plain_name(wanted):
            return name
    raise ConfigError(
        f"the preset needs a class {wanted!r}; classes: {', '.join(class_names)}; "
        "use --signal and --background instead"
    )


def plain_name(name: str) -> str:
    """Spell a class without habits of naming: jet_isTop, isTop, top."""
    plain = name.lower().removeprefix("jet_").removeprefix("is")
    return _ALIASES.get(plain, plain)
