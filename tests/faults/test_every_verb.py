"""Every verb that writes meets every fault of its surroundings: signals, kills, disks, folders, pipes, locks.

Commands run in forked processes (importing torch takes seconds), each in a process group of its own. A command
that pauses does so where a complete temporary file is about to get its name.
"""

import ctypes
import fcntl
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import yaml
from dataset_files import write_quark_gluon
from file_server import FileServer

import partt.downloading.download
import partt.prediction.predict
import partt.simulation.simulate
import partt.training.train  # noqa: F401 - all verbs: loaded once, not in every process
from conftest import FIXTURES
from jets import write_jets
from partt import atomic_files
from partt.cli import demo, screen
from partt.cli.main import VERBS as ALL_VERBS
from partt.cli.main import main
from partt.data.files.tables import inspect_file
from partt.evaluation import report
from partt.evaluation.figures.confusion import draw_confusion
from partt.explanation import explanation_page
from partt.exporting import export as export_module
from partt.exporting.tracing import DEFAULT_OPSET
from partt.jobs import folder_lock
from partt.sample import sample_files, split
from partt.tagger.loading import load_tagger
from partt.tagger.tagger_file import save_tagger
from partt.tagger.weaver import import_weaver
from small_networks import make_tagger
from toy_scores import write_scores
from training_jobs import TINY_RECIPE


@dataclass(frozen=True)
class Verb:
    """A command, the files that it makes in the folder `out`, and what it promises."""

    words: str
    makes: tuple[str, ...]
    pause: int = 1  # at which flush to disk the command pauses
    continues: bool = False  # after a signal: exit code 75, and the rerun keeps what is complete
    limit: int = 400  # bytes that a file can have on a full disk
    locks: str = "out"  # what another process locks
    refused: int = 5  # exit code if it is locked


CHECKPOINT = 11  # the first flush to disk of a training after five small files and their folder
TRAIN = "train tiny.yaml --train jets_0.root --val-fraction 0.25 --out out --threads 1 --workers 0"
PREDICT = "predict --tagger tagger.safetensors jets_0.root jets_1.root --out out --threads 1"
REPORT = ("metrics.json", "table.md", "table.tex", "metrics.csv", "report.html", "figures/confusion.pdf")
RUN = ("run.json", "recipe.yaml", "environment.json", "metrics.jsonl", "best.safetensors", "curves.png")
VERBS = {
    "simulate": Verb(
        "simulate --out out --jets 2 --jets-per-file 1 --classes Zqq",
        ("simulation.json", "ZToQQ_000.root", "ZToQQ_001.root"),
        pause=3,  # the manifest and its folder come first
        continues=True,
        limit=2000,
    ),
    "download": Verb(
        "download small.yaml --out out", ("jets_0.root", "jets_1.root"), continues=True, limit=2000
    ),
    "train": Verb(TRAIN, RUN, pause=CHECKPOINT, continues=True, limit=20_000, locks="out/lock", refused=2),
    "predict": Verb(PREDICT, ("jets_0.root", "jets_1.root", "predict.json"), continues=True),
    "evaluate": Verb("evaluate scores.root --out out", REPORT),
    "explain": Verb(
        "explain tagger.safetensors jets_0.root --out out --threads 1 --jets 30",
        ("explanation.json", "explanation.html", "figures/importance.pdf"),
    ),
    "show": Verb("show tagger.safetensors jets_0.root --entry 1 --out out", ("jets_0_1.png", "jets_0_1.pdf")),
    "export": Verb(
        "export tagger.safetensors --inputs standardised --out out/a.onnx", ("a.onnx", "preprocess.json")
    ),
    "convert": Verb("convert quarkgluon qg_0.npz qg_1.npz --out out", ("qg_0.root", "qg_1.root")),
    "import-weaver": Verb(
        "import-weaver weaver.pt --data-config jetclass_full --dialect 0.5 --out out/a.safetensors",
        ("a.safetensors",),
    ),
    "export-weaver": Verb("export-weaver weaver.safetensors --out out/a.pt", ("a.pt",)),
    "demo": Verb(
        "demo --offline --out out",
        ("jets/train/HToBB_000.root", "run/best.safetensors", "scores/predict.json", "report/report.html"),
        locks="out/run/lock",
        refused=2,
    ),
}
READ_ONLY_VERBS = {"check": "prints what it finds", "taggers": "prints a list"}
WORKERS = {
    "simulate": "tests/simulation/test_run.py::test_a_killed_worker_is_a_clear_error_and_complete_files_stay",
    "train": "test_a_killed_reader",
    "predict": "tests/prediction/test_dask.py::test_a_killed_worker_changes_nothing",
    "demo": "its workers are those of simulate and train",
    **dict.fromkeys(("download", "evaluate", "explain", "show", "export", "convert"), "starts no process"),
    **dict.fromkeys(("import-weaver", "export-weaver"), "starts no process"),
}


def test_no_verb_is_forgotten():
    assert set(VERBS) | set(READ_ONLY_VERBS) == set(ALL_VERBS)
    assert set(WORKERS) == set(VERBS)


# --- inputs --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Iterator[Path]:
    """Yield a folder with the inputs of all verbs."""
    folder = tmp_path_factory.mktemp("inputs")
    recipe = {**TINY_RECIPE, "epochs": 2, "jets_per_epoch": 32, "checkpoint_minutes": 0.0}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    for number in range(2):
        write_jets(folder / f"jets_{number}.root", 60, seed=number)
        write_quark_gluon(folder / f"qg_{number}.npz", 10)
    save_tagger(folder / "tagger.safetensors", make_tagger("pfn"))
    shutil.copy(FIXTURES / "part_small_weaver05.pt", folder / "weaver.pt")
    save_tagger(folder / "weaver.safetensors", import_weaver(folder / "weaver.pt", "jetclass_full", "0.5"))
    write_scores(folder / "scores.root")
    jets = ("jets_0.root", "jets_1.root")
    with FileServer({name: (folder / name).read_bytes() for name in jets}) as server:
        server.write_list(folder / "small.yaml")
        yield folder


@pytest.fixture(scope="module")
def traced(inputs):
    """Return the traced network of the tagger, which takes seconds."""
    return export_module.trace(load_tagger(inputs / "tagger.safetensors"), "standardised", DEFAULT_OPSET)


@pytest.fixture(autouse=True)
def quick(monkeypatch, inputs, request):
    """Draw one figure, let the demo train two classes for one epoch, and trace the exported network once."""
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("verb") == "export":
        model = request.getfixturevalue("traced")
        monkeypatch.setattr(export_module, "trace", lambda *_: deepcopy(model))
    monkeypatch.setattr(
        report, "draw_figures", lambda found, _epochs: [draw_confusion(found.main.classification)]
    )
    monkeypatch.setattr(screen, "PATIENCE", 600.0)  # no progress on standard error, however slow the machine
    figures = explanation_page.draw_figures
    monkeypatch.setattr(explanation_page, "draw_figures", lambda found: list(figures(found))[:1])
    commands = demo.demo_commands

    def short(out):
        recipe = [str(inputs / "tiny.yaml"), "--workers", "0", "--set", "epochs=1"]
        return [[words[0], *recipe, *words[2:]] if words[0] == "train" else words for words in commands(out)]

    monkeypatch.setattr(demo, "demo_commands", short)
    few = [path for path in sample_files() if path.name.startswith(("HToBB", "ZJets"))]
    monkeypatch.setattr(split, "sample_files", lambda: few)


@dataclass(frozen=True)
class Command:
    """A verb in a folder with inputs and with files of the user, also where the outputs go."""

    verb: Verb
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def outputs(self) -> list[Path]:
        """Return all files in `out` but those of the user and locks."""
        kept = {"mine.txt", ".mine", "lock", ".predict.lock"}
        return [path for path in self.out.rglob("*") if path.is_file() and path.name not in kept]

    def start(self, *more: str, prepare: Callable[[], object] = lambda: None) -> "Running":
        """Start the command in a process group of its own."""
        for name in ("paused", "go"):
            (self.folder / name).unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            _run_in_child(self, [*self.verb.words.split(), *more], prepare)
        return Running(child, self.folder)

    def rerun(self) -> None:
        """Run the command to its end; everything is there, and nothing else."""
        more = (
            ["--resume"] if self.verb.words.startswith("train") and (self.out / "run.json").exists() else []
        )
        code, errors = self.start(*more).end()
        assert code == 0, errors
        for name in self.verb.makes:
            assert (self.out / name).exists(), name
        self.assert_sound()

    def assert_sound(self) -> None:
        """Whatever has its final name is complete; nothing hidden is left; the user's files are unchanged."""
        for path in self.outputs():
            assert not path.name.startswith("."), path
            assert_complete(path)
        assert not [path for path in self.out.rglob(".*") if path.is_dir()]
        assert {name: path.read_text() for name, path in self.users_files().items()} == USERS
        for path in self.folder.iterdir():
            if path.is_file() and path.name in self.inputs:
                assert path.read_bytes() == self.inputs[path.name]

    def users_files(self) -> dict[str, Path]:
        return {name: self.out / name for name in USERS}

    @property
    def inputs(self) -> dict[str, bytes]:
        return _INPUTS[self.folder]


USERS = {"mine.txt": "a file of mine", ".mine": "a hidden one"}
_INPUTS: dict[Path, dict[str, bytes]] = {}


@pytest.fixture
def command(inputs, tmp_path) -> Callable[[str], Command]:
    def make(name: str) -> Command:
        shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
        made = Command(VERBS[name], tmp_path)
        made.out.mkdir()
        for file, text in USERS.items():
            (made.out / file).write_text(text)
        _INPUTS[tmp_path] = {path.name: path.read_bytes() for path in inputs.iterdir()}
        return made

    return make


def assert_complete(path: Path) -> None:
    """Fail if a file cannot be read to its end."""
    match path.suffix:
        case ".root":
            assert inspect_file(str(path)).num_entries > 0
        case ".json":
            json.loads(path.read_text())
        case ".safetensors" | ".onnx":
            load_tagger(path)
        case ".pt":
            torch.load(path, weights_only=True)
        case ".pdf":
            assert path.read_bytes().rstrip().endswith(b"%%EOF")
        case ".html":
            assert path.read_text().rstrip().endswith("</html>")
        case ".jsonl":
            for line in path.read_text().splitlines():
                json.loads(line)


# --- processes -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """A command that runs in a forked process."""

    pid: int
    folder: Path

    def wait_until_paused(self) -> None:
        self.wait_until((self.folder / "paused").exists)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not condition():
            assert os.waitpid(self.pid, os.WNOHANG) == (0, 0), (self.folder / "stderr").read_text()
            assert time.monotonic() < end
            time.sleep(0.005)

    def signal_group(self, number: int) -> None:
        os.killpg(self.pid, number)
        (self.folder / "go").touch()

    def end(self) -> tuple[int, str]:
        """Return exit code and error output; progress is not an error."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        lines = (self.folder / "stderr").read_text().splitlines()
        return code, "\n".join(line for line in lines if not line.startswith(PROGRESS))


PROGRESS = ("simulating:", "downloading:", "converting:", "predicting:", "evaluating:", "opening:", "epoch ")


def _run_in_child(command: Command, words: list[str], prepare: Callable[[], object]) -> None:
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(command.folder)
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        prepare()
        code = main(words)
    except BaseException:  # noqa: BLE001 - the parent shows it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def pausing(number: int) -> Callable[[], None]:
    """Return what lets a process pause at its nth flush to disk, until a file `go` appears."""

    def prepare() -> None:
        original, calls = atomic_files._flush_to_disk, iter(range(1, 10**6))

        def flush(path):
            if next(calls) == number:
                Path("paused").touch()
                while not Path("go").exists():
                    time.sleep(0.002)
            original(path)

        atomic_files._flush_to_disk = flush

    return prepare


def assert_one_line(errors: str) -> None:
    assert errors.startswith("partt: "), errors
    assert errors.count("\n") == 0, errors


# --- the faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("verb", VERBS)
def test_a_signal_to_the_process_group(command, verb, number):
    made = command(verb)
    running = made.start(prepare=pausing(made.verb.pause))
    running.wait_until_paused()
    running.signal_group(number)
    code, errors = running.end()
    assert code == (75 if made.verb.continues else 128 + number), errors
    assert errors.count("\n") == 0, errors
    said = (made.folder / "stdout").read_text() + errors
    assert ("same command" if verb in {"simulate", "predict"} else "stopped") in said
    made.assert_sound()
    if number == signal.SIGTERM:
        kept = {path: path.stat().st_ino for path in made.outputs() if path.suffix == ".root"}
        made.rerun()
        assert not made.verb.continues or all(path.stat().st_ino == inode for path, inode in kept.items())


@pytest.mark.parametrize("verb", VERBS)
def test_a_kill_leaves_no_lock(command, verb):
    made = command(verb)
    running = made.start(prepare=pausing(made.verb.pause))
    running.wait_until_paused()
    os.killpg(running.pid, signal.SIGKILL)
    assert running.end()[0] == -signal.SIGKILL
    made.rerun()


@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk(command, verb):
    """RLIMIT_FSIZE makes writes fail, as a full disk does."""
    made = command(verb)
    limit = made.verb.limit
    running = made.start(prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    code, errors = running.end()
    assert code == 5, errors
    assert_one_line(errors)
    assert "cannot write" in errors
    assert "File too large" in errors
    made.assert_sound()
    made.rerun()


def give_up_roots_rights() -> None:
    """Let permissions hold for root too, in this process: give up all capabilities."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    nothing = (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, nothing) == 0


@contextmanager
def read_only(*folders: Path):
    for folder in folders:
        folder.chmod(0o555)
    try:
        yield
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.parametrize("verb", VERBS)
def test_a_read_only_folder(command, verb):
    made = command(verb)
    with read_only(made.out):
        code, errors = made.start(prepare=give_up_roots_rights).end()
    assert code == 5, errors
    assert_one_line(errors)
    assert "cannot write" in errors
    assert "Permission denied" in errors
    assert not made.outputs()
    made.assert_sound()
    made.rerun()


@pytest.mark.parametrize("verb", VERBS)
def test_a_closed_pipe(command, verb):
    def close_output() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, 1)

    made = command(verb)
    code, errors = made.start(prepare=close_output).end()
    assert (code, errors) == (0, "")
    for name in made.verb.makes:
        assert (made.out / name).exists(), name
    made.assert_sound()


@pytest.mark.parametrize("verb", VERBS)
def test_a_lock_of_another_process(command, verb, monkeypatch):
    monkeypatch.setattr(folder_lock, "PATIENCE", 0.3)
    made = command(verb)
    locked = made.folder / made.verb.locks
    locked.parent.mkdir(exist_ok=True)
    descriptor = os.open(locked, os.O_RDONLY | (0 if locked.is_dir() else os.O_CREAT))
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        code, errors = made.start().end()
        assert code == made.verb.refused, errors
        assert_one_line(errors)
        assert "another" in errors
        made.assert_sound()
    finally:
        os.close(descriptor)
    made.rerun()


# --- processes and locks of training --------------------------------------------------------------------


def test_a_killed_reader(command):
    made = command("train")
    slow = ["--workers", "1", "--set", "epochs=5000", "--set", "patience=5000"]
    running = made.start(*slow)
    metrics = made.out / "metrics.jsonl"
    running.wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 2)
    for child in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split():
        with suppress(ProcessLookupError):  # those of a validation come and go
            os.kill(int(child), signal.SIGKILL)
    code, errors = running.end()
    assert code == 3, errors
    assert_one_line(errors)
    assert "a process that reads jets has died" in errors
    made.assert_sound()
    assert list((made.out / "checkpoints").glob("*.json"))


def test_a_lock_that_was_removed_is_taken_again(command):
    made = command("train")
    running = made.start(prepare=pausing(made.verb.pause))
    running.wait_until_paused()
    (made.out / "lock").unlink()
    (made.folder / "go").touch()
    assert running.end() == (0, "")
    assert (made.out / "lock").exists()
    made.assert_sound()


def test_a_run_whose_lock_was_taken_by_another_stops(command):
    """Two runs never write to one folder, even if somebody removes the lock of the first."""
    made = command("train")
    running = made.start(prepare=pausing(CHECKPOINT + 3))  # when the checkpoint is complete
    running.wait_until_paused()
    (made.out / "lock").unlink()
    other = Command(made.verb, made.folder / "other")
    shutil.copytree(made.folder, other.folder, ignore=shutil.ignore_patterns("other", "paused", "go"))
    shutil.rmtree(other.out)
    other.out.symlink_to(made.out)
    code, errors = other.start("--resume").end()
    assert code == 0, errors
    newest = max((made.out / "checkpoints").glob("*.json"))
    before = {path: path.read_bytes() for path in (newest, made.out / "best.safetensors")}
    (made.folder / "go").touch()
    code, errors = running.end()
    assert code == 5, errors
    assert_one_line(errors)
    assert "another process is training" in errors
    assert {path: path.read_bytes() for path in before} == before
