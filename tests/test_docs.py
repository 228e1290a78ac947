"""The code in README and docs runs."""

import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from conftest import FIXTURES, ROOT
from jets import make_jets, write_jets
from partt.cli.main import main
from partt.data.data_config import load_data_config
from partt.data.made_up_jets import made_up_jets
from partt.data.root_files import write_tree
from partt.export.run import export
from partt.model.registry import build_network, network_config
from partt.tagger_file import new_tagger, save_tagger
from pfnano import write_pfnano

CLASSES = ("QCD", "Hbb", "Tbl")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def write_scores(path, seed: int) -> None:
    """Write scores as `partt predict` does, of a tagger that is right more often than not."""
    jets = make_jets(600, CLASSES, seed)
    labels = np.stack([jets[f"label_{name}"] for name in CLASSES])
    odds = np.exp(np.random.default_rng(seed).normal(size=labels.shape) + 2 * labels)
    scores = (odds / odds.sum(axis=0)).astype(np.float32)
    observers = {name: jets[name] for name in ("jet_pt", "jet_eta", "jet_sdmass")}
    flags = {f"label_{name}": jets[f"label_{name}"] for name in CLASSES}
    write_tree(path, {f"score_{name}": scores[i] for i, name in enumerate(CLASSES)} | flags | observers)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter a folder with the files that the docs speak of."""
    for seed, (name, label) in enumerate(
        [
            ("demo/jets", "QCD"),
            ("demo/qcd_0", "QCD"),
            ("demo/hbb_0", "Hbb"),
            ("data/TTBar_0", "Tbqq"),
            ("data/ZJets_0", "QCD"),
        ]
    ):
        write_jets(tmp_path / f"{name}.root", 600, [label], seed)
    write_pfnano(tmp_path / "pfnano.root")
    for seed, name in enumerate(["part", "particlenet"]):
        write_scores(tmp_path / f"scores/{name}.root", seed)
    (tmp_path / "files.txt").write_text("TTBar:data/TTBar_*.root\n")
    shutil.copy(FIXTURES / "part_small_weaver04.pt", tmp_path / "ParT_full.pt")
    for name in ("train", "val"):
        shutil.copy(FIXTURES / "top_landscape.h5", tmp_path / f"{name}.h5")
    config = network_config("part_xs")
    data_config = load_data_config("jetclass_full")
    tagger = new_tagger("part_xs", build_network("part_xs", config, 17, 10), data_config, made_up_jets())
    save_tagger(tmp_path / "tagger.safetensors", tagger)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, folder):
    if "tagger.onnx" in page.read_text():  # made by a command of the page
        export("tagger.safetensors", "tagger.onnx")
    for code in blocks(page, "python"):
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{code}\n{result.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_run(page, folder):
    for block in blocks(page, ""):
        for line in block.splitlines():
            if line.startswith("partt ") and "root://" not in line:  # remote files have tests of their own
                assert main(shlex.split(line, comments=True)[1:]) == 0, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target
