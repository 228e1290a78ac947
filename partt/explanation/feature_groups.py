"""Groups of columns that are changed together: by meaning, by collection, and those that the user wants."""

from collections.abc import Iterable, Mapping, Sequence

from partt.config import did_you_mean
from partt.data.column_meanings import DISPLACEMENTS, KINEMATICS, TYPES, meaning_of
from partt.data.config.data_config import DataConfig, InputGroup
from partt.errors import ConfigError

MOMENTA = "four-momenta"


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
