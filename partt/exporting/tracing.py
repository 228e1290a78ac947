"""Trace a tagger into an ONNX model for any number of jets and particles."""

import copy
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from partt.errors import ConfigError
from partt.exporting.graph import RawTagger, StandardisedTagger
from partt.model.foreign_code import blamed_on
from partt.tagger.onnx_file import import_onnx, output_names
from partt.tagger.onnx_inputs import JETS, Axes, InputKind, input_axes
from partt.tagger.tagger_file import TorchTagger

OPSETS = range(18, 24)
DEFAULT_OPSET = 20  # the first with GELU as one operator; onnxruntime >= 1.17
OUTPUT = "partt.output."  # prefix of the temporary names of outputs
NUM_EXAMPLES = 3  # jets; sizes of axes are different, and not 0 or 1, which torch treats as constant
EXAMPLE_SLOTS = 19  # of the first axis of particles; others have more


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
    outputs = output_names(inputs, tagger.class_names, tagger.tasks)
    axes = input_axes(inputs, tagger.data_config, tagger.reference_jets, tagger.factors)
    num_slots, file = tagger.network.backbone.min_slots, tagger.network_file
    try:
        model = _export(module.eval(), axes, len(outputs), num_slots, opset)
    except Exception:
        if file is None:
            raise
        with blamed_on(file.path):
            model = _export_script(module.eval(), axes, len(outputs), opset)
    _clear_metadata(model)
    _name_outputs(model, outputs)
    _name_axes(model, axes)
    _pad_inputs(onnx, model, axes, tagger.network.backbone.min_slots)
    onnx.checker.check_model(model)
    return model


def _export(module: nn.Module, axes: Axes, num_outputs: int, num_slots: int, opset: int) -> Any:
    sizes = _example_sizes(axes)
    example = _example(axes)
    # torch need not handle fewer: `_pad_inputs` adds slots, and the comparison tests 0 particles and 1 jet.
    dimensions = {
        axis: torch.export.Dim(f"axis{number}", min=2 if axis == JETS else max(3, num_slots))
        for number, axis in enumerate(sizes)
    }
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


class _WithPlainArguments(nn.Module):
    """The graph with an argument for each input."""

    def __init__(self, module: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.module = module
        self.names = names

    def forward(self, *inputs: Tensor) -> Any:
        return self.module(dict(zip(self.names, inputs, strict=True)))


def _export_script(module: nn.Module, axes: Axes, num_outputs: int, opset: int) -> Any:
    """Export by TorchScript, as weaver-core does, for modules that were written for that.

    It records one pass, so a module that branches by values is exported wrongly; the comparison finds that.
    """
    buffer = io.BytesIO()
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            _WithPlainArguments(module, list(axes)).eval(),
            tuple(_example(axes).values()),
            buffer,  # type: ignore[arg-type]
            dynamo=False,
            input_names=list(axes),
            output_names=[f"{OUTPUT}{number}" for number in range(num_outputs)],
            dynamic_axes={
                name: {position: axis for position, axis in enumerate(shape) if isinstance(axis, str)}
                for name, shape in axes.items()
            },
            opset_version=opset,
        )
    return import_onnx("onnx").load_from_string(buffer.getvalue())


def _example_sizes(axes: Axes) -> dict[str, int]:
    sizes = {axis: EXAMPLE_SLOTS + number for number, axis in enumerate(_particle_axes(axes))}
    return {JETS: NUM_EXAMPLES} | sizes


def _example(axes: Axes) -> dict[str, Tensor]:
    sizes = _example_sizes(axes)
    return {
        name: torch.zeros([axis if isinstance(axis, int) else sizes[axis] for axis in shape])
        for name, shape in axes.items()
    }


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
    """Name the axes of inputs and outputs, instead of torch's numbers."""
    shapes = axes | {output.name: (JETS,) for output in model.graph.output}
    for value in (*model.graph.input, *model.graph.output):
        for dimension, axis in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=False):
            if isinstance(axis, str):
                dimension.dim_param = axis


def _particle_axes(axes: Axes) -> list[str]:
    """Return the names of the axes of particles."""
    names = [axis for shape in axes.values() for axis in shape if isinstance(axis, str)]
    return [axis for axis in dict.fromkeys(names) if axis != JETS]


def _pad_inputs(onnx: Any, model: Any, axes: Axes, num_slots: int) -> None:
    """Pad the inputs to at least `num_slots` slots, which networks need even for jets without particles."""
    helper, int64 = onnx.helper, onnx.TensorProto.INT64
    nodes, constants = [], {"slots.needed": [num_slots], "slots.none": [0]}
    given = {item.name for item in model.graph.input}  # torch leaves out inputs that are not used
    for axis in _particle_axes(axes):
        padded = [name for name, shape in axes.items() if axis in shape and name in given]
        if not padded:
            continue
        rank, here = len(axes[padded[0]]), f"slots.{axis}"
        constants[f"{here}.before"] = [0] * (2 * rank - 1)
        nodes += [
            helper.make_node("Shape", [padded[0]], [f"{here}.given"], start=rank - 1),
            helper.make_node("Sub", ["slots.needed", f"{here}.given"], [f"{here}.lacking"]),
            helper.make_node("Max", [f"{here}.lacking", "slots.none"], [f"{here}.added"]),
            helper.make_node("Concat", [f"{here}.before", f"{here}.added"], [f"{here}.pads"], axis=0),
        ]
        nodes += [helper.make_node("Pad", [name, f"{here}.pads"], [f"{name}.slots"]) for name in padded]
        for node in model.graph.node:
            node.input[:] = [f"{name}.slots" if name in padded else name for name in node.input]
    model.graph.initializer.extend(
        helper.make_tensor(name, int64, [len(values)], values) for name, values in constants.items()
    )
    others = list(model.graph.node)
    model.graph.ClearField("node")
    model.graph.node.extend([*nodes, *others])
