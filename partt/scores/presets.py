"""Discriminants to evaluate: presets of data sets, and the choice of signals and backgrounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from partt.config import did_you_mean
from partt.errors import ConfigError
from partt.scores.discriminants import Discriminant

DEFAULT_EFFICIENCIES = (0.5,)


@dataclass(frozen=True)
class QuotedDiscriminant(Discriminant):
    """A discriminant of one signal, and the signal efficiencies at which the results table quotes it."""

    efficiencies: tuple[float, ...] = DEFAULT_EFFICIENCIES

    @property
    def signal(self) -> str:
        """The signal class."""
        (signal,) = self.signals
        return signal


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
) -> tuple[QuotedDiscriminant, ...]:
    """Return the discriminants asked for, else those of a preset that fits the classes, else all against one.

    That one is the class called QCD, or the last class.
    """
    chosen = _find_preset(class_names, preset)
    if backgrounds:
        against = {find_class(name, class_names): fraction for name, fraction in backgrounds.items()}
    elif chosen is not None:
        against = {_match(chosen.background, class_names): 1.0}
    else:
        qcd = [name for name in class_names if plain_name(name) == "qcd"]
        against = {qcd[0] if qcd else class_names[-1]: 1.0}
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
    return tuple(QuotedDiscriminant((name,), against, _efficiencies(name, chosen)) for name in wanted)


def find_class(name: str, class_names: Sequence[str]) -> str:
    """Return a class given by a user, if it exists."""
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
    """Normalise the spelling of a class: jet_isTop, isTop and T all become top."""
    plain = name.lower().removeprefix("jet_").removeprefix("is")
    return _ALIASES.get(plain, plain)
