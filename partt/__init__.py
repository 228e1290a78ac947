"""Jet tagging with the Particle Transformer, from ROOT files to a results table."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partt.evaluate.jets import scores_from_arrays
    from partt.evaluate.run import evaluate
    from partt.predict.run import predict
    from partt.sample import sample_files
    from partt.tagger_file import load_tagger

__all__ = ["__version__", "evaluate", "load_tagger", "predict", "sample_files", "scores_from_arrays"]

__version__ = "0.1.0"

# name -> module: imported when first used, so that `import partt` stays light
_LAZY = {
    "load_tagger": "partt.tagger_file",
    "sample_files": "partt.sample",
    "scores_from_arrays": "partt.evaluate.jets",
}
_CALLABLE_PACKAGES = {"evaluate", "predict"}


def __getattr__(name: str) -> Any:
    if name in _CALLABLE_PACKAGES:
        return importlib.import_module(f"partt.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'partt' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
