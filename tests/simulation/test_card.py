"""The detector card: what is refused, and that a changed card changes the detector."""

import numpy as np
import pytest
import yaml
from simulate_helpers import DETECTOR, gun

from partt.errors import ConfigError
from partt.simulation.card import DEFAULT_CARD, Detector, load_detector
from partt.simulation.detector.response import DetectorModel

TABLE = DEFAULT_CARD.with_name("jetclass_impact_parameters.csv")


def changed(tmp_path, change, table=None):
    """Write the default card with a change, and its table beside it."""
    card = yaml.safe_load(DEFAULT_CARD.read_text())
    change(card)
    path = tmp_path / "card.yaml"
    path.write_text(yaml.safe_dump(card))
    (tmp_path / TABLE.name).write_text(TABLE.read_text() if table is None else table)
    return path


def test_a_copy_of_the_default_is_the_same_detector(tmp_path):
    copy = load_detector(changed(tmp_path, lambda card: None))
    assert copy == DETECTOR
    assert copy.fingerprint == DETECTOR.fingerprint


def test_the_table_is_the_published_one(reference):
    assert TABLE.read_bytes() == (reference.parent / "jetclass-impact-parameter-resolution.csv").read_bytes()


def test_each_change_changes_the_fingerprint(tmp_path):
    def other_field(card):
        card["solenoid"]["field"] = 2.0

    rounder = TABLE.read_text().replace("0.3543", "0.3544")
    prints = {
        DETECTOR.fingerprint,
        load_detector(changed(tmp_path, other_field)).fingerprint,
        load_detector(changed(tmp_path, lambda card: None, rounder)).fingerprint,
    }
    assert len(prints) == 3


def set_key(*keys, value):
    def change(card):
        for key in keys[:-1]:
            card = card[key]
        card[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_key("solenoid", "radius", value=-1.0), r"solenoid\.radius.*greater than 0"),
        (set_key("solenoid", "feild", value=1.0), "unknown key"),
        (set_key("tracking", "muon", 0, "efficiency", value=1.2), r"tracking\.muon\[0\]\.efficiency"),
        (set_key("tracking", "muon", 0, "pt", value=[2.0, 1.0]), "lower bound"),
        (set_key("ecal", "energy_min", value="0.5"), r"ecal\.energy_min"),
        (set_key("ecal", "cells", 0, "to", value=4.0), "edges must increase"),
        (set_key("hcal", "cells", 0, "edges", value=[1.0]), "either edges"),
        (set_key("hcal", "energy_share", 22, value=1.5), "energy_share"),
        (set_key("impact_parameter_table", value="nowhere.csv"), "nowhere.csv"),
    ],
)
def test_a_wrong_card_is_refused_with_the_key(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        load_detector(changed(tmp_path, change))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "first line"),
        ("a,b\n", "first line"),
        (TABLE.read_text() + "0.0,0.9\n", ":104: expected 6 numbers"),
        (TABLE.read_text() + "0.0,0.9,1.0,2.0,x,0.1\n", ":104: expected 6 numbers"),
        (TABLE.read_text() + "0.9,0.0,1.0,2.0,0.1,0.1\n", "lower bound"),
        (TABLE.read_text() + "0.0,0.9,1.0,2.0,-0.1,0.1\n", "not negative"),
    ],
)
def test_a_wrong_table_is_refused_with_the_line(tmp_path, table, message):
    with pytest.raises(ConfigError, match=message):
        load_detector(changed(tmp_path, lambda card: None, table))


def test_a_missing_card(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        load_detector(tmp_path / "none.yaml")


def test_the_detector_follows_its_card(tmp_path):
    """No tracking for muons: none is seen; a stronger field bends tracks more."""
    blind = load_detector(changed(tmp_path, set_key("tracking", "muon", value=[])))
    muons = gun([(13, 10.0, 0.5, 0.3)], 100)
    assert len(DetectorModel(blind).respond(muons, np.random.default_rng(1))) == 0
    assert len(DetectorModel(DETECTOR).respond(muons, np.random.default_rng(1))) > 90

    def bend(detector: Detector) -> float:
        stable = DetectorModel(detector)._stable_particles(muons)
        return abs(stable.end_phi[0] - 0.3)

    strong = load_detector(changed(tmp_path, set_key("solenoid", "field", value=7.6)))
    assert bend(strong) == pytest.approx(2 * bend(DETECTOR), rel=0.01)
