"""What would hang or take all memory ends at once, with one line and the documented exit code."""

import os
import subprocess
import sys

import numpy as np
import pytest
import yaml

import partt
from attacks import outcome
from jets import write_jets
from partt.cli import main as command
from partt.data.files.info import make_chunks
from partt.data.files.lists import expand_files
from partt.data.files.tables import inspect_file, read_columns, read_note, write_table
from partt.data.jet_batch import Positions  # noqa: F401 - torch is loaded before time is taken
from partt.errors import OutputError
from partt.model.registry import build_network, network_config
from small_networks import make_tagger
from training_jobs import TINY_RECIPE


@pytest.mark.parametrize("name", ["x.root", "x.parquet", "x.pq"])
def test_pipes_as_files_of_jets(tmp_path, name):
    os.mkfifo(tmp_path / name)
    url = str(tmp_path / name)
    for attempt in (
        lambda: inspect_file(url),
        lambda: read_columns(url, ["x"]),
        lambda: read_note(url),
    ):
        assert "not a regular file" in outcome(attempt)


def test_devices_and_lists(tmp_path):
    os.mkfifo(tmp_path / "list.txt")
    with (tmp_path / "big.txt").open("wb") as file:
        file.truncate(3 * 2**30)
    assert "not a regular file" in outcome(lambda: expand_files([f"@{tmp_path}/list.txt"]))
    assert "not a regular file" in outcome(lambda: expand_files(["@/dev/zero"]))
    assert "3221225472 bytes" in outcome(lambda: expand_files([f"@{tmp_path}/big.txt"]))


def test_a_flipped_bit_in_the_number_of_entries(tmp_path):
    path = tmp_path / "x.root"
    write_table(path, {"x": np.arange(12345.0)})
    contents = path.read_bytes()
    place, found = contents.find((12345).to_bytes(8, "big")), []
    assert place > 0
    while place > 0:
        flipped = bytearray(contents)
        flipped[place] ^= 0x40
        path.write_bytes(flipped)
        found.append(outcome(lambda: inspect_file(str(path))))
        place = contents.find((12345).to_bytes(8, "big"), place + 1)
    assert any(message and str(path) in message and "entries" in message for message in found), found


@pytest.mark.parametrize("last", [2**62, 2**40, -5])
def test_impossible_numbers_of_entries(last):
    with pytest.raises(ValueError, match="damaged"):
        make_chunks([0, last], 8192)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1/x.root", "github://x", "github://a:b@/x.root", "zip://x.root",
                                 "zip://x.root::/nowhere.zip", "nosuch://x/y.root", "tar://x", "reference://x",
                                 "git://x", "libarchive://x", "dask://x.root", "webhdfs://127.0.0.1:1/x.root"])  # fmt: skip
def test_urls_without_a_file_system(url):
    assert outcome(lambda: inspect_file(url)) is not None
    outcome(lambda: expand_files([url]))


@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "--out", "x", "--jets", "1" + "0" * 20],
        ["simulate", "--out", "x", "--jets", "9" * 10_000],
        ["simulate", "--out", "x", "--jets", "10", "--workers", "99999"],
        ["predict", "--tagger", "jetclass-small", "x.root", "--threads", "2147483648"],
        ["predict", "--tagger", "jetclass-small", "x.root", "--threads", "99999"],
        ["train", "quick", "x.root", "--out", "x", "--threads", "2147483648"],
        ["train", "quick", "x.root", "--out", "x", "--workers", "99999"],
    ],
)
def test_numbers_on_the_command_line(words, capsys):
    with pytest.raises(SystemExit) as caught:
        command.main(words)
    assert caught.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "must be" in error
    assert len(error) < 300


def test_too_many_files(tmp_path):
    message = outcome(lambda: partt.simulate(tmp_path / "a", jets=10**12, jets_per_file=10))
    assert "--jets-per-file" in message
    assert outcome(lambda: partt.simulate(tmp_path / "b", jets=10**20)) is not None
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "fault",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
        RuntimeError("could not create a primitive"),
    ],
)
def test_errors_that_mean_out_of_memory(monkeypatch, capsys, fault):
    def run(_options):
        raise fault

    monkeypatch.setattr("partt.cli.taggers.run", run)
    assert command.main(["taggers"]) == OutputError.exit_code
    error = capsys.readouterr().err
    assert error.startswith("partt: error: out of memory")
    assert error.count("\n") == 1


WITH_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
import torch
from partt.cli import main, train
import partt.training.fit
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + 300 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sys.exit(main.main(sys.argv[1:]))
"""


def test_out_of_memory_is_one_line(tmp_path):
    """So little memory that the network cannot be computed; the pair features of a batch have 0.5 GB.

    A new process: a forked one has the memory that tests before it have freed.
    """
    write_jets(tmp_path / "jets.root", 1300)
    recipe = {**TINY_RECIPE, "batch_size": 1000, "epochs": 1, "jets_per_epoch": 1000}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    words = "train tiny.yaml --train jets.root --val-fraction 0.2 --workers 0 --threads 1 --out run"
    done = subprocess.run(
        [sys.executable, "-c", WITH_LITTLE_MEMORY, *words.split()],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == OutputError.exit_code, done.stderr
    assert done.stderr.splitlines()[-1].startswith("partt: error: out of memory")
    assert "Traceback" not in done.stderr


def test_networks_that_are_too_large():
    config = network_config("part", {"width": 65_536, "feed_forward_width": 65_536, "num_blocks": 8})
    shape = make_tagger().data_config.input_shape
    assert "parameters" in outcome(lambda: build_network("part", config, shape, {"classes": 10}))
