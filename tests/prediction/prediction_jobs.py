"""Small taggers and their predictions, for tests."""

from pathlib import Path

import numpy as np
import torch

from partt.data.files.tables import inspect_file, read_columns
from partt.data.jagged import Column, Jagged, Table, take
from partt.data.packing import pack
from partt.data.variables import Variables
from partt.tagger.loading import load_torch_tagger
from partt.tagger.tagger_file import TorchTagger, save_tagger
from small_networks import logits_of, make_tagger


def saved_tagger(path: Path, **changes) -> TorchTagger:
    save_tagger(path, make_tagger(**changes))
    return load_torch_tagger(path)


def columns(path: Path, *names: str) -> dict[str, Column]:
    """Return number columns of an output; without names all of them."""
    info = inspect_file(str(path))
    readable = [
        name for name, kind in info.branches.items() if kind not in {"char*", "string", "large_string"}
    ]
    return read_columns(str(path), list(names) or readable)


def scores_of(path: Path, tagger: TorchTagger) -> np.ndarray:
    """Return the scores of an output (N, C)."""
    names = [f"score_{name}" for name in tagger.class_names]
    found = columns(path, *names)
    return np.stack([found[name] for name in names], axis=1)


def one_by_one(tagger: TorchTagger, jets: Table) -> np.ndarray:
    """Return the scores of jets (N, C), computed one jet at a time: the slow oracle."""
    num_jets = len(next(iter(jets.values())))
    scores = []
    for jet in range(num_jets):
        own = {name: take(column, np.array([jet])) for name, column in jets.items()}
        variables = Variables(own, tagger.data_config.formulas, "one jet", np.array([jet]))
        batch = pack(tagger.data_config, variables)
        with torch.inference_mode():
            logits = logits_of(tagger.network, batch.inputs)
        scores.append(logits.softmax(dim=1)[0].numpy())
    return np.array(scores).reshape(num_jets, len(tagger.class_names))


def assert_same_columns(left: Path, right: Path) -> None:
    """Compare two outputs value by value."""
    one, other = columns(left), columns(right)
    assert list(one) == list(other)
    for name, column in one.items():
        for a, b in zip(parts(column), parts(other[name]), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)


def parts(column: Column) -> list[np.ndarray]:
    return [column.contents, column.offsets] if isinstance(column, Jagged) else [column]
