"""Packed chunks kept on disk and mapped into memory, so that later passes read no ROOT and compute nothing.

One safetensors file per chunk, under a name made of everything that its contents depend on: data config,
purpose, the file's identity (UUID, size, time of change) and the entries. A changed file or config is a miss.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from partt.atomic_files import atomic_path
from partt.data.config.data_config import DataConfig
from partt.data.files.tables import FileInfo
from partt.data.jagged import Column, Jagged
from partt.data.jet_batch import JetBatch
from partt.data.variables import Purpose

LAYOUT = 1  # to be raised when the meaning of a stored tensor changes
TENSORS = tuple(field.name for field in fields(JetBatch) if field.name != "observers")

_verified: set[Path] = set()


def cache_folder(cache: Path, config: DataConfig, purpose: Purpose) -> Path:
    """Return the folder for the chunks that are read with a config for a purpose."""
    return cache / _digest(LAYOUT, config.to_yaml(), purpose)


def chunk_path(folder: Path, file: FileInfo, start: int, stop: int) -> Path:
    """Return where a chunk of a file is kept in the folder of its config."""
    return folder / f"{_digest(file.url, file.tree, file.identity, start, stop)}.safetensors"


def save_batch(path: Path, batch: JetBatch) -> None:
    """Write a batch, observers included, and a digest of its contents."""
    tensors = {name: tensor for name in TENSORS if isinstance(tensor := getattr(batch, name), Tensor)}
    for name, column in batch.observers.items():
        if isinstance(column, Jagged):
            tensors[f"contents:{name}"] = torch.tensor(column.contents)
            tensors[f"offsets:{name}"] = torch.tensor(column.offsets)
        else:
            tensors[f"observer:{name}"] = torch.tensor(column)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata={"digest": _contents_digest(tensors)})


def load_batch(path: Path) -> JetBatch | None:
    """Map a stored batch into memory; None if there is none, or one that was damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            digest = (file.metadata() or {}).get("digest")
        # Contents are looked at once in each process: that costs less than reading them did.
        if path not in _verified and digest != _contents_digest(tensors):
            return None
    except (OSError, SafetensorError):
        return None
    _verified.add(path)
    observers: dict[str, Column] = {}
    for key in sorted(set(tensors) - set(TENSORS)):
        kind, name = key.split(":", 1)
        if kind == "observer":
            observers[name] = tensors[key].numpy()
        elif kind == "contents":
            observers[name] = Jagged(tensors[key].numpy(), tensors[f"offsets:{name}"].numpy())
    values: dict[str, Any] = {name: tensors.get(name) for name in TENSORS}
    return JetBatch(**values, observers=observers)


def _contents_digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy().data)
    return digest.hexdigest()


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
