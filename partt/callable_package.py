"""Packages that can be called: `partt.predict` is a folder, and the one function in it that users call."""

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        function = self.__name__.rpartition(".")[2]
        # imported when called: it loads far more than the package itself
        return getattr(importlib.import_module(f"{self.__name__}.run"), function)(*arguments, **options)


def make_callable(package: str) -> None:
    """Make `partt.NAME(...)` call `partt.NAME.run.NAME(...)`."""
    sys.modules[package].__class__ = _CallablePackage
