"""A network that learns: its weights, its optimizer, and one step of both.

Axes: B jets, C classes.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from partt.data.jet_batch import JetBatch
from partt.errors import DataError
from partt.model.registry import build_network
from partt.training.checkpoints import (
    Checkpoint,
    optimizer_numbers,
    optimizer_tensors,
    restore_model,
    restore_optimizer,
    with_prefix,
    without_prefix,
)
from partt.training.distributed import World
from partt.training.guards import check_gradient, check_loss, checked_inputs
from partt.training.job import TrainingJob
from partt.training.optimizers import freeze, make_optimizer, set_learning_rate


@dataclass(frozen=True, eq=False)
class Learner:
    """A network, the same one ready to exchange gradients, and its optimizer."""

    job: TrainingJob
    world: World
    device: torch.device
    model: nn.Module
    parallel_model: nn.Module
    optimizer: torch.optim.Optimizer


@dataclass(frozen=True)
class StepResult:
    """What a step says about this process's jets."""

    num_jets: int
    sum_loss: float
    num_correct: int
    waiting: float  # seconds until the data were there


def make_learner(
    job: TrainingJob,
    world: World,
    device: torch.device,
    initial_weights: Mapping[str, Tensor] | None = None,
) -> Learner:
    """Build network and optimizer; seeds torch's random numbers, which the network draws from.

    Weights are the same in all processes; dropout afterwards differs. `initial_weights` may lack some names.
    """
    for_weights, for_steps = np.random.SeedSequence(job.seed).generate_state(2, np.uint64).tolist()
    torch.manual_seed(for_weights)
    recipe, config = job.recipe, job.train.config
    num_features, num_classes = len(config.particles.variables), len(config.class_names)
    model = build_network(recipe.model.name, recipe.model.network_config(), num_features, num_classes)
    if initial_weights is not None:
        restore_model(model, {**model.state_dict(), **initial_weights})
    model.to(device).train()
    freeze(model, recipe.fine_tuning.freeze)
    optimizer = make_optimizer(model, recipe.optimizer, recipe.fine_tuning)
    parallel = model if world.size == 1 else DistributedDataParallel(model)
    torch.manual_seed((for_steps + world.rank) % 2**64)
    return Learner(job, world, device, model, parallel, optimizer)


def take_step(
    learner: Learner, batches: Iterator[JetBatch], step: int, lr: float, accumulate: int
) -> StepResult:
    """Take one step of the optimizer; nothing that is not finite gets into the weights."""
    recipe = learner.job.recipe
    set_learning_rate(learner.optimizer, lr)
    learner.optimizer.zero_grad(set_to_none=True)
    num_jets, waiting = 0, 0.0
    sums = torch.zeros(2, dtype=torch.float64, device=learner.device)  # loss, correct
    for part in range(accumulate):
        started = perf_counter()
        batch = next(batches)
        waiting += perf_counter() - started
        batch = checked_inputs(batch, learner.job.train).to(learner.device, non_blocking=True)
        if batch.labels is None:
            raise DataError("these jets have no labels")
        with _exchange(learner, last=part == accumulate - 1):
            with _precision(learner):
                logits = learner.parallel_model(batch.particles, batch.momenta, batch.offsets, batch.points)
            loss = weighted_loss(logits, batch.labels, batch.weights, recipe.label_smoothing)
            check_loss(loss, step, lr)
            (loss / accumulate).backward()  # type: ignore[no-untyped-call]
        num_jets += len(batch)
        correct = (logits.detach().argmax(dim=1) == batch.labels).sum()
        sums += torch.stack([loss.detach().double() * len(batch), correct.double()])
    gradients = [p.grad for p in learner.model.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    check_gradient(norm, step, lr)
    if recipe.clip_norm is not None:
        nn.utils.clip_grads_with_norm_(learner.model.parameters(), recipe.clip_norm, norm)
    learner.optimizer.step()
    sum_loss, num_correct = sums.tolist()
    return StepResult(num_jets, sum_loss, round(num_correct), waiting)


def weighted_loss(logits: Tensor, labels: Tensor, weights: Tensor, label_smoothing: float) -> Tensor:
    """Return the mean of weight x cross entropy over logits (B, C); weights have mean 1 over all jets."""
    losses = functional.cross_entropy(
        logits.float(), labels, reduction="none", label_smoothing=label_smoothing
    )
    return (losses * weights).mean()


def snapshot(learner: Learner, values: Mapping[str, Any]) -> Checkpoint:
    """Return all tensors that the learner needs to go on; every process has to call this."""
    random_states = learner.world.gather(_random_states(learner.device))
    tensors = with_prefix("model/", learner.model.state_dict())
    tensors |= with_prefix("optimizer/", optimizer_tensors(learner.optimizer))
    for rank, states in enumerate(random_states):
        tensors |= with_prefix(f"random/{rank}/", states)
    return Checkpoint(tensors, {**values, "optimizer": optimizer_numbers(learner.optimizer)})


def restore(learner: Learner, checkpoint: Checkpoint) -> None:
    """Bring a new learner to where the checkpoint was taken."""
    restore_model(learner.model, without_prefix("model/", checkpoint.tensors))
    restore_optimizer(
        learner.optimizer, without_prefix("optimizer/", checkpoint.tensors), checkpoint.values["optimizer"]
    )
    states = without_prefix(f"random/{learner.world.rank}/", checkpoint.tensors)
    torch.set_rng_state(states["cpu"])
    if learner.device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], learner.device)


def _random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _exchange(learner: Learner, *, last: bool) -> AbstractContextManager[None]:
    """Return a context in which gradients are exchanged only with the last part of a batch."""
    if last or not isinstance(learner.parallel_model, DistributedDataParallel):
        return nullcontext()
    context: AbstractContextManager[None] = learner.parallel_model.no_sync()
    return context


def _precision(learner: Learner) -> AbstractContextManager[Any]:
    if learner.job.recipe.precision == "float32":
        return nullcontext()
    return torch.autocast(learner.device.type, dtype=torch.bfloat16)
