"""Metrics of a network on the validation jets."""

from collections.abc import Callable, Iterable

import numpy as np
import torch

from partt.data.jet_batch import JetBatch
from partt.errors import DataError, NumericalError
from partt.model.network import Network
from partt.training.distributed import World
from partt.training.objectives.objective import LOSS, Measurements, Objective, join_measurements

BATCHES_AT_A_TIME = 64  # whose measurements are fetched from a GPU
MetricValues = dict[str, float | None]  # metric -> value; None: not defined for these jets


@torch.inference_mode()
def validate(
    network: Network,
    objective: Objective,
    batches: Iterable[JetBatch],
    world: World,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[MetricValues, int] | None:
    """Return the metrics of the jets of all processes, and their number; None if asked to stop."""
    kept: list[Measurements] = []
    num_fetched = 0
    modes = [(module, module.training) for part in (network, objective) for module in part.modules()]
    network.eval()
    objective.eval()
    stopped = False
    for batch in batches:
        stopped = should_stop()
        if stopped:
            break
        good = batch.without_bad()
        if len(good):
            kept.append(objective.measure(network, good.to(network.device)))
        if len(kept) - num_fetched >= BATCHES_AT_A_TIME:
            kept[num_fetched:] = [measured.cpu() for measured in kept[num_fetched:]]
            num_fetched = len(kept)
    for module, mode in modes:
        module.training = mode
    if world.any(stopped)[0]:
        return None
    # in the same order in every process, so that all agree on the best epoch
    mine = join_measurements([measured.cpu() for measured in kept])
    measured = join_measurements(world.gather(mine))
    if measured.num_jets == 0:
        raise DataError("all validation jets are bad; `partt check --deep` shows why")
    values = objective.validation_values(measured)
    loss = values[LOSS.name]
    if loss is None or not np.isfinite(loss):
        raise NumericalError(f"the validation loss is {loss}: the network's outputs became NaN or infinite")
    return values, measured.num_jets
