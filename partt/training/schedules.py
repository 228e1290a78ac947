"""Learning rate schedules: functions of the step, without state."""

import math

from partt.training.recipe import ScheduleChoice


def rate_factor(schedule: ScheduleChoice, step: int, num_steps: int, steps_per_epoch: int) -> float:
    """Return the factor by which the recipe's learning rate is multiplied at a step, counted from 0."""
    warmup = schedule.warmup_steps
    if step < warmup:
        return (step + 1) / (warmup + 1)
    match schedule.name:
        case "constant":
            return 1.0
        case "flat_decay":
            return _flat_decay(schedule, step, num_steps, steps_per_epoch)
        case "cosine":
            return _half_cosine(1, schedule.final_factor, _part(step - warmup, num_steps - warmup - 1))
        case "one_cycle":
            return _one_cycle(schedule, step, num_steps)


def _flat_decay(schedule: ScheduleChoice, step: int, num_steps: int, steps_per_epoch: int) -> float:
    """Return 1 in the first epochs, then an exponential decay, epoch by epoch, down to final_factor.

    As published (arXiv:2202.03772) with 0.7 and 0.01: of 50 epochs, 15 decay.
    """
    num_epochs = -(-num_steps // steps_per_epoch)
    num_decaying = max(1, int(num_epochs * (1 - schedule.flat_fraction) + 1e-9))
    decays = step // steps_per_epoch - (num_epochs - num_decaying) + 1
    return float(schedule.final_factor ** (max(0, decays) / num_decaying))


def _one_cycle(schedule: ScheduleChoice, step: int, num_steps: int) -> float:
    """Return half a cosine up to 1, then half a cosine down (arXiv:1708.07120, without momentum cycles)."""
    peak = schedule.rise_fraction * num_steps - 1
    if step <= peak:
        return _half_cosine(schedule.start_factor, 1, _part(step, peak))
    return _half_cosine(1, schedule.final_factor, _part(step - peak, num_steps - 1 - peak))


def _half_cosine(start: float, end: float, part: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * part)) / 2


def _part(done: float, total: float) -> float:
    return min(1.0, done / total) if total > 0 else 1.0
