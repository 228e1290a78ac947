"""The command `partt train`."""

import re
import shlex

import numpy as np
import pytest
import yaml

from jets import make_jets, write_jets
from partt.cli import train
from partt.cli.main import main
from partt.data.files.tables import write_table
from partt.tagger.loading import load_torch_tagger
from training_jobs import TINY_RECIPE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter a folder with a recipe and files of two classes."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump({**TINY_RECIPE, "epochs": 1}))
    for seed, (name, label) in enumerate([("qcd", "QCD"), ("hbb", "Hbb"), ("more", "Hcc")]):
        write_jets(tmp_path / f"{name}.root", 100, [label], seed)
    (tmp_path / "typo.yaml").write_text(yaml.safe_dump({**TINY_RECIPE, "epoch": 3}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(text: str) -> int:
    return main(["train", *shlex.split(text), "--threads", "1", "--workers", "0"])


def test_the_first_line_and_the_table(folder, capsys):
    assert command("tiny.yaml --train QCD:qcd.root Hbb:hbb.root --val more.root --seed 3") == 0
    *notes, first, header, row, best = capsys.readouterr().out.splitlines()
    assert [note.partition(" of ")[0] for note in notes] == [
        "note: no training jets",
        "note: no validation jets",
    ]
    assert re.match(r"cpu, 1 thread; part, [\d,]+ parameters, [\d.]+ [kM] multiply-adds per jet; ", first)
    assert "training: 200 jets (QCD 100, Hbb 100, Hcc 0" in first
    assert "validation: 100 jets (QCD 0, Hbb 0, Hcc 100" in first
    assert len(header) == len(row) == 78  # columns: a terminal has 80
    assert row.startswith("*    1   ")
    assert best.endswith("runs/tiny/best.safetensors")
    load_torch_tagger(folder / "runs" / "tiny" / "best.safetensors")


@pytest.mark.parametrize(("jets_per_epoch", "is_said"), [(2000, True), (1990, False), ("null", False)])
def test_an_epoch_of_many_passes_is_said(folder, capsys, jets_per_epoch, is_said):
    """A recipe for 100 million jets, trained on a few thousand, would take days."""
    steps = f"--set jets_per_epoch={jets_per_epoch} --set epochs=null --set steps=1"
    assert command(f"tiny.yaml --train qcd.root hbb.root --val more.root {steps}") == 0
    said = "jets_per_epoch: 2,000 jets are 10 passes over the 200 training jets" in capsys.readouterr().out
    assert said == is_said


def test_resume_starts_goes_on_and_refuses_changes(folder, capsys):
    text = "tiny.yaml --train qcd.root hbb.root --val-fraction 0.3 --out run"
    assert command(f"{text} --resume") == 0
    assert command(f"{text} --resume") == 0
    assert command(text) == 2
    assert "run already contains a run; add --resume" in capsys.readouterr().err
    assert command(f"{text} --resume --set optimizer.lr=0.5 --seed 9") == 2
    error = capsys.readouterr().err
    assert "recipe.optimizer.lr: 0.01 before, 0.5 now" in error
    assert "seed: 1 before, 9 now" in error
    assert "validation.split" in error


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("tiny.yaml --train none.root --val more.root", 3, "'none.root' matches no file"),
        ("tiny.yaml --train QDC:qcd.root --val more.root", 2, "'QDC' is not a class (did you mean 'QCD'?)"),
        ("tiny.yaml --train Qcd:qcd.root --val more.root", 2, "'Qcd' is not a class (it is QCD)"),
        (
            "tiny.yaml --train QCD:hbb.root --val more.root",
            3,
            "hbb.root is given as QCD, but its jets are Hbb",
        ),
        ("tiny.yaml --train qcd.root --val qcd.root", 3, "for training and for validation"),
        ("quikc --train qcd.root --val more.root", 2, "did you mean 'quick'?"),
        ("tiny.yaml --train qcd.root --val more.root --set optimizer.lrr=1", 2, "did you mean 'lr'?"),
        ("tiny.yaml --train qcd.root --val more.root --device tpu", 2, "no such device"),
        ("tiny.yaml --train qcd.root --val more.root --device meta", 2, "give cpu, cuda, cuda:N or auto"),
        ("tiny.yaml --train qcd.root --val more.root --device cuda:99", 2, "torch finds 0 GPUs"),
        (
            "tiny.yaml --train qcd.root hbb.root --val more.root --set metric=auc",
            2,
            "metric: auc needs validation jets",
        ),
        (
            "tiny.yaml --train qcd.root --val-fraction 0.00001",
            3,
            "no jets are left for validation part, validation fraction 1e-05",
        ),
        (
            "typo.yaml --train qcd.root --val more.root",
            2,
            "epoch: unknown key (did you mean 'epochs'?)",
        ),
        ("missing.yaml --train qcd.root --val more.root", 2, "missing.yaml"),
        ("tiny.yaml --train qcd.root --val more.root --init-from none.safetensors", 3, "none.safetensors"),
        (
            "tiny.yaml --train qcd.root hbb.root --val more.root --set precision=bfloat16",
            2,
            "bfloat16 is for GPUs",
        ),
    ],
)
def test_one_line_that_helps(folder, capsys, text, code, message):
    assert command(text) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


def test_a_bad_jet_stops_the_run_or_is_dropped(folder, capsys):
    table = make_jets(100, ["QCD"])
    first = int(np.flatnonzero(table["part_px"].lengths)[0])
    table["part_px"].contents[table["part_px"].offsets[first]] = np.inf
    write_table(folder / "bad.root", table)
    text = "tiny.yaml --train bad.root hbb.root --val more.root"
    assert command(f"{text} --out a") == 3
    assert f"entry {first}" in capsys.readouterr().err
    assert command(f"{text} --out b --on-bad-jet drop") == 0


def test_the_examples_of_the_help_work_as_written(folder, monkeypatch):
    monkeypatch.setattr(
        "partt.training.train.num_cores", lambda: 1
    )  # one thread is faster for so small a network
    for seed, name in enumerate(["QCD", "Hbb"]):
        (folder / "jets").mkdir(exist_ok=True)
        write_jets(folder / "jets" / f"{name}.root", 40, [name], seed)
    lines = [line.strip() for line in train.EXAMPLES.split("more:")[0].splitlines()]
    examples = [line for line in lines if line.startswith("partt train")]
    assert len(examples) == 2
    for example in examples:
        assert main(shlex.split(example)[1:]) == 0
