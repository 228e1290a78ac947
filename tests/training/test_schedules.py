from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from weaver.train import init_opt

from partt.training.recipe import ScheduleChoice
from partt.training.schedules import rate_factor

SCHEDULES = get_args(ScheduleChoice.model_fields["name"].annotation)


def factors(schedule: ScheduleChoice, num_steps: int, steps_per_epoch: int) -> list[float]:
    return [rate_factor(schedule, step, num_steps, steps_per_epoch) for step in range(num_steps)]


@pytest.mark.parametrize("num_epochs", [1, 3, 15, 20, 50])
def test_flat_decay_is_the_published_one(num_epochs):
    """weaver: MultiStepLR over the last 30 % of the epochs, 0.01 in total."""
    num_decaying = max(1, int(num_epochs * 0.3))
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    milestones = range(num_epochs - num_decaying, num_epochs)
    theirs = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(milestones), 0.01 ** (1 / num_decaying))
    for factor in factors(ScheduleChoice(name="flat_decay"), 4 * num_epochs, 4)[::4]:
        assert factor == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_one_cycle_is_torchs():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=100, cycle_momentum=False)
    for factor in factors(ScheduleChoice(name="one_cycle", final_factor=4e-6), 100, 10):
        assert factor == pytest.approx(theirs.get_last_lr()[0], rel=1e-6)
        optimizer.step()
        if factor > 4e-6:
            theirs.step()


def test_cosine_and_warm_up():
    rates = factors(ScheduleChoice(name="cosine", warmup_steps=10), 101, 10)
    assert rates[:10] == pytest.approx([step / 11 for step in range(1, 11)])
    assert rates[10] == 1
    assert rates[55] == pytest.approx(0.505)
    assert rates[100] == pytest.approx(0.01)


def weaver_factors(name: str, num_epochs: int, steps_per_epoch: int, warmup_steps: float = 0) -> list[float]:
    """Return the learning rates of weaver's own scheduler, stepped as in its training loop."""
    options = SimpleNamespace(
        start_lr=1.0,
        optimizer="SGD",
        lr_finder=None,
        load_epoch=None,
        lr_scheduler=name,
        num_epochs=num_epochs,
        steps_per_epoch=steps_per_epoch,
        warmup_steps=warmup_steps,
    )
    optimizer, scheduler = init_opt(options, torch.nn.Linear(1, 1))
    rates = []
    for step in range(num_epochs * steps_per_epoch):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if scheduler and (hasattr(scheduler, "_update_per_step") or (step + 1) % steps_per_epoch == 0):
            scheduler.step()
    return rates


@pytest.mark.parametrize("num_epochs", [2, 3, 10, 50])
@pytest.mark.parametrize(
    ("weaver_name", "schedule"),
    [
        ("none", {"name": "constant"}),
        ("steps", {"name": "steps"}),
        ("flat+decay", {"name": "flat_decay"}),
        ("flat+linear", {"name": "flat_linear", "final_factor": 0.001}),
        ("flat+cos", {"name": "flat_cosine", "final_factor": 0.001}),
    ],
)
def test_schedules_equal_weavers_step_by_step(weaver_name, schedule, num_epochs):
    ours = factors(ScheduleChoice(**schedule), 4 * num_epochs, 4)
    assert ours == pytest.approx(weaver_factors(weaver_name, num_epochs, 4), rel=1e-12)


@pytest.mark.parametrize(
    ("weaver_name", "name"), [("flat+linear", "flat_linear"), ("flat+cos", "flat_cosine")]
)
def test_weaver_warms_up_one_step_later(weaver_name, name):
    """weaver's first step of a warm-up has a learning rate of 0, and does nothing."""
    ours = factors(ScheduleChoice(name=name, warmup_steps=9, final_factor=0.001), 80, 4)
    theirs = weaver_factors(weaver_name, 20, 4, warmup_steps=10)
    assert theirs[0] == 0
    assert ours[:9] == pytest.approx(theirs[1:10], rel=1e-12)
    assert ours[10:] == pytest.approx(theirs[10:], rel=1e-12)


def test_one_epoch_of_steps_has_the_full_rate():
    assert factors(ScheduleChoice(name="steps"), 5, 5) == [1] * 5


@given(
    st.sampled_from(SCHEDULES),
    st.integers(1, 200),
    st.integers(1, 50),
)
def test_factors_stay_between_0_and_1(name, num_steps, steps_per_epoch):
    for factor in factors(ScheduleChoice(name=name), num_steps, steps_per_epoch):
        assert 0 < factor <= 1
