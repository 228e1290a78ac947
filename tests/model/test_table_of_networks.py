"""The table in docs/reference/model.md says what each network can do."""

import re

import pytest
import torch

from conftest import ROOT
from partt.errors import ConfigError
from partt.model.inspection import inspect_jets
from partt.model.registry import network_names
from small_networks import SMALL, jets_for, small_network

CASES = {name: case for case, (name, _) in reversed(SMALL.items())} | {"mlp": "mlp, jet"}
COLUMNS = ("collections of particles", "jet-level features", "particle tokens", "attention maps", "export")


def table():
    """Return network -> column -> cell."""
    text = (ROOT / "docs" / "reference" / "model.md").read_text()
    lines = (
        text.split("## What each network can do")[1].split("|---|---|---|---|---|---|\n")[1].split("\n\n")[0]
    )
    rows = {}
    for line in lines.splitlines():
        names, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows |= {name: dict(zip(COLUMNS, cells, strict=True)) for name in re.findall(r"`(\w+)`", names)}
    return rows


def works(action):
    try:
        action()
    except ConfigError:
        return "no"
    return "yes"


@pytest.mark.parametrize("name", network_names())
def test_the_table_is_true(name):
    case, row = CASES[name], table()[name]
    jets = {kind: jets_for(f"x, {kind}", (3, 0, 5)) for kind in ("pf", "pf sv", "pf jet", "jet")}
    taken = [kind for kind in jets if works(lambda kind=kind: small_network(case, jets[kind])) == "yes"]
    counts = {"none": ["jet"], "one": ["pf", "pf jet"], "several": ["pf", "pf sv", "pf jet"]}
    assert taken == counts[row["collections of particles"]]
    assert row["jet-level features"] == "yes"
    inputs = jets[taken[-1]]
    network = small_network(case, inputs).eval()
    with torch.inference_mode():
        assert row["particle tokens"] == works(lambda: network.tokens(inputs))
        assert row["attention maps"] == works(lambda: inspect_jets(network, inputs))
        assert row["export"] == ("yes" if network.backbone.has_padded_twin else "no")
