"""The shipped taggers load by name, and perform as their model cards say."""

import json
import math

import numpy as np
import pytest
import torch

import partt
from conftest import ROOT
from partt.cli.main import main
from partt.data.config.data_config import load_data_config
from partt.tagger.shipped import shipped_taggers, tagger_facts
from partt.training.fine_tuning import weights_to_start_from
from partt.training.recipe import load_recipe

NAMES = list(shipped_taggers())


def test_shipped_taggers_are_small():
    assert NAMES == ["jetclass-200k", "jetclass-small"]
    assert all(file.stat().st_size < 1_500_000 for file in shipped_taggers().values())


@pytest.mark.parametrize("name", NAMES)
def test_the_facts_are_about_this_file(name):
    assert partt.load_tagger(name).sha256 == tagger_facts(name).tagger_sha256


@pytest.mark.parametrize("name", NAMES)
def test_the_card_has_the_same_numbers(name):
    facts = tagger_facts(name)
    page = (ROOT / facts.page).read_text()
    accuracy = f"{facts.accuracy.value:.4f} ± {facts.accuracy.error:.4f}"
    assert f"| accuracy | {accuracy} on {facts.test_jets:,} simulated jets |" in page
    assert f"| training | {facts.training_jets:,} |" in page
    assert facts.tagger_sha256 in page


@pytest.mark.parametrize("name", NAMES)
def test_no_set_shares_jets_with_another_or_with_the_sample(name):
    sample = json.loads((ROOT / "partt" / "sample" / "simulation.json").read_text())["settings"]["--seed"]
    seeds = [sample, *(seed for seeds in tagger_facts(name).simulation_seeds.values() for seed in seeds)]
    assert len(seeds) == len(set(seeds))


@pytest.mark.parametrize("name", NAMES)
def test_the_accuracy_on_the_sample_is_that_of_the_card(name, tmp_path):
    """Three standard errors: the binomial one of the 900 jets (some 0.015) and that of the card, added in squares."""
    partt.predict(name, partt.sample_files(), tmp_path, num_threads=1)
    found = partt.evaluate(f"{tmp_path}/*.root").main
    facts = tagger_facts(name)
    num_jets = sum(found.num_jets.values())
    assert num_jets == 900
    expected = facts.accuracy.value
    error = math.hypot(math.sqrt(expected * (1 - expected) / num_jets), facts.accuracy.error)
    assert abs(found.classification.predictions.accuracy - expected) < 3 * error


@pytest.mark.parametrize("name", NAMES)
def test_partt_taggers_lists_what_it_ships(name, capsys):
    assert main(["taggers"]) == 0
    shown = capsys.readouterr().out
    facts = tagger_facts(name)
    for text in (
        f"{name}\n",
        "part_s, 255,392 parameters",
        "QCD, Hbb, Hcc, Hgg, H4q, Hqql, Zqq, Wqq, Tbqq, Tbl",
        "part_dzerr, part_deta, part_dphi",
        f"{facts.training_jets:,} simulated jets",
        f"{facts.accuracy.value:.4f} ± {facts.accuracy.error:.4f} on {facts.test_jets:,} other",
        f"docs/taggers/{name}.md",
    ):
        assert text in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_training_can_start_from_a_name():
    recipe, config = load_recipe("jetclass_part_s"), load_data_config("jetclass_full")
    initial = weights_to_start_from("jetclass-small", recipe, config)
    assert initial.heads == "including the last layer"
    state = partt.load_tagger("jetclass-small").network.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in initial.tensors.items())
    assert np.isfinite([float(tensor.double().sum()) for tensor in initial.tensors.values()]).all()


def test_export_weaver_takes_a_name(tmp_path, capsys):
    assert main(["export-weaver", "jetclass-small", "--out", str(tmp_path / "w.pt")]) == 3
    assert "weaver-core has no such network" in capsys.readouterr().err
