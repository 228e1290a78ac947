"""`partt explain` and `partt show` from end to end, and their page in a real Chromium."""

import json

import awkward as ak
import numpy as np
import pytest
import torch
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from test_report_in_browser import SWITCHES

import partt
from jets import CLASSES, make_jets
from partt.cli.main import main
from partt.data.config.data_config import load_data_config
from partt.data.config.input_map import load_input_map
from partt.data.config.labels import Labels
from partt.data.config.sections import GroupSection
from partt.data.files.tables import write_table
from partt.data.jagged import Jagged
from partt.errors import ConfigError, DataError
from partt.explanation import explanation_page
from partt.explanation.displayed_jets import show
from partt.explanation.explain import ExplainLimits, explain
from partt.explanation.explanation_page import draw_figures
from partt.pages.style import house_style
from partt.tagger.ensemble import Ensemble
from partt.tagger.tagger_file import save_tagger
from pfnano import make_pfnano, write_pfnano
from small_networks import make_tagger

EVIL = "</script><script>document.title='hacked'</script>"
EVIL_BRANCH = "part_<img src=x onerror=alert(1)>"
LIMITS = ExplainLimits(jets=120, gradients=9, attention=20, ablation=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("explain")


@pytest.fixture(scope="module")
def jets(folder):
    table = make_jets(130, ("QCD", "Hbb", "Tbl"), seed=5, max_particles=60)
    labels = np.array([table[f"label_{name}"] for name in CLASSES])
    more = {EVIL_BRANCH: table["part_dzerr"], "truth": labels.argmax(axis=0)}
    write_table(folder / "jets.root", {**table, **more})
    return str(folder / "jets.root")


@pytest.fixture(scope="module")
def hostile():
    """Return a tagger with a class and a feature whose names are markup."""
    config = load_data_config("jetclass_full")
    features = config.inputs["pf_features"].model_dump()
    features["vars"] = [
        [EVIL_BRANCH, None],
        *([variable.name, None] for variable in config.particles.variables[:8]),
    ]
    return make_tagger(
        "part",
        "jetclass_full",
        settings={"num_blocks": 2},
        reference_jets={**(table := make_jets(3)), EVIL_BRANCH: table["part_dzerr"]},
        inputs={**config.inputs, "pf_features": GroupSection.model_validate(features)},
        labels=Labels.model_validate(
            {"type": "custom", "value": {"truth": "truth"}, "names": ["QCD", EVIL, *CLASSES[2:]]}
        ),
    )


@pytest.fixture(scope="module")
def explained(folder, jets, hostile):
    with pytest.MonkeyPatch.context() as patch:  # one figure: all take ten seconds
        patch.setattr(explanation_page, "draw_figures", lambda found: list(draw_figures(found))[:1])
        return explain(hostile, jets, out=folder / "page", limits=LIMITS, command="partt explain <b>x</b>")


@pytest.fixture(scope="module")
def page(folder, explained):
    return folder / "page" / "explanation.html"


def test_the_folder_has_every_number(page, explained):
    found = json.loads((page.parent / "explanation.json").read_text())
    names = [row["name"] for row in found["permutation_importance"]]
    assert {"kinematics", "four-momenta", "particles below 1 GeV", EVIL_BRANCH} <= set(names)
    assert found["attention"]["heads"]["blocks"] == ["block 1", "block 2"]
    assert np.shape(found["integrated_gradients"]["mean_absolute"]) == (10, 9)
    assert len(found["ablation"]["heads"]) == found["ablation"]["num_heads"] == 12
    assert found["tagger"]["sha256"] == explained.sha256
    assert explained.left_out == {}
    for name in found["about"]["files"]:
        assert (page.parent / name).stat().st_size > 0
    assert set(found["about"]["files"]) == {
        "explanation.html",
        "figures/importance.pdf",
        "figures/importance.png",
    }


def test_every_result_has_its_figure(explained):
    with house_style():
        names = [drawing.name for drawing in draw_figures(explained)]
    assert names == ["importance", "gradients", "heads", "attended", "subjets", "ablation", "embedding"]


def test_the_same_jets_give_the_same_numbers(hostile, jets, explained):
    again = explain(hostile, jets, limits=LIMITS, num_threads=2)
    for one, other in zip(again.importances, explained.importances, strict=True):
        assert one.losses.area == other.losses.area
    np.testing.assert_array_equal(again.gradients.means, explained.gradients.means)
    np.testing.assert_array_equal(again.attention.attended[0].values, explained.attention.attended[0].values)


@pytest.fixture(scope="module")
def browser(chromium_programs, page):
    program, driver_program = chromium_programs
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_program))
    driver.get(page.as_uri())
    yield driver
    driver.quit()


def test_pointing_at_a_particle_shows_its_features(browser):
    tip = browser.find_element(By.ID, "particle")
    assert not tip.is_displayed()
    particle = browser.find_elements(By.CSS_SELECTOR, "#plane .particle")[-1]  # the last is in front
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", particle)
    ActionChains(browser).move_to_element(particle).perform()
    assert tip.is_displayed()
    first, *features = tip.text.splitlines()
    assert "GeV" in first
    assert features[0].startswith(f"{EVIL_BRANCH} = ")
    assert "adds " in features[0]
    assert len(features) == 9
    ActionChains(browser).move_to_element(browser.find_element(By.ID, "jet-facts")).perform()
    assert not tip.is_displayed()


def test_switches_draw_another_jet_block_head_and_area(browser):
    def links():
        return browser.execute_script(
            "return [...document.querySelectorAll('#plane .link')].map(line => line.outerHTML).join()"
        )

    def areas():
        return browser.execute_script(
            "return [...document.querySelectorAll('#plane .particle')].map(circle => circle.outerHTML).join()"
        )

    jet, block, head, area = (
        Select(browser.find_element(By.ID, name)) for name in ("jet", "block", "head", "area")
    )
    assert [option.text for option in block.options] == ["block 1", "block 2"]
    assert [option.text for option in head.options] == ["mean of all", "1", "2", "3", "4"]
    drawn = {links()}
    head.select_by_index(2)
    drawn.add(links())
    block.select_by_index(1)
    drawn.add(links())
    assert len(drawn) == 3
    before = areas()
    area.select_by_index(2)
    assert areas() != before
    facts = browser.find_element(By.ID, "jet-facts").text
    jet.select_by_index(1)
    assert browser.find_element(By.ID, "jet-facts").text != facts
    assert block.first_selected_option.text == "block 2"


def test_names_stay_text(browser):
    assert browser.title == "part: explanation"
    assert EVIL in browser.find_element(By.CSS_SELECTOR, ".facts td").text
    assert f"most certain {EVIL}" in browser.find_element(By.ID, "jet").text
    assert not browser.find_elements(By.CSS_SELECTOR, "img[src=x], b")
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 2


def test_nothing_is_fetched_and_nothing_complains(browser, page):
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert {url for url in requests if not url.startswith("data:")} == {page.as_uri()}


# --- other taggers, and wrong arguments -------------------------------------------------------------------


def test_what_a_network_cannot_give_is_left_out_with_a_word(jets):
    found = explain(make_tagger("pfn", "jetclass_full"), jets, limits=LIMITS)
    assert found.attention is None
    assert found.ablations is None
    assert found.left_out == {"attention, ablation of heads and blocks": "a pfn does not give its attention"}
    assert found.gradients is not None
    assert found.embedding is not None
    assert len(found.displays) == 3 + 4
    assert found.displays[0].attention is None


def test_exported_taggers_have_permutation_importance(exported, jets):
    from partt.tagger.loading import load_tagger

    tagger, result = exported("pfn")
    found = explain(load_tagger(result.path), jets, limits=LIMITS)
    assert {"integrated gradients", "attention", "ablation", "embedding"} == set(found.left_out)
    names = {one.change.name for one in found.importances if one.change.kind == "feature"}
    assert {"part_px", "jet_pt", "part_d0val"} <= names  # branches: the file computes the features itself
    losses = {one.change.name: one.losses for one in found.importances}
    of_torch = explain(tagger, jets, limits=LIMITS)
    in_torch = {one.change.name: one.losses for one in of_torch.importances}
    cut = "particles below 5 GeV"
    assert losses[cut].area.loss == pytest.approx(in_torch[cut].area.loss, abs=1e-4)
    assert losses["part_charge"].area.before == pytest.approx(of_torch.area, abs=1e-4)


def test_show_draws_jets_and_names_what_is_wrong(tmp_path, jets, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tagger("small.safetensors", make_tagger("part", "jetclass_kin"))
    assert main(["show", "small.safetensors", jets, "--entry", "7"]) == 0
    assert capsys.readouterr().out.split() == ["jets_7.png", "jets_7.pdf"]
    assert (tmp_path / "jets_7.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "jets_7.pdf").write_text("mine")
    assert main(["show", "small.safetensors", jets, "--entry", "7"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["show", "small.safetensors", jets, "--entry", "130"]) == 3
    assert "has no entry 130: it has 130, counted from 0" in capsys.readouterr().err
    assert main(["show", "small.safetensors", jets]) == 2
    assert "give either --entry or --selection" in capsys.readouterr().err
    assert main(["show", "small.safetensors", jets, "--selection", "jet_ptt > 3"]) == 2
    assert "did you mean 'jet_pt'" in capsys.readouterr().err
    assert (
        main(["show", "small.safetensors", jets, "--selection", "jet_nparticles > 50", "--out", "more"]) == 0
    )
    assert len(list((tmp_path / "more").iterdir())) == 2


def test_each_jet_of_an_event_has_its_picture(tmp_path):
    write_pfnano(tmp_path / "events.root")
    num_jets = ak.num(make_pfnano()["FatJet"].pt).tolist()
    one, several = num_jets.index(1), num_jets.index(3)
    tagger = make_tagger("part_xs", "jetclass_full", neutral=True, input=load_input_map("pfnano-ak8"))
    paths = show(tagger, tmp_path / "events.root", [several, one, several], out=tmp_path)
    names = [*(f"events_{several}_{number}" for number in (1, 2, 3)), f"events_{one}"]
    assert [path.name for path in paths] == [
        f"{name}.{suffix}" for name in names for suffix in ("png", "pdf")
    ]
    assert len({path.read_bytes() for path in paths}) == 8


@pytest.mark.parametrize("most", [1, 3])
def test_jets_of_few_particles(tmp_path, most):
    """Too few for some statistics, or for all of attention: then there are no empty figures, and no warning."""
    table = make_jets(30, ("QCD", "Hbb"), seed=1)
    names = [name for name in table if name.startswith("part_")]
    offsets = np.concatenate([[0], np.cumsum(np.arange(30) % (most + 1))])
    table |= {name: Jagged(table[name].contents[: offsets[-1]], offsets) for name in names}
    write_table(tmp_path / "jets.root", table)
    found = explain(make_tagger("part", "jetclass_full"), tmp_path / "jets.root", limits=LIMITS)
    with house_style():
        drawn = [drawing.name for drawing in draw_figures(found)]
    assert ("heads" in drawn) == (most == 3)
    assert "attended" not in drawn
    assert found.left_out == ({"attention": "no jet has two particles"} if most == 1 else {})


def test_wrong_arguments_are_named(tmp_path, jets, hostile):
    with pytest.raises(ConfigError, match="ensemble of 2 x pfn: its members .* give one of them"):
        explain(Ensemble((make_tagger("pfn"), make_tagger("pfn"))), jets)
    with pytest.raises(ConfigError, match="no input 'part_dzer'"):
        explain(make_tagger("pfn"), jets, groups={"some": ["part_dzer"]})
    unlabelled = {name: column for name, column in make_jets(5).items() if not name.startswith("label_")}
    write_table(tmp_path / "unlabelled.root", unlabelled)
    with pytest.raises(DataError, match="unlabelled.root.* has no labels .*partt show"):
        explain(make_tagger("pfn"), tmp_path / "unlabelled.root")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "explanation.html").write_text("mine")
    with pytest.raises(ConfigError, match="was not made by partt explain"):
        explain(hostile, jets, out=tmp_path / "out")
    assert main(["explain", "jetclass-small", jets, "--group", "x"]) == 2


def test_the_report_of_a_run_links_to_its_explanation(tmp_path, folder, page, jets, hostile, one_figure):
    from partt.pages.explanation_link import explanation_link

    sha256 = json.loads((page.parent / "explanation.json").read_text())["tagger"]["sha256"]
    assert explanation_link(page.parent, folder / "report x", sha256) == "../page/explanation.html"
    assert explanation_link(page.parent, folder, "another") is None
    assert explanation_link(tmp_path, folder, sha256) is None
    run = tmp_path / "run"
    run.mkdir()
    (run / "explanation").symlink_to(page.parent)
    (run / "metrics.jsonl").write_text("")
    partt.predict(hostile, [jets], tmp_path / "scores.root")
    partt.evaluate(tmp_path / "scores.root", out=tmp_path / "report", run_folder=run)
    assert 'href="../run/explanation/explanation.html"' in (tmp_path / "report" / "report.html").read_text()
    assert torch.is_grad_enabled()
