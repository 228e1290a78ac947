"""The result of an evaluation: the numbers of all models."""

from collections.abc import Mapping
from dataclasses import dataclass

from partt.evaluation.results_table import ResultsTable
from partt.evaluation.settings import EvaluationSettings
from partt.evaluation.summary import Summary


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The numbers of all models; the report is about the first one."""

    models: Mapping[str, tuple[Summary, ...]]  # name -> seeds
    settings: EvaluationSettings
    table: ResultsTable

    @property
    def main(self) -> Summary:
        """The first seed of the first model."""
        return next(iter(self.models.values()))[0]
