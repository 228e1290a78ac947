"""The table of README that compares with weaver-core has the numbers of the committed measurements."""

import json
import re
from collections.abc import Callable
from statistics import median

import pytest

from conftest import ROOT


def measured(name: str):
    """Return what a benchmark has written."""
    return json.loads((ROOT / "benchmarks" / f"{name}.json").read_text())


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


ROWS: dict[str, Callable[[], tuple[float, float]]] = {
    "the network alone, one thread": network_alone,
    "training, from files to new weights, one thread": training,
    "the exported file in onnxruntime, jet by jet, one thread": exported,
    "reading, first pass, against weaver's second": reading,
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_readme(row):
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    ours, theirs, ratio, _ = (cell.strip() for cell in line.split("|"))
    expected = ROWS[row]()
    assert [ours, theirs] == [f"{rate:,.0f} jets/s" for rate in expected]
    assert ratio == f"{expected[0] / expected[1]:.1f}"
