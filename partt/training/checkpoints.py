"""Checkpoints: everything that a run needs to continue as if it had not been interrupted.

A checkpoint is two files: tensors (.pt, loadable with weights_only), then a JSON file with everything else
and the sha256 of both. A checkpoint with its JSON file is complete; damage is found when it is loaded.
"""

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from partt.atomic_files import atomic_path, write_text
from partt.errors import DataError, ParttError
from partt.model.state_dicts import renamed_from_format_1, with_prefix, without_prefix
from partt.regular_files import read_json, require_regular

FORMAT_VERSION = 2


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and everything else as JSON values."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]


def save_checkpoint(folder: Path, name: str, checkpoint: Checkpoint, keep: int, best: str = "") -> None:
    """Write a checkpoint, then remove all but the newest `keep` and the one named `best`.

    The alphabetical order of names must be the order of time.
    """
    buffer = io.BytesIO()
    torch.save(dict(checkpoint.tensors), buffer)
    contents = buffer.getvalue()
    path = folder / f"{name}.json"
    with atomic_path(path.with_suffix(".pt")) as temporary:
        temporary.write_bytes(contents)
    header = {
        "format_version": FORMAT_VERSION,
        "sha256": hashlib.sha256(contents).hexdigest(),
        "values_sha256": _values_sha256(checkpoint.values),
    }
    write_text(path, json.dumps({**header, **checkpoint.values}, indent=1))
    _remove_old(folder, keep, best)


def load_newest(folder: Path, report_damage: Callable[[str], None]) -> Checkpoint | None:
    """Load the newest checkpoint that is not damaged; None if there is no checkpoint."""
    paths = _complete(folder)
    for path in reversed(paths):
        try:
            return _load(path)
        except DataError as error:
            report_damage(str(error))
    if paths:
        raise DataError(
            f"all {len(paths)} checkpoints in {folder} are damaged; start again in another folder"
        )
    return None


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimizer, named "POSITION OF THE PARAMETER/NAME"."""
    return {
        f"{position}/{name}": value
        for position, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
    }


def optimizer_numbers(optimizer: torch.optim.Optimizer) -> list[dict[str, float]]:
    """Return the numbers of each parameter group, such as Ranger's count of steps."""
    groups = optimizer.state_dict()["param_groups"]
    return [{key: value for key, value in group.items() if type(value) in {int, float}} for group in groups]


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], numbers: list[dict[str, float]]
) -> None:
    """Restore the state of an optimizer."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        position, _, name = key.partition("/")
        state.setdefault(int(position), {})[name] = tensor
    groups = optimizer.state_dict()["param_groups"]
    merged = [{**group, **saved} for group, saved in zip(groups, numbers, strict=True)]
    optimizer.load_state_dict({"state": state, "param_groups": merged})


def restore_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Restore the weights and buffers of a network or objective."""
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise DataError(f"the weights do not fit the network: {reason}") from error


def _complete(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.json"))


def _load(path: Path) -> Checkpoint:
    try:
        values = read_json(path)
        require_regular(path.with_suffix(".pt"))
        with path.with_suffix(".pt").open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        version, sha256 = int(values.pop("format_version")), values.pop("sha256")
        of_values = values.pop("values_sha256", None)  # older ones have none
    except (ParttError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"the checkpoint {path} is damaged: {error}") from error
    if version > FORMAT_VERSION:
        raise DataError(f"the checkpoint {path} was written by a newer partt")
    if found != sha256:
        raise DataError(f"the checkpoint {path.with_suffix('.pt')} is damaged: its sha256 has changed")
    if of_values is not None and of_values != _values_sha256(values):
        raise DataError(f"the checkpoint {path} is damaged: the sha256 of its values has changed")
    tensors = torch.load(path.with_suffix(".pt"), map_location="cpu", weights_only=True)
    return Checkpoint(_from_format_1(tensors) if version == 1 else tensors, values)


def _values_sha256(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _from_format_1(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint of partt 0.1 with current names."""
    network = renamed_from_format_1(without_prefix("model/", tensors))
    others = {name: tensor for name, tensor in tensors.items() if not name.startswith("model/")}
    return with_prefix("network/", network) | others


def _remove_old(folder: Path, keep: int, best: str) -> None:
    """Remove old checkpoints, and tensors without JSON (the run was killed in between)."""
    kept = {best, *(path.stem for path in _complete(folder)[-keep:])}
    for path in [*folder.glob("step-*.json"), *folder.glob("step-*.pt"), *folder.glob(".step-*.tmp*")]:
        if path.stem not in kept:
            with suppress(OSError):
                path.unlink()
