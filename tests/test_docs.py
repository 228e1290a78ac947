"""The code in README and docs runs.

A page is run from top to bottom in a folder with small files. Blocks without a language are commands; a `text` block after
them is what the last one prints (a line of three dots matches any lines). `python` blocks are programs. A `yaml` or `python`
block whose first line is a comment with a file name becomes that file. `sh` blocks need a cluster or hours: only the arguments
of their `partt` commands are checked.
"""

import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

import partt
from conftest import FIXTURES, ROOT
from forked_commands import run_program
from jets import make_jets, write_jets
from partt.cli.main import _build_parser, main
from partt.data.files.tables import write_table
from partt.tagger.tagger_file import save_tagger
from pfnano import write_pfnano
from small_networks import make_tagger

CLASSES = ("QCD", "Hbb", "Tbl")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# What pages ask for -> what tests do instead, where that would take minutes.
SMALLER = {
    "README.md": {"--jets 30": "--jets 10 --classes QCD Hbb"},
    "docs/tutorial/files_to_table.md": {
        "--jets 300": "--jets 10 --classes QCD Hbb Tbqq",
        "train quick": "train quick --set epochs=1",
        "train jetclass_pfn": "train jetclass_pfn --set epochs=1",
    },
    "docs/how-to/regress_mass.md": {"--jets 300": "--jets 8", "epochs=2": "epochs=1"},
    "docs/how-to/pre_training.md": {
        "epochs=2": "epochs=1",
        "masked_particles": "masked_particles --set 'model.settings={num_blocks: 1}'",
        "few.yaml": "few.yaml --set 'model.settings={num_blocks: 1}' --set epochs=1",
    },
    "docs/how-to/fine_tuning.md": {"epochs=2": "epochs=1", "tuned.yaml": "tuned.yaml --set epochs=1"},
}


def blocks(page) -> list[tuple[str, str]]:
    """Return the blocks of code of a page with their languages."""
    return re.findall(r"^```(\S*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[str]:
    """Return the partt commands of a block, continued lines joined."""
    lines = block.replace("\\\n", " ").splitlines()
    found = [re.search(r"(?:^| -m )(partt .*?)(?:\|\|.*)?$", line) for line in lines]
    return [match[1] for match in found if match]


def pages_with(*languages: str) -> list[pytest.param]:
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in PAGES
        if {language for language, _ in blocks(page)} & set(languages)
    ]


def write_scores(path, seed: int) -> None:
    """Write scores as `partt predict` does, of a tagger that is right more often than not."""
    jets = make_jets(600, CLASSES, seed)
    labels = np.stack([jets[f"label_{name}"] for name in CLASSES])
    odds = np.exp(np.random.default_rng(seed).normal(size=labels.shape) + 2 * labels)
    scores = (odds / odds.sum(axis=0)).astype(np.float32)
    observers = {name: jets[name] for name in ("jet_pt", "jet_eta", "jet_sdmass")}
    flags = {f"label_{name}": jets[f"label_{name}"] for name in CLASSES}
    write_table(path, {f"score_{name}": scores[i] for i, name in enumerate(CLASSES)} | flags | observers)


def write_regression(path) -> None:
    """Write a regression of the mass, with its true values."""
    jets, random = make_jets(300, CLASSES), np.random.default_rng(0)
    true = random.uniform(0.8, 1.2, 300)
    columns = {name: jets[name] for name in ("jet_pt", "jet_sdmass")} | {
        "mass_factor": true * random.normal(1, 0.1, 300),
        "true_mass_factor": true,
    }
    write_table(path, {name: np.asarray(values, dtype=np.float32) for name, values in columns.items()})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with the files that the docs speak of."""
    here = tmp_path_factory.mktemp("docs")
    for seed, (name, label) in enumerate(
        [
            ("demo/jets", "QCD"),
            ("demo/qcd_0", "QCD"),
            ("demo/hbb_0", "Hbb"),
            ("data/TTBar_0", "Tbqq"),
            ("data/ZJets_0", "QCD"),
        ]
    ):
        write_jets(here / f"{name}.root", 600, [label], seed)
    write_pfnano(here / "pfnano.root")
    shutil.copy(FIXTURES / "delphes.root", here)
    for seed, name in enumerate(["part", "particlenet"]):
        write_scores(here / f"scores/{name}.root", seed)
    (here / "regressions").mkdir()
    write_regression(here / "regressions/mass.root")
    (here / "files.txt").write_text("TTBar:data/TTBar_*.root\nZJets:data/ZJets_*.root\n")
    shutil.copy(FIXTURES / "part_small_weaver04.pt", here / "ParT_full.pt")
    for name in ("train", "val"):
        shutil.copy(FIXTURES / "top_landscape.h5", here / f"{name}.h5")
    for name, config in (("tagger", "jetclass_full"), ("kin_tagger", "jetclass_kin")):
        save_tagger(here / f"{name}.safetensors", make_tagger("part_xs", config, neutral=True))
    return here


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    """Enter a copy of that folder."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(600)  # the tutorial goes through everything
@pytest.mark.parametrize("page", pages_with("", "python"))
def test_blocks_run(page, folder, capfd):
    smaller = SMALLER.get(str(page.relative_to(ROOT)), {})
    printed = ""
    for language, block in blocks(page):
        if language == "":
            for command in commands(block):
                if "root://" in command:  # remote files have tests of their own
                    continue
                capfd.readouterr()
                code = main(shlex.split(shorten(command, smaller), comments=True)[1:])
                printed, errors = capfd.readouterr()
                assert code == 0, f"{command}: exit code {code}\n{errors}"
        elif language == "python" and (name := re.match(r"# (\S+\.py)\n", block)):
            (folder / name[1]).write_text(block)
        elif language == "python":
            result = run_program(block)
            assert result.returncode == 0, f"{block}\n{result.stderr}"
            printed = result.stdout
        elif language == "text" and not smaller:
            assert_printed(block, printed)
        elif language == "yaml" and (name := re.match(r"# (\S+\.yaml)\n", block)):
            (folder / name[1]).write_text(block)


def shorten(command: str, smaller: dict[str, str]) -> str:
    for long, short in smaller.items():
        command = command.replace(long, short)
    return command


def assert_printed(expected: str, printed: str) -> None:
    pattern = ".*?".join(re.escape(part) for part in re.split(r"(?m)^\.\.\.\n", expected))
    assert re.search(pattern, printed, re.DOTALL), f"the page has\n{expected}\nbut printed is\n{printed}"


@pytest.mark.parametrize("page", pages_with("sh"))
def test_arguments_exist(page):
    for language, block in blocks(page):
        for command in commands(block) if language == "sh" else []:
            words = shlex.split(command, comments=True)[1:]
            _build_parser(words[0]).parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_weaver_flag_is_explained():
    from weaver.train import parser

    page = (ROOT / "docs" / "how-to" / "weaver.md").read_text()
    table = {
        flag
        for row in re.findall(r"^\| (`-.*?) \|", page, re.MULTILINE)
        for flag in re.findall(r"`(-\S+)`", row)
    }
    flags = {flag for action in parser._actions for flag in action.option_strings} - {"-h", "--help"}
    assert table == flags


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        str(ROOT / "docs"),
        str(tmp_path / "site"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "site/reference/command_line.html").read_text()
    assert "--max-bad-fraction" in page
    assert "generated:" not in page


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    missing = [name for name in partt.__all__ if name != "__version__" and f".{name}" not in page]
    assert not missing


def test_generated_texts_exist_and_are_shown(monkeypatch):
    from generated import PLACE, TEXTS

    monkeypatch.setenv("COLUMNS", "100")  # which the help texts change
    shown = {match["name"] for page in PAGES for match in PLACE.finditer(page.read_text())}
    assert shown == TEXTS.keys()
    for name, text in TEXTS.items():
        assert text().strip(), name
