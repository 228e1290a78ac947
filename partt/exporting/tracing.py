"""Trace a tagger into an ONNX model for any number of jets and particles."""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from partt.data.jagged import Jagged
from partt.errors import ConfigError
from partt.exporting.graph import RawTagger, StandardisedTagger
from partt.model.foreign_code import blamed_on
from partt.tagger.onnx_file import NUM_PARTICLES, InputKind, import_onnx, output_names, raw_branches
from partt.tagger.tagger_file import TorchTagger

Axes: TypeAlias = dict[str, tuple[str | int, ...]]

OPSETS = range(18, 24)
DEFAULT_OPSET = 20  # the first with GELU as one operator; onnxruntime >= 1.17
OUTPUT = "partt.output."  # prefix of the temporary names of outputs
EXAMPLE_SIZES = {"jets": 3, "particles": 19}  # different, and not 0 or 1, which torch treats as constant


def trace(tagger: TorchTagger, inputs: InputKind, opset: int) -> Any:
    """Return the tagger as an onnx.ModelProto, with operators and weights only."""
    if opset not in OPSETS:
        raise ConfigError(f"--opset {opset}: give a number from {OPSETS[0]} to {OPSETS[-1]}")
    onnx, _ = import_onnx("onnx"), import_onnx("onnxscript")  # torch needs onnxscript
    tagger = replace(tagger, network=copy.deepcopy(tagger.network).cpu().float().eval())
    if inputs == "raw":
        module: nn.Module = RawTagger(tagger)
    else:
        module = StandardisedTagger(tagger)
    outputs = output_names(inputs, tagger.class_names)
    axes = input_axes(tagger, inputs)
    file = tagger.network_file
    with nullcontext() if file is None else blamed_on(file.path):
        model = _export(module.eval(), axes, len(outputs), tagger.network.backbone.min_slots, opset)
    _clear_metadata(model)
    _name_outputs(model, outputs)
    _name_axes(model, axes)
    _pad_inputs(onnx, model, axes, tagger.network.backbone.min_slots)
    onnx.checker.check_model(model)
    return model


def input_axes(tagger: TorchTagger, inputs: InputKind) -> Axes:
    """Return the axes of every input, in the order of the inputs."""
    if inputs == "standardised":
        groups = tagger.data_config.inputs
        axes: Axes = {name: ("jets", len(group.vars), "particles") for name, group in groups.items()}
        return axes if "pf_mask" in axes else axes | {"pf_mask": ("jets", 1, "particles")}
    axes = {NUM_PARTICLES: ("jets",)}
    for name, branch in raw_branches(tagger.data_config).items():
        per_particle = isinstance(tagger.reference_jets[name], Jagged)
        axes[branch] = ("jets", "particles") if per_particle else ("jets",)
    return axes


def _export(module: nn.Module, axes: Axes, num_outputs: int, num_slots: int, opset: int) -> Any:
    example = {
        name: torch.zeros([axis if isinstance(axis, int) else EXAMPLE_SIZES[axis] for axis in shape])
        for name, shape in axes.items()
    }
    # torch need not handle fewer: `_pad_inputs` adds slots, and the comparison tests 0 particles and 1 jet.
    fewest = {"jets": 2, "particles": max(3, num_slots)}
    dimensions = {name: torch.export.Dim(name, min=size) for name, size in fewest.items()}
    shapes = {
        name: {position: dimensions[axis] for position, axis in enumerate(shape) if isinstance(axis, str)}
        for name, shape in axes.items()
    }
    arguments: tuple[dict[str, Tensor]] = (example,)
    with _quiet():
        program = torch.export.export(module, arguments, dynamic_shapes=(shapes,), strict=False)
        exported = torch.onnx.export(
            program,
            dynamo=True,
            input_names=list(axes),
            output_names=[f"{OUTPUT}{number}" for number in range(num_outputs)],
            opset_version=opset,
            external_data=False,
            verbose=False,
        )
    if exported is None:
        raise AssertionError("torch.onnx.export returned nothing")
    return exported.model_proto


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings and logs of torch and onnxscript; errors are still raised."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _clear_metadata(model: Any) -> None:
    """Remove paths of this machine, and shapes that are wrong for 0 particles."""
    model.graph.ClearField("value_info")
    for part in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


def _name_outputs(model: Any, names: list[str]) -> None:
    """Rename the outputs; values inside the graph with the same names are renamed too."""
    renamed = {f"{OUTPUT}{number}": name for number, name in enumerate(names)}
    renamed |= {name: f"{name}.inside" for name in names}
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [renamed.get(value, value) for value in values]
    for output in model.graph.output:
        output.name = renamed[output.name]


def _name_axes(model: Any, axes: Axes) -> None:
    """Name the axes of inputs and outputs jets and particles, instead of torch's numbers."""
    shapes = axes | {output.name: ("jets",) for output in model.graph.output}
    for value in (*model.graph.input, *model.graph.output):
        for dimension, axis in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=False):
            if isinstance(axis, str):
                dimension.dim_param = axis


def _pad_inputs(onnx: Any, model: Any, axes: Axes, num_slots: int) -> None:
    """Pad the inputs to at least `num_slots` slots, which networks need even for jets without particles."""
    helper, int64 = onnx.helper, onnx.TensorProto.INT64
    padded = [name for name, shape in axes.items() if "particles" in shape]
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            if name in padded:
                node.input[position] = f"{name}.slots"
    rank = len(axes[padded[0]])
    constants = {"slots.needed": [num_slots], "slots.none": [0], "slots.before": [0] * (2 * rank - 1)}
    nodes = [
        helper.make_node("Shape", [padded[0]], ["slots.given"], start=rank - 1),
        helper.make_node("Sub", ["slots.needed", "slots.given"], ["slots.lacking"]),
        helper.make_node("Max", ["slots.lacking", "slots.none"], ["slots.added"]),
        helper.make_node("Concat", ["slots.before", "slots.added"], ["slots.pads"], axis=0),
    ]
    nodes += [helper.make_node("Pad", [name, "slots.pads"], [f"{name}.slots"]) for name in padded]
    model.graph.initializer.extend(
        helper.make_tensor(name, int64, [len(values)], values) for name, values in constants.items()
    )
    others = list(model.graph.node)
    model.graph.ClearField("node")
    model.graph.node.extend([*nodes, *others])
