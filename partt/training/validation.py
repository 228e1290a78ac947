"""How good a network is on jets that it was not trained on."""

from collections.abc import Callable, Iterable

import numpy as np
import torch

from partt.data.jet_batch import JetBatch
from partt.errors import DataError, NumericalError
from partt.model.network import Network
from partt.training.distributed import World
from partt.training.objectives.objective import LOSS, Objective, join_measured

MetricValues = dict[str, float | None]  # metric -> value; None: not defined for these jets


@torch.inference_mode()
def validate(
    network: Network,
    objective: Objective,
    batches: Iterable[JetBatch],
    world: World,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[MetricValues, int] | None:
    """Return the metrics over the batches of all processes, and the number of jets; None if asked to stop."""
    kept = []
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
    for module, mode in modes:
        module.training = mode
    if world.any(stopped)[0]:
        return None
    # the same in every process: whether an epoch is the best must not differ between them
    measured = join_measured(world.gather(join_measured(kept)))
    if measured.num_jets == 0:
        raise DataError("all validation jets are bad; `partt check --deep` tells what is wrong with them")
    values = objective.validation_values(measured)
    loss = values[LOSS.name]
    if loss is None or not np.isfinite(loss):
        raise NumericalError(f"the validation loss is {loss}: the network's outputs became NaN or infinite")
    return values, measured.num_jets
