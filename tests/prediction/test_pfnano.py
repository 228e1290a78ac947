"""Events from files to lists of scores: the same as jets one by one; nothing lost, ready as a friend."""

import json

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import uproot

from conftest import ROOT
from forked_commands import run_partt
from partt.cli.main import main
from partt.data.training_domain import JET_PT, Domain, Excess, warnings_of
from partt.tagger.loading import load_tagger
from partt.tagger.tagger_file import save_tagger
from pfnano import jets_one_by_one, make_pfnano, write_pfnano
from small_networks import make_tagger

NUM_EVENTS = 20
INPUT = ["--input", "pfnano-ak8"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with events, and a tagger of jets that knows nothing of them."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("events")
    write_pfnano(folder / "pfnano.root", NUM_EVENTS)
    save_tagger(folder / "tagger.safetensors", make_tagger("part_xs", "jetclass_full", neutral=True))
    return folder


@pytest.fixture
def folder(files, monkeypatch, tmp_path):
    """Enter a folder with links to the files."""
    for name in ("pfnano.root", "tagger.safetensors"):
        (tmp_path / name).symlink_to(files / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def expected_scores():
    jets = jets_one_by_one(make_pfnano(NUM_EVENTS))
    full = max(jets, key=len)
    complete = [{name: jet.get(name, np.empty(0)) for name in full} for jet in jets]
    return load_tagger("tagger.safetensors")(ak.Array(complete)).Hbb


@pytest.mark.parametrize("suffix", ["root", "parquet"])
def test_a_row_is_an_event_with_the_scores_of_its_jets(folder, capsys, suffix):
    words = ["--out", f"scores/pfnano.{suffix}", "--keep", "FatJet_msoftdrop", "--threads", "1"]
    assert main(["predict", "--tagger", "tagger.safetensors", "pfnano.root", *INPUT, *words]) == 0
    events = make_pfnano(NUM_EVENTS)
    num_jets = int(ak.count(events["FatJet"].pt))
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()]
    assert ["events", "in", str(NUM_EVENTS)] in rows
    assert ["jets", "in", str(num_jets)] in rows
    path = f"scores/pfnano.{suffix}"
    if suffix == "root":
        with uproot.open(path) as file:
            found = file["tree"].arrays()
    else:  # without option types; coffea's reader needs the counter, and leaves out texts, which it cannot read
        found = ak.from_parquet(path)
        assert "?" not in str(found.type)
        assert "option" not in str(found.type)
        schema = pq.read_schema(path)
        form = json.loads(schema.field("source_file").metadata[b"form"])
        assert form["class"] not in {"NumpyArray", "ListOffsetArray"}
    assert ak.all(found.nFatJet == ak.num(events["FatJet"]))
    assert ak.num(found.FatJet_score_Hbb).tolist() == ak.num(events["FatJet"]).tolist()
    assert 0 in ak.num(found.FatJet_score_Hbb)  # an event without jets is a row, too
    np.testing.assert_allclose(ak.flatten(found.FatJet_score_Hbb), expected_scores(), atol=1e-4)
    assert found.event.tolist() == events["event"].tolist()
    assert ak.all(found.FatJet_msoftdrop == events["FatJet"].msoftdrop)
    assert found.source_entry.tolist() == list(range(NUM_EVENTS))
    summary = json.loads((folder / "scores" / "predict.json").read_text())
    assert summary["balance"]["events"] == NUM_EVENTS
    assert summary["balance"]["entries"] == num_jets == summary["balance"]["scored"]
    assert main(["predict", "--tagger", "tagger.safetensors", "pfnano.root", *INPUT, *words]) == 0
    assert "already complete" in capsys.readouterr().out


def test_what_outputs_of_events_cannot_have(folder, capsys):
    command = ["predict", "--tagger", "tagger.safetensors", "pfnano.root", "--out", "scores"]
    for words, message in [
        ([*INPUT, "--apply-selection"], "an event keeps all its jets"),
        ([*INPUT, "--embeddings"], "outputs of events have single numbers"),
        ([], "has 2 trees (Events, Runs); name one, with --tree"),
        (["--tree", "Events"], "lacks branches that the data config needs: jet_energy"),
        (["--input", "pfnano"], "partt ships no input map 'pfnano' (did you mean 'pfnano-ak8'?)"),
    ]:
        assert main([*command, *words]) in {2, 3}
        assert message in capsys.readouterr().err
    assert main([*command, *INPUT, "--keep", "PFCands_pt", "--threads", "1"]) == 0
    assert "PFCands_pt (a list of particles for each jet)" in capsys.readouterr().out


CONFIG = """
input: pfnano-ak8
new_variables:
  part_log: np.log(part_energy)
  label_b: FatJet_nBHadrons > 0
  label_light: FatJet_nBHadrons == 0
inputs:
  pf_features:
    length: 32
    vars: [part_log, part_d0err]
  pf_vectors:
    length: 32
    vars: [[part_px, null], [part_py, null], [part_pz, null], [part_energy, null]]
labels:
  type: simple
  value: [label_b, label_light]
observers: [jet_pt, FatJet_msoftdrop, run]
"""
RECIPE = """
data_config: config.yaml
model: {name: pfn, settings: {particle_widths: [8], jet_widths: [8]}}
optimizer: {name: adamw, lr: 1e-3}
schedule: {name: constant}
epochs: 1
batch_size: 32
"""


def test_from_events_to_a_report(folder, one_figure, capsys):
    """Check, train, predict and evaluate read events through the same map, which the tagger keeps."""
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "recipe.yaml").write_text(RECIPE)
    write_pfnano(folder / "train.root", 150, seed=1)
    assert main(["check", "config.yaml", "train.root"]) == 0
    trained = run_partt(
        [
            "train",
            "recipe.yaml",
            "--train",
            "train.root",
            "--val-fraction",
            "0.3",
            "--out",
            "run",
            "--workers",
            "0",
        ]
    )
    assert trained.returncode == 0
    tagger = load_tagger("run")
    assert tagger.data_config.input is not None
    assert tagger.domain is not None
    assert tagger.domain.quantiles["part_d0err"][0] == 0
    assert 10 < tagger.domain.quantiles[JET_PT][4] < 100  # of some ten random particles
    capsys.readouterr()
    assert main(["predict", "--tagger", "run", "train.root", "--out", "scores", "--threads", "1"]) == 0
    assert "warning" not in capsys.readouterr().out
    assert (
        main(["evaluate", "scores/train.root", "--signal", "b", "--background", "light", "--out", "report"])
        == 0
    )
    numbers = json.loads((folder / "report" / "metrics.json").read_text())
    events = make_pfnano(150, seed=1)
    assert str(int(ak.count(events["FatJet"].pt))) in json.dumps(numbers)


def test_jets_outside_of_the_training_domain(folder, capsys):
    tagger = make_tagger("pfn", "jetclass_full", neutral=True)
    quantiles = {
        JET_PT: [900 + 10.0 * number for number in range(9)],
        "part_charge": [-1.0] * 4 + [0.0] + [1.0] * 4,
    }
    known = Domain(num_jets=100, quantiles=quantiles)
    object.__setattr__(tagger, "domain", known)
    save_tagger("known.safetensors", tagger)
    assert load_tagger("known.safetensors").domain == known
    assert main(["predict", "--tagger", "known.safetensors", "pfnano.root", *INPUT, "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("jet pT: 100.0 % of") == 1
    assert "outside 910 to 970, the range of 99.8 % of the training jets" in printed
    assert "part_charge" not in printed
    (text,) = warnings_of(known, {JET_PT: Excess(2, 2, smallest=4e5, largest=9e5)})
    assert text.endswith("(here 4e+05 to 9e+05; these look like MeV)")
    assert main(["check", "--for", "known.safetensors", "pfnano.root", *INPUT, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["domain"][JET_PT]["outside"] == 1
    assert report["domain"]["part_charge"]["outside"] == 0
    assert report["domain"]["part_charge"]["here"][0] == -1
    assert main(["check", "--for", "known.safetensors", "pfnano.root", *INPUT]) == 0
    tables = capsys.readouterr().out.partition("warning")[0]
    assert max(map(len, tables.splitlines())) <= 80
    num_jets = str(int(ak.count(make_pfnano(NUM_EVENTS)["FatJet"].pt)))
    assert ["(all)", "1", str(NUM_EVENTS), str(NUM_EVENTS), num_jets, num_jets] in map(
        str.split, tables.splitlines()
    )
    assert main(["check", "--for", "tagger.safetensors", "pfnano.root", *INPUT]) == 0
    assert "tagger.safetensors does not say which values it was trained on" in capsys.readouterr().out
    assert main(["check", "jetclass_full", "pfnano.root", "--for", "known.safetensors"]) == 2
    assert "the data config is that of the tagger; leave out jetclass_full" in capsys.readouterr().err


def test_check_names_sentinels_and_negative_errors(folder, capsys):
    text = (ROOT / "input_maps" / "pfnano-ak8.yaml").read_text()
    (folder / "raw.yaml").write_text(text.replace("[-1, 0]", "[-1, -1]"))
    (folder / "half.yaml").write_text(text.replace("part_d0err: 10", "part_d0err: -10"))
    write_pfnano(folder / "more.root", 60)
    for name, messages in [
        ("pfnano-ak8", []),
        (
            "raw.yaml",
            [("part_d0err", "of the values are exactly -10: a sentinel"), ("part_dzval", "exactly -10")],
        ),
        ("half.yaml", [("part_d0err", "negative (down to -0.")]),
    ]:
        assert (
            main(["check", "jetclass_full", "more.root", "--for", "predict", "--input", name, "--json"]) == 0
        )
        findings = json.loads(capsys.readouterr().out)["findings"]
        values = [item for item in findings if item["where"].startswith("part_")]
        assert len(values) >= len(messages)
        assert bool(values) == bool(messages)
        for where, message in messages:
            assert any(item["where"] == where and message in item["text"] for item in values)
