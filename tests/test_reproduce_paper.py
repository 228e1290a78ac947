"""benchmarks/reproduce_paper.sh: every command has arguments that exist, and a small version of it all runs.

The script is run with a `partt` that writes its arguments down instead; these are the commands. The small version downloads
made-up files from a local server, and trains small networks for a step or two.
"""

import io
import json
import os
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from dataset_files import write_quark_gluon
from file_server import FileServer

from conftest import FIXTURES, ROOT
from jets import write_jets
from partt.cli.main import main, parse
from partt.data.config.data_config import load_data_config
from partt.downloading.public_datasets import load_public_dataset
from partt.training import fit
from partt.training.recipe import load_recipe
from small_networks import SMALL

SCRIPT = ROOT / "benchmarks" / "reproduce_paper.sh"
PAGE = ROOT / "docs" / "how-to" / "reproduce_paper.md"
RECORDER = """#!/bin/sh
printf '%s\\n' "${0##*/}" "$@" >> "$COMMANDS"
printf '\\0' >> "$COMMANDS"
"""


def commands_of(folder, **settings) -> list[list[str]]:
    """Return the commands that the script runs, as lists of words."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("partt", "torchrun"):
        (programs / name).write_text(RECORDER)
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "COMMANDS": str(folder / "commands"),
        **settings,
    }
    (folder / "data/qg").mkdir(parents=True)
    for file in load_public_dataset("quark_gluon").files:
        (folder / "data/qg" / file.name).touch()  # for the shell, which expands a glob
    subprocess.run([str(SCRIPT)], cwd=folder, env=environment, check=True)
    shutil.rmtree(folder / "data")
    return [command.splitlines() for command in (folder / "commands").read_text().split("\0")[:-1]]


def arguments(words: list[str]) -> list[str]:
    """Return the words after `partt`, also of a command for several GPUs."""
    return words[words.index("partt") + 1 :]


@pytest.mark.parametrize("gpus", ["1", "4"])
def test_every_argument_exists(tmp_path, gpus):
    commands = commands_of(tmp_path, GPUS=gpus)
    assert len(commands) > 40
    for words in commands:
        verb = arguments(words)[0]
        options = parse(arguments(words))
        if verb == "train":
            load_data_config(load_recipe(options.recipe, options.overrides).data_config)
        if verb == "download":
            load_public_dataset(options.dataset).chosen(options.only)
    assert ("torchrun" in {words[0] for words in commands}) == (gpus == "4")


def test_the_page_has_the_commands_of_the_script(tmp_path):
    text = PAGE.read_text().replace("\\\n", " ")
    shown = [shlex.split(line) for line in text.splitlines() if line.startswith("partt ")]
    commands = commands_of(tmp_path)
    assert len(shown) > 10
    for words in shown:
        if "data/qg/QG_jets*.npz" not in words:  # which the shell expands
            assert words in commands, shlex.join(words)


# --- the small version ------------------------------------------------------------------------------------------


def archive(folder: Path, number: int) -> bytes:
    """Return an archive of JetClass files, named like the published ones."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for seed, name in enumerate(("HToBB", "ZJetsToNuNu")):
            path = write_jets(folder / f"{name}_{number:03}.root", 60, seed=seed)
            tar.add(path, path.name)
    return packed.getvalue()


def made_up_datasets(folder: Path) -> dict[str, dict[str, bytes]]:
    folder.mkdir()
    names = {
        name: [file.name for file in load_public_dataset(name).files] for name in ("jetclass", "quark_gluon")
    }
    numbers = {"train": 0, "val": 120, "test": 100}
    jetclass = {}
    for name in names["jetclass"][9:]:
        part = next(part for part in numbers if part in name)
        jetclass[name] = archive(folder, numbers[part])
    quark_gluon = {}
    for name in (names["quark_gluon"][0], names["quark_gluon"][1], *names["quark_gluon"][17:]):
        write_quark_gluon(folder / name, 20)
        quark_gluon[name] = (folder / name).read_bytes()
    top = {name: (FIXTURES / "top_landscape.h5").read_bytes() for name in ("train.h5", "val.h5", "test.h5")}
    return {"jetclass": jetclass, "quark_gluon": quark_gluon, "top_landscape": top}


def write_lists(server: FileServer, made_up: dict[str, dict[str, bytes]]) -> None:
    """Write lists like those that partt ships, of the files of the server."""
    for name, files in made_up.items():
        shipped = load_public_dataset(name)
        server.files |= files
        listed = yaml.safe_load(server.write_list(Path(f"{name}.yaml")).read_text())
        known = {file.name: file for file in shipped.files}
        listed["files"] = [
            file | {"part": known[file["name"]].part}
            | ({"unpack_to": known[file["name"]].unpack_to} if "unpack_to" in file else {})
            for file in listed["files"]
            if file["name"] in files
        ]  # fmt: skip
        Path(f"{name}.yaml").write_text(yaml.safe_dump(listed | {"convert": shipped.convert}))


def smaller(words: list[str]) -> list[str]:
    """Return a command for made-up files and small networks."""
    verb, *rest = arguments(words)
    if verb == "download":
        return [verb, f"{rest[0]}.yaml", *rest[1:]]
    if verb == "train":
        name = load_recipe(rest[0]).model.name
        settings = {
            key: list(value) if isinstance(value, tuple) else value for key, value in SMALL[name][1].items()
        }
        changes = [f"model.settings={json.dumps(settings)}", "batch_size=16", "epochs=1", "jets_per_epoch=16"]
        words = [verb, *rest, "--threads", "1", *(word for change in changes for word in ("--set", change))]
        return [word if word != "4" else "0" for word in words]
    return [verb, *rest, *(["--threads", "1"] if verb == "predict" else [])]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.server
@pytest.mark.usefixtures("one_figure")
def test_a_small_version_of_all_runs(tmp_path, monkeypatch, capfd):
    commands = commands_of(tmp_path, SEEDS="1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)  # a third of the time
    made_up = made_up_datasets(tmp_path / "made_up")
    with FileServer({}) as server:
        write_lists(server, made_up)
        for words in commands:
            present = [
                word for word in words if not word.startswith("data/qg/QG_jets") or Path(word).exists()
            ]
            capfd.readouterr()
            assert main(smaller(present)) == 0, f"{shlex.join(words)}\n{capfd.readouterr().err}"
    for name in ("jetclass", "jetclass_sizes", "top", "qg_kinpid", "qg_kinpidplus"):
        table = Path(f"reports/{name}/table.md").read_text()
        assert "ParT" in table
        assert ("arXiv:2202.03772" in table) == name.startswith("jetclass")
