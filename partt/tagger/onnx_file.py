"""Exported taggers, .onnx files of `partt export`: header, inference in onnxruntime.

No other file is read, and no code but the ONNX operators runs.

Axes: N jets, B jets of a batch, C classes.
"""

import hashlib
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import ValidationError

import partt
from partt.config import Record, parse_record
from partt.data.config.data_config import DataConfig
from partt.data.jet_batch import Positions
from partt.data.variables import Variables
from partt.errors import ConfigError, DataError, ParttError
from partt.regular_files import read_bounded
from partt.tagger.inference import BatchScores, Each, TaggedJets, score_jets
from partt.tagger.onnx_inputs import Feed, Floats, InputKind, feeder, session_axes
from partt.tagger.tagger import Tagger

SUFFIX = ".onnx"
PRODUCER = "partt"
FORMAT_VERSION = 1
MAX_BYTES = 2**30
CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}
SUBGRAPHS = {5, 10}  # types of attributes: GRAPH, GRAPHS
ROWS_PER_BATCH = 1024  # particles; fastest in onnxruntime on a CPU (benchmarks/bench_export.py)


class OnnxHeader(Record):
    """Metadata of the file: strings unchanged, other values as JSON."""

    format_version: Literal[1] = 1
    inputs: InputKind
    network: str
    class_names: list[str]
    units: dict[str, str]  # of the inputs
    largest_difference: float  # between its scores and torch's, at export
    tagger_sha256: str
    versions: dict[str, str]
    data_config: str

    def to_metadata(self) -> dict[str, str]:
        """Return the header as strings."""
        fields = self.model_dump(mode="json")
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


@dataclass(frozen=True, eq=False)
class OnnxTagger(Tagger):
    """An exported tagger, ready to run."""

    header: OnnxHeader
    data_config: DataConfig
    session: Any  # onnxruntime.InferenceSession
    contents: bytes  # of the file
    sha256: str  # of the contents

    library = "onnxruntime"
    file_suffix = SUFFIX

    @property
    def network_name(self) -> str:
        """The name of the network that was exported."""
        return self.header.network

    def tag(self, variables: Variables, *, with_embeddings: bool = False, each: Each = map) -> TaggedJets:
        """Return the scores of jets; `each` computes batches like `map`."""
        if with_embeddings:
            self.require_embeddings()
        return score_jets(
            self.data_config, variables, partial(_OnnxJets, self), rows_per_batch=ROWS_PER_BATCH, each=each
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
        self.jets = feeder(tagger.header.inputs, tagger.data_config, variables, axes)
        self.lengths, self.bad = self.jets.lengths, self.jets.bad

    def run(self, batch: Positions) -> BatchScores:
        """Return the scores of some of the jets."""
        return BatchScores(run_session(self.session, self.jets.feed(batch)))


def run_session(session: Any, feed: Feed) -> Floats:
    """Return scores (B, C); values that are not an input of the file are left out."""
    known = {item.name for item in session.get_inputs()}
    try:
        outputs = session.run(None, {name: values for name, values in feed.items() if name in known})
        scores: Floats = np.stack(outputs, axis=1) if outputs[0].ndim == 1 else outputs[0]
    except MemoryError:
        raise
    except Exception as error:  # onnxruntime has its own errors
        raise DataError(f"onnxruntime cannot run the file: {' '.join(str(error).split())[:300]}") from error
    return scores


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
    if list(config.class_names) != header.class_names:
        raise DataError(f"{path} is damaged: the classes of its header and of its data config differ")
    try:
        session = new_session(contents)
    except (ParttError, MemoryError):
        raise
    except Exception as error:  # onnxruntime has its own errors for each fault of a graph
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"{path} cannot be run by onnxruntime: {detail}") from error
    _check_outputs(path, header, session)
    return OnnxTagger(header, config, session, contents, hashlib.sha256(contents).hexdigest())


def output_names(inputs: InputKind, class_names: Sequence[str]) -> list[str]:
    """Return the outputs of a file: the score of each class, or the scores of all as one (N, C)."""
    return [f"score_{name}" for name in class_names] if inputs == "raw" else ["softmax"]


def _check_outputs(path: Path, header: OnnxHeader, session: Any) -> None:
    """Raise an error unless a file has the outputs of its classes."""
    found, wanted = session.get_outputs(), output_names(header.inputs, header.class_names)
    if [output.name for output in found] != wanted:
        raise DataError(
            f"{path} is damaged: its outputs are {', '.join(output.name for output in found)[:300]}; its "
            f"classes need {', '.join(wanted)}"
        )
    dimensions = 1 if header.inputs == "raw" else 2
    last = found[0].shape[-1] if found[0].shape else None
    wrong = [output.name for output in found if len(output.shape) != dimensions]
    if wrong or (dimensions == 2 and isinstance(last, int) and last != len(header.class_names)):
        raise DataError(f"{path} is damaged: its outputs do not have one score for each class")


def new_session(contents: bytes) -> Any:
    """Return a session that computes on one thread at a time; several threads may use it."""
    onnxruntime = import_onnx("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # fatal only: errors are raised
    return onnxruntime.InferenceSession(contents, options, providers=["CPUExecutionProvider"])


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
