import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from partt.training.recipe import ScheduleChoice
from partt.training.schedules import rate_factor


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


@given(
    st.sampled_from(["constant", "flat_decay", "cosine", "one_cycle"]),
    st.integers(1, 200),
    st.integers(1, 50),
)
def test_factors_stay_between_0_and_1(name, num_steps, steps_per_epoch):
    for factor in factors(ScheduleChoice(name=name), num_steps, steps_per_epoch):
        assert 0 < factor <= 1
