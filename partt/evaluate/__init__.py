"""Scores -> metrics, figures, report. `partt.evaluate(...)` is `partt.evaluate.run.evaluate`."""

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """The folder and the function have one name; whichever of the two a user means works."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from partt.evaluate.run import evaluate  # noqa: PLC0415 - numpy and matplotlib, only when used

        return evaluate(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule
