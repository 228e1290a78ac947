"""`partt export` as a function: trace the graph, compare it with torch, write it."""

from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import partt
from partt.atomic_files import atomic_path, refuse_foreign
from partt.data.standardization import variables_to_fit
from partt.errors import ConfigError
from partt.exporting.preprocess_json import NAME, preprocess_text
from partt.exporting.proof import largest_differences
from partt.exporting.tracing import DEFAULT_OPSET, trace
from partt.exporting.units import input_units
from partt.jobs.output_folder import writing_to
from partt.regular_files import has_contents, read_bounded
from partt.tagger.loading import load_torch_tagger
from partt.tagger.onnx_file import (
    MAX_BYTES,
    PRODUCER,
    SUFFIX,
    OnnxHeader,
    fingerprint,
    import_onnx,
    new_session,
)
from partt.tagger.onnx_inputs import Axes, InputKind, input_axes
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
    overwrite: bool = False,
) -> ExportResult:
    """Write a tagger as one ONNX file, after checking that its outputs equal those of torch.

    raw: the inputs are branches; formulas and standardisation are inside. standardised: weaver-core's
    interface, with a preprocess.json in the same folder. Files that were not exported, and a preprocess.json
    of other contents, are replaced only with `overwrite`.
    """
    out = Path(out)
    if out.suffix != SUFFIX:
        raise ConfigError(f"--out {out}: the name of an ONNX file ends in {SUFFIX}")
    onnx = import_onnx("onnx")
    tagger = tagger if isinstance(tagger, TorchTagger) else load_torch_tagger(tagger)
    tagger.require_predictions()
    tagger = tagger.with_hash()
    if variables_to_fit(tagger.data_config):
        raise ConfigError("the data config of the tagger has scales that are not fitted yet")
    refuse_foreign(
        out,
        "partt export",
        lambda path: onnx.load_model_from_string(read_bounded(path, MAX_BYTES)).producer_name == PRODUCER,
        overwrite=overwrite,
    )
    preprocess, text = out.parent / NAME, preprocess_text(tagger.data_config, tagger.tasks)
    if inputs == "standardised":
        maker = "partt export for this tagger"
        contents = text.encode()
        refuse_foreign(preprocess, maker, lambda path: has_contents(path, contents), overwrite=overwrite)
    axes = input_axes(inputs, tagger.data_config, tagger.reference_jets, tagger.factors)
    model = trace(tagger, inputs, opset)
    differences = largest_differences(tagger, inputs, new_session(model.SerializeToString()))
    has_regressions = bool(tagger.regressions)

    header = OnnxHeader(
        format_version=2 if has_regressions else 1,
        inputs=inputs,
        network=tagger.network_name,
        class_names=list(tagger.class_names),
        units=input_units(tagger.data_config, axes, tagger.factors),
        tasks=tagger.tasks if has_regressions else None,
        largest_difference=differences.of_scores,
        largest_relative_difference=differences.of_predictions if has_regressions else None,
        tagger_sha256=tagger.sha256,
        versions={name: version(name) for name in ("partt", "torch", "onnx", "onnxscript", "onnxruntime")},
        data_config=tagger.data_config.to_yaml(),
        domain=tagger.domain,
    )
    model.producer_name, model.producer_version = PRODUCER, partt.__version__
    onnx.helper.set_model_props(model, header.to_metadata())
    onnx.helper.set_model_props(model, {**header.to_metadata(), "sha256": fingerprint(model)})
    contents = model.SerializeToString()
    written = [preprocess] if inputs == "standardised" else []
    with writing_to(out.parent, [*written, out]), ExitStack() as files:  # both files, or none
        for path in written:
            files.enter_context(atomic_path(path)).write_text(text, encoding="utf-8")
        files.enter_context(atomic_path(out)).write_bytes(contents)
    return ExportResult(out, written[0] if written else None, header, axes, len(contents))
