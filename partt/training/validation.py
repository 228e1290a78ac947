"""How good a network is on jets that it was not trained on.

Axes: B jets, C classes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from partt.data.jet_batch import JetBatch
from partt.errors import DataError, NumericalError
from partt.training.distributed import World


@dataclass(frozen=True)
class Metrics:
    """Weighted loss and accuracy, and the area under the ROC curve, macro-averaged over pairs of classes."""

    loss: float
    accuracy: float
    auc: float | None  # None if a class has no jets
    num_jets: int


@torch.inference_mode()
def validate(
    model: nn.Module,
    batches: Iterable[JetBatch],
    world: World,
    should_stop: Callable[[], bool] = lambda: False,
) -> Metrics | None:
    """Return the metrics over the batches of all processes; None if asked to stop before the end."""
    device = next(model.parameters()).device
    sums = torch.zeros(4, dtype=torch.float64)  # loss, correct, weight, jets
    probabilities, labels = [], []
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    stopped = False
    for batch in batches:
        stopped = should_stop()
        if stopped:
            break
        good = batch.without_bad()
        if len(good) == 0:
            continue
        logits, truth, weights = predict_batch(model, good, device)
        losses = functional.cross_entropy(logits, truth, reduction="none").double()
        correct = (logits.argmax(dim=1) == truth).double()
        parts = ((losses * weights).sum(), (correct * weights).sum(), weights.sum())
        sums += torch.stack([*parts, torch.tensor(float(len(truth)), device=device)]).cpu()
        probabilities.append(logits.softmax(dim=1).cpu())
        labels.append(truth.cpu())
    for module, mode in modes:
        module.training = mode
    if world.any(stopped)[0]:
        return None
    num_classes = probabilities[0].shape[1] if probabilities else 0
    gathered = world.gather((_joined(probabilities, num_classes).numpy(), _joined(labels, 0).numpy()))
    loss, correct, weight, num_jets = world.sum(sums).tolist()
    if num_jets == 0:
        raise DataError("all validation jets are bad; `partt check --deep` tells what is wrong with them")
    if not np.isfinite(loss):
        raise NumericalError(f"the validation loss is {loss}: the network has left the finite numbers")
    # the same in every process: whether an epoch is the best must not differ between them
    auc = area_under_curve(
        np.concatenate([part for part, _ in gathered if len(part)]),
        np.concatenate([part for _, part in gathered]),
    )
    return Metrics(loss / weight, correct / weight, auc, round(num_jets))


def predict_batch(model: nn.Module, batch: JetBatch, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits (B, C) in float32, labels (B,) and weights (B,) in float64, on the device."""
    batch = batch.to(device)
    if batch.labels is None:
        raise DataError("these jets have no labels")
    logits = model(batch.particles, batch.momenta, batch.offsets, batch.points)
    return logits.float(), batch.labels, batch.weights.double()


def area_under_curve(probabilities: np.ndarray, labels: np.ndarray) -> float | None:
    """Return the mean over all pairs of classes (one against one), from probabilities (B, C), labels (B,)."""
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415 - takes seconds to import

    num_classes = probabilities.shape[1]
    if len(np.unique(labels)) < max(num_classes, 2):
        return None
    if num_classes == 2:
        return float(roc_auc_score(labels, probabilities[:, 1]))
    exact = probabilities.astype(np.float64)
    exact /= exact.sum(axis=1, keepdims=True)
    return float(roc_auc_score(labels, exact, multi_class="ovo", average="macro"))


def _joined(parts: list[Tensor], num_columns: int) -> Tensor:
    if parts:
        return torch.cat(parts)
    return torch.empty((0, num_columns) if num_columns else 0)
