"""Files that partt did not make are never replaced without --overwrite; links are not followed for writing.

One rule for all verbs: every output of every verb is attacked with a user's file, a link to one, a broken link
and a folder.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dataset_files import write_quark_gluon

import partt
from conftest import FIXTURES
from forked_commands import run_partt, start_partt
from jets import write_jets
from partt.atomic_files import atomic_path, refuse_foreign, remove_leftovers, staged_files
from partt.checking.findings import CheckReport
from partt.cli.main import main
from partt.conversion.convert import convert
from partt.data.files import root_writing
from partt.data.reading.batch_cache import BatchCache
from partt.data.reading.splitting import Split
from partt.errors import ConfigError, DataError, OutputError
from partt.evaluation import report
from partt.exporting import export as export_module
from partt.exporting.export import export
from partt.exporting.tracing import DEFAULT_OPSET, trace
from partt.tagger.loading import load_tagger
from partt.tagger.tagger_file import save_tagger
from partt.training.job import with_defaults
from small_networks import make_tagger
from toy_scores import write_scores
from training_jobs import run_job, stop_after, tiny_job

WEAVER = FIXTURES / "part_small_weaver05.pt"
MINE = "a file of mine"
REPORT = ["report.html", "table.md", "table.tex", "metrics.csv", "metrics.json", "figures/confusion.pdf"]


pytestmark = pytest.mark.usefixtures("one_figure")


@pytest.fixture(autouse=True)
def one_tracing(monkeypatch, inputs, request):
    """Trace the exported network once."""
    monkeypatch.setattr(export_module, "trace", lambda *_: deepcopy(request.getfixturevalue("traced")))


@pytest.fixture(scope="module")
def traced(inputs):
    return trace(load_tagger(inputs / "tagger.safetensors"), "standardised", DEFAULT_OPSET)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_jets(folder / "jets.root", 20)
    save_tagger(folder / "tagger.safetensors", make_tagger("pfn"))
    write_quark_gluon(folder / "qg.npz", 10)
    write_scores(folder / "scores.root")
    return folder


# verb -> words of its command without --out, the name of --out, files that it writes
VERBS = {
    "predict": ("predict --tagger tagger.safetensors jets.root", "out/a.root", ["a.root", "predict.json"]),
    "predict to a folder": ("predict --tagger tagger.safetensors jets.root", "out", ["jets.root"]),
    "evaluate": ("evaluate scores.root", "out", [*REPORT, "efficiencies.json"]),
    "explain": (
        "explain tagger.safetensors jets.root --threads 1 --jets 20",
        "out",
        ["explanation.html", "explanation.json"],
    ),
    "show": ("show tagger.safetensors jets.root --entry 1", "out", ["jets_1.png"]),
    "export": (
        "export tagger.safetensors --inputs standardised",
        "out/a.onnx",
        ["a.onnx", "preprocess.json"],
    ),
    "export-weaver": ("export-weaver weaver.safetensors", "out/a.pt", ["a.pt"]),
    "import-weaver": (
        "import-weaver weaver.pt --arch part --features full --dialect 0.5",
        "out/a.st",
        ["a.st"],
    ),
    "convert": ("convert quarkgluon qg.npz", "out/a.root", ["a.root"]),
    "convert to a folder": ("convert quarkgluon qg.npz", "out", ["qg.root"]),
}
KINDS = ["file", "link", "broken link", "folder", "pipe"]
NOTHING = {"broken link", "pipe"}  # kinds without a file of the user
CASES = [(verb, name, kind) for verb, (_, _, names) in VERBS.items() for name in names for kind in KINDS]


def command(verb: str, inputs: Path, out: Path, *more: str) -> int:
    words, name, _ = VERBS[verb]
    paths = [str(inputs / word) if (inputs / word).exists() else word for word in words.split()]
    return main([*paths, "--out", str(out.parent / name), *more])


def attack(path: Path, kind: str) -> Path:
    """Put something of the user where an output goes; return the user's file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = path.parent / "mine"
    if kind == "folder":
        path.mkdir()
        mine = path / "mine"
    elif kind == "file":
        mine = path
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(mine)
    if kind not in NOTHING:
        mine.write_text(MINE)
    return mine


@pytest.fixture(scope="module")
def weaver(inputs) -> None:
    """Weights of weaver for the 17 features of jetclass_full, and the tagger of them."""
    tagger = make_tagger("part", "jetclass_full")
    save_tagger(inputs / "weaver.safetensors", tagger)
    words = ["export-weaver", str(inputs / "weaver.safetensors"), "--out", str(inputs / "weaver.pt")]
    assert main(words) == 0


@pytest.mark.parametrize(("verb", "name", "kind"), CASES)
@pytest.mark.usefixtures("weaver")
def test_what_partt_did_not_make_is_refused(inputs, tmp_path, capsys, verb, name, kind):
    out = tmp_path / "out"
    mine = attack(out / name, kind)
    assert command(verb, inputs, out) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert str(out / name) in message
    assert kind == "folder" or "--overwrite" in message
    if kind in NOTHING:
        assert not mine.exists()
    else:
        assert mine.read_text() == MINE
    assert [path for path in out.rglob("*") if path.is_file() and not path.is_symlink()] == (
        [] if kind in NOTHING else [mine]
    )  # nothing else, no temporary file


def bytes_read() -> int:
    """Return how many bytes this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize(
    ("verb", "name"), [(verb, name) for verb, (_, _, names) in VERBS.items() for name in names]
)
@pytest.mark.usefixtures("weaver")
def test_a_large_file_of_the_user_is_not_read(inputs, tmp_path, capsys, verb, name):
    """A sparse file of 3 GB: reading all of it took 50 s and twice its size."""
    large = attack(tmp_path / "out" / name, "file")
    os.truncate(large, 3 * 2**30)
    before = bytes_read()
    assert command(verb, inputs, tmp_path / "out") == 2
    assert bytes_read() - before < 2**29
    assert str(large) in capsys.readouterr().err


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "explain"])  # takes seconds
@pytest.mark.usefixtures("weaver")
def test_with_overwrite_a_link_is_replaced_and_its_target_is_not(inputs, tmp_path, verb):
    out = tmp_path / "out"
    name = VERBS[verb][2][0]
    mine = attack(out / name, "link")
    assert command(verb, inputs, out, "--overwrite") == 0
    assert mine.read_text() == MINE
    assert not (out / name).is_symlink()
    assert command(verb, inputs, out) == 0  # and what partt made, it may make again


def test_an_input_is_never_replaced(inputs, tmp_path, capsys):
    weights = tmp_path / "weights.pt"
    weights.write_bytes(WEAVER.read_bytes())
    words = ["import-weaver", str(weights), "--features", "full", "--dialect", "0.5", "--out", str(weights)]
    tagger = tmp_path / "tagger.safetensors"
    save_tagger(tagger, make_tagger("part"))
    write_quark_gluon(tmp_path / "jets.npz", 10)
    (tmp_path / "jets.npz").rename(tmp_path / "jets.root")
    for attack_words, path in (
        (["export-weaver", str(tagger), "--out", str(tagger)], tagger),
        (
            ["convert", "quarkgluon", str(tmp_path / "jets.root"), "--out", str(tmp_path)],
            tmp_path / "jets.root",
        ),
        (words, weights),
    ):
        before = path.read_bytes()
        for more in ([], ["--overwrite"]):
            assert main([*attack_words, *more]) == 2
            assert "input and would be replaced" in capsys.readouterr().err
            assert path.read_bytes() == before


def test_a_changed_report_is_not_replaced(inputs, tmp_path):
    scores = inputs / "scores.root"
    partt.evaluate(scores, out=tmp_path)
    table = tmp_path / "table.tex"
    table.write_text(table.read_text() + "% my remark\n")
    with pytest.raises(ConfigError, match=r"table\.tex already exists .* or was changed since"):
        partt.evaluate(scores, out=tmp_path)
    assert "my remark" in table.read_text()
    partt.evaluate(scores, out=tmp_path, overwrite=True)
    assert "my remark" not in table.read_text()


def test_scores_are_not_a_converted_file(inputs, tmp_path):
    """Both carry a note of partt; each verb replaces its own files only."""
    out = tmp_path / "a.root"
    partt.predict(inputs / "tagger.safetensors", inputs / "jets.root", out)
    with pytest.raises(ConfigError, match="was not made by partt convert"):
        convert("quarkgluon", [inputs / "qg.npz"], out)
    convert("quarkgluon", [inputs / "qg.npz"], out, overwrite=True)
    with pytest.raises(ConfigError, match="was not made by partt predict"):
        partt.predict(inputs / "tagger.safetensors", inputs / "jets.root", out)


# --- training ---


RUN_FILES = ["recipe.yaml", "data_config.yaml", "environment.json", "metrics.jsonl", "best.safetensors"]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*RUN_FILES, "curves.png", "checkpoints/step-000000001-epoch-00000.json"])
def test_training_replaces_no_file_of_the_user(inputs, tmp_path, name, kind, resume):
    mine = attack(tmp_path / name, kind)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="already exists, but .* contains no run"):
        run_job(_job(inputs), tmp_path, resume=resume)
    assert mine.exists() == (kind not in NOTHING)
    assert not mine.exists() or mine.read_text() == MINE
    assert sorted(set(tmp_path.rglob("*")) - {tmp_path / "lock"}) == before


def test_a_run_that_was_killed_before_its_recipe_was_written_resumes(inputs, tmp_path):
    run_job(_job(inputs), tmp_path, should_stop=stop_after(2))
    (tmp_path / "recipe.yaml").unlink()
    (tmp_path / ".best.0123abcd.tmp.safetensors").touch()
    run_job(_job(inputs), tmp_path, resume=True)
    assert (tmp_path / "recipe.yaml").exists()
    assert not list(tmp_path.glob(".*.tmp*"))


@pytest.fixture(scope="module")
def stopped_run(inputs, tmp_path_factory):
    """Return a run that was stopped after a few steps."""
    folder = tmp_path_factory.mktemp("stopped")
    run_job(_job(inputs), folder, should_stop=stop_after(2))
    return folder


@pytest.mark.parametrize("text", ["[", '{"mine": 1}', "[" * 100_000, "7", '{"recipe": {"epochs": []}}', None])
@pytest.mark.parametrize("name", ["environment.json", "run.json", "lock"])
def test_files_of_a_run_that_partt_did_not_write(inputs, stopped_run, tmp_path, name, text):
    run = tmp_path / "run"
    shutil.copytree(stopped_run, run)
    (run / name).unlink()
    os.mkfifo(run / name) if text is None else (run / name).write_text(text)
    with pytest.raises(ConfigError) as error:
        run_job(_job(inputs), run, resume=True)
    assert str(run) in str(error.value)
    assert text is None or (run / name).read_text() == text


@pytest.mark.parametrize("suffix", ["json", "pt"])
@pytest.mark.parametrize("text", ["", "[" * 100_000, "7", '{"format_version": [], "sha256": 1}', None])
def test_a_checkpoint_that_partt_did_not_write(inputs, stopped_run, tmp_path, suffix, text):
    """It is the only one, and it stays."""
    run = tmp_path / "run"
    shutil.copytree(stopped_run, run)
    (path,) = (run / "checkpoints").glob(f"*.{suffix}")
    path.unlink()
    os.mkfifo(path) if text is None else path.write_text(text)
    with pytest.raises(DataError, match="checkpoints are damaged"):
        run_job(_job(inputs), run, resume=True)
    assert text is None or path.read_text() == text


_JOBS: dict[Path, object] = {}


def _job(inputs: Path):
    """Return a tiny job; opened once."""
    if inputs not in _JOBS:
        write_jets(inputs / "training.root", 100)
        _JOBS[inputs] = tiny_job(inputs / "training.root", epochs=1)
    return _JOBS[inputs]


# --- what killed and failed commands leave behind ---


def stop_by(stop) -> None:
    """Let a command stop where a file is complete, but does not have its name yet."""
    root_writing._counter_problem = stop
    report.to_markdown = stop


def kill_itself(*_arguments, **_options):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("verb", ["convert", "convert to a folder", "evaluate"])
def test_temporary_files_of_a_killed_command_are_removed_by_the_next_one(inputs, tmp_path, verb):
    out = tmp_path / "out"
    words, name, _ = VERBS[verb]
    paths = [str(inputs / word) if (inputs / word).exists() else word for word in words.split()]
    killed = run_partt([*paths, "--out", str(tmp_path / name)], prepare=lambda: stop_by(kill_itself))
    assert killed.returncode == -signal.SIGKILL
    assert list(out.glob(".*.tmp*"))
    assert command(verb, inputs, out) == 0
    assert not [path for path in out.rglob("*") if path.name.startswith(".")]


def test_temporary_files_of_running_commands_are_kept(inputs, tmp_path):
    """Two commands may write to one folder; the second does not disturb the first."""
    scores = inputs / "scores.root"
    process = start_partt(
        ["evaluate", str(scores), "--out", str(tmp_path)],
        prepare=lambda: stop_by(lambda *_arguments, **_options: time.sleep(60)),
    )
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".report.*.tmp/figures/*.pdf")) and time.monotonic() < deadline:
            time.sleep(0.1)
        partt.evaluate(scores, out=tmp_path)
        assert list(tmp_path.glob(".report.*.tmp"))
    finally:
        process.kill()
        process.wait()
    partt.evaluate(scores, out=tmp_path)
    assert not list(tmp_path.glob(".report.*.tmp"))


def test_a_failed_export_leaves_nothing(inputs, tmp_path, monkeypatch):
    def full(path, contents):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match=r"cannot write .*a\.onnx: No space left"):
        export(inputs / "tagger.safetensors", tmp_path / "a.onnx", inputs="standardised")
    assert not list(tmp_path.iterdir())


def test_a_failed_report_replaces_nothing(inputs, tmp_path, monkeypatch):
    partt.evaluate(inputs / "scores.root", out=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("partt.evaluation.report.metrics_json", full)
        with pytest.raises(OutputError, match="No space left"):
            partt.evaluate(inputs / "scores.root", out=tmp_path, name="other")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    partt.evaluate(inputs / "scores.root", out=tmp_path, name="other")


# --- the mechanism, with random names ---


def test_random_attacks(tmp_path):
    random = np.random.default_rng(15)
    for number in range(int(os.environ.get("PARTT_ATTACKS", "200"))):
        folder = tmp_path / str(number)
        name = "".join(random.choice(list("ab.[]*?~ \n-"), 6)) + random.choice(["", ".root", ".json"])
        kind = str(random.choice([*KINDS, "nothing"]))
        path = folder / name.strip(".")
        if kind != "nothing":
            mine = attack(path, kind)
        ours, overwrite = random.random(2) < 0.5
        allowed = kind == "nothing" or (kind != "folder" and (overwrite or (ours and kind == "file")))
        try:
            refuse_foreign(path, "partt", lambda _, ours=ours: bool(ours), overwrite=bool(overwrite))
        except ConfigError:
            assert not allowed
            assert kind in NOTHING or mine.read_text() == MINE
            continue
        assert allowed
        with atomic_path(path) as temporary:
            temporary.write_text("ours")
        assert path.read_text() == "ours"
        assert not path.is_symlink()
        assert kind != "link" or mine.read_text() == MINE
        left = path.with_name(f".{path.stem}.0123abcd.tmp{path.suffix}")
        left.touch()
        remove_leftovers(path)
        assert not left.exists()
        assert path.exists()


def test_staged_files_move_together(tmp_path):
    (tmp_path / "a").write_text("before")

    def fail() -> None:
        with staged_files(tmp_path, "x", "a") as stage:
            (stage / "a").write_text("after")
            raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="cannot write to"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "before"
    with staged_files(tmp_path, "x", "a") as stage:
        (stage / "deep").mkdir()
        for name in ("a", "deep/b"):
            (stage / name).write_text("after")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["a", "deep", "deep/b"]
    assert (tmp_path / "a").read_text() == "after"


# --- taggers that cannot be read, and secrets ---


def as_nobody(words: list[str]) -> tuple[int, str]:
    """Run a command in a forked process without the rights of root; return exit code and error output."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            os.dup2(write, 2)
            sys.stderr = os.fdopen(2, "w")
            code = main(words)
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


@pytest.mark.parametrize("name", ["tagger.safetensors", "run", "closed/run", "closed/tagger.safetensors"])
def test_a_tagger_without_permission_is_not_a_missing_one(inputs, name):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / name
        file = path if path.suffix else path / "best.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((inputs / "tagger.safetensors").read_bytes())
        Path(folder).chmod(0o755)
        (Path(folder) / "closed").chmod(0) if "closed" in name else file.chmod(0)
        code, message = as_nobody(["export", str(path), "--out", f"{folder}/out.onnx"])
    assert code == 3
    assert message.startswith(f"partt: error: cannot read {path}")
    assert message.endswith("Permission denied\n")
    assert message.count("\n") == 1


SECRET = "SECRET"  # noqa: S105


def test_random_urls_lose_their_secrets():
    random = np.random.default_rng(15)
    for _ in range(int(os.environ.get("PARTT_ATTACKS", "300"))):
        user = random.choice(["", f"{SECRET}@", f"me:{SECRET}@", f"me:p@{SECRET}@", f":{SECRET}@"])
        marks = "".join(random.choice(list("&;,)=%+:/?@."), 3))
        query = random.choice(
            ["", f"?authz={SECRET}", f"?a=1{marks}t={SECRET}", f"?X-Amz=a,b){SECRET}{marks}x"]
        )
        scheme = random.choice(["https", "root", "s3", "HTTPS", "davs+x"])
        url = f"{scheme}://{user}host:80//a/b.root{query}"
        before, after = (
            random.choice(["", "in '", "(", "see "]),
            random.choice(["", "'", ": gone", "; x", ", y"]),
        )
        text = str(ConfigError(f"{before}{url}{after}"))
        assert SECRET not in text
        assert text == f"{before}{scheme}://host:80//a/b.root{after}"


def test_run_json_has_no_tokens(inputs):
    job = _job(inputs)
    path = str(inputs / "training.root")
    remote = [
        f"https://me:{SECRET}@host/{name}.root?authz={SECRET}{number}" for number, name in enumerate("aab")
    ]
    files = tuple(replace(job.train.files[0], url=url) for url in remote)
    index = replace(job.train_index, class_counts=np.repeat(job.train_index.class_counts, 3, axis=0))
    source = replace(job.train, files=files, samples=("",) * 3)
    text = json.dumps(replace(job, train=source, train_index=index).definition(1))
    assert SECRET not in text
    assert all(f"https://host/{name}" in text for name in ("a.root", "a.root (2)", "b.root"))
    assert path in json.dumps(job.definition(1))


def test_a_new_token_changes_neither_the_split_nor_the_definition_of_a_run(inputs):
    split, entries = Split("train", 0.3, 1), np.arange(100)
    urls = [f"root://host//a/b.root?authz={token}" for token in ("one", "two")]
    assert np.array_equal(*(split.contains(url, entries) for url in urls))
    definition = json.loads(json.dumps(_job(inputs).definition(1)))
    facts = next(iter(definition["train"]["files"].values()))
    definition["train"]["files"] = {urls[0]: facts}
    assert with_defaults(definition)["train"]["files"] == {"root://host//a/b.root": facts}


def test_a_new_token_is_no_reason_to_fill_the_cache_again(inputs, tmp_path):
    job = _job(inputs)
    cache, file = BatchCache(tmp_path, job.train.config), job.train.files[0]
    paths = {cache.path(replace(file, url=f"root://h//a.root?authz={token}"), 0, 9) for token in "ab"}
    assert paths == {cache.path(replace(file, url="root://h//a.root"), 0, 9)}


def test_check_prints_no_tokens():
    report_of_check = CheckReport()
    report_of_check.error(f"https://h/a.root?t={SECRET}", f"as https://h/b.root?t={SECRET}, in b")
    assert SECRET not in repr(report_of_check.findings)
