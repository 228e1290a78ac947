"""Find and load a tagger: a file, a run folder, or a shipped tagger."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from partt.config import did_you_mean
from partt.errors import ConfigError, DataError
from partt.model.network_file import NetworkFile, read_network_file
from partt.tagger import onnx_file, tagger_file
from partt.tagger.ensemble import make_ensemble
from partt.tagger.ensemble_file import is_ensemble, read_ensemble
from partt.tagger.shipped import shipped_taggers
from partt.tagger.tagger import Tagger

SEED = "seed_"  # + number: run folders of `partt train --seeds`
BEST_OF_RUN = f"best{tagger_file.SUFFIX}"  # the tagger of a run folder


def load_tagger(
    name_or_path: str | Path | Sequence[str | Path],
    engine: Literal["torch", "onnx"] | None = None,
    network_file: str | Path | NetworkFile | None = None,
) -> Tagger:
    """Load a tagger: a file, a run folder, or the name of a shipped tagger; several of them as an ensemble.

    Files of `partt export` (.onnx) run in onnxruntime, all others in torch; an `engine` that does not match
    is an error. A tagger file is checked, and the outputs of its reference jets are computed again. A tagger
    whose network is the user's own needs its `network_file`, whose code is run; no other code ever is.
    """
    if not isinstance(name_or_path, str | Path):
        if len(name_or_path) != 1:
            return make_ensemble([load_tagger(one, engine, network_file) for one in name_or_path])
        name_or_path = name_or_path[0]
    exported = Path(name_or_path).suffix == onnx_file.SUFFIX
    if engine == "onnx" and not exported:
        raise ConfigError(
            f"--engine onnx runs files of `partt export` ({onnx_file.SUFFIX}), not {name_or_path}"
        )
    if engine == "torch" and exported:
        raise ConfigError(f"{name_or_path} is an exported tagger: use --engine onnx")
    if exported and network_file is not None:
        raise ConfigError(f"{name_or_path} is an exported tagger, which contains its network: no --network")
    if exported:
        return replace(onnx_file.load_onnx_tagger(name_or_path), name=tagger_name(name_or_path))
    path = find_tagger(name_or_path)
    if is_ensemble(path):
        return replace(read_ensemble(path, _network_file(network_file)), name=tagger_name(name_or_path))
    return load_torch_tagger(name_or_path, network_file)


def load_torch_tagger(
    name_or_path: str | Path, network_file: str | Path | NetworkFile | None = None
) -> tagger_file.TorchTagger:
    """Load a tagger with its torch network, in evaluation mode; exported taggers have none."""
    path = find_tagger(name_or_path)
    if path.suffix == onnx_file.SUFFIX:
        raise ConfigError(f"{path} is an exported tagger: the tagger file that it was made of is needed here")
    try:  # safetensors reports every failure as a missing file
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    tagger = tagger_file.read_tagger(path, _network_file(network_file))
    return replace(tagger, name=tagger_name(name_or_path))


def tagger_name(name_or_path: str | Path) -> str:
    """Return what a tagger is called: like its file, its run folder, or the shipped tagger."""
    path = Path(name_or_path).absolute()
    path = path.parent if path.name == BEST_OF_RUN else path
    is_seed = path.name.startswith(SEED) and path.name.removeprefix(SEED).isdecimal()
    name = path.parent.name if is_seed else path.name  # all seeds are one model
    return name.removesuffix(tagger_file.SUFFIX).removesuffix(onnx_file.SUFFIX)


def _network_file(file: str | Path | NetworkFile | None) -> NetworkFile | None:
    return read_network_file(file) if isinstance(file, str | Path) else file


def seed_folders(name_or_path: str | Path) -> list[Path]:
    """Return the run folders in a folder of `partt train --seeds`, by seed; none if it is something else."""
    path = Path(name_or_path)
    if not os.path.isdir(path) or os.path.exists(path / BEST_OF_RUN):  # noqa: PTH110, PTH112 - as below
        return []
    found = [folder for folder in path.glob(f"{SEED}*") if folder.name.removeprefix(SEED).isdecimal()]
    return sorted(found, key=lambda folder: int(folder.name.removeprefix(SEED)))


def is_tagger_name(word: str) -> bool:
    """Return whether a word names a tagger, and not a file of jets."""
    is_file = Path(word).suffix in {tagger_file.SUFFIX, onnx_file.SUFFIX}
    return is_file or word in shipped_taggers() or os.path.isdir(word)  # noqa: PTH112 - as below


def find_tagger(name_or_path: str | Path) -> Path:
    """Return the file of a tagger: the path itself, the best one of a run folder, or a shipped one."""
    path, shipped = Path(name_or_path), shipped_taggers()
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises in a folder that may not be entered
        if os.access(path, os.X_OK) and not (path / BEST_OF_RUN).exists():
            if seeds := seed_folders(path):
                raise ConfigError(
                    f"{path} has {len(seeds)} trainings that differ in their seed: give one, like "
                    f"{seeds[0]}, or {path}/{SEED}* where an ensemble is taken"
                )
            raise DataError(
                f"the folder {path} has no {BEST_OF_RUN}; has its training finished an epoch yet?"
            )
        return path / BEST_OF_RUN
    if path.suffix or len(path.parts) != 1 or os.path.lexists(path):
        return path
    if path.name not in shipped:
        raise ConfigError(
            f"partt ships no tagger {path.name!r}{did_you_mean(path.name, list(shipped))}; give one of "
            f"{', '.join(shipped)}, a tagger file ({tagger_file.SUFFIX}) or a run folder"
        )
    return shipped[path.name]
