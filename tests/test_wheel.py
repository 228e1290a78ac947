"""What `pip install` gives is complete: configs, recipes and taggers are found by name, types are marked.

The wheel is made from the source distribution, so that both are tested.
"""

import os
import subprocess
import sys
import tarfile
import zipfile

import pytest

import partt
from conftest import ROOT
from jets import write_jets


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder of a source distribution, and of a wheel that was made from it."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("partt-*.whl")
    return path


def test_an_installed_wheel_finds_its_configs_and_taggers(wheel, tmp_path):
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path / "site"),
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True)
    write_jets(tmp_path / "jets.root", 20)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    code = "import partt, sys; print(partt.__file__); from partt.cli.main import main; sys.exit(main())"
    for words in (
        ["check", "jetclass_full", "jets.root"],
        ["predict", "--tagger", "jetclass-small", "jets.root", "--threads", "1"],
    ):
        result = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(str(tmp_path / "site"))


def test_the_wheel_holds_what_the_repository_shows(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("data_configs", "input_maps", "public_datasets", "training"):
        for path in (ROOT / folder).iterdir():
            assert f"partt/shipped/{folder}/{path.name}" in names
    assert "partt/py.typed" in names
    for folder in ("evaluation/page", "evaluation/published", "sample", "tagger/shipped"):
        for path in (ROOT / "partt" / folder).glob("*.*"):
            assert f"partt/{folder}/{path.name}" in names
    assert not [name for name in names if name.startswith("tests/")]


def test_the_source_distribution_holds_what_is_needed_to_test_it(built):
    (path,) = built.glob("partt-*.tar.gz")
    with tarfile.open(path) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert path.stat().st_size < 30_000_000
    assert path.name == f"partt-{partt.__version__}.tar.gz"
    for name in (
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "Makefile",
        "constraints.txt",
        "pyproject.toml",
    ):
        assert name in names
    for folder in (
        "benchmarks",
        "data_configs",
        "docs",
        "input_maps",
        "public_datasets",
        "tests",
        "training",
    ):
        assert any(name.startswith(f"{folder}/") for name in names), folder
    assert not [name for name in names if name.startswith((".venv", ".git/", "build/", ".hypothesis"))]


def test_versions_agree():
    assert f"version: {partt.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {partt.__version__} (" in (ROOT / "CHANGELOG.md").read_text()
