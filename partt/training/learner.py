"""Network, objective and optimizer: set up, take a step, save and restore."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from partt.data.jet_batch import JetBatch
from partt.model.cpu.allocator import keep_freed_memory
from partt.model.network import Network
from partt.model.state_dicts import with_prefix, without_prefix
from partt.training.averaging import decay_at, new_average, update_average
from partt.training.checkpoints import (
    Checkpoint,
    optimizer_numbers,
    optimizer_tensors,
    restore_optimizer,
    restore_weights,
)
from partt.training.distributed import World
from partt.training.guards import (
    check_gradient,
    check_loss,
    checked_inputs,
    checks_at_once,
    mask_update,
)
from partt.training.job import TrainingJob
from partt.training.objectives.objective import Losses, Objective
from partt.training.optimizers import (
    TrainedBackbone,
    freeze,
    make_optimizer,
    set_learning_rate,
    trained_backbone,
)
from partt.training.schedules import backbone_factor


class LossOfBatch(nn.Module):
    """Network and objective as one module, for which DistributedDataParallel exchanges gradients."""

    def __init__(self, network: Network, objective: Objective) -> None:
        super().__init__()
        self.network = network
        self.objective = objective

    def forward(self, batch: JetBatch) -> Losses:
        """Return the loss of a batch, and the sums for metrics."""
        losses: Losses = self.objective(self.network, batch)
        return losses


@dataclass(frozen=True, eq=False)
class Learner:
    """A network in training and its optimizer."""

    job: TrainingJob
    world: World
    device: torch.device
    network: Network
    loss_of_batch: nn.Module  # LossOfBatch, with several processes inside DistributedDataParallel
    optimizer: torch.optim.Optimizer
    backbone: TrainedBackbone  # which the first steps may leave as it is
    average: LossOfBatch | None = None  # of the weights, if the recipe asks for one

    @property
    def objective(self) -> Objective:
        """What is learned."""
        return self.job.objective

    @property
    def result(self) -> LossOfBatch:
        """Network and objective to validate and save: with the average of the weights, if there is one."""
        return self.average or LossOfBatch(self.network, self.objective)


@dataclass(frozen=True, eq=False)
class StepResult:
    """Result of a step for the jets of this process; its tensors may still be on a GPU."""

    step: int
    lr: float
    num_jets: int
    loss: Tensor  # (), mean over the parts of the batch
    norm: Tensor  # () of the gradient
    sums: Mapping[str, Tensor]  # () each, over the jets, from the objective
    waiting: float  # seconds spent waiting for data


def make_learner(
    job: TrainingJob,
    world: World,
    device: torch.device,
    initial_weights: Mapping[str, Tensor] | None = None,
) -> Learner:
    """Build network and optimizer, and seed torch's global generator.

    All processes draw the same weights; later random numbers (dropout) differ. Weights that are missing in
    `initial_weights` stay random; heads in it that the objective does not need, or with another number of
    outputs, are ignored.
    """
    keep_freed_memory()
    for_weights, for_steps = np.random.SeedSequence(job.seed).generate_state(2, np.uint64).tolist()
    torch.manual_seed(for_weights)
    recipe, objective = job.recipe, job.objective
    network = job.new_network()
    objective.prepare(network)
    if initial_weights is not None:
        drawn = network.state_dict()
        given = {
            name: tensor
            for name, tensor in initial_weights.items()
            if not name.startswith("heads.") or (name in drawn and drawn[name].shape == tensor.shape)
        }
        restore_weights(network, {**drawn, **given})
    both = LossOfBatch(network, objective).to(device).train()
    loss_of_batch: nn.Module = both
    freeze(network, recipe.fine_tuning.freeze)
    optimizer = make_optimizer(network, recipe.optimizer, recipe.fine_tuning, objective.parameters())
    if world.size > 1:
        loss_of_batch = DistributedDataParallel(loss_of_batch)
    torch.manual_seed((for_steps + world.rank) % 2**64)
    average = None if recipe.ema is None else new_average(both)
    backbone = trained_backbone(network)
    return Learner(job, world, device, network, loss_of_batch, optimizer, backbone, average)


def take_step(
    learner: Learner, batches: Iterator[JetBatch], step: int, lr: float, accumulate: int
) -> StepResult:
    """Take one step of the optimizer; NaN or infinity does not reach weights or running statistics.

    On a CPU it is an error at once. A GPU is not waited for: it masks the update, and `fetch_sums` says so.
    """
    recipe = learner.job.recipe
    at_once = checks_at_once(learner.device)
    buffers = [] if at_once else list(learner.loss_of_batch.buffers())
    before = [buffer.clone() for buffer in buffers]
    factor = backbone_factor(recipe.fine_tuning, step)
    set_learning_rate(learner.optimizer, lr, factor)
    if recipe.fine_tuning.freeze_steps:  # DistributedDataParallel waits for the gradients of all parameters
        learner.backbone.hold(is_held=factor == 0, needs_gradients=learner.world.size > 1)
    learner.optimizer.zero_grad(set_to_none=True)
    num_jets = 0
    total = torch.zeros((), device=learner.device)
    sums: dict[str, Tensor] = {}
    started = perf_counter()
    parts = [next(batches) for _ in range(accumulate)]  # all before the first: a signal may end the wait
    waiting = perf_counter() - started
    for part, batch_read in enumerate(parts):
        batch = checked_inputs(batch_read, learner.job.train).to(learner.device)
        with _exchange(learner, last=part == accumulate - 1):
            with _precision(learner):
                losses: Losses = learner.loss_of_batch(batch)
            if at_once:
                check_loss(losses.loss.item(), step, lr)
            (losses.loss / accumulate).backward()  # type: ignore[no-untyped-call]
        num_jets += len(batch)
        total += losses.loss.detach()
        sums = {name: sums.get(name, 0.0) + value for name, value in losses.sums.items()}
    if factor == 0:
        learner.backbone.forget_gradients()
    parameters = [parameter for parameter in learner.loss_of_batch.parameters() if parameter.grad is not None]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if at_once:
        check_gradient(norm.item(), step, lr)
    if recipe.clip_norm is not None:
        nn.utils.clip_grads_with_norm_(parameters, recipe.clip_norm, norm)
    if not at_once:
        mask_update(~(total.isfinite() & norm.isfinite()), gradients, buffers, before)
    learner.optimizer.step()
    if learner.average is not None and recipe.ema is not None:
        now = LossOfBatch(learner.network, learner.objective)
        update_average(learner.average, now, decay_at(recipe.ema.decay, step))
    return StepResult(step, lr, num_jets, total / accumulate, norm, sums, waiting)


def fetch_sums(results: Sequence[StepResult]) -> list[dict[str, float]]:
    """Return the sums of steps, copied from the device at once; a step that was not finite is an error."""
    numbers = [
        torch.stack([number.double() for number in (result.loss, result.norm, *result.sums.values())])
        for result in results
    ]
    fetched = []
    for result, (loss, norm, *sums) in zip(results, torch.stack(numbers).tolist(), strict=True):
        check_loss(loss, result.step, result.lr)
        check_gradient(norm, result.step, result.lr)
        fetched.append(dict(zip(result.sums, sums, strict=True)))
    return fetched


def snapshot(learner: Learner, values: Mapping[str, Any]) -> Checkpoint:
    """Return a checkpoint; every process must call this."""
    random_states = learner.world.gather(_random_states(learner.device))
    tensors = with_prefix("network/", learner.network.state_dict())
    tensors |= with_prefix("objective/", learner.objective.state_dict())
    tensors |= with_prefix("optimizer/", optimizer_tensors(learner.optimizer))
    if learner.average is not None:
        tensors |= with_prefix("average/", learner.average.state_dict())
    for rank, states in enumerate(random_states):
        tensors |= with_prefix(f"random/{rank}/", states)
    copies = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    return Checkpoint(copies, {**values, "optimizer": optimizer_numbers(learner.optimizer)})


def restore(learner: Learner, checkpoint: Checkpoint) -> None:
    """Restore a new learner from a checkpoint."""
    restore_weights(learner.network, without_prefix("network/", checkpoint.tensors))
    restore_weights(learner.objective, without_prefix("objective/", checkpoint.tensors))
    if learner.average is not None:
        restore_weights(learner.average, without_prefix("average/", checkpoint.tensors))
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
    """Return a context in which processes exchange gradients only for the last part of a batch."""
    if last or not isinstance(learner.loss_of_batch, DistributedDataParallel):
        return nullcontext()
    context: AbstractContextManager[None] = learner.loss_of_batch.no_sync()
    return context


def _precision(learner: Learner) -> AbstractContextManager[Any]:
    if learner.job.recipe.precision == "float32":
        return nullcontext()
    return torch.autocast(learner.device.type, dtype=torch.bfloat16)
