"""Exported taggers, .onnx files of `partt export`: header, inference in onnxruntime.

Outputs of raw files: score_<class> of each class, then the predictions of regressions, called like the
columns of prediction files, all (N,). Files with standardised inputs have weaver-core's `softmax` (N, C)
instead of the scores, and no <variable>_corrected, since the variable is not an input.

No other file is read, and no code but the ONNX operators runs.

Axes: N jets, B jets of a batch, C classes.
"""

import hashlib
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, ValidationError

import partt
from partt.config import Record, parse_record
from partt.data.config.data_config import DataConfig
from partt.data.jet_batch import Positions
from partt.data.training_domain import Domain
from partt.data.variables import Variables
from partt.errors import ConfigError, DataError, ParttError
from partt.model.task_columns import SCORE, SOFTMAX, task_columns
from partt.model.tasks import Task, classes_task, fault_of
from partt.regular_files import read_bounded
from partt.tagger.inference import BatchScores, Each, TaggedJets, classes_of, score_jets
from partt.tagger.onnx_inputs import Feed, Floats, InputKind, feeder, raw_branches, session_axes
from partt.tagger.tagger import Tagger

SUFFIX = ".onnx"
PRODUCER = "partt"
FORMAT_VERSION = 2
MAX_BYTES = 2**30
MAX_MEMORY = 2**32  # bytes that all sessions of a process may use
CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}
SUBGRAPHS = {5, 10}  # types of attributes: GRAPH, GRAPHS
ROWS_PER_BATCH = 1024  # particles; fastest in onnxruntime on a CPU (benchmarks/bench_export.py)


class OnnxHeader(Record):
    """Metadata of the file: strings unchanged, other values as JSON."""

    format_version: Literal[1, 2] = 1  # 2: with regressions
    inputs: InputKind
    network: str
    class_names: list[str]
    units: dict[str, str]  # of the inputs
    # what the outputs mean; None: only the classes
    tasks: Annotated[tuple[Task, ...], Field(strict=False, max_length=100)] | None = None
    largest_difference: float  # between its scores and torch's, at export
    # of its regressions: relative to the prediction, or to the scale of the target if that is larger
    largest_relative_difference: float | None = None
    tagger_sha256: str
    versions: dict[str, str]
    data_config: str
    domain: Domain | None = None  # None: not known

    def to_metadata(self) -> dict[str, str]:
        """Return the header as strings."""
        fields = self.model_dump(mode="json", exclude_none=True)
        return {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> "OnnxHeader":
        """Return the header in metadata; a ValueError if it is missing or invalid."""
        texts = {name for name, kind in cls.model_fields.items() if kind.annotation is str} | {"inputs"}
        found = {name: metadata[name] for name in cls.model_fields if name in metadata}
        return cls.model_validate(
            {name: text if name in texts else json.loads(text) for name, text in found.items()}
        )


@dataclass(frozen=True, eq=False, repr=False)
class OnnxTagger(Tagger):
    """An exported tagger, ready to run."""

    header: OnnxHeader
    data_config: DataConfig
    tasks: tuple[Task, ...]
    session: Any  # onnxruntime.InferenceSession
    contents: bytes  # of the file
    sha256: str  # of the contents
    name: str = ""  # of the file it was loaded from

    library = "onnxruntime"
    file_suffix = SUFFIX

    @property
    def network_name(self) -> str:
        """The name of the network that was exported."""
        return self.header.network

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns that `tag` makes its inputs of: branches, if the file computes the variables itself."""
        raw = self.header.inputs == "raw"
        return tuple(raw_branches(self.data_config)) if raw else self.data_config.input_names

    @property
    def domain(self) -> Domain | None:  # type: ignore[override]
        """Which values the tagger was trained on; None: not known."""
        return self.header.domain

    def tag(self, variables: Variables, *, with_embeddings: bool = False, each: Each = map) -> TaggedJets:
        """Return scores and predictions of jets; `each` computes batches like `map`."""
        if with_embeddings:
            self.require_embeddings()
        return score_jets(
            self.data_config,
            self.tasks,
            variables,
            partial(_OnnxJets, self),
            rows_per_batch=ROWS_PER_BATCH,
            each=each,
        )

    def require_embeddings(self) -> None:
        """Raise an error: exported taggers have no embeddings."""
        raise ConfigError("an exported tagger has no embeddings: use the tagger file")

    def move_to(self, device: str) -> None:
        """Raise an error unless the device is the CPU."""
        if device not in {"auto", "cpu"}:
            raise ConfigError(f"--device {device}: exported taggers run on the CPU only")

    def with_hash(self) -> Self:
        """Return the tagger itself, which always has a hash."""
        return self

    def to_bytes(self) -> bytes:
        """Return the contents of its file."""
        return self.contents


class _OnnxJets:
    """Jets for a session of onnxruntime."""

    def __init__(self, tagger: OnnxTagger, variables: Variables) -> None:
        self.session = tagger.session
        axes = session_axes(tagger.session)
        self.jets = feeder(tagger.header.inputs, tagger.data_config, variables, axes, tagger.factors)
        self.lengths, self.bad = self.jets.lengths, self.jets.bad

    def run(self, batch: Positions) -> BatchScores:
        """Return scores and predictions of some of the jets."""
        return run_session(self.session, self.jets.feed(batch))


def run_session(session: Any, feed: Feed) -> BatchScores:
    """Return scores and predictions; values that are not an input of the file are left out."""
    known = {item.name for item in session.get_inputs()}
    names = [item.name for item in session.get_outputs()]
    try:
        found = session.run(None, {name: values for name, values in feed.items() if name in known})
        outputs: dict[str, Floats] = dict(zip(names, found, strict=True))
        scores = [outputs.pop(name) for name in names if name.startswith(SCORE) or name == SOFTMAX]
        if not scores:
            probabilities = np.empty((len(found[0]), 0), dtype=np.float32)
        else:
            probabilities = np.stack(scores, axis=1) if scores[0].ndim == 1 else scores[0]
    except MemoryError:
        raise
    except Exception as error:  # onnxruntime has its own errors
        raise DataError(f"onnxruntime cannot run the file: {' '.join(str(error).split())[:300]}") from error
    return BatchScores(probabilities, outputs)


# --- files ----------------------------------------------------------------------------------------------


def load_onnx_tagger(path: str | Path) -> OnnxTagger:
    """Load an exported tagger; a damaged file, or one of another program, is an error."""
    path = Path(path)
    contents = read_bounded(path, MAX_BYTES)
    model = _parse(path, contents)
    metadata = {item.key: item.value for item in model.metadata_props}
    if model.producer_name != PRODUCER or "format_version" not in metadata:
        raise DataError(f"{path} was not made by `partt export`, so partt does not know its inputs")
    if metadata["format_version"].isdecimal() and int(metadata["format_version"]) > FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {metadata['format_version']}; this partt ({partt.__version__}) reads "
            f"versions up to {FORMAT_VERSION}: a newer partt is needed (pip install --upgrade partt)"
        )
    if fingerprint(model) != metadata.get("sha256"):
        raise DataError(f"{path} is damaged: its contents do not match its sha256")
    try:
        header = OnnxHeader.from_metadata(metadata)
    except (ValueError, RecursionError, ValidationError) as error:
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"{path} is damaged: its metadata cannot be read ({detail})") from error
    config = parse_record(header.data_config, DataConfig, source=f"{path} (data config)")
    tasks = header.tasks or (classes_task(len(config.class_names)),)
    fault = fault_of(tasks, len(config.class_names))
    if fault is not None:
        raise DataError(f"{path} is damaged: {fault}")
    if list(classes_of(config, tasks)) != header.class_names:
        raise DataError(f"{path} is damaged: the classes of its header and of its data config differ")
    try:
        session = new_session(contents)
    except (ParttError, MemoryError):
        raise
    except Exception as error:  # onnxruntime has its own errors for each fault of a graph
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"{path} cannot be run by onnxruntime: {detail}") from error
    _check_outputs(path, header, tasks, session)
    return OnnxTagger(header, config, tasks, session, contents, hashlib.sha256(contents).hexdigest())


def output_names(inputs: InputKind, class_names: Sequence[str], tasks: Sequence[Task] = ()) -> list[str]:
    """Return the outputs of a file: the scores, each or all as one (N, C), and those of regressions."""
    scores = [f"{SCORE}{name}" for name in class_names] if inputs == "raw" else [SOFTMAX]
    columns = [task_columns(task, class_names) for task in tasks if task.is_regression]
    predicted = [name for item in columns for name in item.predicted]
    corrected = [item.corrected for item in columns if item.corrected is not None]
    return (scores if class_names else []) + predicted + (corrected if inputs == "raw" else [])


def _check_outputs(path: Path, header: OnnxHeader, tasks: Sequence[Task], session: Any) -> None:
    """Raise an error unless a file has the outputs of its classes and regressions."""
    found, wanted = session.get_outputs(), output_names(header.inputs, header.class_names, tasks)
    if [output.name for output in found] != wanted:
        raise DataError(
            f"{path} is damaged: its outputs are {', '.join(output.name for output in found)[:300]}; its "
            f"classes and regressions need {', '.join(wanted)}"
        )
    num_classes = len(header.class_names)
    for output in found:
        dimensions = 2 if header.inputs == "standardised" and output.name == SOFTMAX else 1
        last = output.shape[-1] if dimensions == 2 and output.shape else None
        if len(output.shape) != dimensions or (isinstance(last, int) and last != num_classes):
            what = "one score for each class" if output.name.startswith((SCORE, SOFTMAX)) else "one value"
            raise DataError(f"{path} is damaged: its output {output.name[:100]} does not have {what} per jet")


def new_session(contents: bytes) -> Any:
    """Return a session that computes on one thread at a time; several threads may use it.

    Operators such as Expand, Range and Tile make tensors of any size of a few numbers. What they allocate
    when the file is run is bounded by MAX_MEMORY; constants are not computed in advance, which is not.
    """
    onnxruntime = import_onnx("onnxruntime")
    _bound_memory()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # fatal only: errors are raised
    options.add_session_config_entry("session.use_env_allocators", "1")
    return onnxruntime.InferenceSession(
        contents, options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
    )


@cache
def _bound_memory() -> None:
    """Register the allocator that all sessions of this process share."""
    onnxruntime = import_onnx("onnxruntime")
    kinds, places = onnxruntime.OrtAllocatorType, onnxruntime.OrtMemType
    memory = onnxruntime.OrtMemoryInfo("Cpu", kinds.ORT_ARENA_ALLOCATOR, 0, places.DEFAULT)
    onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg({"max_mem": MAX_MEMORY}))


def fingerprint(model: Any) -> str:
    """Return the sha256 of operators, weights and metadata of a model, without the sha256 in the metadata."""
    digest = hashlib.sha256()
    for item in sorted(model.metadata_props, key=lambda item: item.key):
        if item.key != "sha256":
            digest.update(f"{item.key}\n{item.value}\n".encode())
    graph = model.graph
    parts = [*graph.input, *graph.output, *graph.node, *graph.initializer, *graph.sparse_initializer]
    for part in [*parts, *model.opset_import, *model.functions]:
        digest.update(part.SerializeToString(deterministic=True))
    return digest.hexdigest()


def import_onnx(name: Literal["onnx", "onnxruntime", "onnxscript"]) -> Any:
    """Import a package of the extra `export`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"{name} is missing: pip install 'partt[export]'") from error


def _parse(path: Path, contents: bytes) -> Any:
    onnx = import_onnx("onnx")
    DecodeError = importlib.import_module("google.protobuf.message").DecodeError  # noqa: N806
    try:
        model = onnx.load_model_from_string(contents)
    except (DecodeError, ValueError) as error:
        raise DataError(f"{path} is not an ONNX file, or incomplete") from error
    if _has_external_data(model):
        raise DataError(
            f"{path} keeps weights in other files (external data), which partt does not read: make it one "
            "file with onnx.save(onnx.load(FILE), NEW_FILE)"
        )
    _refuse_programs(path, model)
    if not all(isinstance(text, str) for item in model.metadata_props for text in (item.key, item.value)):
        raise DataError(f"{path} is damaged: its metadata are not text")
    return model


def _refuse_programs(path: Path, model: Any) -> None:
    """Raise an error if a model has loops, branches or functions, which exported taggers do not need.

    A loop may run for ever, and functions that call each other may stand for any number of operators.
    """
    kinds = {attribute.type for node in model.graph.node for attribute in node.attribute}
    unknown = {node.op_type for node in model.graph.node} & CONTROL_FLOW
    if unknown or kinds & SUBGRAPHS or len(model.functions):
        what = ", ".join(sorted(unknown)) or "functions"
        raise DataError(
            f"{path} has loops, branches or functions ({what}); exported taggers have none, and partt does "
            "not run them"
        )


def _has_external_data(message: Any) -> bool:
    """Return whether a tensor anywhere in a model (graph, subgraphs, functions) is stored in another file."""
    if message.DESCRIPTOR.name == "TensorProto":
        return bool(message.data_location == 1 or message.external_data)  # 1: TensorProto.EXTERNAL
    for field, value in message.ListFields():
        if field.message_type is not None:
            inner = [value] if hasattr(value, "DESCRIPTOR") else value
            if any(_has_external_data(part) for part in inner):
                return True
    return False
