"""Files of events whose branches are not what the input map expects: jets, or one clear line."""

import awkward as ak
import numpy as np
import pytest

from attacks import NUM_ATTACKS, outcome
from partt.data.config.input_map import load_input_map
from partt.data.jet_files import count_jets, inspect_jets, read_jets
from pfnano import make_pfnano

NUM_EVENTS = 6
PFNANO = load_input_map("pfnano-ak8")
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64", "bool")
EXTREMES = (
    -1,
    0,
    1,
    3,
    255,
    2**31 - 1,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
    -(2**63),
    1e300,
    np.inf,
    np.nan,
    0.5,
)


def branches_of(events):
    """Return branches as awkward arrays, called as in NanoAOD."""
    named = {}
    for name, values in events.items():
        fields = ak.fields(values)
        named |= (
            {f"{name}_{field}": values[field] for field in fields} if fields else {name: ak.Array(values)}
        )
    return {name: rebuilt(values, ak.to_numpy) for name, values in named.items()}


def rebuilt(values, change):
    """Return an array of the same lists, of the numbers that `change` makes of all numbers, one after another."""
    if values.ndim == 1:
        return ak.Array(np.ascontiguousarray(change(values)))
    return ak.unflatten(np.ascontiguousarray(change(ak.flatten(values))), ak.num(values))


def retyped(random, values):
    """Return the same numbers as another type, as far as it has them."""
    with np.errstate(all="ignore"):
        return ak.values_astype(values, str(random.choice(TYPES)))


def spoilt(random, values):
    """Return values with a number that nobody expects in one place."""
    kind = np.dtype(str(random.choice(TYPES)))
    extreme = np.array([EXTREMES[random.integers(len(EXTREMES))]])

    def change(flat):
        with np.errstate(all="ignore"):
            flat = ak.to_numpy(flat).astype(kind)
            if len(flat):
                flat[random.integers(len(flat))] = extreme.astype(kind)[0]
        return flat

    return rebuilt(values, change)


def with_other_counts(random, values):
    return values if values.ndim == 1 else values[:, : random.integers(0, 3)]


def flattened(_random, values):
    """Return one number per event instead of a list."""
    return values if values.ndim == 1 else ak.Array(ak.to_numpy(ak.num(values)).astype(np.float32))


def nested(_random, values):
    """Return lists of one number instead of numbers."""
    return ak.singletons(values) if values.ndim == 1 else values


CHANGES = (retyped, spoilt, spoilt, spoilt, with_other_counts, flattened, nested)


def attack(random):
    """Return the branches of a file whose branches are missing or changed, a few of them."""
    branches = branches_of(make_pfnano(NUM_EVENTS, int(random.integers(5))))
    for _ in range(random.integers(1, 4)):
        name = str(random.choice(sorted(branches)))
        which = random.integers(len(CHANGES) + 1)
        if which == len(CHANGES):
            group, _, _ = name.partition("_")
            gone = [other for other in branches if other.startswith(f"{group}_")]
            for other in gone if gone and random.uniform() < 0.2 else [name]:
                del branches[other]
        else:
            branches[name] = CHANGES[which](random, branches[name])
    return branches


def read_all(path):
    """Read every branch of jets that the file is said to have."""
    file = inspect_jets(str(path), input_map=PFNANO)
    found = read_jets(file, sorted(file.branches), 0, file.num_entries)
    assert len(found.entries) == count_jets(file)
    for column in found.columns.values():
        assert len(column) == len(found.entries)


@pytest.mark.parametrize("seed", range(NUM_ATTACKS))
def test_attacks(seed, tmp_path):
    random = np.random.default_rng(seed)
    ak.to_parquet(ak.zip(attack(random), depth_limit=1), tmp_path / "events.parquet")
    outcome(lambda: read_all(tmp_path / "events.parquet"))
