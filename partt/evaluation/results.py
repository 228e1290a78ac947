"""The result of an evaluation: the numbers of all models."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from partt.evaluation.regression_table import (
    RegressionTable,
    TargetResults,
    find_targets,
    make_regression_table,
)
from partt.evaluation.results_table import ResultsTable
from partt.evaluation.settings import EvaluationSettings
from partt.evaluation.summary import Summary


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The numbers of all models; the report is about the first one."""

    models: Mapping[str, tuple[Summary, ...]]  # name -> seeds
    settings: EvaluationSettings
    table: ResultsTable  # of the classes

    @cached_property
    def targets(self) -> list[TargetResults]:
        """The targets of regressions, with all that predicts them."""
        return find_targets(self.models)

    @cached_property
    def regression_tables(self) -> list[RegressionTable]:
        """A table for each target."""
        return [make_regression_table(target, self.models) for target in self.targets]

    @property
    def main(self) -> Summary:
        """The first seed of the first model."""
        return next(iter(self.models.values()))[0]
