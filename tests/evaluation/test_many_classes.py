"""Many classes: seconds, a page of bounded size, tables that fit; figures of the classes that matter."""

import resource

import numpy as np
import pytest

import partt
from partt.cli.evaluate import _shown_columns
from partt.evaluation.jets import scores_from_arrays
from partt.evaluation.shown import MAX_SHOWN, class_colours, shown_classes, shown_curves, shown_discriminants
from partt.pages.style import colour, line
from toy_scores import random_scores

CLASSES = ("QCD", *(f"X{number}" for number in range(187)))


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def found():
    """188 classes, and more jets of the last ones."""
    labels = np.concatenate([np.arange(188), np.repeat(np.arange(180, 188), 40)])
    probabilities = random_scores(len(labels), 0, CLASSES)[0]
    probabilities[np.arange(len(labels)), labels] += 0.05
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    scores = scores_from_arrays(CLASSES, probabilities, labels)
    partt.evaluate(scores_from_arrays(CLASSES[:3], *random_scores(30)))  # imports
    before = cpu_seconds()
    evaluation = partt.evaluate(scores)
    return evaluation, cpu_seconds() - before


def test_188_classes_take_seconds(found):
    evaluation, seconds = found
    assert seconds < 20  # 3 to 5; 0.1 took a minute for the numbers alone
    assert evaluation.table.rows[0].cells[0].low < evaluation.table.rows[0].cells[0].value


def test_the_classes_with_most_jets_are_shown(found):
    classification = found[0].main.classification
    shown = shown_discriminants(classification)
    assert len(shown) == MAX_SHOWN
    assert {f"X{number}_vs_QCD" for number in range(179, 187)} <= set(shown)
    classes = [CLASSES[number] for number in shown_classes(classification)]
    assert len(classes) == MAX_SHOWN
    assert {"QCD", *(f"X{number}" for number in range(179, 187))} <= set(classes)


def test_shown_classes_can_be_told_apart(found):
    classification = found[0].main.classification
    numbers = class_colours(classification)
    names = [CLASSES[number] for number in shown_classes(classification)]
    assert len({(colour(numbers[name]), line(numbers[name])) for name in names}) == MAX_SHOWN
    (curves,) = shown_curves(found[0].models).values()
    assert len({(colour(one.class_number), line(one.class_number)) for one in curves.values()}) == MAX_SHOWN
    for one in curves.values():
        assert numbers[one.discriminant.signal] == one.class_number  # in all figures


def test_the_screen_shows_the_classes_of_the_figures(found):
    columns = [found[0].table.columns[number].title for number in _shown_columns(found[0])]
    assert columns[:2] == ["Accuracy", "AUC"]
    assert len(columns) == 2 + MAX_SHOWN
    assert "X186 Rej 50%" in columns


def test_tables_stand_upright_and_the_page_turns(found, tmp_path, one_figure):
    from partt.evaluation.report import write_report

    write_report(found[0], tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    page = (tmp_path / "report.html").read_text()
    assert page.count('data-rows="20"') == 3  # results, confusions, working points
    assert "Most frequent confusions" in page
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines[0] == "| Model | model |"
    assert max(map(len, lines[:-1])) < 80
    assert r"\begin{tabular}{lr}" in (tmp_path / "table.tex").read_text()
