"""The graphs of exported files: raw branches, or standardised inputs -> scores.

Axes: N jets, P slots for the particles of a jet, F features, C classes.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from partt.data.config.data_config import InputGroup, InputVariable
from partt.data.jagged import Jagged, Table
from partt.errors import ConfigError
from partt.exporting.formulas import TorchVariables
from partt.jet_inputs import PARTICLES, PaddedCollection, PaddedInputs
from partt.model.heads import CLASSES
from partt.model.network import Network
from partt.tagger.onnx_file import NUM_PARTICLES, raw_branches
from partt.tagger.tagger_file import TorchTagger


def exportable_network(tagger: TorchTagger) -> Network:
    """Return the network of a tagger; raise an error if it cannot be exported."""
    network, config = tagger.network, tagger.data_config
    if (
        list(config.collections) != [PARTICLES]
        or config.jet_groups
        or config.main.mask_variable
        or config.main.others
    ):
        raise ConfigError(
            f"the inputs of this tagger are {', '.join(config.group_order)}; only taggers with pf_features, "
            "pf_vectors, pf_points, and a pf_mask that is 1 for every particle, can be exported"
        )
    if not network.backbone.has_padded_twin:
        raise ConfigError(
            f"the network {network.name} cannot be exported: {type(network.backbone).__name__} has no method "
            "embed_padded(inputs) for padded jets"
        )
    return network


class RawTagger(nn.Module):
    """Raw branches -> scores: formulas, standardisation and network."""

    def __init__(self, tagger: TorchTagger) -> None:
        super().__init__()
        self.network = exportable_network(tagger)
        self.config = tagger.data_config
        self.branches = raw_branches(tagger.data_config)
        # Inputs are float32, because some programs support nothing else; they are converted to these types.
        self.dtypes = {name: _dtype(tagger.reference_jets, name) for name in self.branches}

    def forward(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the score (N,) of each class from branches (N, P) or (N,) and num_particles (N,)."""
        num_particles = inputs[NUM_PARTICLES]
        columns = {name: inputs[branch].to(self.dtypes[name]) for name, branch in self.branches.items()}
        num_slots = next(column.shape[1] for column in columns.values() if column.ndim == 2)
        slots = torch.arange(num_slots, dtype=num_particles.dtype)
        mask = slots < num_particles[:, None]
        variables = TorchVariables(columns, self.config.formulas, mask)
        if self.config.particles.length is not None:
            mask = slots < num_particles.clamp(max=self.config.particles.length)[:, None]
        blocks = {group.name: self._block(group, variables, mask) for group in self.config.groups}
        bad = torch.stack([(block - block != 0).any(-1).any(-1) for block in blocks.values()]).any(0)  # (N,)
        scores = _scores(self.network, blocks, mask)
        # where() after the network, in which jets are independent
        return torch.where(bad[:, None], torch.nan, scores).unbind(1)

    def _block(self, group: InputGroup, variables: TorchVariables, mask: Tensor) -> Tensor:
        """Return the variables of an input group as the network takes them (N, P, F), padded with zeros."""
        columns = []
        for variable in group.variables:
            column = variables[variable.name]
            if column.ndim != 2:
                raise ConfigError(f"{variable.name} has one value per jet; inputs need one per particle")
            values = standardize(column.float(), variable, keep_nan=group is self.config.momenta)
            columns.append(torch.where(mask, values, 0.0))
        return torch.stack(columns, dim=2)


class StandardisedTagger(nn.Module):
    """weaver-core's interface: padded inputs (N, F, P), standardised by the caller -> `softmax` (N, C)."""

    def __init__(self, tagger: TorchTagger) -> None:
        super().__init__()
        self.network = exportable_network(tagger)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return scores (N, C) from pf_features (N, F, P) and the other groups of the data config."""
        mask = inputs["pf_mask"][:, 0] != 0
        blocks = {
            name: torch.where(mask[..., None], block.transpose(1, 2), 0.0)
            for name, block in inputs.items()
            if name != "pf_mask"
        }
        return _scores(self.network, blocks, mask)


def _scores(network: Network, blocks: Mapping[str, Tensor], mask: Tensor) -> Tensor:
    particles = PaddedCollection(
        blocks["pf_features"], mask, blocks.get("pf_vectors"), blocks.get("pf_points")
    )
    logits = network.forward_padded(PaddedInputs({PARTICLES: particles}))[CLASSES]
    return logits.softmax(dim=1)


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
