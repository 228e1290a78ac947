"""`partt export` as a function: trace the graph, compare it with torch, write it."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import partt
from partt.atomic_files import atomic_path
from partt.data.standardization import variables_to_fit
from partt.errors import ConfigError
from partt.exporting.preprocess_json import write_preprocess_json
from partt.exporting.proof import largest_difference
from partt.exporting.tracing import DEFAULT_OPSET, Axes, input_axes, trace
from partt.exporting.units import input_units
from partt.tagger.loading import load_torch_tagger
from partt.tagger.onnx_file import (
    PRODUCER,
    SUFFIX,
    InputKind,
    OnnxHeader,
    fingerprint,
    import_onnx,
    new_session,
)
from partt.tagger.tagger_file import TorchTagger


@dataclass(frozen=True)
class ExportResult:
    """Result of an export."""

    path: Path
    preprocess_json: Path | None  # with standardised inputs
    header: OnnxHeader
    input_axes: Axes
    num_bytes: int


def export(
    tagger: TorchTagger | str | Path,
    out: str | Path,
    *,
    inputs: InputKind = "raw",
    opset: int = DEFAULT_OPSET,
) -> ExportResult:
    """Write a tagger as one ONNX file, after checking that its scores equal those of torch.

    raw: the inputs are branches; formulas and standardisation are inside. standardised: weaver-core's
    interface, with a preprocess.json in the same folder.
    """
    out = Path(out)
    if out.suffix != SUFFIX:
        raise ConfigError(f"--out {out}: the name of an ONNX file ends in {SUFFIX}")
    onnx = import_onnx("onnx")
    tagger = tagger if isinstance(tagger, TorchTagger) else load_torch_tagger(tagger)
    tagger = tagger.with_hash()
    if variables_to_fit(tagger.data_config):
        raise ConfigError("the data config of the tagger has scales that are not fitted yet")
    model = trace(tagger, inputs, opset)
    difference = largest_difference(tagger, inputs, new_session(model.SerializeToString()))

    header = OnnxHeader(
        inputs=inputs,
        network=tagger.network_name,
        class_names=list(tagger.class_names),
        units=input_units(tagger.data_config, inputs),
        largest_difference=difference,
        tagger_sha256=tagger.sha256,
        versions={name: version(name) for name in ("partt", "torch", "onnx", "onnxscript", "onnxruntime")},
        data_config=tagger.data_config.to_yaml(),
    )
    model.producer_name, model.producer_version = PRODUCER, partt.__version__
    onnx.helper.set_model_props(model, header.to_metadata())
    onnx.helper.set_model_props(model, {**header.to_metadata(), "sha256": fingerprint(model)})
    contents = model.SerializeToString()
    preprocess = write_preprocess_json(out.parent, tagger.data_config) if inputs == "standardised" else None
    with atomic_path(out) as temporary:
        temporary.write_bytes(contents)
    return ExportResult(out, preprocess, header, input_axes(tagger, inputs), len(contents))
