"""Checks that keep NaN and infinity out of BatchNorm statistics, weights and files."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from partt.data.jet_batch import JetBatch
from partt.data.reading.jet_source import JetSource
from partt.errors import DataError, NumericalError

ADVICE = "lower optimizer.lr, or set clip_norm; --resume continues from the last checkpoint, which is finite"


def checked_inputs(batch: JetBatch, source: JetSource) -> JetBatch:
    """Return the batch without its bad jets; raise an error if another jet has NaN or infinite inputs.

    Call it before the forward pass, which updates BatchNorm statistics.
    """
    good = batch.without_bad()
    if len(good) == 0:
        raise DataError("all jets of a batch are bad; `partt check --deep` shows why")
    for collection in good.inputs.collections.values():
        for name, rows in collection.groups.items():
            if not rows.isfinite().all():
                row = int((~rows.isfinite()).any(dim=1).int().argmax())
                jet = int(torch.searchsorted(collection.offsets, row, right=True)) - 1
                raise _not_finite(good, jet, name, source)
    for name, rows in good.inputs.jet_features.items():
        if not rows.isfinite().all():
            raise _not_finite(good, int((~rows.isfinite()).any(dim=1).int().argmax()), name, source)
    return good


def _not_finite(batch: JetBatch, jet: int, name: str, source: JetSource) -> DataError:
    url, entry = source.files[int(batch.source_file[jet])].url, int(batch.source_entry[jet])
    return DataError(f"{url}, entry {entry}: the {name} of this jet have NaN or infinite values")


def checks_at_once(device: torch.device) -> bool:
    """Whether numbers of a step are checked inside it, as on a CPU; a GPU would have to be waited for."""
    return device.type == "cpu"


def check_loss(loss: float, step: int, lr: float) -> None:
    """Raise an error if a loss is NaN or infinite; on a CPU before the backward pass."""
    if not math.isfinite(loss):
        raise NumericalError(f"step {step}: the loss is {loss} (learning rate {lr:.3g}); {ADVICE}")


def check_gradient(norm: float, step: int, lr: float) -> None:
    """Raise an error if the norm of the gradient is NaN or infinite; on a CPU before the optimizer's step."""
    if not math.isfinite(norm):
        raise NumericalError(f"step {step}: the gradient's norm is {norm} (learning rate {lr:.3g}); {ADVICE}")


@torch.no_grad()
def mask_update(
    is_bad: Tensor, gradients: Iterable[Tensor], buffers: Iterable[Tensor], before: Iterable[Tensor]
) -> None:
    """Where a step is bad (), set its gradients to 0 and the buffers to what they were before.

    On the device, without waiting for it: the host learns of it a few steps later and stops the run.
    """
    for gradient in gradients:
        gradient.masked_fill_(is_bad, 0.0)
    for buffer, old in zip(buffers, before, strict=True):
        buffer.copy_(torch.where(is_bad, old, buffer))


def check_weights(network: nn.Module, step: int, lr: float) -> None:
    """Raise an error if a weight or buffer is NaN or infinite; call it before saving."""
    for name, tensor in network.state_dict().items():
        if not tensor.isfinite().all():
            raise NumericalError(
                f"step {step}: {name} became NaN or infinite (learning rate {lr:.3g}); {ADVICE}"
            )
