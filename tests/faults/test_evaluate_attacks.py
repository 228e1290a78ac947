"""Seeded attacks on the inputs of evaluation: weights, scores, labels, names, bins; a result or one clear line.

PARTT_ATTACKS sets how many there are; thousands are for a quiet hour.
"""

import csv
import io
import json
import os
import time

import numpy as np
import pytest

import partt
from attacks import bounded_memory
from partt.cli.main import main
from partt.data.files.tables import write_table
from partt.errors import ConfigError, DataError
from partt.evaluation.corrections import to_correctionlib
from partt.evaluation.evaluate import evaluate
from partt.evaluation.jets import needed_columns, scores_from_arrays
from partt.evaluation.json_files import metrics_json, working_points_json
from partt.evaluation.regression_formats import (
    regressions_csv,
    regressions_latex,
    regressions_markdown,
    shown_rows,
)
from partt.evaluation.report import draw_figures, render
from partt.evaluation.table_formats import to_csv, to_latex, to_markdown
from partt.model.tasks import Task
from partt.pages.style import arrange, house_style

NUM_ATTACKS = int(os.environ.get("PARTT_ATTACKS", "200"))
DRAWN = 25  # one attack of so many has its figures drawn
NAMES = ("QCD", "_hidden", "=1+1", "@cmd", "-x", "+y", "$a$", "$", r"\frac{", "<script>", "a|b", "a,b", "%", "é", "日本",
         "label_A", "score_", "vs", "A_vs_B", "{{7*7}}", "'", '"', "#", "~^&_", " ", "0", "nan", "x" * 200)  # fmt: skip
WORKING_POINTS = (["eps_s=0.5", "eps_b=0.01"], [], ["eps_s=0.999999"], ["eps_b=nan"])
MODELS = (None, "=HYPERLINK()", "_m", "x" * 100_000, "a\nb")
BAD_NAMES = ("", "\n", "a\x00b", "\udcff", "\u202eevil", "x" * 201, "x" * 100_000)


def weights_of(random: np.random.Generator, num_jets: int):
    kind = random.integers(0, 14)
    return {
        0: lambda: None,
        1: lambda: random.normal(0.1, 1, num_jets),
        2: lambda: random.normal(-0.1, 1, num_jets),
        3: lambda: np.zeros(num_jets),
        4: lambda: np.full(num_jets, 1e38, dtype=np.float32),
        5: lambda: random.exponential(1, num_jets) * 1e300,
        6: lambda: random.exponential(1, num_jets) * 1e-300,
        7: lambda: np.where(random.uniform(size=num_jets) < 0.5, 1.0, -1.0),
        8: lambda: np.where(random.uniform(size=num_jets) < 0.3, np.nan, np.inf),
        9: lambda: np.where(random.uniform(size=num_jets) < 0.3, np.nan, 2.0).astype(np.float16),
        10: lambda: random.integers(0, 255, num_jets).astype(np.uint8),
        11: lambda: np.where(np.arange(num_jets) == 0, 1e30, 1e-30),
        12: lambda: random.exponential(1, num_jets).astype(np.float32),
        13: lambda: random.uniform(size=num_jets) < 0.5,
    }[int(kind)]()


def scores_like(random: np.random.Generator, labels, num_classes: int):
    num_jets, kind = len(labels), random.integers(0, 9)
    logits = random.normal(size=(num_jets, num_classes)) + 1.5 * (labels[:, None] == np.arange(num_classes))
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    if kind == 0:
        scores[:] = 1 / num_classes
    elif kind == 1:
        scores = np.eye(num_classes)[np.clip(np.nan_to_num(labels), 0, num_classes - 1).astype(int)]
    elif kind == 2:
        scores[:] = 0
    elif kind == 3:
        scores[random.uniform(size=num_jets) < 0.5] = np.nan
    elif kind == 4:
        scores[:1] = random.choice([np.inf, -1.0, 2.0])
    elif kind == 5:
        scores = scores.astype(np.float16)
    elif kind == 6:
        scores *= 1e-300
    return scores


def observer_of(random: np.random.Generator, num_jets: int):
    values = random.uniform(500, 1000, num_jets)
    kind = random.integers(0, 6)
    if kind == 0:
        values[:] = 600
    elif kind == 1:
        values[random.uniform(size=num_jets) < 0.5] = random.choice([np.nan, np.inf, -np.inf])
    elif kind == 2:
        values *= random.choice([1e-300, 1e300, 1e-3])
    elif kind == 3:
        values[:1] = 1e300
    elif kind == 4:
        return values.astype(np.int32)
    return values


def bins_of(random: np.random.Generator):
    good = [
        None,
        [1, 2, 3],
        [500, 750, 1000],
        [600, 600.0001],
        [0, 1e29],
        [-1e-300, 1e-300],
        [0, *np.arange(500, 900)],
    ]
    bad = [[1, np.nan], [1, np.inf], [2, 1], [1], [], list(range(20_000)), [-1e308, 1e308]]
    choices = bad if random.uniform() < 0.1 else good
    chosen = choices[random.integers(0, len(choices))]
    return None if chosen is None else {"jet_pt": chosen}


def attack(seed: int):
    """Return a call of evaluate() that may fail only with a message for the user."""
    random = np.random.default_rng(seed)
    num_classes = int(random.choice([1, 2, 3, 4, 7]))
    num_jets = int(random.choice([0, 1, 2, 5, 60, 60, 200, 200]))
    names = [str(name) for name in random.choice(NAMES, num_classes, replace=random.uniform() < 0.1)]
    if random.uniform() < 0.1:
        names[0] = BAD_NAMES[random.integers(0, len(BAD_NAMES))]
    labels = random.integers(-1, num_classes, num_jets)
    kind = random.integers(0, 8)
    if kind == 0:
        labels[:] = 0
    elif kind == 1:
        labels = labels.astype(np.float32)
        labels[: num_jets // 2] = np.nan
    elif kind == 2:
        labels = labels * random.choice([10**9, 1])
    options = {
        "bins": bins_of(random),
        "working_points": WORKING_POINTS[int(random.choice(4, p=[0.4, 0.3, 0.25, 0.05]))],
        "name": MODELS[int(random.choice(5, p=[0.5, 0.2, 0.2, 0.05, 0.05]))],
    }
    if random.uniform() < 0.3:
        options["signals"] = [names[0]]
    weights = weights_of(random, num_jets)

    def call():
        observers = {"jet_pt": observer_of(random, num_jets), "jet_sdmass": observer_of(random, num_jets)}
        scores = scores_from_arrays(
            names, scores_like(random, labels, num_classes), labels, weights, observers
        )
        return evaluate(scores, **options)

    return call


def numbers_of(random: np.random.Generator, num_jets: int):
    """Return predictions, true values or a variable; harmless ones, more often than not."""
    values = random.normal(1, 0.2, num_jets)
    kind = random.integers(0, 20)
    some = random.uniform(size=num_jets) < 0.5
    return {
        0: lambda: np.where(some, random.choice([np.nan, np.inf, -np.inf]), values),
        1: lambda: np.full(num_jets, np.nan),
        2: lambda: np.zeros(num_jets),
        3: lambda: -values,
        4: lambda: values * random.choice([1e-300, 1e300, 1e-45, 1e38]),
        5: lambda: np.where(np.arange(num_jets) == 0, random.choice([1e300, -1e300, 0]), values),
        6: lambda: values.astype(np.float16),
        7: lambda: random.integers(0, 2, num_jets),
        8: lambda: np.full(num_jets, random.choice([1.0, 1e-320, -3e38])),
        9: lambda: random.standard_cauchy(num_jets),
    }.get(int(kind), lambda: values)()


def regression_attack(seed: int):
    """Return a call of evaluate() with one or two regressions, with or without classes."""
    random = np.random.default_rng(10**6 + seed)
    num_jets = int(random.choice([0, 1, 2, 9, 60, 200, 700]))
    num_classes = int(random.choice([0, 2, 3]))
    kind = random.choice(["value", "gaussian", "quantiles"])
    quantiles = [(0.16, 0.5, 0.84), (0.5,), (0.9, 0.1, 0.025), (0.3,)][int(random.integers(0, 4))]
    tasks = [
        Task(
            name=name,
            kind=kind,
            target=str(random.choice(["t", "$a$", "<script>alert(1)</script>", "x" * 200])),
            quantiles=quantiles if kind == "quantiles" else (),
            factor_of=str(random.choice(["", "jet_mass"])),
            unit=str(random.choice(["", "GeV", "$", "%"])),
        )
        for name in ("a", "=b")[: random.integers(1, 3)]
    ]
    columns = {name: numbers_of(random, num_jets) for task in tasks for name in needed_columns(task)}
    columns |= {"jet_pt": observer_of(random, num_jets), "soft": numbers_of(random, num_jets)}
    labels = random.integers(0, max(1, num_classes), num_jets)
    weights = weights_of(random, num_jets) if random.uniform() < 0.5 else None
    options = {"bins": bins_of(random), "baselines": {"a": ["soft"]} if random.uniform() < 0.5 else None}

    def call():
        scores = np.zeros((num_jets, 0)) if num_classes == 0 else scores_like(random, labels, num_classes)
        names = ["QCD", "<b>", "c"][:num_classes]
        found = scores_from_arrays(names, scores, labels, weights, columns, regressions=tasks)
        return evaluate(found, **options)

    return call


@pytest.mark.parametrize("make", [attack, regression_attack])
@pytest.mark.parametrize("first", range(0, NUM_ATTACKS, DRAWN))
def test_a_result_or_one_clear_line(first, make):
    for seed in range(first, min(first + DRAWN, NUM_ATTACKS)):
        found = outcome(make(seed))
        if isinstance(found, str):
            assert "\n" not in found, seed
            assert len(found) < 2000, seed
        else:
            check_outputs(found, draw=seed % DRAWN == 0)


def outcome(call):
    """Return the result, or the message of an error for the user; anything else is a bug."""
    try:
        with bounded_memory():
            return call()
    except (ConfigError, DataError) as error:
        return str(error)


def check_outputs(found, *, draw: bool) -> None:
    main_summary = found.main
    content = json.loads(metrics_json(found, {}))
    if main_summary.classification:
        assert np.isfinite(main_summary.classification.predictions.accuracy)
        assert content["table"][0]["results"][0]["value"] is not None
    tables = found.regression_tables
    for row in csv.reader(io.StringIO(to_csv(found.table) + regressions_csv(tables))):
        for cell in row:
            try:
                float(cell)
            except ValueError:
                assert not cell.startswith(("=", "+", "-", "@")), cell
    assert to_markdown(found.table).count("\n") == len(found.table.rows) + 4
    to_latex(found.table)
    lines = sum(len(shown_rows(table)) for table in tables)
    assert lines <= regressions_markdown(tables).count("\n") <= lines + 20 * len(tables)
    regressions_latex(tables)
    if main_summary.discriminants:
        json.loads(working_points_json(main_summary, "m"))
        json.loads(to_correctionlib(main_summary))
    figures = []
    if draw:
        with house_style():
            for drawing in draw_figures(found, []):
                arrange(drawing.figure)
                drawing.figure.draw_without_rendering()
                json.dumps(drawing.hover, allow_nan=False)
                figures.append((drawing, "data:,"))
    about = {"when": "", "command": "", "weights": None, "explanation": None, "versions": {"partt": ""}}
    assert "<script>alert" not in render(found, figures, about)


def toy(num_jets: int, num_classes: int, seed: int = 0):
    random = np.random.default_rng(seed)
    labels = random.integers(0, num_classes, num_jets)
    logits = random.normal(size=(num_jets, num_classes)) + 1.5 * (labels[:, None] == np.arange(num_classes))
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), labels


@pytest.mark.parametrize("case", ["negative", "zero for a class", "1e38", "bins without jets"])
def test_unusual_weights_and_bins_have_a_report(tmp_path, case):
    scores, labels = toy(120, 3)
    random = np.random.default_rng(1)
    table = {f"score_{name}": scores[:, i].astype(np.float32) for i, name in enumerate("ABC")}
    table |= {f"label_{name}": (labels == i).astype(np.int32) for i, name in enumerate("ABC")}
    table["jet_pt"] = random.uniform(500, 1000, 120).astype(np.float32)
    table["w"] = {
        "negative": random.normal(0.3, 1, 120),
        "zero for a class": np.where(labels == 1, 0.0, 1.0),
        "1e38": np.full(120, 1e38),
        "bins without jets": np.ones(120),
    }[case].astype(np.float32)
    write_table(tmp_path / "scores.root", table)
    bins = ["--bins", "jet_pt=1,2,3"] if case == "bins without jets" else []
    words = ["evaluate", tmp_path / "scores.root", "--weights", "w", "--out", tmp_path / "report", *bins]
    assert main([str(word) for word in words]) == 0
    assert "</html>" in (tmp_path / "report/report.html").read_text()


def test_results_do_not_depend_on_the_scale_of_weights():
    scores, labels = toy(300, 3)
    weights = np.random.default_rng(0).normal(0.5, 1, 300)
    one, two = (
        evaluate(scores_from_arrays("ABC", scores, labels, weights * scale)).table.rows[0]
        for scale in (1.0, 2.0**900)
    )
    assert repr(one) == repr(two)


def test_weights_without_a_sum_are_one_line():
    scores, labels = toy(60, 3)
    for weights in (np.zeros(60), -np.ones(60)):
        with pytest.raises(DataError, match="no class has a positive total weight"):
            scores_from_arrays("ABC", scores, labels, weights)


def test_fifty_classes_end_within_seconds(tmp_path):
    scores, labels = toy(500, 50)
    start = time.process_time()
    observers = {"jet_pt": np.linspace(500, 1000, 500)}
    found = partt.evaluate(
        scores_from_arrays([f"c{i}" for i in range(50)], scores, labels, observers=observers), out=tmp_path
    )
    assert time.process_time() - start < 20  # over 25 s in 0.1
    assert len(found.table.columns) == 51
    assert (
        "figures show the 12 classes and discriminants with the most jets"
        in (tmp_path / "report.html").read_text()
    )


def test_sizes_are_bounded():
    scores, labels = toy(30, 3)
    start = time.process_time()
    with pytest.raises(DataError, match="has 100,000 characters"):
        scores_from_arrays(["x" * 100_000, "B", "C"], scores, labels)
    with pytest.raises(DataError, match="300 classes; at most 256"):
        scores_from_arrays([str(i) for i in range(300)], np.zeros((1, 300)), [0])
    given = scores_from_arrays("ABC", scores, labels, observers={"jet_pt": np.ones(30), "y": np.ones(30)})
    with pytest.raises(ConfigError, match=r"20,000 edges; at most 1,000"):
        evaluate(given, bins={"jet_pt": range(20_000)})
    with pytest.raises(ConfigError, match="efficiencies; at most 200,000"):
        evaluate(given, bins={"jet_pt": range(900), "y": range(900)})
    with pytest.raises(ConfigError, match="efficiencies; at most 200,000"):
        evaluate(
            given, bins={"jet_pt": range(900)}, working_points=[f"eps_s={i / 1000}" for i in range(1, 999)]
        )
    assert time.process_time() - start < 5


@pytest.mark.parametrize("labelled", [True, False])
def test_a_file_with_a_class_name_of_100_kb(tmp_path, capsys, labelled):
    scores, labels = toy(30, 3)
    names = ("A", "B", "x" * 100_000)
    table = {f"score_{name}": scores[:, i].astype(np.float32) for i, name in enumerate(names)}
    table |= {
        f"label_{name}": (labels == i).astype(np.int32) for i, name in enumerate(names) if labelled or i < 2
    }
    write_table(tmp_path / "scores.parquet", table)
    start = time.process_time()
    assert main(["evaluate", str(tmp_path / "scores.parquet"), "--out", str(tmp_path / "report")]) == 3
    assert time.process_time() - start < 10
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert len(message) < 1000


def test_a_csv_cell_is_no_formula():
    scores, labels = toy(60, 3)
    found = evaluate(scores_from_arrays(["=A", "@B", "C"], scores, labels), name="+HYPERLINK()")
    rows = list(csv.DictReader(io.StringIO(to_csv(found.table))))
    assert {row["model"] for row in rows} == {"'+HYPERLINK()"}
    assert [row["signal"] for row in rows] == ["", "", "'=A", "'@B"]
    assert all(float(row["value"]) > 0 for row in rows)
