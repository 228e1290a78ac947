"""Files that others changed, terminals without Unicode, file names of any bytes, a full disk under the cache."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from forked_commands import run_partt
from jets import write_jets
from partt.cli.main import main
from partt.data.files.tables import write_table
from partt.errors import DataError
from partt.evaluation.figures.training_curves import draw_training
from partt.jobs.metrics_file import read_metrics
from partt.pages.style import house_style
from partt.prediction.predict_json import PredictSummary, write_summary
from partt.scores.origin import Balance
from training_jobs import TINY_RECIPE

NUM_ATTACKS = int(os.environ.get("PARTT_ATTACKS", "200"))
EPOCH = {"kind": "epoch", "step": 4, "epoch": 0, "train_loss": 1.0, "validation_auc": None, "is_best": True}


def write_scores(path: Path) -> Path:
    random = np.random.default_rng(0)
    labels = np.arange(90) % 3
    scores = random.dirichlet(np.ones(3), 90).astype(np.float32)
    table = {f"score_{name}": scores[:, i].copy() for i, name in enumerate("ABC")}
    table |= {f"label_{name}": (labels == i).astype(np.int32) for i, name in enumerate("ABC")}
    write_table(path, table)
    return path


def tampered(seed: int) -> bytes:
    """Return a log of three epochs of which one line or some bytes were changed."""
    random = np.random.default_rng(seed)
    lines = [{**EPOCH, "epoch": epoch, "is_best": epoch == 0} for epoch in range(3)]
    kind, victim = random.integers(0, 4), int(random.integers(0, 3))
    values = [None, "x", [], {}, -1, 1e300, float("nan"), float("inf"), 10**400, True, 1.5, "\ud800", [[1]]]
    value = values[random.integers(0, len(values))]
    key = str(random.choice([*EPOCH, "train_accuracy", "validation_" + "x" * 1000]))
    texts = [json.dumps(line) for line in lines]
    if kind == 0:
        texts[victim] = json.dumps({**lines[victim], key: value})
    elif kind == 1:
        del lines[victim][str(random.choice(list(EPOCH)))]
        texts[victim] = json.dumps(lines[victim])
    elif kind == 2:
        texts[victim] = ["[1]", "null", "7", '"epoch"', "", "[" * 100_000, "{}", '{"kind": 1}'][
            random.integers(0, 8)
        ]
    content = bytearray("\n".join(texts).encode())
    if kind == 3:
        for _ in range(random.integers(1, 5)):
            content[random.integers(0, len(content))] = random.integers(0, 256)
    return bytes(content)


def test_a_changed_log_is_one_line_or_is_drawn(tmp_path):
    path = tmp_path / "metrics.jsonl"
    refused = 0
    for seed in range(NUM_ATTACKS):
        path.write_bytes(tampered(seed))
        epochs = outcome(path)
        if isinstance(epochs, str):
            refused += 1
            assert str(path) in epochs
            assert "\n" not in epochs
        elif epochs and seed % 20 == 0:
            with house_style():
                draw_training(epochs).figure.draw_without_rendering()
    assert 0 < refused < NUM_ATTACKS


def outcome(path: Path):
    try:
        return read_metrics(path, "epoch")
    except DataError as error:
        return str(error)


def test_a_pipe_is_no_log(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(DataError, match="not a regular file"):
        read_metrics(tmp_path / "metrics.jsonl")


def summary(**changes) -> PredictSummary:
    balance = Balance(entries=1, scored=1)
    content = {
        "tagger_sha256": "0", "network": "part", "class_names": ["A"], "options": {}, "versions": {},
        "balance": balance.model_dump(), "jets_per_second": None, "outputs": [], "bad_files": [], "left_out": [],
    }  # fmt: skip
    return PredictSummary.model_validate({**content, **changes})


@pytest.mark.parametrize("output", ["a\x00b", "x" * 10_000, "../../etc/passwd", "/dev/zero"])
def test_a_changed_predict_json_is_no_traceback(tmp_path, output):
    entry = {"output": output, "input": "in.root", "rows": 1, "balance": summary().balance.model_dump()}
    (tmp_path / "predict.json").write_text(
        json.dumps({**summary().model_dump(mode="json"), "outputs": [entry]})
    )
    write_summary(tmp_path, summary())
    json.loads((tmp_path / "predict.json").read_text())


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"a": "\\ud800"}', '{"a": ' + "1" * 5000 + "}", '{"a": 1e999}', "\0"]
)
def test_evaluate_with_a_changed_predict_json(tmp_path, content):
    path = write_scores(tmp_path / "scores.root")
    (tmp_path / "predict.json").write_text(content)
    from partt.evaluation.evaluate import evaluate
    from partt.evaluation.json_files import metrics_json
    from partt.evaluation.report import render

    found = evaluate(path)
    json.loads(metrics_json(found, {}))
    page = render(
        found,
        [],
        {"when": "", "command": "", "weights": None, "explanation": None, "versions": {"partt": ""}},
    )
    page.encode("utf-8", "backslashreplace")


def test_a_terminal_without_unicode(tmp_path):
    path = write_scores(tmp_path / "scores.root")
    program = ONE_FIGURE + f"sys.exit(main(['evaluate', {str(path)!r}, '--out', 'report']))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert rb"\xb1" in done.stdout
    assert b"Traceback" not in done.stderr


def test_names_that_are_not_utf8(tmp_path, capsys):
    path = os.fsencode(tmp_path) + b"/sc\xff.root"
    os.rename(write_scores(tmp_path / "scores.root"), path)  # noqa: PTH104 - bytes
    verbs = (
        ["evaluate", "--out", str(tmp_path / "out")],
        ["check", "jetclass_kin"],
        ["predict", "--tagger", "jetclass-small"],
    )
    for verb, *rest in verbs:
        for given, code in ((os.fsdecode(path), 2), (str(tmp_path / "*.root"), 3)):
            assert main([verb, *rest, given]) == code
            message = capsys.readouterr().err
            assert r"sc\udcff.root" in message
            assert "not valid UTF-8; rename the file" in message
            assert message.count("\n") == 1


def test_a_full_disk_under_the_cache_is_a_notice(tmp_path, monkeypatch):
    """RLIMIT_FSIZE stands for a full disk: safetensors reports both with an error of its own."""
    monkeypatch.chdir(tmp_path)
    recipe = {**TINY_RECIPE, "epochs": 2, "jets_per_epoch": 32, "checkpoint_minutes": 1000}
    Path("tiny.yaml").write_text(yaml.safe_dump(recipe))
    write_jets(tmp_path / "jets.root", 1000)
    words = [
        "train",
        "tiny.yaml",
        "--train",
        "jets.root",
        "--val-fraction",
        "0.2",
        "--cache",
        "cache",
        "--threads",
        "1",
    ]
    limit = 1_000_000  # bytes: more than checkpoints and taggers have, less than a cached chunk
    done = run_partt(
        [*words, "--workers", "1", "--out", "run"],
        prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"note: cannot write to the cache") == 1
    assert b"best: epoch" in done.stdout
    assert not [path for path in Path("cache").rglob("*") if path.is_file()]


def test_a_home_that_cannot_be_written(tmp_path):
    """Caches of matplotlib and others go there; they are not needed."""
    path = write_scores(tmp_path / "scores.root")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MPL"))}
    program = ONE_FIGURE + f"main(['evaluate', {str(path)!r}, '--out', 'report'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**environment, "HOME": "/proc/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "report" / "report.html").exists()


ONE_FIGURE = """
import sys
from partt.cli.main import main
from partt.evaluation import report
from partt.evaluation.figures.confusion import draw_confusion
report.draw_figures = lambda found, epochs: [draw_confusion(found.main.classification)]
"""


def test_names_do_not_control_the_terminal():
    assert (
        str(DataError("a\x1b[31mred\x07\u202e\x9b\nb é 日本")) == "a\\x1b[31mred\\x07\\u202e\\x9b\nb é 日本"
    )
