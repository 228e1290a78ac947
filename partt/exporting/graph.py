"""The graphs of exported files: raw branches, or standardised inputs -> scores and predictions.

Axes: N jets, P slots for the particles of a jet, F features, C classes.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from partt.data.config.data_config import CollectionInputs, InputGroup, InputVariable
from partt.data.jagged import Jagged, Table
from partt.errors import ConfigError
from partt.exporting.formulas import TorchVariables
from partt.jet_inputs import PaddedCollection, PaddedInputs
from partt.model.config_types import CLASSES
from partt.model.network import Network, Outputs
from partt.model.task_columns import predicted_columns
from partt.model.tasks import Task
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
        columns = {name: inputs[branch].to(self.dtypes[name]) for name, branch in self.branches.items()}
        masks = {}
        for name, axis in self.axis_of.items():
            numbers = inputs[count_name(axis)]
            masks[axis] = torch.arange(columns[name].shape[1], dtype=numbers.dtype) < numbers[:, None]
        variables = TorchVariables(columns, self.config.formulas, self.axis_of, masks)
        jets = PaddedInputs(
            {name: _collection(item, variables, masks) for name, item in self.config.collections.items()},
            {name: _jet_group(group, variables, masks) for name, group in self.config.jet_groups.items()},
        )
        outputs = self.network.forward_padded(jets)
        predictions = _predictions(self.regressions, self.class_names, outputs)
        corrected = [
            predictions[task.name] * variables[task.factor_of].float()
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
        return (*scores, *_predictions(self.regressions, self.class_names, outputs).values())


def _predictions(tasks: Sequence[Task], class_names: Sequence[str], outputs: Outputs) -> dict[str, Tensor]:
    """Return the predictions (N,) of all regressions by column."""
    columns: dict[str, Tensor] = {}
    for task in tasks:
        columns |= predicted_columns(task, class_names, outputs)
    return columns


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
        columns = [
            standardize(variables[variable.name].float(), variable, keep_nan=group is groups.momenta)
            for variable in group.variables
        ]
        blocks[group.name] = torch.where(mask[..., None], torch.stack(columns, dim=2), 0.0)
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
    columns = []
    for variable in group.variables:
        column = variables[variable.name]
        values = standardize(column.float(), variable, keep_nan=False)
        if column.ndim == 2:
            values = values[:, 0]
            if variable.name in variables.axis_of:
                has_value = masks[variables.axis_of[variable.name]][:, 0]
                values = torch.where(has_value, values, 0.0 if group.wraps else variable.pad_value)
        columns.append(values)
    return torch.stack(columns, dim=1)


def _is_bad(jets: PaddedInputs) -> Tensor:
    """Return which jets have inputs that are NaN or infinite (N,)."""
    blocks = list(jets.jet_features.values())
    for collection in jets.collections.values():
        tensors = (collection.features, collection.momenta, collection.points, *collection.others.values())
        blocks += [tensor.flatten(1) for tensor in tensors if tensor is not None]
    return torch.stack([(block - block != 0).any(dim=1) for block in blocks if block.shape[1:] != (0,)]).any(
        0
    )


def standardize(values: Tensor, variable: InputVariable, *, keep_nan: bool) -> Tensor:
    """Standardise as partt.data.standardization and packing do: scale, clip, NaN -> 0 except in momenta."""
    if variable.subtract_by is not None:
        values = (values - variable.subtract_by) * variable.multiply_by
    is_nan = values.isnan()
    if variable.subtract_by is not None:
        values = values.clamp(variable.clip_min, variable.clip_max)
    return torch.where(is_nan, torch.nan if keep_nan else 0.0, values)


def _dtype(jets: Table, name: str) -> torch.dtype:
    """Return the type of a branch inside the graph: bool, int64, float64 or float32."""
    column = jets[name]
    kind = (column.contents if isinstance(column, Jagged) else column).dtype
    if kind.kind == "b":
        return torch.bool
    if kind.kind in "iu":
        return torch.int64
    return torch.float64 if kind.itemsize > 4 else torch.float32
