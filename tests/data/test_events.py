"""Awkward arrays of jets and events: the same variables as from a file, and results nested like the jets."""

import awkward as ak
import numpy as np
import pytest

from jets import make_jets
from partt.data.config.data_config import load_data_config
from partt.data.from_awkward import jets_of_events
from partt.data.jagged import Jagged, to_awkward
from partt.errors import DataError

CONFIG = load_data_config("jetclass_kin")
NAMES = {variable.name for group in CONFIG.groups for variable in group.variables}
JETS_PER_EVENT = [3, 0, 1, 6]


def flat_jets(num_jets=10):
    return ak.Array({name: to_awkward(column) for name, column in make_jets(num_jets).items()})


def events():
    return ak.unflatten(flat_jets(sum(JETS_PER_EVENT)), JETS_PER_EVENT)


def assert_like_the_file(found):
    jets = make_jets(10)
    for name, column in found.variables.branches.items():
        if isinstance(column, Jagged):
            np.testing.assert_array_equal(column.contents, jets[name].contents)
            np.testing.assert_array_equal(column.offsets, jets[name].offsets)
        else:
            np.testing.assert_array_equal(column, jets[name])


def test_jets_one_after_another():
    found = jets_of_events(CONFIG, NAMES, flat_jets())
    assert_like_the_file(found)
    assert found.counts == ()
    assert found.nest({"a": np.arange(10)}).a.tolist() == list(range(10))


def test_jets_inside_events():
    found = jets_of_events(CONFIG, NAMES, events())
    assert_like_the_file(found)
    assert found.nest({"a": np.arange(10)}).a.tolist() == [[0, 1, 2], [], [3], [4, 5, 6, 7, 8, 9]]


def test_jets_two_lists_deep():
    deeper = ak.unflatten(events(), [1, 3])
    found = jets_of_events(CONFIG, NAMES, deeper)
    assert_like_the_file(found)
    assert found.nest({"a": np.arange(10)}).a.tolist() == [[[0, 1, 2]], [[], [3], [4, 5, 6, 7, 8, 9]]]


def test_records_of_particles_inside_records_of_jets_inside_events():
    flat = events()
    particles = {name.removeprefix("part_"): flat[name] for name in flat.fields if name.startswith("part_")}
    jets = {name.removeprefix("jet_"): flat[name] for name in flat.fields if name.startswith("jet_")}
    nested = ak.zip({**jets, "part": ak.zip(particles)}, depth_limit=2)
    number = np.arange(4)
    assert_like_the_file(jets_of_events(CONFIG, NAMES, ak.zip({"jet": nested, "run": number}, depth_limit=1)))


def test_what_an_event_has_applies_to_its_jets():
    flat = events()
    scale = ak.Array([2.0, 3.0, 4.0, 5.0])
    lists = {name: flat[name] for name in flat.fields if name != "jet_energy"}
    per_event = ak.zip({**lists, "jet_energy": scale}, depth_limit=1)
    energies = jets_of_events(CONFIG, NAMES, per_event).variables.branches["jet_energy"]
    assert energies.tolist() == [2, 2, 2, 4, 5, 5, 5, 5, 5, 5]


def test_no_events_and_fixed_sizes():
    found = jets_of_events(CONFIG, NAMES, events()[:0])
    assert found.variables.num_jets == 0
    assert found.nest({"a": np.zeros(0)}).tolist() == []
    regular = ak.Array({name: np.ones((4, 3)) if "part" in name else np.ones(4) for name in make_jets(0)})
    assert jets_of_events(CONFIG, NAMES, regular).variables["part_px"].lengths.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: a[[name for name in a.fields if name != "part_px"]],
            "needs: part_px$",  # part_py is not meant: it is needed itself
        ),
        (
            lambda a: ak.with_field(a[[name for name in a.fields if name != "part_px"]], a.part_px, "pf_px"),
            r"needs: part_px \(did you mean 'pf_px'\?\)$",
        ),
        (lambda a: a.part_px, "must be an awkward array of records"),
        (
            lambda a: ak.with_field(a, ak.mask(a.part_px, a.part_px < 0), "part_px"),
            "part_px of the events has missing values",
        ),
        (
            lambda a: ak.zip({"a": a, "b": a}, depth_limit=1),
            "have a.jet_energy and b.jet_energy for 'jet_energy'",
        ),
        (lambda a: ak.with_field(a, ["x"] * 10, "jet_pt"), "'jet_pt' of the events"),
        (lambda a: ak.Array({name: np.ones(3) for name in a.fields}), "no list of particles"),
    ],
)
def test_what_is_missing_is_named(change, message):
    with pytest.raises(DataError, match=message):
        jets_of_events(CONFIG, NAMES, change(flat_jets()))


def test_other_numbers_of_jets_are_refused():
    flat = events()
    lists = {name: flat[name] for name in flat.fields if name != "jet_pt"}
    with pytest.raises(DataError, match="different numbers of jets in 'jet_pt'"):
        jets_of_events(CONFIG, NAMES, ak.zip({**lists, "jet_pt": flat.jet_pt[:, :1]}, depth_limit=1))


def test_masked_arrays_without_missing_values_are_welcome():
    flat = flat_jets()
    masked = ak.with_field(flat, ak.mask(flat.jet_pt, flat.jet_pt > 0), "jet_pt")
    assert_like_the_file(jets_of_events(CONFIG, NAMES, masked))
