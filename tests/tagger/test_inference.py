"""Batches of jets of similar length: every jet once, about as many particles in each."""

import numpy as np
import pytest
import torch

from partt.tagger.inference import length_batches, sharing_threads


@pytest.mark.parametrize("num_jets", [0, 1, 50, 1000])
def test_every_jet_is_in_one_batch(num_jets):
    random = np.random.default_rng(1)
    lengths = random.integers(0, 140, 1000)
    jets = random.permutation(1000)[:num_jets]
    batches = length_batches(lengths, jets, 500)
    together = np.concatenate([*batches, np.empty(0, np.int64)])
    assert sorted(together.tolist()) == sorted(jets.tolist())
    assert (np.diff(lengths[together.astype(int)]) <= 0).all()
    assert all(0 < lengths[batch].sum() + len(batch) < 500 + 141 + len(batch) for batch in batches)


def test_batches_do_not_depend_on_the_order_of_other_jets():
    lengths = np.array([3, 9, 3, 200, 1])
    assert [batch.tolist() for batch in length_batches(lengths, np.arange(5), 10)] == [[3], [1], [0, 2, 4]]


def test_threads_are_as_before_afterwards():
    torch.set_num_threads(2)
    with sharing_threads(3) as each:
        assert torch.get_num_threads() == 1
        assert list(each(lambda _: torch.get_num_threads(), [np.arange(1)] * 5)) == [1] * 5
    assert torch.get_num_threads() == 2
