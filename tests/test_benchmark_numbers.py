"""README and the pages of docs/ have the numbers of the committed measurements, and no typed ones beside them."""

import json
import re
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import pytest

import markdown_tables
import measured as speeds
import results
from conftest import ROOT
from markdown_tables import NOT_YET
from numbers_in_pages import PLACE, with_numbers


def measured(name: str):
    """Return what a benchmark has written."""
    return json.loads((ROOT / "benchmarks" / f"{name}.json").read_text())


# --- README -------------------------------------------------------------------------------------------------


def prediction() -> tuple[float, float]:
    rates = {name: clocks["wall"] for name, clocks in measured("predict")["weaver"].items()}
    return rates["partt"], max(rate for name, rate in rates.items() if name.startswith("weaver"))


def network_alone() -> tuple[float, float]:
    rates = {name: median(some) for name, some in measured("model")["inference, 1 thread, jets/s"].items()}
    return rates["partt, batch 400"], max(rate for name, rate in rates.items() if name.startswith("weaver"))


def training() -> tuple[float, float]:
    found = measured("training")
    of_epoch = {name: median(run["cpu"][1] for run in runs) for name, runs in found["seconds"].items()}
    return found["jets"] / of_epoch["partt"], found["jets"] / of_epoch["weaver"]


def exported() -> tuple[float, float]:
    rates = measured("export")
    return median(rates["partt, raw, batch 1"]), median(rates["weaver-core, batch 1"])


def reading() -> tuple[float, float]:
    rates = measured("reading")
    return median(rates["partt, first pass"]), median(rates["weaver, second epoch"])


def memory() -> tuple[float, float]:
    peaks = measured("model")["memory, 1 thread, training step, batch 512, GB"]
    return median(peaks["partt"]), median(peaks["weaver"])


class Row(NamedTuple):
    """How a row of README follows from the measurements."""

    numbers: Callable[[], tuple[float, float]]
    text: str = "{:,.0f} jets/s"
    is_speed: bool = True


ROWS = {
    "prediction, file to file, two cores": Row(prediction),
    "the network alone, one thread": Row(network_alone),
    "training, from files to new weights, one thread": Row(training),
    "the exported file in onnxruntime, jet by jet, one thread": Row(exported),
    "reading, first pass, against weaver's second": Row(reading),
    "peak memory of a training step of 512 jets": Row(memory, "{:.1f} GB", is_speed=False),
}


def rows_of_readme() -> dict[str, list[str]]:
    """Return the cells of the rows that a benchmark has measured."""
    lines = re.findall(r"^\| (.*`benchmarks/.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    title_and_cells = ([cell.strip() for cell in line.split("|")] for line in lines)
    return {title: cells for title, *cells in title_and_cells}


def test_all_rows_of_readme_are_compared():
    assert rows_of_readme().keys() == ROWS.keys()


@pytest.mark.parametrize("title", ROWS)
def test_a_row_of_readme(title):
    ours, theirs, ratio, _ = rows_of_readme()[title]
    row = ROWS[title]
    expected = row.numbers()
    assert [ours, theirs] == [row.text.format(number) for number in expected]
    assert ratio == (f"{expected[0] / expected[1]:.1f}" if row.is_speed else "")


# --- no typed numbers in docs/ ------------------------------------------------------------------------------

# page -> its sections about what benchmarks have measured
SECTIONS = {
    "docs/explanation/jagged.md": ["What it gains"],
    "docs/how-to/deploy.md": ["Speed"],
    "docs/how-to/fine_tuning.md": ["Does it help?"],
    "docs/how-to/regress_mass.md": ["How well"],
    "docs/reference/evaluation.md": ["Intervals of rejections", "Time and memory"],
    "docs/reference/explain.md": ["Time and memory"],
    "docs/reference/model.md": ["Speed"],
    "docs/reference/predict.md": ["Speed and memory"],
    "docs/reference/reading.md": ["Speed", "100 million jets"],
    "docs/reference/simulation.md": ["How it compares with the real JetClass", "Speed"],
    "docs/reference/training.md": ["Speed", "Memory"],
}
MEASURED = re.compile(r"\d ?(?:(?:jets|events)/s|jets per second|[MG]B|[mµ]?s|seconds|minutes)\b")
PAGES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))]


def rows_of_tables(text: str) -> list[str]:
    """Return the rows of Markdown tables, but for those below the titles."""
    return [line for line in text.splitlines() if line.startswith("|") and not re.fullmatch(r"[|:-]+", line)]


def typed(page: str) -> str:
    """Return the text of a page without the numbers that are written below their marks."""
    return PLACE.sub(r"<!-- generated: \g<name> -->", (ROOT / page).read_text())


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_the_numbers_of_the_measurements(page):
    text = (ROOT / page).read_text()
    assert text == with_numbers(text), "run python docs/numbers_in_pages.py"


@pytest.mark.parametrize(
    ("page", "title"), [(page, title) for page, titles in SECTIONS.items() for title in titles]
)
def test_numbers_of_a_section_are_generated(page, title):
    (section,) = re.findall(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", typed(page), re.MULTILINE | re.DOTALL
    )
    assert "<!-- generated: " in section
    assert [row for row in rows_of_tables(section) if re.search(r"\d", row)] == []
    assert MEASURED.findall(section) == []


@pytest.mark.parametrize("page", PAGES)
def test_no_page_has_typed_rates(page):
    text = typed(page)
    assert [row for row in rows_of_tables(text) if "jets/s" in row] == []
    assert re.findall(r".*\d ?(?:jets|events)(?:/s\b| per second).*", text) == []


def test_numbers_below_a_mark_are_replaced(write):
    row = {"part": "probe", "name": "new weights", "accuracy": 0.25, "num_jets": 10}
    write("few_labels", {"rows": [row]})
    page = "a\n<!-- generated: notebook -->\nb\n<!-- generated: probes -->\nc\n"
    new = with_numbers(page)
    assert new.startswith("a\n<!-- generated: notebook -->\nb\n<!-- generated: probes -->\n\n|")
    assert new.endswith(
        "| new weights, BatchNorms that have seen jets | 0 | 0 | 0.2500 |\n\n<!-- end -->\nc\n"
    )
    assert with_numbers(new) == new
    assert with_numbers(new.replace("0.2500", "0.2600")) == new


# --- what is generated --------------------------------------------------------------------------------------


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes made-up measurements."""
    monkeypatch.setattr(markdown_tables, "BENCHMARKS", tmp_path)

    def write(name, found) -> None:
        (tmp_path / f"{name}.json").write_text(json.dumps(found))

    return write


def cells(markdown: str) -> list[list[str]]:
    return [[cell.strip() for cell in row[1:-1].split("|")] for row in rows_of_tables(markdown)]


@pytest.mark.parametrize("name", speeds.TEXTS | results.TEXTS)
def test_what_is_not_measured_says_so(name, write):
    assert (speeds.TEXTS | results.TEXTS)[name]() == NOT_YET


@pytest.mark.parametrize("name", [name for name in speeds.TEXTS if "step" in name or "inference" in name])
def test_parts_that_are_not_measured_say_so(name, write):
    write("model", {})
    assert speeds.TEXTS[name]() == NOT_YET


def test_gains_from_pre_training_are_draw_by_draw(write):
    accuracies = {"from scratch": (0.6, 0.8), "fine-tuned": (0.71, 0.89), "frozen": (0.7, 0.7)}
    rows = [
        {"part": "curve", "method": method, "labels": 300, "draw": draw, "accuracy": value, "auc": 0.9}
        for method, values in accuracies.items()
        for draw, value in enumerate(values)
    ]
    write("few_labels", {"rows": rows})
    assert cells(results.few_labels("curve", "accuracy")) == [
        ["accuracy", "300 labels"],
        ["from scratch", "0.700 ± 0.141"],
        ["frozen", "0.700 ± 0.000"],
        ["fine-tuned", "0.800 ± 0.127"],
        ["fine-tuned − from scratch", "+0.100 ± 0.014"],
    ]


def test_speed_of_the_network(write):
    rates = {
        "partt, batch 400": [300.0, 310.0, 290.0],
        "onnxruntime, sorted, batch 8": [150.0, 150.0, 150.0],
        "limit: float32 matrix product": [600.0, 600.0, 600.0],
        "weaver, batch 400": [60.0, 61.0, 59.0],
        "weaver, batch 8": [120.0, 118.0, 122.0],
        "before: partt, batch 400": [200.0, 190.0, 210.0],
    }
    doubled = {name: [2 * rate for rate in some] for name, some in rates.items()}
    write("model", {"inference, 1 thread, jets/s": rates, "inference, 2 threads, jets/s": doubled})
    assert cells(speeds.TEXTS["inference speed"]()) == [
        ["", "1 thread, jets/s", "partt / this", "2 threads, jets/s", "partt / this"],
        ["partt, batch 400", "300", "", "600", ""],
        ["partt 0.1.0, batch 400", "200", "1.50", "400", "1.50"],
        ["onnxruntime, sorted by length, batch 8", "150", "2.00", "300", "2.00"],
        ["weaver, batch 400", "60", "5.00", "120", "5.00"],
        ["weaver, batch 8", "**120**", "2.50", "**240**", "2.50"],
        ["limit: float32 matrix product", "600", "0.50", "1,200", "0.50"],
    ]


def test_memory_of_a_training_step(write):
    peaks = {"partt": [4.04], "before: partt": [5.0], "weaver": [11.46]}
    write("model", {"memory, 1 thread, training step, batch 512, GB": peaks})
    text = speeds.TEXTS["memory of a training step"]()
    assert text.endswith(": partt 4.0 GB, partt 0.1.0 5.0 GB, weaver 11.5 GB.\n")


def test_scaling_of_the_network(write):
    rates = {"8 particles a jet": [1700.0], "16 particles a jet": [900.0], "batch 1": [150.0]}
    doubled = {name: [2 * rate for rate in some] for name, some in rates.items()}
    write("model", {"scaling, 1 thread, jets/s": rates, "scaling, 2 threads, jets/s": doubled})
    assert cells(speeds.TEXTS["inference speed by size"]()) == [
        ["particles of a jet", "8", "16"],
        ["1 thread, jets/s", "1,700", "900"],
        ["2 threads, jets/s", "3,400", "1,800"],
        ["jets", "1"],
        ["1 thread, jets/s", "150"],
        ["2 threads, jets/s", "300"],
    ]


def test_speed_of_training(write):
    def run(first: float, second: float):
        return {"cpu": [2 * first, 2 * second], "wall": [first, second]}

    seconds = {
        "partt": [run(12, 10), run(12, 10)],
        "weaver": [run(48, 20), run(48, 20)],
        "before": [run(24, 15), run(24, 15)],
    }
    settings = {"jets": 960, "batch": 128, "cores": 2, "load": [0.24, 2.1]}
    write("training_two_threads", {**settings, "seconds": seconds})
    text = speeds.TEXTS["training speed with two threads"]()
    assert cells(text) == [
        ["jets/s", "partt", "weaver", "partt / weaver", "partt 0.1.0", "partt / partt 0.1.0"],
        ["first epoch, by the clock", "80", "20", "4.00", "40", "2.00"],
        ["second epoch, by the clock", "96", "48", "2.00", "64", "1.50"],
    ]
    assert text.endswith(
        "\n960 jets, batch size 128, medians of 2 rounds, 2 cores with a load of 0.2 to 2.1, "
        "these processes included.\n"
    )


def test_ways_to_use_several_cores(write):
    def run(cpu: float, wall: float):
        return [{"cpu": [0, cpu], "wall": [0, wall]}]

    seconds = {
        "1 thread": run(40, 40),
        "2 threads": run(50, 32),
        "2 processes": run(44, 25),
        "2 trainings side by side": run(40, 20),
    }
    write("training_processes", {"jets": 2560, "batch": 512, "cores": 2, "load": [0.0], "seconds": seconds})
    assert cells(speeds.TEXTS["several cores"]()) == [
        ["second epoch", "jets/s", "speed-up", "by CPU time"],
        ["1 thread", "64", "1.00", "1.00"],
        ["2 threads", "80", "1.25", "1.60"],
        ["2 processes", "102", "1.60", "1.82"],
        ["2 trainings side by side", "128", "2.00", "2.00"],
    ]


def test_prediction(write):
    write(
        "predict",
        {
            "rate": {"part": {"network": {"cpu": 300, "wall": 1}, "file to file": {"cpu": 285, "wall": 1}}},
            "weaver": {
                "partt": {"wall": 600, "cpu": 310},
                "weaver, batch 32": {"wall": 150, "cpu": 80},
                "weaver, batch 400": {"wall": 60, "cpu": 30},
            },
            "memory": {
                "50000": {"jets/s": 4000.4, "jets/s of CPU time": 2100, "peak MB": 566, "scored": 50000}
            },
        },
    )
    assert cells(speeds.TEXTS["prediction beside the network"]())[1:] == [["`part`", "300", "285", "0.95"]]
    assert cells(speeds.TEXTS["prediction speed"]())[1:] == [
        ["`partt predict`", "600", "", "310"],
        ["`weaver --predict`, batch 32", "**150**", "4.00", "80"],
        ["`weaver --predict`, batch 400", "60", "10.0", "30"],
    ]
    assert cells(speeds.TEXTS["prediction memory"]())[1:] == [["50,000", "566", "4,000", "2,100"]]


def test_gain_over_weaver(write):
    alone = {"partt, batch 400": [300.0], "weaver, batch 400": [60.0], "weaver, batch 8": [150.0]}
    write("model", {"inference, 1 thread, jets/s": alone})
    seconds = {"partt": [{"cpu": [9, 4]}], "weaver": [{"cpu": [50, 10]}]}
    write("training", {"jets": 896, "seconds": seconds})
    files = {"partt": 600, "weaver, batch 32": 150, "weaver, batch 400": 60}
    write("predict", {"weaver": {name: {"wall": rate} for name, rate in files.items()}})
    write("reading", {"partt, cold": [900.0], "weaver, cold": [100.0]})
    assert cells(speeds.TEXTS["gain over weaver"]())[1:] == [
        ["inference of `part`, one thread, batch of 400 jets", "5.00"],
        ["against weaver's best batch size (8)", "2.00"],
        ["training, from files to new weights, one thread", "2.50"],
        ["prediction, file to file, against its best batch size (32)", "4.00"],
        ["reading a first time, cold", "9.00"],
    ]
