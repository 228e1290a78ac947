"""Tagger files (.safetensors): weights, network config, data config, class names, versions, reference jets.

Reference jets are branches of a few jets, stored with the outputs of the network. Every load computes the
outputs again, in float64 on the CPU, so a file that loads gives the same numbers as when it was saved.
Nothing is pickled, and loading executes no code of the file.

Format 2 has the outputs of all heads, what they mean, and weights called backbone.* and heads.*. Files of
format 1 (partt 0.1) are converted when they are read.
"""

import copy
import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.torch
import torch
from pydantic import Field, ValidationError
from torch import Tensor

import partt
from partt.atomic_files import atomic_path
from partt.config import Record, parse_record
from partt.data.config.data_config import DataConfig
from partt.data.config.sections import ShortText
from partt.data.jagged import Column, Jagged, Table, jagged_fault, num_jets
from partt.data.jet_batch import JetBatch, Positions, take_inputs
from partt.data.packing import pack
from partt.data.training_domain import Domain
from partt.data.variables import Variables
from partt.errors import ConfigError, DataError
from partt.jet_inputs import JetInputs
from partt.jobs.devices import OTHER_PROGRAMS, choose_device, memory_errors_explained, turn_on
from partt.model.config_types import CLASSES, Width
from partt.model.network import Network, Outputs
from partt.model.network_file import NetworkFile, run_network_file
from partt.model.registry import build_network, network_config, network_kind
from partt.model.state_dicts import renamed_from_format_1, with_prefix, without_prefix
from partt.model.task_columns import predicted_columns
from partt.model.tasks import Task, classes_task, fault_of
from partt.regular_files import require_regular
from partt.tagger.inference import BatchScores, Each, TaggedJets, score_jets
from partt.tagger.tagger import Tagger
from partt.tagger.weaver_inputs import weaver_inputs

if TYPE_CHECKING:
    import awkward as ak

FORMAT_VERSION = 2
SUFFIX = ".safetensors"
EMBEDDINGS = "embeddings"  # of reference jets, for a network without heads
MAX_BYTES = 2**30
MAX_HEADER_BYTES = 4_000_000
MAX_REFERENCE_PAIRS = 10**7  # of particles in the same jet, which bounds the memory of the outputs
DTYPES = {torch.float64, torch.float32, torch.float16, torch.bool, torch.uint8, torch.uint16, torch.uint32,
          torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64}  # fmt: skip
# of the reference outputs, relative to the largest
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3}
# Particles of a batch: enough for groups of similar length, few enough to share batches between threads.
ROWS_PER_BATCH = {"cpu": 8192}
ROWS_PER_BATCH_ELSEWHERE = 262_144


@dataclass(frozen=True, eq=False, repr=False)
class TorchTagger(Tagger):
    """A torch network and the data config of its inputs."""

    network: Network
    data_config: DataConfig
    reference_jets: Table  # branches of a few jets
    versions: Mapping[str, str]  # of partt and its libraries when it was made
    tasks: tuple[Task, ...]  # what the outputs of the heads mean
    sha256: str = ""
    network_file: NetworkFile | None = None  # the user's own network, which the tagger file does not contain
    domain: Domain | None = None  # which values it was trained on
    name: str = ""  # of the file it was loaded from

    library = "torch"
    file_suffix = SUFFIX

    @property
    def network_name(self) -> str:
        """The name of the network, in partt.model.registry."""
        return self.network.name

    def tag(self, variables: Variables, *, with_embeddings: bool = False, each: Each = map) -> TaggedJets:
        """Return scores and predictions of jets; `each` is like `map` and computes the batches."""
        if self.network.training:
            raise ConfigError(
                "the network is in training mode, with dropout and batch statistics: call network.eval()"
            )
        return score_jets(
            self.data_config,
            self.tasks,
            variables,
            partial(_TorchJets, self, with_embeddings),
            rows_per_batch=ROWS_PER_BATCH.get(self.network.device.type, ROWS_PER_BATCH_ELSEWHERE),
            embedding_width=self.network.embedding_width if with_embeddings else None,
            each=each,
        )

    def inputs(self, events: "ak.Array") -> JetInputs:
        """Return the inputs of the network for the jets of an awkward array (see `__call__`), in order."""
        return pack(self.data_config, self.jets_of(events).variables).inputs

    def require_embeddings(self) -> None:
        """Raise an error if the network has no embeddings."""
        if not self.network.has_embeddings:
            raise ConfigError(
                f"the network {self.network.name}, from a weaver network file, has no embeddings"
            )

    def move_to(self, device: str) -> None:
        """Move the network to a device."""
        with memory_errors_explained(OTHER_PROGRAMS):
            self.network.to(choose_device(device))

    def with_hash(self) -> Self:
        """Return the tagger with its hash, even if it was never saved."""
        return self if self.sha256 else replace(self, sha256=tagger_bytes(self)[1])

    def to_bytes(self) -> bytes:
        """Return the contents of its file."""
        return tagger_bytes(self)[0]


class _TorchJets:
    """Packed jets for a torch network."""

    def __init__(self, tagger: TorchTagger, with_embeddings: bool, variables: Variables) -> None:
        self.tagger = tagger
        self.network = tagger.network
        self.with_embeddings = with_embeddings
        self.jets: JetBatch = pack(tagger.data_config, variables)
        self.lengths: Positions = self.network.num_rows(self.jets.inputs).numpy()
        self.bad: npt.NDArray[np.bool_] = self.jets.bad.numpy()

    @torch.inference_mode()
    def run(self, batch: Positions) -> BatchScores:
        """Return the scores of some of the jets."""
        device, taken = self.network.device, take_inputs(self.jets.inputs, batch)
        with memory_errors_explained(OTHER_PROGRAMS), turn_on(device):
            inputs = taken.to(device)
            embeddings = self.network.embed(inputs) if self.with_embeddings else None
            outputs = self.network(inputs) if embeddings is None else self.network.outputs(embeddings)
            scores = batch_scores(self.tagger, outputs, len(batch))
        return scores if embeddings is None else replace(scores, embeddings=embeddings.float().cpu().numpy())


def batch_scores(tagger: TorchTagger, outputs: Outputs, num_jets: int) -> BatchScores:
    """Return scores and predictions from the outputs of all heads."""
    outputs = {name: values.cpu() for name, values in outputs.items()}
    probabilities = np.empty((num_jets, 0))
    if tagger.class_names:
        probabilities = outputs[CLASSES].double().softmax(dim=1).numpy()
    predictions = predicted_columns(tagger.tasks, tagger.class_names, outputs)
    return BatchScores(probabilities, {name: values.numpy() for name, values in predictions.items()})


class _NeededFile(Record):
    """A network file, by its name and its hash."""

    name: ShortText
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Header(Record):
    """Everything but the tensors, as JSON in the safetensors metadata."""

    format_version: Literal[1, 2]
    network: str
    network_config: dict[str, Any]
    # head -> number of outputs; None: only the classes
    heads: Annotated[dict[str, Width], Field(max_length=100)] | None = None
    # what the outputs of the heads mean; None: only the classes
    tasks: Annotated[tuple[Task, ...], Field(strict=False, max_length=100)] | None = None
    class_names: list[str]
    data_config: str
    versions: dict[str, str]
    network_file: _NeededFile | None = None  # None: the network is known by its name
    domain: Domain | None = None  # None: not known


def new_tagger(
    network: Network,
    data_config: DataConfig,
    reference_jets: Table,
    tasks: Sequence[Task] = (),
    network_file: NetworkFile | None = None,
    *,
    domain: Domain | None = None,
) -> TorchTagger:
    """Return a tagger with the versions of this installation; `reference_jets` are branches of a few jets.

    `tasks` say what the outputs of the heads mean; without them there are only classes, if any.
    """
    versions = {
        "partt": partt.__version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    classes = (classes_task(len(data_config.class_names)),) if CLASSES in network.heads else ()
    return TorchTagger(
        network,
        data_config,
        reference_jets,
        versions,
        tuple(tasks) or classes,
        network_file=network_file,
        domain=domain,
    )


def save_tagger(path: str | Path, tagger: TorchTagger) -> str:
    """Write a tagger file, atomically; return the sha256 of its contents."""
    contents, sha256 = tagger_bytes(tagger)
    with atomic_path(path) as temporary:
        temporary.write_bytes(contents)
    return sha256


def tagger_bytes(tagger: TorchTagger) -> tuple[bytes, str]:
    """Return the contents of a tagger file, and their sha256."""
    file = tagger.network_file
    header = _Header(
        format_version=2,
        network=tagger.network.name,
        network_config=tagger.network.config.model_dump(mode="json"),
        heads=tagger.network.head_sizes,
        tasks=None if [task.kind for task in tagger.tasks] == [CLASSES] else tagger.tasks,
        class_names=list(tagger.data_config.class_names),
        data_config=tagger.data_config.to_yaml(),
        versions=dict(tagger.versions),
        network_file=None if file is None else _NeededFile(name=file.path.name, sha256=file.sha256),
        domain=tagger.domain,
    )
    tensors = with_prefix("weights.", tagger.network.state_dict())
    for name, column in tagger.reference_jets.items():
        contents = column.contents if isinstance(column, Jagged) else column
        tensors[f"reference.contents.{name}"] = _tensor(contents)
        if isinstance(column, Jagged):
            tensors[f"reference.offsets.{name}"] = _tensor(column.offsets)
    tensors |= with_prefix("reference.outputs.", reference_outputs(tagger))
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = header.model_dump_json(exclude_none=True)
    metadata = {"partt": text, "sha256": tensors_sha256(text, tensors)}
    return sorted_keys(safetensors.torch.save(tensors, metadata)), metadata["sha256"]


def sorted_keys(contents: bytes) -> bytes:
    """Return a safetensors file with sorted keys: the library writes its metadata in random order."""
    size = int.from_bytes(contents[:8], "little")
    text = json.dumps(json.loads(contents[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + contents[8 + size :]


def read_tagger(path: Path, network_file: NetworkFile | None = None) -> TorchTagger:
    """Read a tagger file; the network is in evaluation mode.

    The file is checked, and the outputs of its reference jets are computed again. The code of `network_file`
    is run only if the tagger needs this very file; a tagger that needs one is not read without it.
    """
    metadata, tensors = read_tensors(path)
    header = _read_header(path, metadata)
    if tensors_sha256(metadata["partt"], tensors) != metadata.get("sha256"):
        raise DataError(f"{path} is damaged: its contents do not match its sha256")
    data_config = parse_record(header.data_config, DataConfig, source=f"{path} (data config)")
    if list(data_config.class_names) != header.class_names:
        raise DataError(f"{path} is damaged: the classes of its header and of its data config differ")
    weights = without_prefix("weights.", tensors)
    expected = without_prefix("reference.outputs.", tensors)
    if header.format_version == 1:
        weights = renamed_from_format_1(weights)
        expected = {CLASSES: tensors["reference.logits"]} if "reference.logits" in tensors else {}
    _check_network_file(path, header, network_file)
    network = _build(path, header, data_config, weights, network_file)
    reference_jets = _reference_columns(path, tensors, data_config)
    tasks = (classes_task(len(header.class_names)),) if header.tasks is None else header.tasks
    tagger = TorchTagger(
        network,
        data_config,
        reference_jets,
        header.versions,
        tasks,
        metadata["sha256"],
        network_file,
        header.domain,
    )
    _check_reference(path, tagger, expected)
    return tagger


def reference_outputs(tagger: TorchTagger, dtype: torch.dtype = torch.float64) -> Outputs:
    """Compute the outputs of the reference jets on the CPU; without heads, their embeddings.

    In float32 if the code of a network file cannot do it in float64.
    """
    inputs = reference_inputs(tagger).to(dtype)
    network = copy.deepcopy(tagger.network).cpu().to(dtype).eval()
    try:
        with torch.inference_mode():
            outputs: Outputs = network(inputs) or {EMBEDDINGS: network.embed(inputs)}
    except (ConfigError, RuntimeError):
        if tagger.network_file is None or dtype == torch.float32:
            raise
        return reference_outputs(tagger, torch.float32)
    return outputs


def reference_inputs(tagger: TorchTagger) -> JetInputs:
    """Return the inputs of the network for the reference jets, in float64."""
    jets = tagger.reference_jets
    variables = Variables(jets, tagger.data_config.formulas, "reference jets", np.arange(num_jets(jets)))
    return pack(tagger.data_config, variables, dtype=np.float64).inputs


# --- reading; every fault becomes one clear message -----------------------------------------------------


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return metadata and tensors of a safetensors file of bounded size."""
    require_regular(path, max_bytes=MAX_BYTES)
    try:
        with path.open("rb") as start:
            header_bytes = int.from_bytes(start.read(8), "little")
        if header_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"its header has {header_bytes} bytes; at most {MAX_HEADER_BYTES} are read")
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError:
        raise
    except Exception as error:  # a broken file can make its reader raise anything
        detail = " ".join(str(error).split())
        raise DataError(f"{path} is not a tagger file, or incomplete: {detail}") from error
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            raise DataError(f"{path}: {name[:100]} is {tensor.dtype}, which no tagger file of partt has")
    return metadata, tensors


def _read_header(path: Path, metadata: Mapping[str, str]) -> _Header:
    if "partt_ensemble" in metadata:
        raise ConfigError(f"{path} is an ensemble of taggers: one of them is needed here")
    if "partt" not in metadata:
        raise DataError(f"{path} is a safetensors file, but not a tagger file of partt")
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
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"{path} is damaged: its header cannot be read ({detail})") from error


def _check_network_file(path: Path, header: _Header, given: NetworkFile | None) -> None:
    needed = header.network_file
    if needed is None and given is not None:
        raise ConfigError(f"{path} needs no network file, but --network {given.path} is given")
    if needed is not None and given is None:
        raise ConfigError(
            f"{path} needs its network file {needed.name} (sha256 {needed.sha256}), since a tagger file "
            "contains no code: give it with --network, or as network_file of partt.load_tagger; a run folder "
            "has a copy, network.py"
        )
    if needed is not None and given is not None and needed.sha256 != given.sha256:
        raise ConfigError(
            f"{path} needs the network file {needed.name} with sha256 {needed.sha256}; {given.path} has "
            f"{given.sha256}, and was not run"
        )


def _build(
    path: Path,
    header: _Header,
    data_config: DataConfig,
    weights: Mapping[str, Tensor],
    network_file: NetworkFile | None,
) -> Network:
    """Build the network and load its weights; memory is allocated after the shapes are checked.

    A network from a file is built first: who runs its code trusts it.
    """
    classes = {CLASSES: len(header.class_names)}
    shape, heads = data_config.input_shape, classes if header.heads is None else header.heads
    if heads.get(CLASSES, len(header.class_names)) != len(header.class_names):
        raise DataError(f"{path} is damaged: {heads[CLASSES]} outputs for {len(header.class_names)} classes")
    fault = fault_of(header.tasks or (), len(header.class_names))
    if fault is not None:
        raise DataError(f"{path} is damaged: {fault}")
    for task in (classes_task(len(header.class_names)),) if header.tasks is None else header.tasks:
        if heads.get(task.name) != task.num_outputs or task.num_classes not in {0, len(header.class_names)}:
            raise DataError(f"{path} is damaged: the outputs of {task.name[:100]} do not fit its head")
    try:
        kind = (
            network_kind(header.network)
            if network_file is None
            else run_network_file(network_file).kind(weaver_inputs(data_config))
        )
        config = network_config(header.network, header.network_config, kind)
        build = partial(build_network, header.network, config, shape, heads, kind)
        with torch.random.fork_rng(devices=[]):  # loading must not change the caller's random numbers
            with torch.device("meta") if kind.can_be_sized else nullcontext():
                network = build()
            _check_shapes(path, network.state_dict(), weights)
            network = build() if kind.can_be_sized else network
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from error
    network.load_state_dict(weights)
    return network.eval()


def _check_shapes(path: Path, expected: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    for name in [*expected, *weights]:
        if name not in weights or name not in expected or expected[name].shape != weights[name].shape:
            found = list(weights[name].shape) if name in weights else "nothing"
            wanted = list(expected[name].shape) if name in expected else "nothing"
            raise DataError(f"{path}: the weight {name}: expected {wanted}, found {found}")


def _reference_columns(path: Path, tensors: Mapping[str, Tensor], data_config: DataConfig) -> Table:
    """Return the reference jets; too many pairs of particles are an error."""
    columns: dict[str, Column] = {}
    for name, tensor in tensors.items():
        if not name.startswith("reference.contents."):
            continue
        branch = name.removeprefix("reference.contents.")
        offsets = tensors.get(f"reference.offsets.{branch}")
        contents = tensor.numpy()
        fault = "not one-dimensional" if contents.ndim != 1 else None
        if offsets is not None:
            fault = fault or jagged_fault(contents, offsets.numpy())
        if fault is not None:
            raise DataError(f"{path} is damaged: its reference jets: {branch[:100]}: {fault}")
        columns[branch] = contents if offsets is None else Jagged(contents, offsets.numpy())
    numbers = {len(column) for column in columns.values()}
    if not numbers or 0 in numbers:
        raise DataError(f"{path} is damaged: it has no reference jets")
    if len(numbers) > 1:
        raise DataError(f"{path} is damaged: its reference jets have columns of different lengths")
    lengths = [column.lengths for column in columns.values() if isinstance(column, Jagged)]
    longest = np.max([np.zeros(max(numbers)), *lengths], axis=0)
    cuts = [collection.length or np.inf for collection in data_config.collections.values()]
    num_particles = np.sum([np.minimum(longest, cut) for cut in cuts], axis=0)
    if max(*numbers, np.sum(num_particles**2)) > MAX_REFERENCE_PAIRS:
        raise DataError(f"{path} is damaged: its reference jets have too many particles")
    return columns


def _check_reference(path: Path, tagger: TorchTagger, expected: Mapping[str, Tensor]) -> None:
    try:
        computed = reference_outputs(tagger)
    except (ConfigError, DataError) as error:
        raise DataError(f"{path}: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # columns that no data config gives
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"{path} is damaged: its reference jets cannot be computed: {detail}") from error
    for head, values in computed.items():
        if head not in expected or expected[head].shape != values.shape:
            raise DataError(f"{path} is damaged: its reference outputs are missing or have the wrong shape")
        if not (expected[head].is_floating_point() and expected[head].isfinite().all()):
            raise DataError(f"{path} is damaged: its reference outputs are NaN, infinite, or not numbers")
        scale = float(expected[head].abs().max()) if expected[head].numel() else 0.0
        difference = float((values - expected[head]).abs().max()) if values.numel() else 0.0
        if not difference <= TOLERANCES[values.dtype] * scale:
            raise DataError(
                f"{path} gives other outputs than when it was saved, with {_list(tagger.versions)}: those of "
                f"its reference jets differ by {difference:.2g} (largest output {scale:.2g})"
            )


def _list(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def tensors_sha256(header: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of header, names, types, shapes and numbers, whatever their order in the file."""
    digest = hashlib.sha256(header.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
