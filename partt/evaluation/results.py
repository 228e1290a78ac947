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
    label: str = ""  # of an experiment, above figures

    def __repr__(self) -> str:
        """Return what a prompt shows: the models, and the first numbers of the first."""
        from partt.evaluation.table_formats import plain_text  # noqa: PLC0415 - only here
        from partt.pages.number_text import cell_text  # noqa: PLC0415 - only here

        row = next((row for row in self.table.rows if not row.source), None)
        cells = zip(self.table.columns[:2], row.cells[:2], strict=True) if row else ()
        numbers = [f"{column.title} {plain_text(cell_text(cell))}" for column, cell in cells]
        regressions = [table.target for table in self.regression_tables]
        return f"<Evaluation of {', '.join(self.models)}: {', '.join([*numbers, *regressions])}>"

    @cached_property
    def _html(self) -> str:
        from partt.evaluation.notebook_view import evaluation_html  # noqa: PLC0415 - matplotlib

        return evaluation_html(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the tables and the main figures; drawn once."""
        return self._html

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
