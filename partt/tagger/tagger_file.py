"""One .safetensors file = weights, network config, data config, class names, versions, reference jets.

The reference jets are raw columns, as a file would have them, with the logits that the network gave for them.
Every load computes them again, in float64 on the CPU: a file that loads gives the numbers that it was saved
with. Nothing is pickled and loading executes nothing of the file.
"""

import copy
import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.torch
import torch
from pydantic import ValidationError
from torch import Tensor, nn

import partt
from partt.atomic_files import atomic_path
from partt.config import Record, did_you_mean, parse_record
from partt.data.config.data_config import DataConfig
from partt.data.from_awkward import jets_of_events
from partt.data.jagged import Column, Jagged, Table, num_jets
from partt.data.jet_batch import JetBatch
from partt.data.packing import pack
from partt.data.variables import Variables, names_for_index
from partt.errors import ConfigError, DataError
from partt.model.registry import build_network, network_config
from partt.tagger.inference import Each, TaggedJets, sharing_threads, tag
from partt.tagger.shipped import shipped_taggers

if TYPE_CHECKING:
    import awkward as ak

FORMAT_VERSION = 1
SUFFIX = ".safetensors"
BEST_OF_RUN = f"best{SUFFIX}"  # the tagger of a run folder
JETS_AT_ONCE = 8192
RELATIVE_TOLERANCE = 1e-6  # of the reference logits, in float64


@dataclass(frozen=True, eq=False)
class Tagger:
    """A network and what is needed to feed it."""

    network_name: str  # in partt.model.registry
    model: nn.Module  # particles (T, F), momenta (T, 4), offsets (B + 1), points (T, 2) -> logits (B, C)
    data_config: DataConfig
    reference_jets: Table  # raw columns of a few jets
    versions: Mapping[str, str]  # of partt and its libraries when the file was written
    sha256: str = ""  # of the file's contents; empty before it is saved

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return self.data_config.class_names

    @property
    def num_features(self) -> int:
        """Features per particle."""
        return len(self.data_config.particles.variables)

    def logits(self, batch: JetBatch) -> Tensor:
        """Return the logits (B, C) of a batch on the model's device."""
        logits: Tensor = self.model(batch.particles, batch.momenta, batch.offsets, batch.points)
        return logits

    def tag(self, variables: Variables, *, with_embeddings: bool = False, each: Each = map) -> TaggedJets:
        """Return the scores of jets, by `partt.tagger.inference.tag`."""
        return tag(self.model, self.data_config, variables, with_embeddings=with_embeddings, each=each)

    def __call__(self, events: "ak.Array") -> "ak.Array":
        """Return the scores of jets, one field per class, nested as the jets are.

        `events`: awkward records with the branches that the data config needs (no labels, no observers), of
        jets with lists of particles, or of events with lists of such jets. Jets that the config does not
        select and jets with inputs that are not finite get NaN.
        """
        names = {*self.data_config.input_names} | names_for_index(self.data_config, "predict")
        jets = jets_of_events(self.data_config, names, events)
        num_jets = jets.variables.num_jets
        scores = np.empty((num_jets, len(self.class_names)), dtype=np.float32)
        with sharing_threads() as each:
            for start in range(0, num_jets, JETS_AT_ONCE):
                some = np.arange(start, min(start + JETS_AT_ONCE, num_jets))
                tagged = self.tag(jets.variables.take(some), each=each)
                scores[some] = tagged.probabilities
        return jets.nest(dict(zip(self.class_names, scores.T, strict=True)))


class _Header(Record):
    """What the file says beside its tensors, as JSON in the safetensors metadata."""

    format_version: Literal[1]
    network: str
    network_config: dict[str, Any]
    class_names: list[str]
    data_config: str
    versions: dict[str, str]


def new_tagger(network_name: str, model: nn.Module, data_config: DataConfig, reference_jets: Table) -> Tagger:
    """Return a tagger made here and now; `reference_jets` are raw columns of a few jets."""
    versions = {
        "partt": partt.__version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return Tagger(network_name, model, data_config, reference_jets, versions)


def save_tagger(path: str | Path, tagger: Tagger) -> str:
    """Write a tagger file, atomically; return the sha256 of its contents."""
    contents, sha256 = tagger_bytes(tagger)
    with atomic_path(path) as temporary:
        temporary.write_bytes(contents)
    return sha256


def tagger_bytes(tagger: Tagger) -> tuple[bytes, str]:
    """Return the bytes of a tagger file, and the sha256 of what it holds."""
    config: Any = tagger.model.config
    header = _Header(
        format_version=1,
        network=tagger.network_name,
        network_config=config.model_dump(mode="json"),
        class_names=list(tagger.class_names),
        data_config=tagger.data_config.to_yaml(),
        versions=dict(tagger.versions),
    )
    tensors = {f"weights.{name}": tensor for name, tensor in tagger.model.state_dict().items()}
    for name, column in tagger.reference_jets.items():
        contents = column.contents if isinstance(column, Jagged) else column
        tensors[f"reference.contents.{name}"] = _tensor(contents)
        if isinstance(column, Jagged):
            tensors[f"reference.offsets.{name}"] = _tensor(column.offsets)
    tensors["reference.logits"] = torch.from_numpy(reference_logits(tagger))
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = header.model_dump_json()
    metadata = {"partt": text, "sha256": _sha256(text, tensors)}
    return safetensors.torch.save(tensors, metadata), metadata["sha256"]


def with_hash(tagger: Tagger) -> Tagger:
    """Return a tagger that knows its hash, also one that was never saved."""
    return tagger if tagger.sha256 else replace(tagger, sha256=tagger_bytes(tagger)[1])


def find_tagger(name_or_path: str | Path) -> Path:
    """Return the file of a tagger: itself, the best one of a run folder, or one that partt ships."""
    path, shipped = Path(name_or_path), shipped_taggers()
    if path.is_dir():
        if not (path / BEST_OF_RUN).is_file():
            raise DataError(f"the folder {path} has no {BEST_OF_RUN}; has its training ended an epoch yet?")
        return path / BEST_OF_RUN
    if path.suffix or len(path.parts) != 1 or path.exists():
        return path
    if path.name not in shipped:
        raise ConfigError(
            f"partt ships no tagger {path.name!r}{did_you_mean(path.name, list(shipped))}; give one of "
            f"{', '.join(shipped)}, a tagger file ({SUFFIX}) or a run folder"
        )
    return shipped[path.name]


def load_tagger(name_or_path: str | Path) -> Tagger:
    """Load a tagger (a file, a run folder, the name of one that partt ships), in evaluation mode.

    The file is checked, and its reference jets are computed again.
    """
    path = find_tagger(name_or_path)
    metadata, tensors = _read(path)
    header = _read_header(path, metadata)
    if _sha256(metadata["partt"], tensors) != metadata.get("sha256"):
        raise DataError(f"{path} is damaged: its contents do not have the sha256 that it states")
    data_config = parse_record(header.data_config, DataConfig, source=f"{path} (data config)")
    if list(data_config.class_names) != header.class_names:
        raise DataError(f"{path}: the classes of the network and of its data config differ")
    weights = {name.removeprefix("weights."): t for name, t in tensors.items() if name.startswith("weights.")}
    model = _build(path, header, data_config, weights)
    reference_jets = _reference_columns(path, tensors)
    tagger = Tagger(header.network, model, data_config, reference_jets, header.versions, metadata["sha256"])
    _check_reference(path, tagger, tensors.get("reference.logits"))
    return tagger


def reference_logits(tagger: Tagger) -> npt.NDArray[np.float64]:
    """Compute the logits (N, C) of the reference jets in float64 on the CPU."""
    jets = tagger.reference_jets
    entries = np.arange(num_jets(jets))
    variables = Variables(jets, tagger.data_config.formulas, "reference jets", entries)
    batch = pack(tagger.data_config, variables, dtype=np.float64)
    model = copy.deepcopy(tagger.model).cpu().double().eval()
    with torch.inference_mode():
        logits: Tensor = model(batch.particles, batch.momenta, batch.offsets, batch.points)
    return logits.numpy()


# --- reading, with every fault turned into one clear message --------------------------------------------


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (safetensors.SafetensorError, ValueError, RuntimeError) as error:
        raise DataError(f"{path} is no tagger file, or incomplete: {error}") from error


def _read_header(path: Path, metadata: Mapping[str, str]) -> _Header:
    if "partt" not in metadata:
        raise DataError(f"{path} is a safetensors file, but not a partt tagger: was it saved by partt?")
    try:
        data = json.loads(metadata["partt"])
        version = data["format_version"] if isinstance(data, dict) else None
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise DataError(
                f"{path} has format version {version}; this partt ({partt.__version__}) reads versions up to "
                f"{FORMAT_VERSION}: a newer partt is needed (pip install --upgrade partt)"
            )
        return _Header.model_validate(data)
    except (KeyError, ValueError, RecursionError, ValidationError) as error:
        raise DataError(f"{path} is damaged: its header cannot be read ({error})") from error


def _build(path: Path, header: _Header, data_config: DataConfig, weights: Mapping[str, Tensor]) -> nn.Module:
    """Build the network and fill in its weights; memory is taken only once the shapes agree."""
    num_features, num_classes = len(data_config.particles.variables), len(header.class_names)
    try:
        config = network_config(header.network, header.network_config)
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error
    with torch.device("meta"):
        expected = build_network(header.network, config, num_features, num_classes).state_dict()
    for name in [*expected, *weights]:
        if name not in weights or name not in expected or expected[name].shape != weights[name].shape:
            found = list(weights[name].shape) if name in weights else "nothing"
            wanted = list(expected[name].shape) if name in expected else "nothing"
            raise DataError(f"{path}: the weight {name}: expected {wanted}, found {found}")
    with torch.random.fork_rng(devices=[]):  # loading leaves the caller's random numbers alone
        model = build_network(header.network, config, num_features, num_classes)
    model.load_state_dict(weights)
    return model.eval()


def _reference_columns(path: Path, tensors: Mapping[str, Tensor]) -> Table:
    columns: dict[str, Column] = {}
    for name, tensor in tensors.items():
        if not name.startswith("reference.contents."):
            continue
        branch = name.removeprefix("reference.contents.")
        offsets = tensors.get(f"reference.offsets.{branch}")
        columns[branch] = tensor.numpy() if offsets is None else Jagged(tensor.numpy(), offsets.numpy())
    if not columns:
        raise DataError(f"{path} has no reference jets, so nothing shows that it works as when it was saved")
    return columns


def _check_reference(path: Path, tagger: Tagger, expected: Tensor | None) -> None:
    computed = reference_logits(tagger)
    if expected is None or expected.shape != computed.shape:
        raise DataError(f"{path}: its reference logits are missing or of the wrong shape")
    scale = np.abs(expected.numpy()).max(initial=0.0)
    difference = np.abs(computed - expected.numpy()).max(initial=0.0)
    if not difference <= RELATIVE_TOLERANCE * scale:
        raise DataError(
            f"{path} does not work here as when it was saved, with {_list(tagger.versions)}: the logits of "
            f"its reference jets differ by {difference:.2g} (largest logit {scale:.2g})"
        )


def _list(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _sha256(header: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 over header, names, types, shapes and numbers, whatever their order in the file."""
    digest = hashlib.sha256(header.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
