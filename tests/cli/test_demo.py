"""`partt demo` runs the public commands, continues after Ctrl-C, and tests on jets that it has not trained on."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import partt
from forked_commands import run_partt
from partt.cli import demo
from partt.cli.demo import demo_commands
from partt.cli.main import main, parse
from partt.data.files.tables import inspect_file, read_columns
from partt.errors import ConfigError
from partt.evaluation import report as report_module
from partt.evaluation.figures.confusion import draw_confusion
from partt.sample.split import split_sample
from partt.training import fit as fit_module


def quick() -> None:
    """Train a smaller network for two epochs instead of fifteen, and draw one figure."""
    commands = demo.demo_commands
    smaller = ["--set", "epochs=2", "--set", "model.settings={num_blocks: 1}"]
    demo.demo_commands = lambda out: [
        [*words, *smaller] if words[0] == "train" else words for words in commands(out)
    ]
    report_module.draw_figures = lambda found, _epochs: [draw_confusion(found.main.classification)]


def quick_and_interrupted() -> None:
    """Send Ctrl-C after the first validation."""
    quick()
    validate = fit_module.validate

    def validate_and_interrupt(*arguments, **options):
        found = validate(*arguments, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return found

    fit_module.validate = validate_and_interrupt


@pytest.mark.slow
def test_an_interrupted_demo_continues_and_ends_with_report_and_commands(tmp_path):
    words = ["demo", "--offline"]
    options = {"cwd": tmp_path, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    result = run_partt(words, prepare=quick_and_interrupted, **options)
    assert result.returncode == 75, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("demo/offline/jets: 630 jets of the sample for training, 270 for testing")
    assert lines[-1] == "`partt demo --offline` continues from here"

    result = run_partt(words, prepare=quick, **options)
    assert result.returncode == 0, result.stderr
    assert "resuming after step" in result.stdout
    lines = result.stdout.splitlines()
    start = lines.index("The commands that made it:")
    assert [line.split()[:2] for line in lines[start + 1 : start + 4]] == [
        ["partt", verb] for verb in ("train", "predict", "evaluate")
    ]
    report = tmp_path / "demo/offline/report/report.html"
    assert lines[-1] == f"The report is {report}"
    evaluate = lines[start + 3].strip()
    assert evaluate.replace("'", "&#39;") in report.read_text()


def test_all_commands_are_those_of_the_command_line(tmp_path):
    verbs = [parse(words).run.__module__ for words in demo_commands(tmp_path)]
    assert verbs == [f"partt.cli.{verb}" for verb in ("simulate", "train", "predict", "evaluate")]


def test_without_the_simulation_it_says_what_to_do(tmp_path):
    code = (
        "import sys; sys.modules['fastjet'] = None; from partt.cli.main import main; sys.exit(main(['demo']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr == (
        "partt: error: the demo simulates jets, and fastjet is missing: pip install 'partt[simulate]', "
        "or give --offline to use the small sample that comes with partt\n"
    )
    assert not list(tmp_path.iterdir())


def test_both_parts_together_are_the_sample(tmp_path):
    assert split_sample(tmp_path, 0.3) == (630, 270)
    changed = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.root")}
    for path in partt.sample_files():
        names = list(inspect_file(str(path)).branches)
        whole = read_columns(str(path), names)
        parts = [read_columns(str(tmp_path / part / path.name), names) for part in ("train", "test")]
        for name in names:
            if name.startswith("part_"):
                joined = [part[name].contents for part in parts]
                lengths = np.concatenate([part[name].lengths for part in parts])
                assert np.array_equal(lengths, whole[name].lengths)
                assert np.array_equal(np.concatenate(joined), whole[name].contents)
            else:
                assert np.array_equal(np.concatenate([part[name] for part in parts]), whole[name])
    split_sample(tmp_path, 0.3)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.root")} == changed


def test_other_files_are_not_taken_for_the_sample(tmp_path):
    split_sample(tmp_path / "jets", 0.5)
    with pytest.raises(ConfigError, match="not from the sample: choose another --out"):
        split_sample(tmp_path / "jets", 0.3)
    assert main(["demo", "--offline", "--out", str(tmp_path)]) == 2
