"""Packed chunks kept on disk and mapped into memory, so that later passes read no ROOT and compute nothing.

One safetensors file per chunk, under a name made of everything that its contents depend on: data config,
purpose, the file's identity (UUID, size, time of change) and the entries. A changed file or config is a miss.
"""

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from partt.atomic_files import atomic_path
from partt.data.columns import Purpose
from partt.data.data_config import DataConfig
from partt.data.jagged import Column, Jagged
from partt.data.jet_batch import JetBatch
from partt.data.root_files import FileInfo

LAYOUT = 1  # to be raised when the meaning of a stored tensor changes


def cache_folder(cache: Path, config: DataConfig, purpose: Purpose) -> Path:
    """Return the folder for the chunks that are read with a config for a purpose."""
    return cache / _digest(LAYOUT, config.to_yaml(), purpose)


def chunk_path(folder: Path, file: FileInfo, start: int, stop: int) -> Path:
    """Return where a chunk of a file is kept in the folder of its config."""
    return folder / f"{_digest(file.url, file.tree, file.identity, start, stop)}.safetensors"


def save_batch(path: Path, batch: JetBatch) -> None:
    """Write a batch, observers included."""
    tensors = {
        field.name: value
        for field in fields(batch)
        if isinstance(value := getattr(batch, field.name), Tensor)
    }
    for name, column in batch.observers.items():
        if isinstance(column, Jagged):
            tensors[f"contents:{name}"] = torch.from_numpy(column.contents)
            tensors[f"offsets:{name}"] = torch.from_numpy(column.offsets)
        else:
            tensors[f"observer:{name}"] = torch.tensor(column)
    with atomic_path(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)


def load_batch(path: Path) -> JetBatch | None:
    """Map a stored batch into memory; None if there is none, or one that was damaged."""
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError):
        return None
    names = [field.name for field in fields(JetBatch) if field.name != "observers"]
    observers: dict[str, Column] = {}
    for key in sorted(set(tensors) - set(names)):
        kind, name = key.split(":", 1)
        if kind == "observer":
            observers[name] = tensors[key].numpy()
        elif kind == "contents":
            observers[name] = Jagged(tensors[key].numpy(), tensors[f"offsets:{name}"].numpy())
    values: dict[str, Any] = {name: tensors.get(name) for name in names}
    return JetBatch(**values, observers=observers)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
