"""Tagger + files -> scores, in order and complete: `partt.predict(tagger, files, out)` is `run.predict`."""

import sys
from types import ModuleType
from typing import Any


class _Predict(ModuleType):
    """A package that can be called, because it has the name of the one function that users call."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from partt.predict.run import predict  # noqa: PLC0415 - loads torch

        return predict(*arguments, **options)


sys.modules[__name__].__class__ = _Predict
