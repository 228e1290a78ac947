"""Learning rate schedules: functions of the step, without state."""

import math

from partt.training.recipe import FineTuning, ScheduleChoice


def rate_factor(schedule: ScheduleChoice, step: int, num_steps: int, steps_per_epoch: int) -> float:
    """Return the factor by which the recipe's learning rate is multiplied at a step, counted from 0."""
    warmup = schedule.warmup_steps
    if step < warmup:
        return (step + 1) / (warmup + 1)
    match schedule.name:
        case "constant":
            factor = 1.0
        case "flat_decay":
            factor = _flat_decay(schedule, step, num_steps, steps_per_epoch)
        case "flat_cosine":
            factor = max(
                schedule.final_factor, _half_cosine(1, 0, _part_after_flat(schedule, step, num_steps))
            )
        case "flat_linear":
            factor = max(schedule.final_factor, 1 - _part_after_flat(schedule, step, num_steps))
        case "steps":
            factor = _thirds(schedule, step, num_steps, steps_per_epoch)
        case "cosine":
            factor = _half_cosine(1, schedule.final_factor, _part(step - warmup, num_steps - warmup - 1))
        case "one_cycle":
            factor = _one_cycle(schedule, step, num_steps)
    return factor


def backbone_factor(fine_tuning: FineTuning, step: int) -> float:
    """Return the factor of the backbone's learning rate: 0 while it is frozen, then rising linearly to 1."""
    since = step - fine_tuning.freeze_steps
    return 0.0 if since < 0 else min(1.0, (since + 1) / (fine_tuning.catch_up_steps + 1))


def freeze_notices(fine_tuning: FineTuning, num_steps: int) -> list[str]:
    """Return that a run ends before its backbone is trained, or before the rate of the backbone has risen."""
    frozen, rising = fine_tuning.freeze_steps, fine_tuning.catch_up_steps
    if frozen and num_steps <= frozen:
        return [f"fine_tuning.freeze_steps: the run has {num_steps:,} steps; only its heads are trained"]
    if rising and num_steps <= frozen + rising:
        text = "its end comes before the learning rate of the backbone has risen to its own"
        return [f"fine_tuning.catch_up_steps: the run has {num_steps:,} steps; {text}"]
    return []


def _flat_decay(schedule: ScheduleChoice, step: int, num_steps: int, steps_per_epoch: int) -> float:
    """Return 1 in the first epochs, then an exponential decay, epoch by epoch, down to final_factor.

    As published (arXiv:2202.03772) with 0.7 and 0.01: of 50 epochs, 15 decay.
    """
    num_epochs = -(-num_steps // steps_per_epoch)
    num_decaying = max(1, int(num_epochs * (1 - schedule.flat_fraction) + 1e-9))
    decays = step // steps_per_epoch - (num_epochs - num_decaying) + 1
    return float(schedule.final_factor ** (max(0, decays) / num_decaying))


def _part_after_flat(schedule: ScheduleChoice, step: int, num_steps: int) -> float:
    """Return 0 up to the last flat step, and less than 1 at the last step of the run."""
    last_flat = schedule.flat_fraction * num_steps - 1
    return _part(max(0.0, step - last_flat), num_steps - last_flat)


def _thirds(schedule: ScheduleChoice, step: int, num_steps: int, steps_per_epoch: int) -> float:
    """Return 1, then step_factor, then its square: each for a third of the epochs."""
    num_epochs = -(-num_steps // steps_per_epoch)
    third = max(1, round(num_epochs / 3))
    return float(schedule.step_factor ** min(2, step // steps_per_epoch // third))


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
