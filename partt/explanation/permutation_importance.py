"""How much a tagger loses when an input is shuffled among all particles, or soft particles are left out.

A shuffled feature keeps its distribution, but says nothing about its particle any more. This needs scores
only, so it works for every tagger, exported ones included.

Axes: N jets, T values of a column in all jets.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from partt.data.config.data_config import DataConfig
from partt.data.jagged import Array, Column, Jagged
from partt.data.variables import Variables
from partt.explanation.score_losses import ScoreComparison, ScoreLosses
from partt.tagger.inference import Each
from partt.tagger.tagger import Tagger

SOFT = (1.0, 2.0, 5.0)  # GeV
FEATURE, GROUP, CUT = "feature", "group", "cut"


@dataclass(frozen=True)
class InputChange:
    """A change of the inputs."""

    name: str
    kind: str  # FEATURE or GROUP: these columns are shuffled together; CUT: particles are left out
    columns: tuple[str, ...] = ()
    min_pt: float = 0.0  # GeV


@dataclass(frozen=True, eq=False)
class Importance:
    """What a change of the inputs costs."""

    change: InputChange
    losses: ScoreLosses


def input_changes(
    features: Sequence[str], groups: Mapping[str, tuple[str, ...]], *, has_momenta: bool
) -> list[InputChange]:
    """List the changes: groups, soft particles, then single features."""
    changes = [InputChange(name, GROUP, columns) for name, columns in groups.items()]
    if has_momenta:
        changes += [InputChange(f"particles below {pt:g} GeV", CUT, min_pt=pt) for pt in SOFT]
    return changes + [InputChange(name, FEATURE, (name,)) for name in features]


def importances(
    tagger: Tagger,
    variables: Variables,
    comparison: ScoreComparison,
    changes: Sequence[InputChange],
    *,
    each: Each = map,
    step: Callable[[], None] = lambda: None,
    seed: int = 0,
) -> Iterator[Importance]:
    """Yield what each change costs; columns of `variables` must not depend on each other."""
    for number, change in enumerate(changes):
        if change.kind == CUT:
            changed = without_soft(tagger.data_config, variables, change.min_pt)
        else:
            random = np.random.default_rng([seed, number])
            changed = shuffled(variables, change.columns, random)
        yield Importance(change, comparison.with_scores(tagger.tag(changed, each=each).probabilities))
        step()


def shuffled(variables: Variables, columns: Sequence[str], random: np.random.Generator) -> Variables:
    """Return jets with some columns shuffled, together, among all particles or jets.

    Columns with the same numbers of values per jet get the same permutation.
    """
    orders: list[tuple[Column, Array]] = []
    new: dict[str, Column] = {}
    for name in columns:
        column = variables[name]
        order = next((order for other, order in orders if _same_layout(column, other)), None)
        if order is None:
            size = len(column.contents) if isinstance(column, Jagged) else len(column)
            order = random.permutation(size)
            orders.append((column, order))
        if isinstance(column, Jagged):
            new[name] = Jagged(column.contents[order], column.offsets)
        else:
            new[name] = column[order]
    return with_columns(variables, new)


def without_soft(config: DataConfig, variables: Variables, min_pt: float) -> Variables:
    """Return jets without the particles of the main collection below a pT."""
    if config.momenta is None:
        raise ValueError("without four-momenta it is not known which particles are soft")
    px, py = (variables[variable.name] for variable in config.momenta.variables[:2])
    if not isinstance(px, Jagged) or not isinstance(py, Jagged):
        raise TypeError("four-momenta need one value for each particle")
    kept = np.hypot(px.contents, py.contents) >= min_pt
    offsets = np.concatenate([[0], np.cumsum(kept)])[px.offsets]
    new: dict[str, Column] = {
        name: Jagged(column.contents[kept], offsets)
        for name, column in variables.branches.items()
        if isinstance(column, Jagged) and _same_layout(column, px)
    }
    return with_columns(variables, new)


def with_columns(variables: Variables, new: dict[str, Column]) -> Variables:
    """Return jets with some columns exchanged."""
    return Variables({**variables.branches, **new}, variables.formulas, variables.url, variables.entries)


def _same_layout(one: Column, other: Column) -> bool:
    if isinstance(one, Jagged) and isinstance(other, Jagged):
        return one.offsets is other.offsets or np.array_equal(one.offsets, other.offsets)
    return not isinstance(one, Jagged) and not isinstance(other, Jagged)
