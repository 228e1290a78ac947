"""Cache of packed chunks on disk, memory-mapped, so that later passes read no ROOT and compute no variables.

One safetensors file per chunk. Its name is a hash of everything that its contents depend on: data config,
identity of the file (UUID, size, time of change) and entries. A changed file or config is a cache miss.

Soft labels, the outputs of a teacher, are in files of their own, whose names depend on the teacher and on the
jets, but not on the data config of the student: students share them.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from partt.atomic_files import atomic_path
from partt.data.config.data_config import DataConfig
from partt.data.files.info import FileInfo
from partt.data.jet_batch import PER_JET, JetBatch, ParticleClasses, Positions
from partt.errors import OutputError, without_secrets
from partt.jet_inputs import Collection, JetInputs

LAYOUT = 3  # to be increased when the meaning of a stored tensor changes
SOFT_LABELS = "soft_labels"


class BatchCache:
    """Packed chunks of one data config in a cache folder."""

    def __init__(self, cache: Path, config: DataConfig, *, has_labels: bool = True) -> None:
        self.cache = cache
        self.folder = cache / _digest(LAYOUT, config.to_yaml(), *(() if has_labels else ("no labels",)))
        self.collections, self.jet_groups = config.collections, tuple(config.jet_groups)
        self.particle_labels = tuple(config.particle_labels)
        self.fault = ""  # why the last chunk could not be written; then no more are
        self.is_reported = False
        self._verified: set[Path] = set()  # by this object: contents are hashed once, not in every pass

    def path(self, file: FileInfo, start: int, stop: int) -> Path:
        """Return the path of a chunk of a file."""
        url = without_secrets(file.url)  # a new token is not a new file
        return self.folder / f"{_digest(url, file.tree, file.identity, start, stop)}.safetensors"

    def soft_labels_path(self, teacher: str, file: FileInfo, start: int, stop: int, jets: Positions) -> Path:
        """Return the path of the soft labels of some jets of a chunk, from a teacher."""
        url = without_secrets(file.url)
        which = hashlib.sha256(jets.tobytes()).hexdigest()
        name = _digest(url, file.tree, file.identity, start, stop, which)
        return self.cache / _digest(SOFT_LABELS, LAYOUT, teacher) / f"{name}.safetensors"

    def save(self, path: Path, batch: JetBatch) -> None:
        """Write a batch, and a digest of its contents; if that fails, `fault` says why and jobs continue."""
        self._save(path, _to_tensors(batch))

    def save_soft_labels(self, path: Path, labels: Tensor) -> None:
        """Write soft labels as `save` writes a batch."""
        self._save(path, {SOFT_LABELS: labels})

    def _save(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        if self.fault:
            return
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
        try:
            with atomic_path(path) as temporary:
                save_file(tensors, temporary, metadata={"digest": _contents_digest(tensors)})
        except (OutputError, SafetensorError) as error:  # safetensors has its own error for a full disk
            self.fault = (
                f"cannot write to the cache {self.folder} ({error}): chunks that are not in it are read from "
                "their files in every pass; free some space, or choose another --cache"
            )

    def load(self, path: Path) -> JetBatch | None:
        """Map a stored batch into memory; None if it is missing or damaged."""
        tensors = self._load(path)
        return None if tensors is None else self._from_tensors(tensors)

    def load_soft_labels(self, path: Path) -> Tensor | None:
        """Map stored soft labels into memory; None if they are missing or damaged."""
        tensors = self._load(path)
        return None if tensors is None else tensors.get(SOFT_LABELS)

    def _load(self, path: Path) -> dict[str, Tensor] | None:
        if not path.is_file():  # reading a pipe may never end
            return None
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
                digest = (file.metadata() or {}).get("digest")
        except (OSError, SafetensorError):
            return None
        if path not in self._verified and digest != _contents_digest(tensors):
            return None
        self._verified.add(path)
        return tensors

    def _from_tensors(self, tensors: Mapping[str, Tensor]) -> JetBatch:
        per_jet: dict[str, Any] = {name: tensors.get(name) for name in PER_JET}
        collections = {}
        for name, inputs in self.collections.items():
            own = {
                key.removeprefix(start): tensor
                for key, tensor in tensors.items()
                if key.startswith(start := f"particles/{name}/")
            }
            collections[name] = Collection(
                features=own["features"],
                offsets=own["offsets"],
                momenta=own.get("momenta"),
                points=own.get("points"),
                others={part: own[f"others/{part}"] for part in inputs.others},
            )
        jet_features = {name: tensors[f"jet/{name}"] for name in self.jet_groups}
        labels = {
            name: ParticleClasses(tensors[f"labels/{name}/numbers"], tensors[f"labels/{name}/offsets"])
            for name in self.particle_labels
        }
        return JetBatch(inputs=JetInputs(collections, jet_features), particle_labels=labels, **per_jet)


def _to_tensors(batch: JetBatch) -> dict[str, Tensor]:
    """Return the tensors of a batch.

    FIELD, jet/GROUP, particles/COLLECTION/PART or .../others/PART, labels/NAME/numbers and .../offsets.
    """
    tensors = {name: value for name in PER_JET if (value := getattr(batch, name)) is not None}
    tensors |= {f"jet/{name}": group for name, group in batch.inputs.jet_features.items()}
    for name, collection in batch.inputs.collections.items():
        named: dict[str, Tensor | None] = {
            "offsets": collection.offsets,
            "features": collection.features,
            "momenta": collection.momenta,
            "points": collection.points,
            **{f"others/{part}": rows for part, rows in collection.others.items()},
        }
        tensors |= {f"particles/{name}/{part}": rows for part, rows in named.items() if rows is not None}
    for name, labels in batch.particle_labels.items():
        tensors |= {
            f"labels/{name}/numbers": labels.numbers,
            f"labels/{name}/offsets": labels.offsets.clone(),
        }
    return tensors


def _contents_digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy().data)
    return digest.hexdigest()


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
