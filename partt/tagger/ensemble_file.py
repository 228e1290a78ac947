"""Files of ensembles (.safetensors): the files of all members, byte by byte, and a header that lists them.

Members are read as tagger files, with their reference jets, or as exported files; no other file is needed.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import safetensors.torch
import torch
from pydantic import Field, ValidationError

from partt.atomic_files import atomic_path, refuse_foreign
from partt.config import Record
from partt.errors import ConfigError, DataError, ParttError
from partt.model.network_file import NetworkFile
from partt.tagger import onnx_file, tagger_file
from partt.tagger.ensemble import Ensemble, make_ensemble
from partt.tagger.tagger import Tagger
from partt.tagger.tagger_file import MAX_HEADER_BYTES, read_tensors, sorted_keys, tensors_sha256

KEY = "partt_ensemble"  # of the header, in the metadata
MAX_MEMBERS = 100


class _Member(Record):
    """Description of a member."""

    network: str
    suffix: Literal[".safetensors", ".onnx"]
    sha256: str


class _Header(Record):
    """The members, in order."""

    format_version: Literal[1] = 1
    members: Annotated[tuple[_Member, ...], Field(strict=False, min_length=1, max_length=MAX_MEMBERS)]


def save_ensemble(path: str | Path, members: Sequence[Tagger], *, overwrite: bool = False) -> Ensemble:
    """Write several taggers as one file, atomically; a file that is no ensemble only with `overwrite`."""
    path = Path(path)
    if path.suffix != tagger_file.SUFFIX:
        raise ConfigError(f"{path}: the name of an ensemble's file ends in {tagger_file.SUFFIX}")
    ensemble = make_ensemble(members).with_hash()
    if len(ensemble.members) < 2:
        raise ConfigError(f"{path}: an ensemble needs two taggers or more")
    refuse_foreign(path, "partt export", is_ensemble, overwrite=overwrite)
    contents = ensemble_bytes(ensemble)
    with atomic_path(path) as temporary:
        temporary.write_bytes(contents)
    return ensemble


def ensemble_bytes(ensemble: Ensemble) -> bytes:
    """Return the contents of the file of an ensemble."""
    members = ensemble.with_hash().members
    header = _Header(
        members=tuple(
            _Member(network=one.network_name, suffix=one.file_suffix, sha256=one.sha256)  # type: ignore[arg-type]
            for one in members
        )
    ).model_dump_json()
    tensors = {
        _name(number): torch.from_numpy(np.frombuffer(one.to_bytes(), dtype=np.uint8).copy())
        for number, one in enumerate(members)
    }
    metadata = {KEY: header, "sha256": tensors_sha256(header, tensors)}
    return sorted_keys(safetensors.torch.save(tensors, metadata))


def is_ensemble(path: Path) -> bool:
    """Return whether a file is that of an ensemble."""
    try:
        if not path.is_file():  # opening a pipe would wait
            return False
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            header = file.read(header_bytes) if header_bytes <= MAX_HEADER_BYTES else b""
    except OSError:
        return False
    return f'"{KEY}"'.encode() in header


def read_ensemble(path: Path, network_file: NetworkFile | None = None) -> Ensemble:
    """Read an ensemble; every member is checked as a file of its own."""
    metadata, tensors = read_tensors(path)
    try:
        data = json.loads(metadata[KEY])
        if (
            isinstance(data, dict)
            and isinstance(data.get("format_version"), int)
            and data["format_version"] > 1
        ):
            raise DataError(
                f"{path} has format version {data['format_version']} of ensembles: a newer partt is needed"
            )
        header = _Header.model_validate(data)
    except (KeyError, ValueError, RecursionError, ValidationError) as error:
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"{path} is damaged: its header cannot be read ({detail})") from error
    names = [_name(number) for number in range(len(header.members))]
    if sorted(names) != sorted(tensors) or tensors_sha256(metadata[KEY], tensors) != metadata.get("sha256"):
        raise DataError(f"{path} is damaged: its contents do not match its header and sha256")
    if any(tensors[name].dtype != torch.uint8 or tensors[name].ndim != 1 for name in names):
        raise DataError(f"{path} is damaged: its members are not files")
    members = []
    for number, (name, described) in enumerate(zip(names, header.members, strict=True), 1):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"member{described.suffix}"
            file.write_bytes(tensors[name].numpy().tobytes())
            try:
                member = _read_member(file, network_file)
            except ParttError as error:
                text = str(error).replace(str(file), f"{path} (member {number})")
                raise type(error)(text) from error
        if member.sha256 != described.sha256:
            raise DataError(f"{path} is damaged: member {number} is not the one in its header")
        members.append(member)
    return make_ensemble(members)


def _read_member(file: Path, network_file: NetworkFile | None) -> Tagger:
    if file.suffix == onnx_file.SUFFIX:
        return onnx_file.load_onnx_tagger(file)
    return tagger_file.read_tagger(file, network_file)


def _name(number: int) -> str:
    return f"member.{number}"
