"""Events become jets through input maps: the same as loops over events, jets and particles."""

import pickle

import awkward as ak
import numpy as np
import pytest
import torch
import uproot

from conftest import FIXTURES
from partt.cli.main import main
from partt.config import parse_record
from partt.data.config.data_config import load_data_config
from partt.data.config.input_map import InputMap, load_input_map
from partt.data.files.lists import InputFile, expand_files
from partt.data.files.tables import inspect_file, write_table
from partt.data.jagged import Jagged, to_awkward
from partt.data.jet_files import count_jets, inspect_jets, open_jets, read_jets
from partt.data.packing import pack
from partt.data.variables import read_variables, require_branches
from partt.errors import DataError
from pfnano import jets_one_by_one, make_pfnano, write_pfnano

PFNANO = load_input_map("pfnano-ak8")
NUM_EVENTS = 20


@pytest.fixture(scope="module")
def pfnano(tmp_path_factory):
    return write_pfnano(tmp_path_factory.mktemp("pfnano") / "pfnano.root", NUM_EVENTS)


def assert_jets(file, expected, names=None):
    """Compare the jets of a file, read in three parts, with jets given one by one."""
    names = names or [name for name in expected[0] if name in file.branches]
    done = 0
    for start, stop in [(0, 7), (7, 7), (7, file.num_entries)]:
        found = read_jets(file, names, start, stop)
        for position, entry in enumerate(found.entries):
            assert start <= entry < stop
            for name in names:
                column, value = found.columns[name], expected[done + position].get(name, [])
                if isinstance(column, Jagged):
                    column = column.contents[column.offsets[position] : column.offsets[position + 1]]
                    np.testing.assert_allclose(column, value, rtol=2e-5, atol=1e-5, err_msg=name)
                else:
                    np.testing.assert_allclose(column[position], value, rtol=2e-5, err_msg=name)
        done += len(found.entries)
    assert done == len(expected) == count_jets(file)


def test_pfnano_is_what_loops_give(pfnano):
    config = load_data_config("jetclass_full").replace(input=PFNANO)
    file = open_jets(InputFile("", str(pfnano)), config)
    assert (file.tree, file.num_entries) == ("Events", NUM_EVENTS)
    assert "Muon_pt" not in file.branches
    expected = jets_one_by_one(make_pfnano(NUM_EVENTS))
    full = max(expected, key=len)
    names = [*full]
    assert set(names) >= {"part_d0err", "part_isPhoton", "jet_energy"}
    assert_jets(file, expected, names)
    sent = pickle.loads(pickle.dumps(file))  # noqa: S301 - as to a worker
    found = read_jets(sent, ["event", "FatJet_nBHadrons", "part_d0err"], 0, NUM_EVENTS)
    assert found.columns["event"].tolist() == (100 + found.entries).tolist()
    assert found.columns["part_d0err"].contents.min() == 0  # no -10 mm


def test_without_the_sentinels_neutral_particles_have_tracks(pfnano):
    file = inspect_jets(str(pfnano), "Events", PFNANO.replace(sentinels={}))
    errors = read_jets(file, ["part_d0err"], 0, NUM_EVENTS).columns["part_d0err"].contents
    assert (errors == -10).mean() > 0.3


@pytest.mark.parametrize("suffix", ["root", "parquet"])
def test_collections_and_lists_of_lists(tmp_path, suffix):
    """Jets with their particles inside: collections of an RNTuple, and parquet."""
    jets = ak.Array(
        [
            [{"pt": 1.0, "c": [{"pt": 0.5}, {"pt": 0.6}]}, {"pt": 2.0, "c": []}],
            [],
            [{"pt": 3.0, "c": [{"pt": 7.0}]}],
        ]
    )
    path = tmp_path / f"events.{suffix}"
    if suffix == "root":
        with uproot.recreate(path) as file:
            file.mkrntuple("Events", {"jet": jets, "run": np.arange(3)})
    else:
        ak.to_parquet(ak.Array({"jet_pt": jets.pt, "jet_c_pt": jets.c.pt, "run": np.arange(3)}), path)
    input_map = InputMap(
        jets="jet", variables={"part_x": "jet_c_pt / jet_pt"}, lists={"part": {"sort_by": "part_x"}}
    )
    file = inspect_jets(str(path), None, input_map)
    found = read_jets(file, ["part_x", "run"], 0, 3)
    assert found.columns["part_x"].lengths.tolist() == [2, 0, 1]
    assert found.columns["part_x"].contents.tolist() == pytest.approx([0.6, 0.5, 7 / 3])
    assert found.columns["run"].tolist() == [0, 0, 2]
    with pytest.raises(DataError, match=r"lists of lists need an input map|no branch"):
        read_jets(inspect_file(str(path)), ["jet_c_pt" if suffix == "parquet" else "jet.c.pt"], 0, 3)


def test_nested_vectors_and_references_that_root_wrote():
    """The same jets as vector<vector<float>>, and as TRefs of Delphes to tracks and towers."""
    vectors = InputMap(
        jets="fatjet", variables={"part_pt": "fatjet_part_pt"}, lists={"part": {"sort_by": "part_pt"}}
    )
    one = inspect_jets(str(FIXTURES / "nested_vectors.root"), None, vectors)
    other = inspect_jets(str(FIXTURES / "delphes.root"), "Delphes", load_input_map("delphes"))
    assert count_jets(one) == count_jets(other) == 18
    for start, stop in [(0, 5), (5, 12)]:
        left = read_jets(one, ["part_pt", "fatjet_pt"], start, stop)
        names = ["part_pt", "jet_pt", "part_px", "part_py", "part_charge", "part_isPhoton", "part_d0err"]
        right = read_jets(other, names, start, stop)
        assert left.entries.tolist() == right.entries.tolist()
        columns = right.columns
        np.testing.assert_array_equal(left.columns["part_pt"].offsets, columns["part_pt"].offsets)
        np.testing.assert_array_equal(left.columns["part_pt"].contents, columns["part_pt"].contents)
        np.testing.assert_array_equal(left.columns["fatjet_pt"], columns["jet_pt"])
        px, py = (ak.sum(to_awkward(columns[name]), axis=1) for name in ("part_px", "part_py"))
        np.testing.assert_allclose(np.hypot(px, py), columns["jet_pt"], rtol=1e-5)
        charged = columns["part_charge"].contents != 0
        np.testing.assert_allclose(columns["part_d0err"].contents, np.where(charged, 0.02, 0), rtol=1e-6)
        assert not (columns["part_isPhoton"].contents[charged]).any()


def test_references_to_a_collection_that_is_not_named():
    known = load_input_map("delphes")
    few = known.replace(
        particles={"EFlowTrack": known.particles["EFlowTrack"]},
        variables={"part_pt": "EFlowTrack_PT"},
        lists={},
    )
    file = inspect_jets(str(FIXTURES / "delphes.root"), None, few)
    with pytest.raises(
        DataError, match=r"entry 1: 42 of 72 references of Constituents lead to no particle of EFlow"
    ):
        read_jets(file, ["part_pt"], 0, 12)


def events_file(path, **columns):
    """Write lists of two events as branches."""
    write_table(path, {name: Jagged(np.concatenate(parts).astype(kind), np.cumsum([0, *map(len, parts)]))
                       for name, (kind, parts) in columns.items()})  # fmt: skip
    return str(path)


def test_sub_jets_by_index_and_particles_that_know_their_jet(tmp_path):
    url = events_file(
        tmp_path / "events.root",
        FatJet_a=(np.int32, [[1, -1], [0]]),
        FatJet_b=(np.int32, [[0, 2], [-1]]),
        SubJet_pt=(np.float32, [[10, 20, 30], [40]]),
        Cand_jetIdx=(np.int32, [[1, 0, 1, -1], []]),
        Cand_pt=(np.float32, [[1, 2, 3, 4], []]),
    )
    input_map = InputMap.model_validate({
        "jets": "FatJet",
        "particles": {"SubJet": {"indices": ["a", "b"]}, "Cand": {"table": "Cand", "jet": "jetIdx"}},
        "variables": {"sub_pt": "SubJet_pt", "part_pt": "Cand_pt"},
    })  # fmt: skip
    found = read_jets(inspect_jets(url, None, input_map), ["sub_pt", "part_pt"], 0, 2).columns
    assert to_awkward(found["sub_pt"]).tolist() == [[20, 10], [30], [40]]
    assert to_awkward(found["part_pt"]).tolist() == [[2], [1, 3], []]


def test_what_leads_nowhere_is_named(tmp_path, pfnano):
    url = events_file(
        tmp_path / "events.root",
        FatJet_pt=(np.float32, [[1], [1]]),
        FatJet_eta=(np.float32, [[1], [1, 2]]),
        PFCands_pt=(np.float32, [[1, 2], [3]]),
        FatJetPFCands_jetIdx=(np.int32, [[0, 0], [0]]),
        FatJetPFCands_pFCandsIdx=(np.int32, [[0, 1], [1]]),
    )
    small = PFNANO.replace(
        variables={"part_pt": "PFCands_pt", "jet_eta": "FatJet_eta"}, lists={}, sentinels={}
    )
    file = inspect_jets(url, None, small)
    with pytest.raises(
        DataError, match=r"entry 1: particles.PFCands of the input map: particle 1 is linked, but"
    ):
        read_jets(file, ["part_pt"], 0, 2)
    with pytest.raises(DataError, match=r"entry 1: FatJet_eta has 2 values, but FatJet_pt has 1"):
        read_jets(file, ["jet_eta"], 0, 2)
    with pytest.raises(
        DataError, match=r"no branch 'part_px' \(which the input map makes from .*PFCands_puppiWeight"
    ):
        read_jets(inspect_jets(url, None, PFNANO), ["part_px"], 0, 2)
    with pytest.raises(DataError, match=r"no collection 'FatJets', .*\(did you mean 'FatJet'\?\)"):
        inspect_jets(str(pfnano), "Events", PFNANO.replace(jets="FatJets"))


@pytest.mark.parametrize("which", ["jetIdx", "pFCandsIdx"])
@pytest.mark.parametrize("kind", [np.uint64, np.int64, np.float32])
def test_positions_that_no_event_has(tmp_path, kind, which):
    """They must not lead to another event, as -1 would that is written without a sign."""
    table = {name: np.zeros((2, 1), kind) for name in ("jetIdx", "pFCandsIdx")}
    table[which][1] = np.inf if kind == np.float32 else np.iinfo(kind).max
    url = events_file(
        tmp_path / "events.root",
        FatJet_pt=(np.float32, [[1], [1]]),
        PFCands_pt=(np.float32, [[1, 2], [3]]),
        **{f"FatJetPFCands_{name}": (kind, values) for name, values in table.items()},
    )
    small = PFNANO.replace(variables={"part_pt": "PFCands_pt"}, lists={}, sentinels={})
    with pytest.raises(DataError, match="entry 1: .* is linked, but the event has only 1"):
        read_jets(inspect_jets(url, None, small), ["part_pt"], 0, 2)


@pytest.mark.parametrize("name", ["PFCands_eta", "FatJetPFCands_eta"])
def test_branches_of_particles_that_disagree(tmp_path, name):
    """Then rows of one branch would be those of other particles in another."""
    url = events_file(
        tmp_path / "events.root",
        FatJet_pt=(np.float32, [[1], [1]]),
        PFCands_pt=(np.float32, [[1, 2], [3]]),
        FatJetPFCands_jetIdx=(np.int32, [[0, 0], [0]]),
        FatJetPFCands_pFCandsIdx=(np.int32, [[0, 1], [0]]),
        **{name: (np.float32, [[1, 2], [3, 4]])},
    )
    variables = {"part_pt": "PFCands_pt", "part_eta": name}
    small = PFNANO.replace(variables=variables, lists={}, sentinels={})
    with pytest.raises(DataError, match=r"entry 1: \w+ has \d values, but \w+ has \d; all branches"):
        read_jets(inspect_jets(url, None, small), ["part_pt", "part_eta"], 0, 2)


def test_a_collection_that_a_file_lacks(tmp_path):
    url = events_file(
        tmp_path / "events.root",
        FatJet_pt=(np.float32, [[1]]),
        FatJetPFCands_jetIdx=(np.int32, [[0]]),
        FatJetPFCands_pFCandsIdx=(np.int32, [[0]]),
    )
    small = PFNANO.replace(variables={"part_i": "FatJetPFCands_pFCandsIdx"}, lists={}, sentinels={})
    with pytest.raises(DataError, match="has no branches PFCands_"):
        read_jets(inspect_jets(url, None, small), ["part_i"], 0, 1)


def test_faults_of_maps():
    with pytest.raises(ValueError, match="no input map 'pfnano'; name one of delphes, pfnano-ak8"):
        load_data_config("jetclass_kin").replace(input="pfnano")
    with pytest.raises(ValueError, match="one of `table`, `references` and `indices`"):
        InputMap.model_validate({"jets": "a", "particles": {"b": {}}, "variables": {}})
    with pytest.raises(ValueError, match=r"no variable is called sv_\.\.\."):
        InputMap.model_validate(
            {"jets": "a", "variables": {"part_x": "y"}, "lists": {"sv": {"sort_by": "y"}}}
        )


def test_a_config_with_a_map_comes_back_equal():
    config = load_data_config("jetclass_kin").replace(input="pfnano-ak8")
    assert config.input == PFNANO
    assert parse_record(config.to_yaml(), type(config), "again") == config


def test_trees_are_named_in_arguments(pfnano, monkeypatch):
    monkeypatch.chdir(pfnano.parent)
    with pytest.raises(
        DataError, match=r"has 2 trees \(Events, Runs\); name one, with --tree or as FILE.root:TREE"
    ):
        inspect_file(str(pfnano))
    (file,) = expand_files([f"QCD:{pfnano}:Events"])
    assert file == InputFile("QCD", str(pfnano), "Events")
    assert expand_files(["pfnano.root:Events"])[0].tree == "Events"
    assert expand_files([str(pfnano)], "Runs")[0].tree == "Runs"
    remote = expand_files(["root://host//a.root:dir/Events"])[0]
    assert (remote.url, remote.tree) == ("root://host//a.root", "dir/Events")
    config = load_data_config("jetclass_kin").replace(treename="tree")  # as in a tagger of other files
    assert open_jets(file, config).tree == "Events"


def test_a_file_whose_name_looks_like_a_tree(tmp_path):
    path = tmp_path / "a.root:b"
    path.touch()
    assert expand_files([str(path)]) == (InputFile("", str(path)),)


@pytest.mark.parametrize("name", ["pfnano-ak8", "delphes"])
def test_events_become_files_of_jets(pfnano, tmp_path, name):
    """`partt convert events`: a training file that plain data configs read, with the same jets as the map gives."""
    source = pfnano if name == "pfnano-ak8" else FIXTURES / "delphes.root"
    assert (
        main(["convert", "events", str(source), "--input", name, "--out", str(tmp_path / "jets.root")]) == 0
    )
    events = inspect_jets(str(source), load_input_map(name).tree, load_input_map(name))
    jets = inspect_file(str(tmp_path / "jets.root"))
    assert jets.num_entries == count_jets(events)
    config = load_data_config("jetclass_full")
    require_branches(config, config.input_names, jets)
    one, other = (
        pack(config, read_variables(config, config.input_names, file, 0, file.num_entries))
        for file in (events, jets)
    )
    for part in ("features", "momenta", "offsets"):
        assert torch.equal(getattr(one.inputs.main, part), getattr(other.inputs.main, part))
    assert not one.bad.any()
