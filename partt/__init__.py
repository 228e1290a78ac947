"""Jet tagging with the Particle Transformer, from ROOT files to a results table."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partt.sample import sample_files

__all__ = ["__version__", "sample_files"]

__version__ = "0.1.0"

# name -> module; imported when first used, so that `import partt` stays fast
_LAZY = {"sample_files": "partt.sample"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'partt' has no attribute {name!r}")
