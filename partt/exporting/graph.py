"""The graphs of exported files: raw branches, or standardised inputs -> scores and predictions.

Axes: N jets, P slots for the particles of a jet, F features, C classes.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from partt.data.config.data_config import CollectionInputs, InputGroup, InputVariable
from partt.data.jagged import Jagged, Table
from partt.errors import ConfigError
from partt.exporting.formulas import TorchVariables
from partt.jet_inputs import PaddedCollection, PaddedInputs
from partt.model.config_types import CLASSES
from partt.model.network import Network
from partt.model.task_columns import predicted_columns
from partt.tagger.onnx_inputs import count_name, mask_name, particle_axes, raw_branches
from partt.tagger.tagger_file import TorchTagger, reference_inputs


def exportable_network(tagger: TorchTagger) -> Network:
    """Return the network of a tagger in the form that is exported; raise an error if there is none."""
    return tagger.network.for_export(reference_inputs(tagger).to(torch.float32))


class RawTagger(nn.Module):
    """Raw branches -> scores and predictions: formulas, standardisation and network."""

    def __init__(self, tagger: TorchTagger) -> None:
        super().__init__()
        self.network = exportable_network(tagger)
        self.config = tagger.data_config
        self.class_names = tagger.class_names
        self.regressions = tagger.regressions
        self.branches = raw_branches(tagger.data_config, tagger.factors)
        self.axis_of = particle_axes(tagger.data_config, tagger.reference_jets, tagger.factors)
        # Inputs are float32, because some programs support nothing else; they are converted to these types.
        self.dtypes = {name: _dtype(tagger.reference_jets, name) for name in self.branches}

    def forward(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs of a file (N,) from branches (N, P) or (N,) and numbers of particles (N,)."""
        columns = {
            name: _as_type(inputs[branch], self.dtypes[name]) for name, branch in self.branches.items()
        }
        masks = {}
        for axis, name in {axis: name for name, axis in self.axis_of.items()}.items():
            numbers = inputs[count_name(axis)]
            masks[axis] = torch.arange(columns[name].shape[1], dtype=numbers.dtype) < numbers[:, None]
        variables = TorchVariables(columns, self.config.formulas, self.axis_of, masks)
        jets = PaddedInputs(
            {name: _collection(item, variables, masks) for name, item in self.config.collections.items()},
            {name: _jet_group(group, variables, masks) for name, group in self.config.jet_groups.items()},
        )
        outputs = self.network.forward_padded(jets)
        predictions = predicted_columns(self.regressions, self.class_names, outputs)
        corrected = [
            predictions[task.name] * _as_type(variables[task.factor_of], torch.float32)
            for task in self.regressions
            if task.factor_of
        ]
        blocks = [outputs[CLASSES].softmax(dim=1)] if self.class_names else []
        if predictions:
            blocks.append(torch.stack([*predictions.values(), *corrected], dim=1))
        values = blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)
        # where() after the network, in which jets are independent
        return torch.where(_is_bad(jets)[:, None], torch.nan, values).unbind(1)


class StandardisedTagger(nn.Module):
    """weaver-core's interface: padded inputs (N, F, P), standardised by the caller -> `softmax` (N, C).

    Predictions of regressions (N,) are further outputs.
    """

    def __init__(self, tagger: TorchTagger) -> None:
        super().__init__()
        self.network = exportable_network(tagger)
        self.config = tagger.data_config
        self.class_names = tagger.class_names
        self.regressions = tagger.regressions

    def forward(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Return scores (N, C) and predictions (N,) from the input groups of the data config."""
        collections = {}
        for name, groups in self.config.collections.items():
            mask = inputs[mask_name(self.config, name)][:, 0] != 0
            blocks = {
                group.name: torch.where(mask[..., None], inputs[group.name].transpose(1, 2), 0.0)
                for group in groups.groups
            }
            collections[name] = _padded_collection(groups, blocks, mask)
        jet_features = {
            name: inputs[name].reshape(-1, len(group.variables))
            for name, group in self.config.jet_groups.items()
        }
        outputs = self.network.forward_padded(PaddedInputs(collections, jet_features))
        scores = [outputs[CLASSES].softmax(dim=1)] if self.class_names else []
        return (*scores, *predicted_columns(self.regressions, self.class_names, outputs).values())


def _collection(
    groups: CollectionInputs, variables: TorchVariables, masks: Mapping[str, Tensor]
) -> PaddedCollection:
    """Return a collection as the network takes it, padded with zeros."""
    names = [variable.name for group in groups.groups for variable in group.variables]
    names += [] if groups.mask_variable is None else [groups.mask_variable]
    for name in names:
        if variables[name].ndim != 2:
            raise ConfigError(f"{name} has one value per jet; inputs need one per particle")
    axes = sorted({variables.axis_of[name] for name in names})
    if len(axes) > 1:
        raise ConfigError(f"the inputs of {groups.name} are particles of {' and '.join(axes)}")
    mask = masks[axes[0]]
    if groups.length is not None:
        mask = mask & (torch.arange(mask.shape[1]) < groups.length)
    if groups.mask_variable is not None:
        kept = variables[groups.mask_variable]
        mask = mask & (kept != 0) & (kept == kept)  # noqa: PLR0124 - NaN is not equal to itself
    blocks = {}
    for group in groups.groups:
        columns = [_as_type(variables[variable.name], torch.float32) for variable in group.variables]
        values = standardize(torch.stack(columns, dim=2), group.variables, keep_nan=group is groups.momenta)
        blocks[group.name] = torch.where(mask[..., None], values, 0.0)
    return _padded_collection(groups, blocks, mask)


def _padded_collection(
    groups: CollectionInputs, blocks: Mapping[str, Tensor], mask: Tensor
) -> PaddedCollection:
    no_features = mask.new_zeros((*mask.shape, 0), dtype=torch.float32)
    return PaddedCollection(
        features=blocks.get(groups.features.name, no_features),
        mask=mask,
        momenta=None if groups.momenta is None else blocks[groups.momenta.name],
        points=None if groups.points is None else blocks[groups.points.name],
        others={part: blocks[group.name] for part, group in groups.others.items()},
    )


def _jet_group(group: InputGroup, variables: TorchVariables, masks: Mapping[str, Tensor]) -> Tensor:
    """Return the variables of a group of jets (N, F); of several values the first, of none the pad value."""
    columns = [_as_type(variables[variable.name], torch.float32) for variable in group.variables]
    first = torch.stack([column[:, 0] if column.ndim == 2 else column for column in columns], dim=1)
    values = list(standardize(first, group.variables, keep_nan=False).unbind(1))
    for number, (variable, column) in enumerate(zip(group.variables, columns, strict=True)):
        if column.ndim == 2 and variable.name in variables.axis_of:
            has_value = masks[variables.axis_of[variable.name]][:, 0]
            pad_value = 0.0 if group.wraps else variable.pad_value
            values[number] = torch.where(has_value, values[number], pad_value)
    return torch.stack(values, dim=1)


def _is_bad(jets: PaddedInputs) -> Tensor:
    """Return which jets have inputs that are NaN or infinite (N,)."""
    blocks = list(jets.jet_features.values())
    for collection in jets.collections.values():
        tensors = (collection.features, collection.momenta, collection.points, *collection.others.values())
        blocks += [tensor.flatten(1) for tensor in tensors if tensor is not None]
    return torch.stack([(block - block != 0).any(dim=1) for block in blocks if block.shape[1:] != (0,)]).any(
        0
    )


def standardize(values: Tensor, variables: Sequence[InputVariable], *, keep_nan: bool) -> Tensor:
    """Scale and clip (..., F), and make NaN 0 except in momenta, as standardization and packing do.

    All variables at once: torch takes long to record each operation. Those that are not scaled get factors
    and limits that change nothing.
    """
    limits = None
    if any(variable.subtract_by is not None for variable in variables):
        rows = [
            (0.0, 1.0, -math.inf, math.inf)
            if variable.subtract_by is None
            else (variable.subtract_by, variable.multiply_by, variable.clip_min, variable.clip_max)
            for variable in variables
        ]
        shift, factor, *limits = (torch.tensor(column) for column in zip(*rows, strict=True))
        values = (values - shift) * factor
    is_nan = values.isnan()
    values = values if limits is None else values.clamp(*limits)
    return torch.where(is_nan, torch.nan if keep_nan else 0.0, values)


def _as_type(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return values of a type; those that have it are not recorded again."""
    return values if values.dtype == dtype else values.to(dtype)


def _dtype(jets: Table, name: str) -> torch.dtype:
    """Return the type of a branch inside the graph: bool, int64, float64 or float32."""
    column = jets[name]
    kind = (column.contents if isinstance(column, Jagged) else column).dtype
    if kind.kind == "b":
        return torch.bool
    if kind.kind in "iu":
        return torch.int64
    return torch.float64 if kind.itemsize > 4 else torch.float32
