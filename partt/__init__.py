"""Jet tagging with the Particle Transformer, from ROOT files to a results table."""

import importlib
from typing import Any

__version__ = "0.1.0"

__all__ = ["load_tagger"]

# name -> module: loaded when first asked for, so that `import partt` stays light
_NAMES = {"load_tagger": "partt.tagger_file"}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'partt' has no attribute {name!r}")
    return getattr(importlib.import_module(_NAMES[name]), name)
