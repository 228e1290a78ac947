"""From files to batches: order, workers, resumption, weights, cache, bad jets and files."""

import os
import pickle
import re
import signal
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import uproot
import yaml

from jets import CLASSES, make_jets, write_jets
from partt.config import parse_record, shipped_file
from partt.data.config.data_config import DataConfig, load_data_config
from partt.data.files.lists import InputFile
from partt.data.files.tables import read_columns, write_table
from partt.data.jagged import Jagged
from partt.data.jet_batch import JetBatch, ParticleClasses, concatenate
from partt.data.packing import pack
from partt.data.reading.batch_cache import BatchCache
from partt.data.reading.batches import UnitReader, ordered_batches, training_batches
from partt.data.reading.jet_index import build_index
from partt.data.reading.jet_source import JetSource, open_source, read_chunk
from partt.data.variables import Variables, select
from partt.errors import ConfigError, DataError
from partt.jet_inputs import Collection, JetInputs
from partt.training.job import reference_jets, typical_jets

FLAT = {
    "use_precomputed_weights": False,
    "reweight_method": "flat",
    "reweight_vars": {"jet_sdmass": [0, 40, 80, 120, 1000]},
    "reweight_classes": ["label_QCD", "label_Hbb", "label_Tbl"],
}


def config_with(tmp_path, **changes) -> DataConfig:
    options = yaml.safe_load(shipped_file("data_configs", "jetclass_full").read_text()) | changes
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(options, sort_keys=False))
    return load_data_config(str(tmp_path / "config.yaml"))


@pytest.fixture
def files(tmp_path) -> list[InputFile]:
    """Three files of one class each, of different sizes."""
    sizes = {"QCD": 120, "Hbb": 60, "Tbl": 33}
    return [
        InputFile(name, str(write_jets(tmp_path / f"{name}.root", size, [name], seed)))
        for seed, (name, size) in enumerate(sizes.items())
    ]


def open_all(files, config=None, **options) -> JetSource:
    return open_source(files, config or load_data_config("jetclass_full"), **options)


def names(batch: JetBatch) -> list[tuple[int, int]]:
    return list(zip(batch.source_file.tolist(), batch.source_entry.tolist(), strict=True))


def first_batches(source, number, **options) -> list[JetBatch]:
    index = build_index(source)
    return list(islice(training_batches(source, index, batch_size=16, seed=5, **options), number))


def test_a_pass_has_every_jet_once_and_mixes_the_classes(files):
    source = open_all(files)
    batches = first_batches(source, 213 // 16)
    jets = [name for batch in batches for name in names(batch)]
    assert len(set(jets)) == len(jets) == 213 // 16 * 16
    assert {len(batch) for batch in batches} == {16}
    for batch in batches:
        assert 4 <= int((batch.labels == 0).sum()) <= 15  # 9 expected: hypergeometric, more than 4 sigma
    assert torch.equal(
        torch.cat([b.labels for b in batches]).bincount() > 0, torch.tensor([1, 1] + [0] * 7 + [1]) > 0
    )


def test_contents_follow_their_jet(files):
    source = open_all(files)
    in_order = concatenate(list(ordered_batches(source, build_index(source), batch_size=50)))
    place = {name: number for number, name in enumerate(names(in_order))}
    for batch in first_batches(source, 5):
        again = in_order.take(np.array([place[name] for name in names(batch)]))
        assert torch.equal(batch.labels, again.labels)
        for field in ("features", "momenta", "points", "offsets"):
            assert torch.equal(getattr(batch.inputs.main, field), getattr(again.inputs.main, field))


@pytest.mark.parametrize("num_workers", [1, 2])
def test_order_does_not_depend_on_workers(files, num_workers):
    source = open_all(files)
    alone = first_batches(source, 30, unit_jets=40)
    helped = first_batches(source, 30, unit_jets=40, num_workers=num_workers)
    for one, other in zip(alone, helped, strict=True):
        assert names(one) == names(other)
        assert torch.equal(one.inputs.main.features, other.inputs.main.features)


def test_reading_leaves_the_global_random_state_alone(files):
    source = open_all(files)
    states = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first_batches(source, 3, num_workers=1)
    assert np.array_equal(states[0], np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(states[1], torch.get_rng_state())


@pytest.mark.parametrize("first_batch", [0, 1, 7, 13, 14, 40])
def test_resuming_at_a_batch(files, first_batch):
    source = open_all(files)
    whole = first_batches(source, 45, unit_jets=50)
    rest = first_batches(source, 45 - first_batch, unit_jets=50, first_batch=first_batch)
    assert [names(batch) for batch in rest] == [names(batch) for batch in whole[first_batch:]]


def test_ranks_share_a_pass(files):
    source = open_all(files)
    ranks = [first_batches(source, 213 // 3 // 16, world_size=3, rank=rank) for rank in range(3)]
    jets = [name for batches in ranks for batch in batches for name in names(batch)]
    assert len(jets) == len(set(jets)) == 3 * 4 * 16


def test_ordered_batches_give_every_jet_in_order(files):
    source = open_all(files)
    index = build_index(source)
    batches = list(ordered_batches(source, index, batch_size=50, unit_jets=70, num_workers=2))
    assert [len(batch) for batch in batches] == [50, 50, 50, 50, 13]
    expected = [(number, entry) for number, size in enumerate((120, 60, 33)) for entry in range(size)]
    assert [name for batch in batches for name in names(batch)] == expected


@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 17])
def test_files_of_all_sizes(tmp_path, size):
    files = [InputFile("", str(write_jets(tmp_path / "few.root", size)))]
    files.append(InputFile("", str(write_jets(tmp_path / "some.root", 20, seed=1))))
    source = open_all(files)
    batches = list(ordered_batches(source, build_index(source), batch_size=16))
    assert sum(len(batch) for batch in batches) == 20 + size
    jets = [name for batch in first_batches(source, (20 + size) // 16) for name in names(batch)]
    assert len(jets) == len(set(jets))


def test_lengths_are_cut_and_counted(tmp_path):
    lengths = [0, 1, 127, 128, 129, 200]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    jets = make_jets(6)
    jets |= {
        name: Jagged(np.ones(offsets[-1], np.float32), offsets)
        for name, column in jets.items()
        if isinstance(column, Jagged)
    }
    file = InputFile("", str(write_jets(tmp_path / "a.root", 6, **jets)))
    batch = read_chunk(open_all([file]), 0, 0, 6)
    assert batch.inputs.main.lengths.tolist() == [0, 1, 127, 128, 128, 128]
    assert batch.num_cut.tolist() == [0, 0, 0, 0, 1, 72]


# --- weights ---


def test_sampling_makes_the_spectrum_flat(tmp_path):
    classes = ("QCD", "Hbb", "Tbl")
    files = [
        InputFile(name, str(write_jets(tmp_path / f"{name}.root", 900, [name], seed)))
        for seed, name in enumerate(classes)
    ]
    weights = FLAT | {"reweight_threshold": 0}  # the rarest bin sets the scale: exactly flat
    config = config_with(tmp_path, weights=weights, observers=[])
    source = open_all(files, config)
    index = build_index(source)
    num_batches = 400
    batches = list(islice(training_batches(source, index, batch_size=64, seed=1), num_batches))
    of_file = [read_columns(file.url, ["jet_sdmass"])["jet_sdmass"] for file in files]
    masses = np.array([of_file[file][entry] for batch in batches for file, entry in names(batch)])
    labels = torch.cat([batch.labels for batch in batches]).numpy()
    for label in (0, 1, 9):
        counts, _ = np.histogram(masses[labels == label], bins=[0, 40, 80, 120, 1000])
        assert counts.min() / counts.max() > 0.9
        assert (labels == label).mean() == pytest.approx(1 / 3, abs=0.02)
    assert torch.cat([batch.weights for batch in batches]).eq(1).all()


def test_the_same_weights_in_the_loss(tmp_path):
    file = InputFile("", str(write_jets(tmp_path / "a.root", 600, ("QCD", "Hbb", "Tbl"))))
    source = open_all([file], config_with(tmp_path, weights=FLAT), reweighting="loss")
    batches = first_batches(source, 600 // 16)
    weights = torch.cat([batch.weights for batch in batches])
    assert len({name for batch in batches for name in names(batch)}) == len(weights)
    assert weights.mean() == pytest.approx(1, abs=0.05)
    assert len(weights.unique()) > 3


@pytest.mark.parametrize(
    ("weight", "message"),
    [(np.nan, "entry 7: the weight (weight) is nan"), (np.inf, "entry 7: the weight (weight) is inf")],
)
def test_weights_must_be_finite(tmp_path, weight, message):
    weights = np.ones(20, np.float32)
    weights[7] = weight
    file = InputFile("", str(write_jets(tmp_path / "a.root", 20, weight=weights)))
    config = config_with(tmp_path, weights={"use_precomputed_weights": True, "weight_branches": ["weight"]})
    with pytest.raises(DataError, match="weights must be finite") as error:
        build_index(open_all([file], config))
    assert message in str(error.value)


def test_negative_and_zero_event_weights(tmp_path):
    weights = np.array([1, -1, 0, 4], np.float32).repeat(5)
    file = InputFile("", str(write_jets(tmp_path / "a.root", 20, weight=weights)))
    config = config_with(tmp_path, weights={"use_precomputed_weights": True, "weight_branches": ["weight"]})
    source = open_all([file], config)
    batch = concatenate(list(ordered_batches(source, build_index(source), batch_size=64)))
    np.testing.assert_allclose(batch.weights, weights)  # their mean is 1
    bad = InputFile("", str(write_jets(tmp_path / "b.root", 20, weight=-weights)))
    with pytest.raises(DataError, match="mean weight of the jets is -1; it must be positive"):
        build_index(open_all([bad], config))


def test_negative_base_weights_are_refused(tmp_path):
    file = InputFile("", str(write_jets(tmp_path / "a.root", 200, ("QCD", "Hbb", "Tbl"))))
    config = config_with(tmp_path, weights=FLAT | {"reweight_basewgt": "jet_tau1 - 0.5"})
    with pytest.raises(
        DataError, match=r"entry \d+: weights.reweight_basewgt is -0.* negative or not finite"
    ):
        open_all([file], config)


def test_a_class_without_jets_in_the_bins(tmp_path):
    file = InputFile("", str(write_jets(tmp_path / "a.root", 100, ("QCD", "Hbb"))))
    with pytest.raises(DataError, match="no jet of label_Tbl is in the bins"):
        open_all([file], config_with(tmp_path, weights=FLAT))


def test_empty_bins_get_no_weight(tmp_path):
    file = InputFile("", str(write_jets(tmp_path / "a.root", 300, ("QCD", "Hbb", "Tbl"))))
    bins = {"reweight_vars": {"jet_sdmass": [-10, -5, 0, 50, 1000], "jet_nparticles": [0, 500]}}
    source = open_all([file], config_with(tmp_path, weights=FLAT | bins))
    for histogram in source.config.weights.reweight_hists.values():
        assert np.asarray(histogram)[:2].tolist() == [[0], [0]]
        assert np.all(np.asarray(histogram)[2:] > 0)


# --- labels ---


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("label_QCD", 0, "entry 3: exactly one label must be 1 and the others 0, but none is set"),
        (
            "label_Hbb",
            1,
            "entry 3: exactly one label must be 1 and the others 0, but label_QCD = 1, label_Hbb = 1",
        ),
        ("label_QCD", 0.5, "entry 3: exactly one label must be 1 and the others 0, but label_QCD = 0.5"),
        ("label_QCD", np.nan, "entry 3: exactly one label must be 1 and the others 0, but label_QCD = nan"),
    ],
)
def test_wrong_labels(tmp_path, column, values, message):
    labels = make_jets(9, ["QCD"])[column].astype(np.float32)
    labels[3] = values
    file = write_jets(tmp_path / "a.root", 9, ["QCD"], **{column: labels})
    with pytest.raises(DataError) as error:
        build_index(open_all([InputFile("", str(file))]))
    assert str(error.value).startswith(f"{file}, {message} (1 of 9 jets read together)")
    assert "`selection`" in str(error.value)


def test_a_label_that_is_a_constant(tmp_path):
    labels = {"type": "custom", "value": {"truth": "0"}, "names": ["all"]}
    file = InputFile("", str(write_jets(tmp_path / "a.root", 30)))
    assert build_index(open_all([file], config_with(tmp_path, labels=labels))).class_counts.tolist() == [[30]]


def test_custom_labels(tmp_path):
    labels = {
        "type": "custom",
        "value": {"truth": "label_Hbb + 2 * label_Tbl"},
        "names": ["QCD", "Hbb", "Tbl"],
    }
    file = InputFile("", str(write_jets(tmp_path / "a.root", 30, ("QCD", "Hbb", "Tbl"))))
    batch = read_chunk(open_all([file], config_with(tmp_path, labels=labels)), 0, 0, 30)
    simple = read_chunk(open_all([file]), 0, 0, 30)
    assert batch.labels.tolist() == [{0: 0, 1: 1, 9: 2}[label] for label in simple.labels.tolist()]
    labels["names"] = ["QCD", "Hbb"]
    with pytest.raises(
        DataError, match="the label truth is 2; with 2 classes it must be a whole number from 0 to 1"
    ):
        build_index(open_all([file], config_with(tmp_path, labels=labels)))


def test_training_needs_labels(tmp_path):
    jets = {name: column for name, column in make_jets(25).items() if not name.startswith("label_")}
    write_table(tmp_path / "a.root", jets)
    with pytest.raises(
        DataError, match="a.root: tree 'tree' lacks branches that the data config needs: label_H4q"
    ) as raised:
        open_all([InputFile("", str(tmp_path / "a.root"))])
    assert "jets without labels are for predict, masked_particles and --teacher" in str(raised.value)
    write_table(tmp_path / "b.root", {name: column for name, column in jets.items() if name != "part_px"})
    with pytest.raises(DataError, match="label_H4q.*part_px.*with --input$"):
        open_all([InputFile("", str(tmp_path / "b.root"))])


def test_prediction_has_a_selection_of_its_own(tmp_path):
    config = config_with(tmp_path, selection="jet_nparticles > 30", test_time_selection="jet_nparticles > 10")
    variables = Variables(make_jets(100), config.formulas, "test", np.arange(100))
    for purpose, threshold in (("train", 30), ("predict", 10)):
        many = variables["jet_nparticles"] > threshold
        assert select(config, variables, purpose).entries.tolist() == np.flatnonzero(many).tolist()


def test_nothing_selected(files, tmp_path):
    with pytest.raises(DataError, match="no jet passes the selection 'jet_pt > 1e9' in 3 files"):
        build_index(open_all(files, config_with(tmp_path, selection="jet_pt > 1e9")))


# --- values ---


def file_with(tmp_path, branch: str, value: float) -> InputFile:
    """Return 30 jets with one wrong value, in the third particle of jet 11."""
    jets = make_jets(30, seed=3)
    column = jets[branch]
    assert isinstance(column, Jagged)
    assert column.lengths[11] > 2
    column.contents[column.offsets[11] + 2] = value
    return InputFile("", str(write_jets(tmp_path / "a.root", 30, seed=3, **jets)))


def test_nan_features_become_zero_and_are_counted(tmp_path):
    batch = read_chunk(open_all([file_with(tmp_path, "part_d0val", np.nan)]), 0, 0, 30)
    assert batch.num_nan.nonzero().flatten().tolist() == [11]
    row = int(batch.inputs.main.offsets[11]) + 2
    assert batch.inputs.main.features[row, 11] == 0
    assert not batch.bad.any()


@pytest.mark.parametrize(
    ("branch", "value", "is_bad"),
    [
        ("part_deta", np.inf, True),  # raw: stays infinite
        ("part_d0err", np.inf, False),  # clipped to 1
        ("part_d0val", -np.inf, False),  # tanh
        ("part_px", np.nan, True),  # a momentum
        ("part_energy", np.inf, True),
        ("part_energy", 0.0, False),  # ln 0 is clipped
    ],
)
def test_infinite_values(tmp_path, branch, value, is_bad):
    file = file_with(tmp_path, branch, value)
    batch = read_chunk(open_all([file], on_bad_jet="mark"), 0, 0, 30)
    assert batch.bad.tolist() == [is_bad and jet == 11 for jet in range(30)]
    assert torch.isfinite(batch.inputs.main.features).all()
    assert torch.isfinite(batch.inputs.main.momenta).all()
    if is_bad:
        assert (
            batch.inputs.main.features[batch.inputs.main.offsets[11] : batch.inputs.main.offsets[12]] == 0
        ).all()
        assert len(batch.without_bad()) == 29
        with pytest.raises(
            DataError,
            match=r"a.root, entry 11: an input of this jet is infinite.*\(1 of \d+ jets read together",
        ):
            first_batches(open_all([file]), 1)


def test_particle_numbers_that_disagree(tmp_path):
    jets = make_jets(30, seed=3)
    shorter = jets["part_dzval"]
    lengths = shorter.lengths.copy()
    lengths[4] -= 1
    jets["part_dzval"] = Jagged(shorter.contents[:-1], np.concatenate([[0], np.cumsum(lengths)]))
    file = InputFile("", str(write_jets(tmp_path / "a.root", 30, **jets)))
    with pytest.raises(DataError, match=r"a.root, entry 4: part_dz has \d+ values, but part_pt_log has \d+"):
        read_chunk(open_all([file]), 0, 0, 30)


def test_a_jet_variable_as_input(tmp_path):
    options = yaml.safe_load(shipped_file("data_configs", "jetclass_full").read_text())
    options["inputs"]["pf_features"]["vars"].append(["jet_pt", None])
    file = InputFile("", str(write_jets(tmp_path / "a.root", 5)))
    with pytest.raises(
        DataError,
        match="a.root: jet_pt has one value per jet, but the input group pf_features has one per particle",
    ):
        read_chunk(open_all([file], config_with(tmp_path, **options)), 0, 0, 5)


# --- errors on the way ---


def test_errors_of_workers_keep_their_message(files, tmp_path):
    source = open_all([*files, InputFile("x", file_with(tmp_path, "part_px", np.nan).url)])
    start = f"{tmp_path / 'a.root'}, entry 11: an input of this jet is infinite"
    with pytest.raises(DataError, match=f"^{re.escape(start)}"):  # keeping the error would keep the workers
        first_batches(source, 20, num_workers=2)


def test_a_dead_worker_is_a_clear_error(files, monkeypatch):
    source = open_all(files)
    monkeypatch.setattr(UnitReader, "__call__", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(DataError, match="a process that reads jets has died.*use fewer workers"):
        first_batches(source, 1, num_workers=1)


def test_a_slow_worker_is_waited_for(files, monkeypatch):
    monkeypatch.setattr("partt.data.reading.reader_processes.CHECK_STOP", 0.01)
    read = UnitReader.__call__

    def slow(*arguments):
        time.sleep(0.2)
        return read(*arguments)

    monkeypatch.setattr(UnitReader, "__call__", slow)
    source = open_all(files)
    alone, read_ahead = (first_batches(source, 3, num_workers=number) for number in (0, 1))
    assert [batch.labels.tolist() for batch in read_ahead] == [batch.labels.tolist() for batch in alone]


def test_a_file_that_changes_while_reading(files):
    source = open_all(files)
    index = build_index(source)
    write_jets(files[0].url, 120, ["QCD"], seed=9)
    with pytest.raises(DataError, match="QCD.root.*changed"):
        next(training_batches(source, index, batch_size=16, seed=0))


def test_a_file_that_vanishes(files):
    source = open_all(files)
    index = build_index(source)
    os.remove(files[1].url)  # noqa: PTH107
    with pytest.raises(DataError, match="Hbb.root"):
        list(ordered_batches(source, index, batch_size=16))


def test_bad_files_are_skipped_up_to_a_limit(files, tmp_path):
    broken = tmp_path / "broken.root"
    broken.write_text("<html>not found</html>")
    more = [*files, InputFile("QCD", str(broken))]
    with pytest.raises(DataError, match="broken.root"):
        open_all(more)
    with pytest.raises(DataError, match="1 of 4 files are bad, more than --max-bad-fraction 0.05"):
        open_all(more, on_bad_file="skip")
    source = open_all(more, on_bad_file="skip", max_bad_fraction=0.3)
    assert [bad.url for bad in source.bad_files] == [str(broken)]
    assert len(source.files) == 3
    with pytest.raises(DataError, match="all files of Top are bad"):
        open_all([*files, InputFile("Top", str(broken))], on_bad_file="skip", max_bad_fraction=0.9)


def test_auto_configs_must_be_fitted_before_prediction(tmp_path):
    config = config_with(tmp_path, preprocess={"method": "auto"}, inputs={
        "pf_features": {"length": 128, "vars": ["part_deta", "part_dphi"]},
    })  # fmt: skip
    with pytest.raises(ConfigError, match="not fitted yet: part_deta, part_dphi"):
        pack(config, Variables(make_jets(10), config.formulas, "test", np.arange(10)))


def damaged(path: str) -> None:
    """Spoil the key of a basket of part_px: the file opens, and its labels can be read."""
    with uproot.open(path) as file:
        branch = file["tree"]["part_px"]
        place = int(branch.member("fBasketSeek")[0])
    contents = bytearray(Path(path).read_bytes())
    contents[place : place + 4] = b"\xff\xff\xff\xff"
    Path(path).write_bytes(contents)


def test_files_that_turn_out_bad_while_reading(files, tmp_path):
    files = [*files, InputFile("QCD", str(write_jets(tmp_path / "damaged.root", 50, ["QCD"], 8)))]
    damaged(files[-1].url)
    with pytest.raises(DataError, match="damaged.root.*part_px"):
        first_batches(open_all(files), 10)
    with pytest.raises(DataError, match="1 of 4 files are bad"):
        first_batches(open_all(files, on_bad_file="skip"), 10)
    source = open_all(files, on_bad_file="skip", max_bad_fraction=0.3)
    index = build_index(source)
    skipped = []
    stream = training_batches(source, index, batch_size=16, seed=0, on_bad_file=skipped.append, num_workers=1)
    batches = list(islice(stream, 263 // 16))
    assert [file.url for file in skipped] == [files[-1].url]
    bad = torch.cat([batch.bad for batch in batches])
    from_damaged = torch.cat([batch.source_file for batch in batches]) == 3
    assert torch.equal(bad, from_damaged)
    assert 40 <= int(bad.sum()) <= 50
    good = [name for batch in batches for name in names(batch.without_bad())]
    assert len(good) == len(set(good)) == 16 * len(batches) - int(bad.sum())


def test_fits_leave_out_files_that_turn_out_bad(files, tmp_path):
    """Of standardisation and weights: the same numbers as without the file."""
    fitted = config_with(
        tmp_path,
        preprocess={"method": "auto"},
        inputs={"pf_features": {"length": 128, "vars": ["part_px", "part_dphi"]}},
        weights={**FLAT, "reweight_basewgt": "1 + 0 * ak.sum(part_px, axis=1)"},
    )
    good = open_all(files, fitted)
    more = [*files, InputFile("QCD", str(write_jets(tmp_path / "damaged.root", 50, ["QCD"], 8)))]
    damaged(more[-1].url)
    with pytest.raises(DataError, match="damaged.root.*part_px"):
        open_all(more, fitted)
    source = open_all(more, fitted, on_bad_file="skip", max_bad_fraction=0.3)
    assert source.config == good.config


def test_the_first_file_may_turn_out_bad(files, tmp_path):
    """A training looks at its first jets: for the tagger file, and to measure the network."""
    first = InputFile("QCD", str(write_jets(tmp_path / "damaged.root", 50, ["QCD"], 8)))
    damaged(first.url)
    source = open_all([first, files[0]], on_bad_file="skip", max_bad_fraction=0.5)
    index = build_index(source)
    assert len(reference_jets(source, index, ())["part_px"]) == 8
    assert len(typical_jets(source, index)) == 120
    with pytest.raises(DataError, match="damaged.root.*part_px"):
        reference_jets(open_all([first, files[0]]), index, ())


def test_a_class_may_not_vanish_with_its_bad_file(files):
    damaged_labels = Path(files[2].url)
    damaged_labels.write_bytes(damaged_labels.read_bytes()[:-500])
    unnamed = [InputFile("", file.url) for file in files]
    source = open_all(unnamed, on_bad_file="skip", max_bad_fraction=0.5)
    with pytest.raises(DataError, match="no jets of .*Tbl are left without the bad files"):
        build_index(source)


def test_too_few_jets_for_the_ranks(tmp_path):
    source = open_all([InputFile("", str(write_jets(tmp_path / "a.root", 3)))])
    with pytest.raises(DataError, match="a pass has 3 jets, too few for 4 processes"):
        next(training_batches(source, build_index(source), batch_size=2, seed=0, world_size=4))


def test_a_source_can_go_to_another_process(files):
    source = pickle.loads(pickle.dumps(open_all(files)))  # noqa: S301
    assert len(first_batches(source, 3)) == 3


# --- the cache ---


def test_the_cache_gives_the_same_batches(files, tmp_path):
    plain = first_batches(open_all(files), 20)
    cached_source = open_all(files, cache=tmp_path / "cache")
    for _ in range(2):
        for one, other in zip(plain, first_batches(cached_source, 20), strict=True):
            assert names(one) == names(other)
            assert one.inputs.shape == other.inputs.shape
            for name, rows in one.inputs.main.groups.items():
                assert torch.equal(rows, other.inputs.main.groups[name])
            for field in ("labels", "weights", "num_cut", "num_nan"):
                assert torch.equal(getattr(one, field), getattr(other, field))
            assert torch.equal(one.inputs.main.offsets, other.inputs.main.offsets)
    assert len(list((tmp_path / "cache").rglob("*.safetensors"))) == 3


def test_a_batch_of_several_collections_and_targets_survives_the_cache(tmp_path):
    text = """\
inputs:
  pf_features: {length: 9, vars: [a, b, c, d]}
  pf_vectors: {length: 9, vars: [a, b, c, d]}
  sv_features: {length: 9, vars: [v, w]}
  sv_x: {length: 9, vars: [v]}
  jet: {length: 1, vars: [p, q, r, s, t]}
labels: {type: custom, value: {first: y, second: z}, particles: {o: {collection: sv, value: u, names: [a, b]}}}
"""
    random = torch.Generator().manual_seed(1)
    vertices = Collection(
        torch.randn(3, 2, generator=random), torch.tensor([0, 0, 2, 3]), others={"x": torch.ones(3, 1)}
    )
    particles = Collection(torch.randn(6, 4, generator=random), torch.tensor([0, 1, 4, 6]), torch.randn(6, 4))
    targets = torch.tensor([[1.0, 2.0], [float("nan"), 3.0], [4.0, 5.0]])
    names_of_numbers = ("source_file", "source_entry", "bad", "num_cut", "num_nan")
    per_jet = {name: torch.arange(3) for name in names_of_numbers}
    batch = JetBatch(
        JetInputs({"pf": particles, "sv": vertices}, {"jet": torch.randn(3, 5)}),
        labels=None,
        weights=torch.ones(3),
        targets=targets,
        particle_labels={"o": ParticleClasses(torch.tensor([0, -1, 1]), vertices.offsets)},
        **per_jet,
    )
    cache = BatchCache(tmp_path, parse_record(text, DataConfig, "config"))
    cache.save(tmp_path / "b.safetensors", batch)
    loaded = cache.load(tmp_path / "b.safetensors")
    joined = concatenate([loaded.slice(0, 1), loaded.take(np.array([1, 2]))])
    for other in (loaded, joined):
        assert len(other) == 3
        assert other.labels is None
        torch.testing.assert_close(other.targets, targets, equal_nan=True)
        assert other.inputs.shape == batch.inputs.shape
        assert torch.equal(other.inputs.jet_features["jet"], batch.inputs.jet_features["jet"])
        assert other.inputs.lengths.tolist() == [1, 5, 3]
        assert other.particle_labels["o"].numbers.tolist() == [0, -1, 1]
        assert torch.equal(other.particle_labels["o"].offsets, vertices.offsets)
        for name, collection in batch.inputs.collections.items():
            assert torch.equal(other.inputs.collections[name].offsets, collection.offsets)
            for group, rows in collection.groups.items():
                assert torch.equal(other.inputs.collections[name].groups[group], rows)


def test_the_cache_spares_reading(files, tmp_path, monkeypatch):
    source = open_all(files, cache=tmp_path / "cache")
    index = build_index(source)
    before = list(ordered_batches(source, index, batch_size=100))
    monkeypatch.setattr("partt.data.reading.jet_source.read_variables", None)
    after = list(ordered_batches(source, index, batch_size=100))
    assert all(
        torch.equal(a.inputs.main.features, b.inputs.main.features)
        for a, b in zip(before, after, strict=True)
    )


def test_a_changed_file_or_config_is_not_taken_from_the_cache(files, tmp_path):
    cache = tmp_path / "cache"
    before = read_chunk(open_all(files, cache=cache), 0, 0, 120)
    write_jets(files[0].url, 120, ["QCD"], seed=77)
    after = read_chunk(open_all(files, cache=cache), 0, 0, 120)
    assert not torch.equal(before.inputs.main.offsets, after.inputs.main.offsets)
    selected = read_chunk(
        open_all(files, config_with(tmp_path, selection="jet_nparticles > 20"), cache=cache), 0, 0, 120
    )
    assert len(selected) < len(after)


def test_a_damaged_cache_file_is_made_anew(files, tmp_path):
    source = open_all(files, cache=tmp_path / "cache")
    before = read_chunk(source, 0, 0, 120)
    (path,) = (tmp_path / "cache").rglob("*.safetensors")
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for contents in (whole[:-100], bytes(flipped), b"", b"no such format"):
        source.cache._verified.clear()  # as in a new process
        path.write_bytes(contents)
        assert torch.equal(read_chunk(source, 0, 0, 120).inputs.main.features, before.inputs.main.features)
        assert path.read_bytes() == whole


def test_all_classes_are_known():
    assert load_data_config("jetclass_full").class_names == CLASSES
