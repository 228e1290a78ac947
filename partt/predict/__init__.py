"""Tagger + files -> scores, in order and complete: `partt.predict(...)` is `partt.predict.run.predict`."""

from partt.callable_package import make_callable

make_callable(__name__)
