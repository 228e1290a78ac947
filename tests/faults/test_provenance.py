"""Reports say which tagger made the scores, from the files themselves; scores of two taggers never mix."""

import json

import pytest

import partt
from jets import write_jets
from partt.cli.main import main
from partt.errors import ConfigError, DataError
from partt.evaluation.score_files import open_score_files, read_scores
from prediction_jobs import columns
from small_networks import make_tagger
from toy_scores import write_scores


@pytest.fixture(scope="module")
def taggers():
    return make_tagger("pfn"), make_tagger("gru")


@pytest.fixture(scope="module")
def jets(tmp_path_factory):
    return write_jets(tmp_path_factory.mktemp("provenance") / "jets.root", 60)


# --- predict never replaces scores of another tagger, of other options or inputs ---


@pytest.mark.parametrize("name", ["scores", "scores/a.root", "scores/a.parquet"])
def test_scores_of_another_tagger_are_refused_and_both_are_named(taggers, jets, tmp_path, name):
    out = tmp_path / name
    made = partt.predict(taggers[0], jets, out).outputs[0].path
    before = made.read_bytes()
    shas = [tagger.with_hash().sha256[:12] for tagger in taggers]
    with pytest.raises(ConfigError) as error:
        partt.predict(taggers[1], jets, out)
    assert f"of the tagger {shas[0]} (pfn), not of {shas[1]} (recurrent)" in str(error.value)
    assert "--overwrite" in str(error.value)
    assert made.read_bytes() == before
    partt.predict(taggers[1], jets, out, overwrite=True)
    assert partt.predict(taggers[1], jets, out).outputs[0].was_complete
    with pytest.raises(ConfigError, match="of the tagger"):
        partt.predict(taggers[0], jets, out)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep": ["part_px"]}, r"the option keep = \[\], not \['part_px'\]"),
        ({"apply_selection": True}, "the option apply_selection = False, not True"),
        ({"discriminants": ["Hbb_vs_QCD"]}, r"the option discriminants = \[\], not \['Hbb_vs_QCD'\]"),
        ({"embeddings": True}, "the option embeddings = False, not True"),
    ],
)
def test_scores_with_other_options_are_refused(taggers, jets, tmp_path, options, words):
    partt.predict(taggers[0], jets, tmp_path)
    before = (tmp_path / "jets.root").read_bytes()
    with pytest.raises(ConfigError, match=words):
        partt.predict(taggers[0], jets, tmp_path, **options)
    assert (tmp_path / "jets.root").read_bytes() == before


def test_scores_of_other_inputs_are_refused(taggers, jets, tmp_path):
    others = write_jets(tmp_path / "others.root", 60, seed=1)
    partt.predict(taggers[0], jets, tmp_path / "a.root")
    before = (tmp_path / "a.root").read_bytes()
    with pytest.raises(ConfigError, match=rf"of .*{jets.name}, not of .*others\.root"):
        partt.predict(taggers[0], others, tmp_path / "a.root")
    assert (tmp_path / "a.root").read_bytes() == before


def test_nothing_is_written_if_one_of_many_outputs_is_refused(taggers, tmp_path):
    files = [write_jets(tmp_path / f"{name}.root", 20, seed=number) for number, name in enumerate("abc")]
    partt.predict(taggers[0], files[2], tmp_path / "out")
    with pytest.raises(ConfigError, match=r"c\.root already has other scores"):
        partt.predict(taggers[1], files, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").glob("*.root")) == ["c.root"]


def test_the_flag_on_the_command_line(jets, tmp_path, capsys):
    words = ["predict", "--tagger", "jetclass-small", str(jets), "--out", str(tmp_path / "s.root")]
    assert main(words) == 0
    capsys.readouterr()  # a slow prediction also reports its progress there
    assert main([*words, "--keep", "part_px"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main([*words, "--keep", "part_px", "--overwrite"]) == 0
    assert "part_px" in columns(tmp_path / "s.root")


# --- predict.json keeps a record of every output ---


def test_every_output_in_a_folder_keeps_its_record(taggers, jets, tmp_path):
    for name, tagger in (("a", taggers[0]), ("b", taggers[1]), ("c", taggers[0])):
        partt.predict(tagger, jets, tmp_path / f"{name}.root")
    summary = json.loads((tmp_path / "predict.json").read_text())
    shas = [tagger.with_hash().sha256 for tagger in taggers]
    assert summary["tagger_sha256"] == shas[0]
    assert [entry["output"] for entry in summary["outputs"]] == ["a.root", "c.root"]
    assert summary["balance"]["entries"] == 120
    (other,) = summary["others"]
    assert (other["tagger_sha256"], other["network"]) == (shas[1], "recurrent")
    assert [entry["output"] for entry in other["outputs"]] == ["b.root"]
    partt.predict(taggers[0], jets, tmp_path / "b.root", overwrite=True)
    summary = json.loads((tmp_path / "predict.json").read_text())
    assert [entry["output"] for entry in summary["outputs"]] == ["a.root", "b.root", "c.root"]
    assert summary["others"] == []


def test_a_predict_json_of_somebody_else_is_not_replaced(taggers, jets, tmp_path):
    (tmp_path / "predict.json").write_text('{"mine": true}')
    with pytest.raises(ConfigError, match=r"predict\.json already exists and was not made by partt predict"):
        partt.predict(taggers[0], jets, tmp_path / "a.root")
    assert not (tmp_path / "a.root").exists()
    assert (tmp_path / "predict.json").read_text() == '{"mine": true}'


# --- evaluate believes the files, and nothing else ---


def origin_of(*files):
    (seed,) = open_score_files([str(file) for file in files])
    return read_scores(seed).origin


def test_a_predict_json_says_nothing_about_other_files(taggers, jets, tmp_path):
    partt.predict(taggers[0], jets, tmp_path / "a.root")
    partt.predict(taggers[1], jets, tmp_path / "b.parquet")
    foreign = write_scores(tmp_path / "foreign.root")
    for tagger, name, network in zip(taggers, ("a.root", "b.parquet"), ("pfn", "recurrent"), strict=True):
        origin = origin_of(tmp_path / name)
        assert (origin["tagger_sha256"], origin["network"]) == (tagger.with_hash().sha256, network)
        assert origin["inputs"] == [str(jets.resolve())]
        assert origin["balance"]["entries"] == 60
    assert origin_of(foreign) == {}


@pytest.mark.usefixtures("one_figure")
def test_the_report_names_the_tagger_of_its_files(tmp_path):
    (tmp_path / "predict.json").write_text('{"tagger_sha256": "liar", "network": "liar"}')
    foreign, own = write_scores(tmp_path / "a.root"), write_scores(tmp_path / "b.root", tagger="abc")
    for path, said in ((foreign, {}), (own, {"network": "part", "tagger_sha256": "abc"})):
        out = tmp_path / f"report{len(said)}"
        partt.evaluate(path, out=out, name="m")
        metrics = json.loads((out / "metrics.json").read_text())
        assert said.items() <= metrics["models"]["m"][0]["origin"].items()
        assert not any("liar" in file.read_text() for file in (out / "report.html", out / "metrics.json"))


def test_files_of_two_taggers_are_not_one_model(tmp_path):
    one = write_scores(tmp_path / "one.root", tagger="1" * 64, seed=1)
    other = write_scores(tmp_path / "other.root", tagger="2" * 64, network="pfn", seed=2)
    message = (
        r"one\.root has the scores of the tagger 111111111111 \(part\), .*other\.root of 222222222222 \(pf"
    )
    with pytest.raises(DataError, match=message):
        open_score_files([one, other])
    partt.evaluate(one, name="one", compare={"other": other})


def test_seeds_of_one_network_are_one_model_and_two_networks_are_not(tmp_path):
    """Files with the same jets are seeds, made by several taggers; all files of a seed have the same one."""

    def write(seed: int, jets: int, network: str = "part") -> str:
        path = tmp_path / f"{seed}{jets}{network}.root"
        return write_scores(path, tagger=f"{seed}", network=network, seed=seed, jets_seed=jets)

    a1, b1, a2, b2 = (write(seed, jets) for seed in (1, 2) for jets in (1, 2))
    assert len(open_score_files([a1, b1, a2, b2])) == 2
    with pytest.raises(DataError, match="these are not one model"):
        open_score_files([a1, a2, b2, b1])
    with pytest.raises(DataError, match="these are not one model"):
        open_score_files([a1, write(2, 1, "pfn")])
