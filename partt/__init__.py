"""Jet tagging with the Particle Transformer, from ROOT files to a results table."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partt.checking.check import check
    from partt.conversion.convert import convert
    from partt.downloading.download import download
    from partt.evaluation.evaluate import evaluate
    from partt.evaluation.jets import scores_from_arrays
    from partt.explanation.displayed_jets import show
    from partt.explanation.explain import explain
    from partt.exporting.export import export
    from partt.prediction.predict import predict
    from partt.sample import sample_files
    from partt.simulation.simulate import simulate
    from partt.tagger.loading import load_tagger
    from partt.training.train import train

__version__ = "0.2.0"

# name -> module: imported when first used, so that `import partt` stays light
_MODULES = {
    "check": "partt.checking.check",
    "convert": "partt.conversion.convert",
    "download": "partt.downloading.download",
    "evaluate": "partt.evaluation.evaluate",
    "explain": "partt.explanation.explain",
    "export": "partt.exporting.export",
    "load_tagger": "partt.tagger.loading",
    "predict": "partt.prediction.predict",
    "sample_files": "partt.sample",
    "scores_from_arrays": "partt.evaluation.jets",
    "show": "partt.explanation.displayed_jets",
    "simulate": "partt.simulation.simulate",
    "train": "partt.training.train",
}

__all__ = [
    "__version__",
    "check",
    "convert",
    "download",
    "evaluate",
    "explain",
    "export",
    "load_tagger",
    "predict",
    "sample_files",
    "scores_from_arrays",
    "show",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'partt' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the functions, for completion in notebooks and at prompts, though they are imported later."""
    return sorted(__all__)
