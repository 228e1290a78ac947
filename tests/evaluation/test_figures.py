"""Figures: panels of equal size, the reference on top, an axis close to 1, words where nothing can be drawn."""

import numpy as np
import pytest
from matplotlib.offsetbox import TextArea

import partt
from partt.evaluation.figures.discriminant_spectra import draw_discriminants
from partt.evaluation.figures.experiment_label import labelled
from partt.evaluation.figures.observer_dependence import draw_dependence
from partt.evaluation.figures.roc_curves import ZOOM, draw_roc
from partt.evaluation.log_odds import log_odds
from partt.evaluation.shown import shown_curves
from partt.pages.style import house_style
from toy_scores import random_scores

CLASSES = ("QCD", "Hbb", "Hcc", "Tbl")


def toy(seed: int):
    """Return scores of a tagger that never takes QCD for Hcc."""
    probabilities, labels = random_scores(1200, seed, CLASSES, sharpness=2.5)
    probabilities[labels == CLASSES.index("QCD"), CLASSES.index("Hcc")] = 0
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    pt = np.random.default_rng(seed).uniform(500, 1000, 1200)
    return partt.scores_from_arrays(CLASSES, probabilities, labels, observers={"jet_pt": pt})


@pytest.fixture(scope="module")
def found():
    options = {"preset": "jetclass", "signals": CLASSES[1:], "working_points": ["eps_s=0.5,0.8"]}
    return partt.evaluate(toy(1), name="reference", compare={"other": toy(2)}, **options)


@pytest.fixture(autouse=True)
def style():
    with house_style():
        yield


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_roc_curves_of_two_models(found):
    figure = draw_roc(shown_curves(found.models)).figure
    upper, lower = figure.axes[::2], figure.axes[1::2]
    assert [axes.get_title(loc="left") for axes in upper] == ["Hbb vs QCD", "Hcc vs QCD", "Tbl vs QCD"]
    for panels in (upper, lower):
        sizes = [axes.get_position().size for axes in panels]
        np.testing.assert_allclose(sizes, [sizes[0]] * 3, rtol=1e-3)
    first, second = (line for line in upper[0].get_lines() if len(line.get_xdata()) > 2)
    assert first.get_label() == "reference"
    assert first.get_zorder() > second.get_zorder()
    assert upper[0].get_xlim() == (0, 1)
    np.testing.assert_allclose(upper[2].get_xlim(), -np.log10(1 - np.array(ZOOM)))  # quoted at 99.5 %
    assert texts(upper[1]) == ["no background jet passes"]
    assert texts(lower[1]) == ["fewer than 10 background jets"]
    assert not any(len(line.get_ydata()) for line in lower[1].get_lines())  # none strikes the words through
    assert texts(upper[0]) == texts(lower[0]) == []


def test_small_multiples_against_pt_and_working_points(found):
    (curves, _) = shown_curves(found.models).values()
    figure = draw_dependence(curves, "jet_pt", 0).figure
    assert len(figure.axes) == 2 * len(curves)  # efficiency and rejection of each
    spectra = draw_discriminants(curves).figure.axes
    for axes, one in zip(spectra, curves.values(), strict=True):
        marked = [float(line.get_xdata()[0]) for line in axes.get_lines()]
        thresholds = np.array([found.point.threshold for found in one.working_points])
        np.testing.assert_allclose(marked, log_odds(thresholds))
        assert len(marked) == 2


def test_a_label_leaves_the_panels_as_they_are(found):
    drawing = draw_roc(shown_curves(dict([*found.models.items()][:1])))
    figure = drawing.figure

    def inches():
        return [axes.get_position().size * figure.get_size_inches() for axes in figure.axes]

    before = inches()
    assert labelled(drawing, "") is drawing
    labelled(drawing, "CMS Simulation Preliminary")
    np.testing.assert_allclose(inches(), before)
    words = [(part.get_text(), part._text.get_weight()) for part in figure.findobj(TextArea)]
    assert words[:2] == [("CMS", "bold"), ("Simulation Preliminary", "normal")]
