"""The training loop: a job -> a run folder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from partt.data.jagged import Table
from partt.data.jet_batch import JetBatch
from partt.data.reading.batches import ordered_batches, training_batches
from partt.data.reading.jet_source import BadFile
from partt.data.training_domain import Domain
from partt.errors import ConfigError, DataError
from partt.jobs.devices import OTHER_PROGRAMS, memory_errors_explained
from partt.jobs.metrics_file import read_metrics
from partt.jobs.stop_signals import SignalledError
from partt.model.multiply_adds import count_multiply_adds
from partt.tagger.tagger_file import new_tagger, save_tagger
from partt.training.checkpoints import load_newest, save_checkpoint
from partt.training.clock import Clock
from partt.training.curves import draw_curves
from partt.training.distributed import World
from partt.training.environment import describe_environment
from partt.training.events import Ended, EpochEnded, Notice, Report, Started, StepDone, Validating
from partt.training.guards import check_weights, checks_at_once
from partt.training.job import TrainingJob, jets_by_class, reference_jets, training_domain, typical_jets
from partt.training.learner import (
    Learner,
    StepResult,
    fetch_sums,
    make_learner,
    restore,
    snapshot,
    take_step,
)
from partt.training.metrics_log import MetricsLog
from partt.training.objectives.objective import LOSS
from partt.training.optimizers import lr_notices
from partt.training.recipe import Recipe, with_network_file
from partt.training.run_folder import (
    NETWORK_COPY,
    RECIPE_COPY,
    RunFolder,
    append_environment,
    start_or_resume,
)
from partt.training.schedules import freeze_notices, rate_factor
from partt.training.state import RunState, state_from_json
from partt.training.steps import Steps, count_steps, pass_notices
from partt.training.trial import try_network_file
from partt.training.validation import MetricValues, validate

LINES_PER_EPOCH = 100  # of metrics.jsonl, in addition to the one at the end of the epoch
STEPS_AT_A_TIME = 10  # whose numbers are fetched from a GPU


@dataclass(frozen=True)
class Machine:
    """Where a run runs; apart from rounding, this does not change the result."""

    device: torch.device
    world: World = field(default_factory=World)
    num_workers: int = 0


@dataclass(frozen=True)
class FitResult:
    """How a run ended."""

    state: RunState
    stopped: bool  # by a signal, before the end
    run_folder: Path
    metric: str = LOSS.name  # of `state.best_value`

    @property
    def tagger(self) -> Path:
        """The tagger of the best epoch."""
        return RunFolder(self.run_folder).tagger


def fit(
    job: TrainingJob,
    folder: RunFolder,
    machine: Machine,
    *,
    resume: bool = False,
    initial_weights: Mapping[str, Tensor] | None = None,
    report: Report = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> FitResult:
    """Train, validate after each epoch, and keep the tagger of the best epoch, all in the run folder.

    With `resume`, continue from the newest checkpoint, exactly as if the run had not been interrupted.
    """
    if job.recipe.precision != "float32" and machine.device.type == "cpu":
        raise ConfigError("precision: bfloat16 is for GPUs; on a CPU it is slower, or not supported")
    world = machine.world
    steps = count_steps(job.recipe, job.train_index, world.size)
    with memory_errors_explained(OTHER_PROGRAMS):
        learner = make_learner(job, world, machine.device, initial_weights)
    jets = reference_jets(job.train, job.train_index, job.objective.tasks) if world.is_first else {}
    domain = training_domain(job.train, job.train_index) if world.is_first else None
    size: Mapping[str, float] = {}
    if world.is_first:
        try_network_file(learner, jets)
        size = _size(learner)
        _prepare_folder(job, folder, machine, size, resume=resume)
    world.wait()  # for the first process, which prepares the folder
    checkpoint = load_newest(folder.checkpoints, lambda text: report(Notice(text)))
    state = RunState()
    if checkpoint is not None:
        restore(learner, checkpoint)
        state = state_from_json(checkpoint.values["state"])
    if world.is_first:
        for text in [
            *lr_notices(learner.network, job.recipe.optimizer),
            *freeze_notices(job.recipe.fine_tuning, steps.num_steps),
            *pass_notices(job.recipe, job.train_index),
        ]:
            report(Notice(text))
        report(_started(learner, steps, state, size))
    log = MetricsLog(folder, state) if world.is_first else None
    run = _Run(job, learner, steps, folder, machine, log, jets, domain, report, should_stop)
    with memory_errors_explained(_memory_advice(job.recipe, steps)):
        state, stopped = _train(run, state)
    if world.is_first and not stopped:
        draw_curves(read_metrics(folder.metrics, "epoch"), folder.curves)
    report(Ended(stopped, state.step, job.metric.name, state.best_value, state.best_epoch, folder.tagger))
    return FitResult(state, stopped, folder.path, job.metric.name)


@dataclass(frozen=True, eq=False)
class _Run:
    """What the parts of the loop share; nothing in it is replaced during a run."""

    job: TrainingJob
    learner: Learner
    steps: Steps
    folder: RunFolder
    machine: Machine
    log: MetricsLog | None  # in the first process only
    reference_jets: Table  # for the tagger file; in the first process only
    domain: Domain | None  # likewise
    report: Report
    should_stop: Callable[[], bool]

    @property
    def should_stop_waiting(self) -> Callable[[], bool] | None:
        """What can end a wait for jets; several processes stop together only, after a step."""
        return self.should_stop if self.machine.world.size == 1 else None

    def lr(self, step: int) -> float:
        """Return the learning rate of a step."""
        recipe, steps = self.job.recipe, self.steps
        factor = rate_factor(recipe.schedule, step, steps.num_steps, steps.steps_per_epoch)
        return recipe.optimizer.lr * factor

    def training_values(self, state: RunState) -> dict[str, float]:
        """Return the training metrics of the epoch so far."""
        return self.job.objective.training_values(state.sums, state.num_jets)


def _train(run: _Run, state: RunState) -> tuple[RunState, bool]:
    """Train from a state to the end; return the last state, and whether a signal stopped the run before."""
    batches = _stream(run, state.step)
    pending: list[StepResult] = []  # steps after the state, whose numbers are still on a GPU
    clock = Clock(state.step)
    saved_at = perf_counter()
    while not _is_done(run, state):
        if state.step == run.steps.epoch_end(state.epoch):
            validated = _validate(run)
            if validated is None:
                _save(run, state)
                return state, True
            state = _end_epoch(run, state, *validated, clock)
            _save(run, state)
            clock, saved_at = Clock(state.step), perf_counter()
            continue
        step = state.step + len(pending)
        lr = run.lr(step)
        try:
            pending.append(take_step(run.learner, batches, step, lr, run.steps.accumulate))
        except SignalledError:  # before the step: nothing has changed yet
            state = _caught_up(run, state, pending)
            _save(run, state)
            return state, True
        clock.add(step + 1, pending[-1].waiting)
        if not _is_time_to_fetch(run, state, pending):
            continue
        state = _caught_up(run, state, pending)
        _report_step(run, state, lr, clock)
        is_time = perf_counter() - saved_at >= 60 * run.job.recipe.checkpoint_minutes
        stop, save = run.machine.world.any(run.should_stop(), is_time)
        if stop or save:
            _save(run, state)
            saved_at = perf_counter()
        if stop:
            return state, True
    return state, False


def _is_time_to_fetch(run: _Run, state: RunState, pending: Sequence[StepResult]) -> bool:
    """Whether the numbers of the last steps are needed: on a CPU always, on a GPU now and then."""
    step = state.step + len(pending)
    return (
        checks_at_once(run.machine.device)
        or len(pending) == STEPS_AT_A_TIME
        or step == run.steps.epoch_end(state.epoch)
    )


def _caught_up(run: _Run, state: RunState, pending: list[StepResult]) -> RunState:
    """Return the state after the steps whose numbers were not fetched yet, and log these."""
    if not pending:
        return state
    fetched = fetch_sums(pending)
    mine = [[result.num_jets, *sums.values()] for result, sums in zip(pending, fetched, strict=True)]
    of_all = run.machine.world.sum(torch.tensor(mine, dtype=torch.float64)).tolist()
    for result, (num_jets, *sums) in zip(pending, of_all, strict=True):
        state = state.after_step(round(num_jets), dict(zip(result.sums, sums, strict=True)))
        _log_step(run, state, result.lr)
    pending.clear()
    return state


def _is_done(run: _Run, state: RunState) -> bool:
    patience = run.job.recipe.patience
    waited = 0 if state.best_epoch is None else state.epoch - 1 - state.best_epoch
    return state.epoch == run.steps.num_epochs or (patience is not None and waited >= patience)


def _stream(run: _Run, first_step: int) -> Iterator[JetBatch]:
    """Return the endless stream of training batches of this process, starting at a step."""
    job, machine = run.job, run.machine
    return training_batches(
        job.train,
        job.train_index,
        batch_size=run.steps.batch_size,
        seed=job.seed,
        first_batch=first_step * run.steps.accumulate,
        world_size=machine.world.size,
        rank=machine.world.rank,
        num_workers=machine.num_workers,
        on_bad_file=lambda file: _report_bad_file(run, file),
        on_notice=lambda text: run.report(Notice(text)),
        should_stop=run.should_stop_waiting,
    )


def _validate(run: _Run) -> tuple[MetricValues, int] | None:
    job, machine = run.job, run.machine
    batches = ordered_batches(
        job.validation,
        job.validation_index,
        batch_size=run.steps.batch_size,
        world_size=machine.world.size,
        rank=machine.world.rank,
        max_jets=job.recipe.validation_jets_per_epoch,
        num_workers=machine.num_workers,
        on_bad_file=lambda file: _report_bad_file(run, file),
        on_notice=lambda text: run.report(Notice(text)),
        should_stop=run.should_stop_waiting,
    )
    result = run.learner.result
    machine.world.broadcast_buffers(result)
    try:
        return validate(
            result.network, result.objective, _counted(run, batches), machine.world, run.should_stop
        )
    except SignalledError:
        return None


def _counted(run: _Run, batches: Iterator[JetBatch]) -> Iterator[JetBatch]:
    num_jets, total = 0, run.job.validation_jets_per_epoch
    for batch in batches:
        yield batch
        num_jets += len(batch) * run.machine.world.size
        run.report(Validating(min(num_jets, total), total))


def _end_epoch(run: _Run, state: RunState, validation: MetricValues, num_jets: int, clock: Clock) -> RunState:
    """Log and report the epoch; save the tagger if it is the best so far."""
    metric = run.job.metric
    value = validation[metric.name]
    if value is None:
        raise DataError(
            f"metric: {metric.name} is not defined for the validation jets; choose another metric"
        )
    ended = state.after_epoch(value, metric)
    is_best = ended.best_epoch == state.epoch
    lr, training = run.lr(state.step - 1), run.training_values(state)
    if run.log is not None:
        check_weights(run.learner.network, state.step, lr)
        run.folder.keep_lock()
        if is_best:
            job, network = run.job, run.learner.result.network
            tagger = new_tagger(
                network,
                job.train.config,
                run.reference_jets,
                job.objective.tasks,
                job.network_file,
                domain=run.domain,
            )
            save_tagger(run.folder.tagger, tagger)
        values = {
            "epoch": state.epoch,
            **{f"train_{name}": number for name, number in training.items()},
            **{f"validation_{name}": number for name, number in validation.items()},
            "validation_num_jets": num_jets,
            "is_best": is_best,
            "lr": lr,
            "seconds": clock.seconds,
        }
        run.log.write("epoch", state.step, values)
    run.report(
        EpochEnded(
            epoch=state.epoch,
            num_epochs=run.steps.num_epochs,
            step=state.step,
            training=training,
            validation=validation,
            is_best=is_best,
            lr=lr,
            seconds=clock.seconds,
            jets_per_second=clock.jets_per_second(run.job.recipe.batch_size),
            waiting=clock.waiting,
        )
    )
    return ended


def _log_step(run: _Run, state: RunState, lr: float) -> None:
    is_logged = state.step % max(1, run.steps.steps_per_epoch // LINES_PER_EPOCH) == 0
    if run.log is not None and is_logged:
        run.log.write("train", state.step, {"epoch": state.epoch, **run.training_values(state), "lr": lr})


def _report_step(run: _Run, state: RunState, lr: float, clock: Clock) -> None:
    steps = run.steps
    run.report(
        StepDone(
            epoch=state.epoch,
            num_epochs=steps.num_epochs,
            step=state.step,
            epoch_start=state.epoch * steps.steps_per_epoch,
            epoch_end=steps.epoch_end(state.epoch),
            num_steps=steps.num_steps,
            metrics=run.training_values(state),
            lr=lr,
            jets_per_second=clock.jets_per_second(run.job.recipe.batch_size),
            waiting=clock.waiting,
            seconds_left=clock.seconds_per_step * (steps.num_steps - state.step),
        )
    )


def _save(run: _Run, state: RunState) -> None:
    """Write a checkpoint; the numbers of all steps must have been fetched, and so be finite."""
    checkpoint = snapshot(run.learner, {"state": state.as_json()})
    if run.log is not None:
        check_weights(run.learner.network, state.step, run.lr(max(0, state.step - 1)))
        run.folder.keep_lock()
        keep = run.job.recipe.keep_checkpoints
        name = _checkpoint_name(state.step, state.epoch)
        best = state.best_epoch
        best_name = "" if best is None else _checkpoint_name(run.steps.epoch_end(best), best + 1)
        save_checkpoint(run.folder.checkpoints, name, checkpoint, keep, best_name)


def _checkpoint_name(step: int, epoch: int) -> str:
    """Return a name with steps and epochs done: the end of an epoch is saved before and after validation."""
    return f"step-{step:09d}-epoch-{epoch:05d}"


def _prepare_folder(
    job: TrainingJob, folder: RunFolder, machine: Machine, size: Mapping[str, float], *, resume: bool
) -> None:
    recipe, file = job.recipe.replace(data_config="data_config.yaml"), job.network_file
    texts = {
        RECIPE_COPY: (recipe if file is None else with_network_file(recipe, file.path.name)).to_yaml(),
        "data_config.yaml": job.train.config.to_yaml(),
    }
    if file is not None:
        texts[NETWORK_COPY] = file.text

    def epochs_done() -> int:
        newest = load_newest(folder.checkpoints, lambda _damage: None)
        return 0 if newest is None else state_from_json(newest.values["state"]).epoch

    start_or_resume(
        folder,
        job.definition(machine.world.size),
        texts,
        {"network": size},
        resume=resume,
        epochs_done=epochs_done,
    )
    _refuse_lost_checkpoints(folder)
    append_environment(folder, describe_environment(machine.device, machine.world.size))


def _refuse_lost_checkpoints(folder: RunFolder) -> None:
    """Raise an error if a run could only start again, and would replace its tagger and its log."""
    if any(folder.checkpoints.glob("step-*.json")) or not folder.metrics.exists():
        return
    epochs = read_metrics(folder.metrics, "epoch")
    if len(epochs) > 1:  # after the first one, the run may have been killed before its first checkpoint
        raise DataError(
            f"{folder.checkpoints} has no checkpoint, but {len(epochs)} epochs were trained: restore it, or "
            "start again with another --out"
        )


def _size(learner: Learner) -> dict[str, float]:
    """Return numbers of parameters, and multiply-adds of jets of the training files, for run.json."""
    network, jets = learner.network, typical_jets(learner.job.train, learner.job.train_index)
    trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return {
        "num_parameters": network.num_parameters,
        "num_trainable": sum(parameter.numel() for parameter in trainable),
        "multiply_adds_per_jet": round(count_multiply_adds(network, jets) / len(jets)),
        "particles_per_jet": round(float(jets.lengths.double().mean()), 2),
    }


def _started(learner: Learner, steps: Steps, state: RunState, size: Mapping[str, float]) -> Started:
    job = learner.job
    return Started(
        network=learner.network.name,
        jets={
            "training": jets_by_class(job.train, job.train_index),
            "validation": jets_by_class(job.validation, job.validation_index),
        },
        num_jets={"training": job.train_index.num_jets, "validation": job.validation_index.num_jets},
        training_metrics=job.objective.training_metrics,
        validation_metrics=job.objective.validation_metrics,
        device=str(learner.device),
        num_threads=torch.get_num_threads(),
        num_processes=learner.world.size,
        num_parameters=round(size["num_parameters"]),
        num_trainable=round(size["num_trainable"]),
        multiply_adds_per_jet=size["multiply_adds_per_jet"],
        validation_jets_per_epoch=job.validation_jets_per_epoch,
        first_step=state.step,
        num_steps=steps.num_steps,
        num_epochs=steps.num_epochs,
    )


def _memory_advice(recipe: Recipe, steps: Steps) -> str:
    bfloat16 = ", or precision: bfloat16" if recipe.precision == "float32" else ""
    return (
        f"it computes with {steps.batch_size} jets at a time: set accumulate: {2 * steps.accumulate} in the "
        f"recipe, which halves that and keeps the batch_size of {recipe.batch_size}, or a smaller "
        f"batch_size{bfloat16}"
    )


def _report_bad_file(run: _Run, file: BadFile) -> None:
    run.report(Notice(f"left out: {file.reason}"))
