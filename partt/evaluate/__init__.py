"""Scores -> metrics, figures, report: `partt.evaluate(...)` is `partt.evaluate.run.evaluate`."""

from partt.callable_package import make_callable

make_callable(__name__)
