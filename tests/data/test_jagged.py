"""Columns: from and to awkward arrays, taking jets, concatenation."""

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partt.data.jagged import Jagged, concatenate, from_awkward, take, to_awkward

LISTS = st.lists(st.lists(st.integers(-9, 9), max_size=5), min_size=1, max_size=8)


def jagged(lists) -> Jagged:
    lengths = [len(item) for item in lists]
    contents = np.array([value for item in lists for value in item], dtype=np.float32)
    return Jagged(contents, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


@given(LISTS)
def test_awkward_arrays_and_columns_are_the_same_memory(lists):
    column = jagged(lists)
    array = to_awkward(column)
    assert array.to_list() == lists
    again = from_awkward(array)
    assert np.shares_memory(again.contents, column.contents) or len(column.contents) == 0
    assert again.offsets.tolist() == column.offsets.tolist()


@given(LISTS, st.data())
def test_jets_are_taken_in_any_order_and_more_than_once(lists, data):
    jets = np.array(data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=10)), dtype=np.int64)
    assert to_awkward(take(jagged(lists), jets)).to_list() == [lists[jet] for jet in jets]
    assert take(np.arange(len(lists)), jets).tolist() == jets.tolist()


@given(LISTS, LISTS)
def test_columns_are_joined(first, second):
    assert to_awkward(concatenate([jagged(first), jagged(second)])).to_list() == first + second
    assert concatenate([np.array([5, 6]), np.array([7])]).tolist() == [5, 6, 7]
    with pytest.raises(TypeError, match="cannot concatenate"):
        concatenate([jagged(first), np.zeros(2)])


def test_slices_regular_and_wrong_arrays():
    array = ak.Array([[1.0, 2.0], [], [3.0]])
    assert from_awkward(array[1:]).offsets.tolist() == [0, 0, 1]
    assert from_awkward(array[[2, 0]]).contents.tolist() == [3.0, 1.0, 2.0]
    assert from_awkward(ak.from_numpy(np.ones((2, 3)))).offsets.tolist() == [0, 3, 6]
    with pytest.raises(TypeError, match="at most one jagged level"):
        from_awkward(ak.Array([[[1.0]]]))
