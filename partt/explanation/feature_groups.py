"""What the columns of a data config mean, by their names: kinematics, particle types, displacements.

A data config has no such notes, and the field's names are few; columns of other names are left out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from partt.config import did_you_mean
from partt.data.config.data_config import DataConfig, InputGroup
from partt.errors import ConfigError

KINEMATICS, TYPES, DISPLACEMENTS = "kinematics", "particle types", "displacements"
MOMENTA = "four-momenta"
# ends of names, in lower case; the first match counts
_MEANINGS = {
    DISPLACEMENTS: r"(d0|dz|dxy|sip[23]?d|ip[23]d|d3d|dlen)(val|err|error|sig|significance)?(_\w+)?",
    TYPES: r"(charge|is_?[a-z]+|pid|pdg_?id|particleid)",
    KINEMATICS: r"(p[xyz]|rapidity|mass|d?eta\w*|d?phi\w*|delta_?r|dr|\w*log\w*|pt\w*|e|energy\w*|e_?rel)",
}
KINDS = {
    "electron": r"is_?el(e|ectron)?",
    "muon": r"is_?mu(on)?",
    "photon": r"is_?(photon|gamma)",
    "charged hadron": r"is_?ch(arged)?_?had(ron)?",
    "neutral hadron": r"is_?n(eu|eutral)?_?had(ron)?",
}
CHARGE = r"charge"
DISPLACEMENT = r"(d0val|dxy|d0)"
DISPLACEMENT_ERROR = r"(d0err|dxyerr|d0error|dxyerror)"


def meaning_of(column: str) -> str | None:
    """Return what a column means, by the end of its name."""
    return next((group for group, ends in _MEANINGS.items() if ends_in(column, ends)), None)


def ends_in(column: str, ends: str) -> bool:
    """Tell whether a name, or its part after an underscore, matches an expression."""
    return re.fullmatch(rf"(\w*_)?({ends})", column, re.IGNORECASE) is not None


def find_column(columns: Iterable[str], ends: str) -> str | None:
    """Return the first column whose name ends in an expression; shorter names come first."""
    return next(
        (name for name in sorted(columns, key=lambda name: (len(name), name)) if ends_in(name, ends)), None
    )


def columns_by_group(
    config: DataConfig, columns: Sequence[str], wanted: Mapping[str, Sequence[str]] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return group -> columns that are changed together, of those that a tagger makes its inputs of.

    Groups by meaning, the four-momenta, every collection but the main one, and every group of jet-level
    features; then those that the user wants.
    """
    groups: dict[str, tuple[str, ...]] = {}

    def add(name: str, inputs: Iterable[InputGroup | None]) -> None:
        names = {variable.name for group in inputs if group is not None for variable in group.variables}
        groups[name] = tuple(column for column in columns if column in names)

    main = config.main if config.collections else None
    if main is not None:
        add(MOMENTA, [main.momenta])
        add("", [main.features, main.points, *main.others.values()])
        others = groups.pop("") or columns  # branches are no features
        for meaning in (KINEMATICS, TYPES, DISPLACEMENTS):
            groups[meaning] = tuple(name for name in others if meaning_of(name) == meaning)
        both = dict.fromkeys([*groups[KINEMATICS], *groups[MOMENTA]])
        if len(both) > max(len(groups[KINEMATICS]), len(groups[MOMENTA])):
            groups[f"{KINEMATICS} and {MOMENTA}"] = tuple(both)
    for name, collection in config.collections.items():
        if name != (main and main.name):
            add(f"all of {name}", collection.groups)
    for name, group in config.jet_groups.items():
        add(name, [group])
    for name, asked in (wanted or {}).items():
        for column in asked:
            if column not in columns:
                raise ConfigError(
                    f"--group {name}: the tagger has no input {column!r}{did_you_mean(column, columns)}; its "
                    f"inputs: {', '.join(columns)}"
                )
        groups[name] = tuple(asked)
    return {name: found for name, found in groups.items() if found}


def single_features(config: DataConfig, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the features of particles and jets, or the branches of a tagger that takes branches.

    Components of four-momenta that are no features are only changed together.
    """
    features = [collection.features for collection in config.collections.values()]
    features += list(config.jet_groups.values())
    names = dict.fromkeys(variable.name for group in features for variable in group.variables)
    return tuple(names) if set(names) <= set(columns) else tuple(columns)
