"""Attacks on two trees of partt, 0.1.0 and this one: what real use found in 0.1, and that it does not hold here.

0.1.0 is commit eda1084: `git worktree add --detach FOLDER eda1084`, with an environment that has it installed.
Every attack goes through the command line, in bounded time and memory, and says what became of the promise of
its line (issue 15 of the project: numbers of its lines). The tests named in `test_fault_table.py` are wider;
this shows that each line is a real fault. Not part of `make test`: it needs the old tree.

usage: python tests/faults/on_version_0_1.py OLD_PYTHON [--only TEXT] [--json FILE]
"""

import argparse
import importlib
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
TESTS = HERE.parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(HERE.parent), str(TESTS), *(str(TESTS / name) for name in ("conversion", "evaluation"))]
OLD_FILES = TESTS / "fixtures" / "version_0_1"

MAX_CPU = 10.0  # seconds of the processor, imports excluded
MAX_WAIT = 400  # seconds, for two processes that import torch
MAX_IDLE = 25.0  # seconds without any work
MAX_BYTES = 8 * 2**30
HOLDS = "holds"

# --- commands of a tree ----------------------------------------------------------------------------------

# Imports a tree once, and forks a process for every command: JSON lines in, JSON lines out.
SERVER = r"""
import importlib, json, os, pkgutil, resource, signal, sys, traceback
import partt, partt.cli.main
import matplotlib, onnx, onnxruntime, h5py, torch
matplotlib.use("Agg")
for module in pkgutil.walk_packages(partt.__path__, "partt."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except Exception:
            pass
torch.set_num_threads(1)

def command(request):
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and partt heeds that
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    for name, flags in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(request["folder"] + "/" + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), flags)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))
    torch.set_num_threads = lambda number: None  # a fork has none of OpenMP's threads
    for name, value in request["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if not request["draws"]:
        from matplotlib.figure import Figure
        Figure.draw = lambda *arguments, **options: None
    if request["closed"] == "pipe":
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, 1)
    elif request["closed"]:
        os.close(1)
        sys.stdout = None
    if request["nobody"]:
        os.setgid(65534)
        os.setuid(65534)
    code = 1
    try:
        code = partt.cli.main.main(request["words"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            try:
                stream.flush()
            except Exception:
                traceback.print_exc(file=sys.__stderr__)
        os._exit(code or 0)

print(json.dumps(partt.__file__), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if "pid" in request:
        pid, status, usage = os.wait4(request["pid"], os.WNOHANG)
        answer = [os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime] if pid else None
    else:
        answer = os.fork()
        if answer == 0:
            command(request)
    print(json.dumps(answer), flush=True)
"""


@dataclass
class Result:
    """How a command ended."""

    code: int | None  # None: it did not
    cpu: float
    out: str
    err: str
    is_idle: bool = False  # it did nothing for a long time, and was ended

    def fault(self, *codes: int) -> str:
        """Say how it broke the promise to end soon, with one line and one of these exit codes."""
        if self.code is None:
            return "waits for ever" if self.is_idle else f"still computes after {self.cpu:.0f} s"
        if self.code == -signal.SIGXCPU:
            return f"still computes after {self.cpu:.0f} s"
        if "Traceback" in self.err or "Exception ignored" in self.err:
            kinds = re.findall(r"^(\w[\w.]*(?:Error|Exception|Warning|Interrupt))\b", self.err, re.MULTILINE)
            return f"traceback ({kinds[-1].rpartition('.')[2] if kinds else '?'}), exit {self.code}"
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        if "Warning" in self.err:
            return f"a warning of Python, exit {self.code}"
        if self.code not in codes:
            message = re.sub(r"/\S*/", "", (self.err.strip().splitlines() or ["no message"])[-1])[:90]
            return f"exit {self.code}" + f" ({message})" * (self.code != 0)
        return ""


class Running:
    """A command that runs."""

    def __init__(self, tree: "Tree", pid: int, folder: Path) -> None:
        self.tree, self.pid, self.folder = tree, pid, folder

    def ended(self) -> Any:
        """Return exit code and CPU time, or None."""
        return self.tree.ask({"pid": self.pid})

    def cpu(self) -> float:
        """CPU time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait(self, max_cpu: float = MAX_CPU, max_idle: float = MAX_IDLE) -> Result:
        """Wait until it ends, computes too long, or does nothing for too long."""
        last, since = 0.0, time.monotonic()
        while (end := self.ended()) is None:
            cpu = self.cpu()
            if cpu > last:
                last, since = cpu, time.monotonic()
            is_idle = time.monotonic() - since > max_idle
            if cpu > max_cpu or is_idle:
                os.killpg(self.pid, signal.SIGKILL)
                while self.ended() is None:
                    time.sleep(0.05)
                return self.result(None, cpu, is_idle=is_idle)
            time.sleep(0.05)
        return self.result(*end)

    def wait_until(self, condition: Callable[[], object]) -> bool:
        """Wait until something is true; False: the command has ended before."""
        started = time.monotonic()
        while not condition():
            if not Path(f"/proc/{self.pid}").exists() or self.is_zombie() or time.monotonic() - started > 300:
                return False
            time.sleep(0.01)
        return True

    def is_zombie(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    def result(self, code: int | None, cpu: float, *, is_idle: bool = False) -> Result:
        texts = [(self.folder / name).read_text(errors="backslashreplace") for name in ("stdout", "stderr")]
        return Result(code, cpu, *texts, is_idle)


class Tree:
    """One version of partt."""

    def __init__(self, python: str) -> None:
        self.python = python
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "PYTHONPATH": ""}
        self.server = subprocess.Popen(
            [python, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd="/",
        )  # where there is no partt
        self.path = json.loads(self.server.stdout.readline())

    def ask(self, request: dict[str, Any]) -> Any:
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def start(
        self,
        folder: Path,
        words: str | list[str],
        *,
        limits: dict[str, int] | None = None,
        environment: dict[str, str] | None = None,
        draws: bool = False,
        closed: str = "",
        nobody: bool = False,
    ) -> Running:
        """Start a command in a folder."""
        words = words.split() if isinstance(words, str) else words
        request = {"folder": str(folder), "words": words, "environment": environment or {}, "draws": draws,
                   "limits": {"RLIMIT_AS": MAX_BYTES, **(limits or {})}, "closed": closed, "nobody": nobody}  # fmt: skip
        return Running(self, self.ask(request), folder)

    def run(self, folder: Path, words: str | list[str], max_cpu: float = MAX_CPU, **options: Any) -> Result:
        """Run a command to its end."""
        return self.start(folder, words, **options).wait(max_cpu)

    def run_fresh(
        self, folder: Path, words: list[str], environment: dict[str, str], max_bytes: int
    ) -> Result:
        """Run a command in an interpreter of its own."""

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))

        done = subprocess.run(
            [self.python, "-m", "partt", *words], cwd=folder, capture_output=True, timeout=600, check=False,
            env={**os.environ, **environment}, preexec_fn=limit,
        )  # fmt: skip
        texts = [text.decode(errors="backslashreplace") for text in (done.stdout, done.stderr)]
        return Result(done.returncode, 0.0, *texts)


# --- materials, made by this tree, that both can read -----------------------------------------------------


def make_materials(folder: Path) -> None:
    """Write what the attacks start from."""
    import numpy as np
    from dataset_files import write_quark_gluon

    from jets import write_jets
    from partt.data.files.tables import write_table
    from toy_scores import score_table

    for name in ("pfn", "gru", "part"):
        shutil.copy(OLD_FILES / f"{name}.safetensors", folder)
    shutil.copy(OLD_FILES / "part_raw.onnx", folder / "part.onnx")
    shutil.copy(TESTS / "fixtures" / "part_small_weaver05.pt", folder / "weaver.pt")
    shutil.copy(TESTS / "fixtures" / "top_landscape.h5", folder / "top.h5")
    recipe = (OLD_FILES / "part_run" / "recipe.yaml").read_text()
    (folder / "tiny.yaml").write_text(recipe.replace("data_config.yaml", "config.yaml"))
    shutil.copy(OLD_FILES / "part_run" / "data_config.yaml", folder / "config.yaml")
    write_jets(folder / "jets.root", 100)
    write_jets(folder / "more.root", 60, seed=1)
    for seed, name in enumerate(["QCD", "Hbb", "Hcc"]):
        write_jets(folder / f"{name}.root", 60, [name], seed)
    write_quark_gluon(folder / "qg.npz", 10, save=np.savez)
    write_table(folder / "scores.root", score_table(300))


TRAIN = "train tiny.yaml --train jets.root --val-fraction 0.25 --workers 0 --threads 1 --set epochs=1"
MINE = "a file of mine\n"


def with_config(folder: Path, **changes: Any) -> None:
    """Change the data config of the recipe and of `check`."""
    import yaml

    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}, width=10**9))


CHECK = "check config.yaml jets.root --limit 50"


# --- attacks ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attack:
    """An attack; `act` says what went wrong, or nothing."""

    line: int
    name: str
    test: str  # in tests/, as in test_fault_table.py
    act: Callable[[Tree, Path], str]


ATTACKS: list[Attack] = []


def attack(line: int, name: str, test: str) -> Callable[[Callable[[Tree, Path], str]], Any]:
    """Register an attack."""

    def register(act: Callable[[Tree, Path], str]) -> Callable[[Tree, Path], str]:
        ATTACKS.append(Attack(line, name, test, act))
        return act

    return register


def command(line: int, name: str, test: str, words: str, *codes: int,
            prepare: Callable[[Path], object] = lambda folder: None, **options: Any) -> None:  # fmt: skip
    """Register an attack that is one command, which must end soon with one of these exit codes."""

    def act(tree: Tree, folder: Path) -> str:
        prepare(folder)
        return tree.run(folder, words, **options).fault(*codes)

    ATTACKS.append(Attack(line, name, test, act))


# 1: scores of another tagger

PREDICT = "predict --threads 1 --tagger {}.safetensors {}.root --out {}"
SCORES = "faults/provenance: scores_of_another_tagger_are_refused_and_both_are_named"


def twice(second: str, out: str = "s.root", made: str = "s.root") -> Callable[[Tree, Path], str]:
    def act(tree: Tree, folder: Path) -> str:
        first = tree.run(folder, PREDICT.format("pfn", "jets", out)).fault(0)
        before = (folder / made).read_bytes() if not first else b""
        fault = tree.run(folder, second).fault(2, 3)
        return first or ("overwrote the scores, " * ((folder / made).read_bytes() != before) + fault)

    return act


for name, test, act in (
    ("scores of another tagger in a file", SCORES, twice(PREDICT.format("gru", "jets", "s.root"))),
    ("scores of another tagger in a folder", SCORES, twice(PREDICT.format("gru", "jets", "s"), "s", "s/jets.root")),
    ("scores with other options", "faults/provenance: scores_with_other_options_are_refused",
     twice(PREDICT.format("pfn", "jets", "s.root") + " --keep part_px")),
    ("scores of other inputs", "faults/provenance: scores_of_other_inputs_are_refused",
     twice(PREDICT.format("pfn", "more", "s.root"))),
):  # fmt: skip
    ATTACKS.append(Attack(1, name, test, act))

# 2: provenance


@attack(2, "a predict.json of other files", "faults/provenance: a_predict_json_says_nothing_about_other_files, "
        "the_report_names_the_tagger_of_its_files")  # fmt: skip
def _(tree, folder):
    first = tree.run(folder, PREDICT.format("pfn", "jets", "s/jets.root")).fault(0)
    shutil.copy(folder / "scores.root", folder / "s" / "foreign.root")
    fault = tree.run(folder, "evaluate s/foreign.root --out r", max_cpu=60).fault(0)
    texts = [path.read_text() for name in ("report.html", "metrics.json") for path in [folder / "r" / name]]
    sha = json.loads((folder / "s" / "predict.json").read_text())["tagger_sha256"]
    return (
        first
        or fault
        or "the report names a tagger that did not make the file" * any(sha[:12] in t for t in texts)
    )


@attack(2, "files of two taggers as one model", "faults/provenance: files_of_two_taggers_are_not_one_model")
def _(tree, folder):
    first = tree.run(folder, PREDICT.format("pfn", "jets", "a/a.root")).fault(0)
    second = tree.run(folder, PREDICT.format("gru", "more", "b/b.root")).fault(0)
    return first or second or tree.run(folder, "evaluate a/a.root b/b.root --out r", max_cpu=60).fault(2, 3)


@attack(2, "two outputs in one folder", "faults/provenance: every_output_in_a_folder_keeps_its_record")
def _(tree, folder):
    for tagger in ("pfn", "gru"):
        if fault := tree.run(folder, PREDICT.format(tagger, "jets", f"s/{tagger}.root")).fault(0):
            return fault
    text = (folder / "s" / "predict.json").read_text()
    return "" if "pfn.root" in text and "gru.root" in text else "the record of the first output is lost"


# 3: files of others


def foreign(words: str, names: str, kind: str = "file", max_cpu: float = 60) -> Callable[[Tree, Path], str]:
    """Put files of the user where a command writes; they must stay."""

    def act(tree: Tree, folder: Path) -> str:
        (folder / "mine").write_text(MINE)
        for name in names.split():
            (folder / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(folder / "mine") if kind == "link" else (folder / name).write_text(
                MINE
            )
        result = tree.run(folder, words, max_cpu=max_cpu)
        lost = [name for name in names.split() if (folder / name).read_text(errors="replace") != MINE]
        lost += ["the target of a link"] * ((folder / "mine").read_text(errors="replace") != MINE)
        fault = result.fault(2, 3, 5)
        return (f"overwrote {', '.join(lost)}, " * bool(lost) + fault).strip(", ")

    return act


REFUSED = "faults/foreign_files: what_partt_did_not_make_is_refused"
RUNS = "faults/foreign_files: training_replaces_no_file_of_the_user"
LOCKS = "faults/signals: a_lock_of_somebody_else_is_left_alone"
for name, test, act in (
    ("train onto recipe.yaml and data_config.yaml", RUNS, foreign(TRAIN + " --out .", "recipe.yaml data_config.yaml")),
    ("lock is a file of the user", LOCKS, foreign(TRAIN + " --out run", "run/lock")),
    ("lock is a link", LOCKS, foreign(TRAIN + " --out run", "run/lock", "link")),
    ("convert onto a file of the user", REFUSED, foreign("convert quarkgluon qg.npz --out out/a.root", "out/a.root")),
    ("export onto a file of the user", REFUSED,
     foreign("export pfn.safetensors --inputs standardised --out out/a.onnx", "out/a.onnx")),
    ("evaluate onto a file of the user", REFUSED, foreign("evaluate scores.root --out out", "out/table.tex")),
    ("import-weaver onto a file of the user", REFUSED,
     foreign("import-weaver weaver.pt --arch part --features full --dialect 0.5 --out a.st", "a.st")),
):  # fmt: skip
    ATTACKS.append(Attack(3, name, test, act))


@attack(3, "import-weaver onto its own input", "faults/foreign_files: an_input_is_never_replaced")
def _(tree, folder):
    before = (folder / "weaver.pt").read_bytes()
    fault = tree.run(
        folder, "import-weaver weaver.pt --arch part --features full --dialect 0.5 --out weaver.pt"
    ).fault(2, 3)
    return ("overwrote its input, " * ((folder / "weaver.pt").read_bytes() != before) + fault).strip(", ")


@attack(3, "simulate onto a file of the user", "simulation/run: files_of_others_are_not_replaced")
def _(tree, folder):
    words = "simulate --out sim --jets-per-file 1 --classes Zqq --jets "
    first = tree.run(folder, words + "1", max_cpu=60).fault(0)
    mine = folder / "sim" / "ZToQQ_001.root"
    mine.write_text(MINE)
    fault = tree.run(folder, words + "2", max_cpu=60).fault(2, 3)
    lost = mine.read_bytes() != MINE.encode()
    return first or ("overwrote sim/ZToQQ_001.root, " * lost + fault).strip(", ")


# 4: signals to the process group

for number in (signal.SIGTERM, signal.SIGHUP):

    @attack(4, f"{number.name} to all processes of a training",
            "faults/signals: a_signal_to_the_process_group_saves_and_resumes, "
            "the_command_saves_when_its_process_group_is_signalled")  # fmt: skip
    def _(tree, folder, number=number):
        running = tree.start(
            folder, TRAIN.replace("workers 0", "workers 2").replace("epochs=1", "epochs=5000") + " --out run"
        )
        log = folder / "run" / "metrics.jsonl"
        running.wait_until(lambda: log.exists() and log.read_text().count("\n") > 3)
        os.killpg(running.pid, number)
        fault = running.wait(60).fault(75)
        return fault + ", nothing saved" * (not list((folder / "run").glob("checkpoints/*.json")))


# 5: closed standard output

for name, test, words, made in (
    ("train | head", "training_outlasts_its_reader", TRAIN + " --out run", "run/best.safetensors"),
    (
        "predict >&-",
        "streams_may_be_closed_from_the_start",
        PREDICT.format("pfn", "jets", "s"),
        "s/predict.json",
    ),
    ("check | head, bad files", "the_exit_code_of_check_stays", "check jetclass_kin empty.root", ""),
):

    @attack(5, name, f"faults/pipes: {test}")
    def _(tree, folder, name=name, words=words, made=made):
        (folder / "empty.root").touch()
        fault = tree.run(folder, words, closed="start" if ">" in name else "pipe").fault(0 if made else 3)
        return fault or f"exit 0, {made} is missing" * (not (folder / made).exists())


NUM_SEEDS = int(os.environ.get("PARTT_ATTACKS", "12"))  # of each generator


def family(
    line: int,
    name: str,
    test: str,
    words: str,
    file: str,
    make: Callable[[Path], Iterator[bytes]],
    max_cpu: float = MAX_CPU,
) -> None:
    """Register the first seeds of a generator: each is a file that a command reads."""

    def act(tree: Tree, folder: Path) -> str:
        faults = []
        for contents in make(folder):
            (folder / file).write_bytes(contents)
            faults.append(tree.run(folder, words, max_cpu=max_cpu).fault(0, 2, 3))
            shutil.rmtree(folder / "s", ignore_errors=True)
        found = [fault for fault in faults if fault]
        return f"{len(found)} of {len(faults)} seeds: {found[0]}" if found else ""

    ATTACKS.append(Attack(line, name, test, act))


# 6: weights and bins


def weighted_scores(kind: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        import numpy as np

        from partt.data.files.tables import write_table
        from toy_scores import score_table

        table = score_table(120)
        weights = {
            "negative": np.random.default_rng(1).normal(0.3, 1, 120),
            "only zero": np.zeros(120),
            "1e38": np.full(120, 1e38),
        }.get(kind, np.ones(120))
        write_table(folder / "w.root", table | {"w": weights.astype(np.float32)})

    return prepare


WEIGHTS = "faults/evaluate_attacks: unusual_weights_and_bins_have_a_report"
for kind, more, code, test in (
    ("negative", "", 0, WEIGHTS),
    ("only zero", "", 3, "faults/evaluate_attacks: weights_without_a_sum_are_one_line"),
    ("1e38", "", 0, WEIGHTS),
    ("no", " --bins jet_pt=1,2,3", 0, WEIGHTS),
):
    command(
        6,
        f"evaluate with {kind} weights" if kind != "no" else "bins without jets",
        test,
        f"evaluate w.root --weights w --out r{more}",
        code,
        prepare=weighted_scores(kind),
        draws=True,
        max_cpu=120,
    )


def attacked_scores(folder: Path) -> Iterator[bytes]:
    """Yield files of scores whose weights, scores and observers the generator of the tests has made."""
    import numpy as np

    from partt.data.files.tables import write_table

    tests = importlib.import_module("test_evaluate_attacks")
    for seed in range(NUM_SEEDS):
        random_state = np.random.default_rng(seed)
        labels = random_state.integers(0, 3, 60)
        scores = tests.scores_like(random_state, labels, 3)
        columns = {"w": tests.weights_of(random_state, 60), "jet_pt": tests.observer_of(random_state, 60)}
        columns["w"] = np.ones(60) if columns["w"] is None else columns["w"]
        table = {f"score_{name}": scores[:, number].astype(np.float32) for number, name in enumerate("ABC")}
        table |= {f"label_{name}": (labels == number).astype(np.int32) for number, name in enumerate("ABC")}
        write_table(folder / "made.parquet", table | {name: x.astype(float) for name, x in columns.items()})
        yield (folder / "made.parquet").read_bytes()


family(6, "generated inputs of evaluate", "faults/evaluate_attacks: a_result_or_one_clear_line",
       "evaluate x.parquet --weights w --bins jet_pt=500,750,1000 --out s", "x.parquet", attacked_scores,
       max_cpu=60)  # fmt: skip

# 7: names of classes

for name in ("label_X", "_X"):

    @attack(7, f"a class called {name}", "faults/classes: every_class_that_predict_writes_is_found")
    def _(tree, folder, name=name):
        from jets import make_jets
        from partt.data.files.tables import write_table

        jets = make_jets(100)
        labels = {f"label_{name}": jets["label_QCD"], "label_B": jets["label_Hbb"]}
        labels["label_C"] = 1 - sum(labels.values())
        write_table(folder / "jets.root", jets | labels)
        with_config(folder, labels={"type": "simple", "value": list(labels)})
        steps = (TRAIN + " --out run", "predict --threads 1 --tagger run jets.root --out s",
                 "evaluate s/jets.root --out r")  # fmt: skip
        for words in steps:
            if fault := tree.run(folder, words, max_cpu=60).fault(0):
                return f"{words.split()[0]}: {fault}"
        return (
            ""
            if f'"{name}"' in (folder / "r" / "metrics.json").read_text()
            else "the class is not in the report"
        )


# 8: the proof of a tagger


def tagger_parts(path: Path) -> tuple[dict, dict]:
    """Return header and tensors of a tagger file."""
    import safetensors

    with safetensors.safe_open(path, framework="pt") as file:
        names = list(file.keys())
        return json.loads(file.metadata()["partt"]), {name: file.get_tensor(name) for name in names}


def change_tagger(change: Callable[[dict, dict], object], source: str = "pfn") -> Callable[[Path], None]:
    """Return what changes header or tensors of a tagger file of 0.1, with the right sha256."""

    def prepare(folder: Path) -> None:
        import safetensors.torch

        from partt.tagger.tagger_file import tensors_sha256

        header, tensors = tagger_parts(folder / f"{source}.safetensors")
        change(header, tensors)
        tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
        text = json.dumps(header)
        try:
            sha256 = tensors_sha256(text, tensors)
        except TypeError:
            sha256 = ""
        safetensors.torch.save_file(tensors, folder / "bad.safetensors", {"partt": text, "sha256": sha256})

    return prepare


def set_tensor(name: str, change: Callable[[Any], Any]) -> Callable[[dict, dict], object]:
    return lambda header, tensors: tensors.update({name: change(tensors[name])})


def set_header(**changes: Any) -> Callable[[dict, dict], object]:
    return lambda header, _: header.update(changes)


def tagger_attack(
    line: int, name: str, test: str, change: Callable[[dict, dict], object], **options: Any
) -> None:
    command(line, name, f"faults/tagger_attacks: {test}", PREDICT.format("bad", "jets", "s"), 2, 3,
            prepare=change_tagger(change), **options)  # fmt: skip


INFINITE = float("inf")
tagger_attack(8, "infinite reference logits", "tensors",
              set_tensor("reference.logits", lambda t: t * 0 + INFINITE))  # fmt: skip
tagger_attack(8, "one infinite reference logit of each jet", "tensors",
              set_tensor("reference.logits", lambda t: t.index_fill(1, t.new_zeros(1).long(), INFINITE)))  # fmt: skip


def change_onnx(change: Callable[[Any], object]) -> Callable[[Path], None]:
    """Return what changes an ONNX file of 0.1, with the sha256 that 0.1 wants: without functions."""

    def prepare(folder: Path) -> None:
        import onnx

        from partt.tagger.onnx_file import fingerprint

        model = onnx.load(folder / "part.onnx")
        change(model)
        metadata = {item.key: item.value for item in model.metadata_props if item.key != "sha256"}
        onnx.helper.set_model_props(model, metadata)
        without_functions = onnx.ModelProto.FromString(model.SerializeToString())
        del without_functions.functions[:]
        onnx.helper.set_model_props(model, {**metadata, "sha256": fingerprint(without_functions)})
        (folder / "bad.onnx").write_bytes(model.SerializeToString())

    return prepare


PREDICT_ONNX = "predict --threads 1 --engine onnx --tagger bad.onnx jets.root --out s"


def onnx_attack(line: int, name: str, test: str, change: Callable[[Any], object], **options: Any) -> None:
    command(
        line, name, f"faults/onnx_attacks: {test}", PREDICT_ONNX, 2, 3, prepare=change_onnx(change), **options
    )


def keep_one_output(model: Any) -> None:
    del model.graph.output[1:]


onnx_attack(8, "9 of 10 outputs of an ONNX file removed", "removed_outputs", keep_one_output)

# 9, 10: convert, classes without jets


def huge_identity(folder: Path) -> None:
    import numpy as np

    particles = np.ones((4, 3, 4))
    particles[2, 1, 3] = 2.0**31
    np.savez(folder / "x.npz", X=particles, y=np.ones(4))


command(9, "an identity beyond int32", "faults/convert_attacks: identities_beyond_int32",
        "convert quarkgluon x.npz --out out", 2, 3, prepare=huge_identity)  # fmt: skip


def empty_class(folder: Path) -> None:
    with_config(folder, weights={"reweight_method": "flat", "reweight_vars": {"jet_pt": [0, 1e6]},
                                 "reweight_classes": ["label_QCD", "label_Hbb", "label_Hcc"]})  # fmt: skip


command(10, "check of an empty reweighting class", "faults/classes: an_empty_reweighting_class_is_refused_by_check_too",
        "check config.yaml --train QCD.root Hbb.root --limit 10", 3, prepare=empty_class)  # fmt: skip
command(10, "training with one class", "faults/classes: one_class_is_refused_by_train_and_by_check",
        TRAIN.replace("jets.root --val-fraction 0.25", "QCD.root --val Hbb.root"), 3)  # fmt: skip


@attack(10, "classes without jets are named", "faults/classes: training_names_the_classes_without_jets")
def _(tree, folder):
    words = TRAIN.replace("jets.root --val-fraction 0.25", "QCD.root Hbb.root --val Hcc.root") + " --out run"
    result = tree.run(folder, words)
    return result.fault(0) or "" if "no training jets of Hcc" in result.out else "trains without a word"


# 11: hangs and bombs


def pipe(name: str) -> Callable[[Path], None]:
    return lambda folder: os.mkfifo(folder / name)


for name, words, test in (
    ("x.parquet", "check jetclass_kin x.parquet", "faults/bombs: pipes_as_files_of_jets"),
    ("x.safetensors", PREDICT.format("x", "jets", "s"), "faults/tagger_attacks: pipes_and_sparse_files"),
    ("x.onnx", PREDICT_ONNX.replace("bad", "x"), "faults/onnx_attacks: a_pipe"),
    (
        "x.pt",
        "import-weaver x.pt --arch part --features full --dialect 0.5 --out a.st",
        "faults/tagger_attacks: a_pipe_as_weights",
    ),
    ("x.npz", "convert quarkgluon x.npz --out out", "faults/convert_attacks: pipes"),
    ("x.h5", "convert toplandscape x.h5 --out out", "faults/convert_attacks: pipes"),
):
    command(11, f"a pipe as {name}", test, words, 2, 3, prepare=pipe(name))


def pipe_in_folder(folder_name: str, name: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / folder_name).mkdir()
        os.mkfifo(folder / folder_name / name)

    return prepare


WRITTEN_TO = "faults/foreign_files: files_of_a_run_that_partt_did_not_write"
for folder_name, name, words, test in (
    ("sim", "simulation.json", "simulate --out sim --jets 1 --classes Zqq",
     "simulation/run: files_of_others_are_not_replaced"),
    ("out", "metrics.json", "evaluate scores.root --out out", REFUSED),
    ("run", "lock", TRAIN + " --out run", WRITTEN_TO),
    ("run", "run.json", TRAIN + " --out run --resume", WRITTEN_TO),
):  # fmt: skip
    command(11, f"a pipe as {name}", test, words, 2, 3, prepare=pipe_in_folder(folder_name, name), max_cpu=60)


@attack(11, "2^62 entries by a flipped bit", "faults/bombs: a_flipped_bit_in_the_number_of_entries")
def _(tree, folder):
    """Flip bit 62 of the number of entries of a tree, wherever it stands."""
    import numpy as np

    from partt.data.files.tables import write_table

    write_table(folder / "x.root", {"x": np.arange(12345.0)})
    contents = (folder / "x.root").read_bytes()
    place, faults = -1, []
    while (place := contents.find((12345).to_bytes(8, "big"), place + 1)) >= 0:
        (folder / "x.root").write_bytes(contents[:place] + bytes([0x40]) + contents[place + 1 :])
        faults.append(tree.run(folder, "check jetclass_kin x.root").fault(2, 3))
    return next(filter(None, faults), "")


def config_attack(
    line: int, name: str, test: str, key: str, value: str | Callable[[], str], **options: Any
) -> None:
    """Register an attack by one key of the data config."""

    def prepare(folder: Path) -> None:
        path = folder / "config.yaml"
        others = re.sub(rf"^{key}:.*\n(?:[ -].*\n)*", "", path.read_text(), flags=re.MULTILINE)
        path.write_text(f"{others}\n{key}: {value if isinstance(value, str) else value()}\n")

    command(line, name, test, CHECK, 2, 3, prepare=prepare, **options)


BOMBS = "faults/yaml_attacks: bombs_end_soon"
config_attack(11, "a YAML list of 1 MB", BOMBS, "observers", lambda: "[" + "0," * 499_000 + "]", max_cpu=5)
config_attack(11, "a sexagesimal number", "faults/yaml_attacks: bombs_end_soon, base_60_is_text",
              "selection",
    lambda: "!!int 1" + ":1" * 400_000)  # fmt: skip
config_attack(11, "50 000 observers", "faults/yaml_attacks: too_many_entries",
              "observers",
    lambda: "[" + ", ".join(f"v{i}" for i in range(50_000)) + "]")  # fmt: skip


def sparse(name: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(3 * 2**30)

    return prepare


SPARSE = "faults/yaml_attacks: a_sparse_file_and_a_pipe_are_not_read"
command(11, "a sparse config of 3 GB", SPARSE, "check x.yaml jets.root", 2, 3, prepare=sparse("x.yaml"),
        limits={"RLIMIT_AS": 4 * 2**30})  # fmt: skip


def many_keys(folder: Path) -> None:
    keys = {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(900_000)}
    text = json.dumps(keys).encode()
    (folder / "bad.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)


command(11, "900 000 keys in a tagger", "faults/tagger_attacks: very_many_keys", PREDICT.format("bad", "jets", "s"),
        2, 3, prepare=many_keys)  # fmt: skip

RECIPES = {"batch of 1e18": ("batch_size=1000000000000000000", "recipes_have_bounds"),
           "1e9 blocks": ("model.settings.num_blocks=1000000000", "networks_have_bounds"),
           "width of 1e9": ("model.settings.width=1000000000", "networks_have_bounds")}  # fmt: skip
for name, (change, test) in RECIPES.items():
    command(
        11, f"a recipe with {name}", f"faults/yaml_attacks: {test}", f"{TRAIN} --set {change} --out run", 2, 3
    )
for name, settings in (("1e9 blocks", {"num_blocks": 10**9}), ("width of 1e9", {"width": 10**9})):
    command(11, f"a tagger with {name}", "faults/tagger_attacks: headers", PREDICT.format("bad", "jets", "s"), 2, 3,
            prepare=change_tagger(lambda header, _, settings=settings: header["network_config"].update(settings),
                                  "part"))  # fmt: skip

INDICES = "faults/yaml_attacks: indices_and_lengths_are_whole_numbers"


def formula(text: str) -> Callable[[Path], None]:
    return lambda folder: with_config(folder, selection=f"ak.sum({text}, axis=1) > -1e9")


command(11, "x[:, ::0]", INDICES, CHECK, 2, 3, prepare=formula("part_px[:, ::0]"))
command(12, "pad_none with a float", INDICES, CHECK, 2, 3,
        prepare=formula("ak.fill_none(ak.pad_none(part_px, 2.0), 0)"))  # fmt: skip


def backtracking(folder: Path) -> None:
    with_config(folder, file_magic={"x": {"(a+)+$": 1}}, observers=["x"], selection="x > -1")
    (folder / ("a" * 40 + "!.root")).hardlink_to(folder / "jets.root")


command(11, "a regular expression that backtracks", "faults/yaml_attacks: regular_expressions_do_not_backtrack",
        f"check config.yaml {'a' * 40}!.root --limit 50", 0, 3, prepare=backtracking)  # fmt: skip
command(11, "simulate --jets 1e20", "faults/bombs: numbers_on_the_command_line, too_many_files",
        "simulate --out x --jets 100000000000000000000", 2)  # fmt: skip


def never_written(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "top.h5", "r+") as file:
        old = file["table/table"]
        attributes, dtype = dict(old.attrs), old.dtype
        del file["table/table"]
        file.create_dataset("table/table", shape=(10**12,), dtype=dtype, chunks=(1000,)).attrs.update(
            attributes
        )


command(11, "10^12 rows that were never written", "faults/convert_attacks: rows_that_were_never_written",
        "convert toplandscape top.h5 --out out", 2, 3, prepare=never_written)  # fmt: skip


def scores_of_classes(names: list[str]) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        from partt.data.files.tables import write_table
        from toy_scores import score_table

        write_table(folder / "s.parquet", score_table(500, classes=names))

    return prepare


command(11, "evaluate with 50 classes", "faults/evaluate_attacks: fifty_classes_end_within_seconds",
        "evaluate s.parquet --out r", 0, draws=True, max_cpu=20,  # "within seconds"
        prepare=scores_of_classes([f"c{i}" for i in range(50)]))  # fmt: skip
command(11, "a class name of 100 kB", "faults/evaluate_attacks: a_file_with_a_class_name_of_100_kb",
        "evaluate s.parquet --out r", 3, draws=True, max_cpu=60,
        prepare=scores_of_classes(["A", "B", "x" * 100_000]))  # fmt: skip
command(11, "20 000 bins", "faults/evaluate_attacks: sizes_are_bounded",
        "evaluate scores.root --out r --bins jet_pt=" + ",".join(map(str, range(20_000))), 2, 3, draws=True,
        max_cpu=60)  # fmt: skip

# 12: tracebacks

for tag in ("!!bool foo", "!!timestamp foo", '!!int ""'):
    config_attack(12, tag, "faults/yaml_attacks: tags_are_refused", "selection", tag)


def made_by(module: str, test: str, called: str, *arguments: Any, file: str) -> Iterator[bytes]:
    """Yield the files that a test with a generator gives to the function `called`."""
    tests = importlib.import_module(module)
    made: list[bytes] = []
    before = {name: getattr(tests, name) for name in ("outcome", called, "NUM_ATTACKS")}
    tests.outcome, tests.NUM_ATTACKS = (lambda attempt: attempt()), NUM_SEEDS
    setattr(tests, called, lambda *_: made.append(Path(file).read_bytes()))
    try:
        getattr(tests, test)(*arguments)
    finally:
        for name, value in before.items():
            setattr(tests, name, value)
    yield from made[:NUM_SEEDS]


def attacked_configs(folder: Path) -> Iterator[bytes]:
    from test_yaml_attacks import attacked

    text = (folder / "config.yaml").read_text()
    yield from (attacked(text, random.Random(seed)) for seed in range(3 * NUM_SEEDS))


def attacked_taggers(folder: Path) -> Iterator[bytes]:
    parts = tagger_parts(folder / "pfn.safetensors")
    path = folder / "made.safetensors"
    return made_by(
        "test_tagger_attacks", "test_attacks_on_tagger_files", "load_tagger", path, parts, file=str(path)
    )


def attacked_onnx(folder: Path) -> Iterator[bytes]:
    path = folder / "made.onnx"
    contents = (folder / "part.onnx").read_bytes()
    return made_by("test_onnx_attacks", "test_attacks", "load_tagger", contents, path, file=str(path))


def attacked_weights(folder: Path) -> Iterator[bytes]:
    file = str(folder / "w.pt")
    return made_by("test_tagger_attacks", "test_attacks_on_weights", "refused_weights", folder, file=file)


def attacked_npz(folder: Path) -> Iterator[bytes]:
    file = str(folder / "x.npz")
    return made_by("test_convert_attacks", "test_attacks", "convert", folder, "quarkgluon", file=file)


def attacked_h5(folder: Path) -> Iterator[bytes]:
    file = str(folder / "x.h5")
    return made_by("test_convert_attacks", "test_attacks", "convert", folder, "toplandscape", file=file)


IMPORT = "import-weaver x.pt --arch part --features full --dialect 0.5 --out a.st"
family(12, "generated configs", "faults/yaml_attacks: attacks", CHECK, "config.yaml", attacked_configs)
family(12, "generated taggers", "faults/tagger_attacks: attacks_on_tagger_files", PREDICT.format("bad", "jets", "s"),
       "bad.safetensors", attacked_taggers)  # fmt: skip
family(12, "generated ONNX files", "faults/onnx_attacks: attacks", PREDICT_ONNX, "bad.onnx", attacked_onnx)
family(12, "generated weights", "faults/tagger_attacks: attacks_on_weights", IMPORT, "x.pt", attacked_weights)
family(
    12,
    "generated NPZ files",
    "faults/convert_attacks: attacks",
    "convert quarkgluon y.npz --out s",
    "y.npz",
    attacked_npz,
)
family(
    12,
    "generated HDF5 files",
    "faults/convert_attacks: attacks",
    "convert toplandscape y.h5 --out s",
    "y.h5",
    attacked_h5,
)


def growing(folder: Path) -> None:
    """Let every replacement make names 999 times longer."""
    letters = "apbcdefg"
    magic = {old: new * 999 for old, new in itertools.pairwise(letters)}
    with_config(folder, branch_magic=magic)


command(
    12,
    "branch_magic that grows",
    "faults/yaml_attacks: branch_magic_that_grows",
    CHECK,
    2,
    3,
    prepare=growing,
)


def float8(tensor: Any) -> Any:
    import torch

    return tensor.to(torch.float8_e4m3fn)


PX_OFFSETS, PX = "reference.offsets.part_px", "reference.contents.part_px"
for name, change in (
    ("bfloat16 tensors", set_tensor(PX, lambda t: t.bfloat16())),
    ("float8 tensors", set_tensor(PX, float8)),
    ("offsets beyond the contents", set_tensor(PX_OFFSETS, lambda t: t * 1000)),
    ("offsets that fall", set_tensor(PX_OFFSETS, lambda t: t.flip(0))),
    ("offsets of two dimensions", set_tensor(PX_OFFSETS, lambda t: t[None])),
    ("contents without a dimension", set_tensor(PX, lambda t: t.sum())),
    ("contents of two dimensions", set_tensor(PX, lambda t: t[:, None])),
    ("no jets", lambda _, tensors: tensors.update(
        {n: t[:1] if "offsets" in n else t[:0] for n, t in tensors.items() if n.startswith("reference.")})),
):  # fmt: skip
    tagger_attack(12, f"a tagger with {name}", "tensors", change)
tagger_attack(12, "a tagger with absurd widths", "headers",
              set_header(network_config={"particle_widths": [10**12], "jet_widths": [8]}))  # fmt: skip


def set_ir_version(model: Any) -> None:
    model.ir_version = 10**6


def deep_metadata(model: Any) -> None:
    next(item for item in model.metadata_props if item.key == "class_names").value = "[" * 100_000


onnx_attack(12, "an unknown IR version", "versions_and_metadata", set_ir_version)
onnx_attack(12, "deep metadata", "versions_and_metadata", deep_metadata)


def odd_weights(change: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        import torch
        from test_tagger_attacks import STATES

        torch.save(STATES[change](torch.load(folder / "weaver.pt", weights_only=True)), folder / "x.pt")

    return prepare


for change in ("numbers as names", "flat", "scalars", "a list"):
    command(12, f"weights: {change}", "faults/tagger_attacks: odd_weights",
            "import-weaver x.pt --arch part --features full --dialect 0.5 --out a.st", 2, 3, prepare=odd_weights(change))  # fmt: skip


def kind_is_text(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "top.h5", "r+") as file:
        file["table/table"].attrs["values_block_0_kind"] = "text"


command(12, "a kind attribute that is a string", "faults/convert_attacks: odd_names_of_columns",
        "convert toplandscape top.h5 --out out", 2, 3, prepare=kind_is_text)  # fmt: skip


def changed_log(text: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / "run").mkdir()
        (folder / "run" / "metrics.jsonl").write_text(text)

    return prepare


for name, text in (
    ("a list", "[1]\n"),
    ("text for a number", '{"kind": "epoch", "step": 4, "epoch": "x", "train_loss": "y", "is_best": true}\n'),
    ("deep", "[" * 100_000 + "\n"),
):
    command(12, f"metrics.jsonl: {name}", "faults/surroundings: a_changed_log_is_one_line_or_is_drawn",
            "evaluate scores.root --run run --out r", 0, 2, 3, prepare=changed_log(text), max_cpu=60)  # fmt: skip


def changed_summary(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "predict.json").write_text(text)


for name, text in (
    ("deep", "[" * 100_000),
    ("half a character", '{"tagger_sha256": "\\ud800", "network": "\\ud800"}'),
):
    command(12, f"predict.json: {name}", "faults/surroundings: evaluate_with_a_changed_predict_json",
            "evaluate scores.root --out r", 0, 2, 3, prepare=changed_summary(text), max_cpu=60)  # fmt: skip

for number, max_bytes in (("2147483648", MAX_BYTES), ("99999", 4 * 2**30)):

    @attack(12, f"--threads {number}", "faults/bombs: numbers_on_the_command_line")
    def _(tree, folder, number=number, max_bytes=max_bytes):
        words = PREDICT.format("part", "jets", "s").replace("--threads 1", f"--threads {number}").split()
        return tree.run_fresh(folder, words, {}, max_bytes).fault(2)


for url in ("ftp://127.0.0.1:1/x.root", "github://x", "zip://x.root"):
    command(12, url.partition(":")[0] + "://", "faults/bombs: urls_without_a_file_system",
            f"check jetclass_kin {url}", 2, 3)  # fmt: skip


@attack(12, "out of memory", "faults/bombs: out_of_memory_is_one_line")
def _(tree, folder):
    """Leave so little memory that the network cannot be computed."""
    from jets import write_jets

    write_jets(folder / "jets.root", 20_000)
    used = int(Path(f"/proc/{tree.server.pid}/statm").read_text().split()[0]) * resource.getpagesize()
    limits = {"RLIMIT_AS": used + 150 * 2**20}
    return tree.run(folder, PREDICT.format("part", "jets", "s"), max_cpu=60, limits=limits).fault(0, 3, 5)


@attack(12, "PYTHONIOENCODING=ascii", "faults/surroundings: a_terminal_without_unicode")
def _(tree, folder):
    words = ["evaluate", "scores.root", "--out", "r"]
    return tree.run_fresh(folder, words, {"PYTHONIOENCODING": "ascii"}, MAX_BYTES).fault(0)


@attack(12, "a file name that is not UTF-8", "faults/surroundings: names_that_are_not_utf8")
def _(tree, folder):
    os.rename(folder / "scores.root", os.fsencode(folder) + b"/sc\xff.root")  # noqa: PTH104 - bytes
    return tree.run(folder, ["evaluate", os.fsdecode(b"sc\xff.root"), "--out", "r"], max_cpu=60).fault(2, 3)


@attack(12, "a full disk under the cache", "faults/surroundings: a_full_disk_under_the_cache_is_a_notice")
def _(tree, folder):
    from jets import write_jets

    write_jets(folder / "jets.root", 1000)
    limits = {"RLIMIT_FSIZE": 1_000_000}  # more than a checkpoint has, less than a cached chunk
    return tree.run(folder, TRAIN + " --cache cache --out run", max_cpu=60, limits=limits).fault(0)


# 13: ONNX functions, spreadsheets


def external_function(model: Any) -> None:
    from test_onnx_attacks import with_external_function

    with_external_function(model)


onnx_attack(13, "external data of an ONNX function", "external_data_anywhere", external_function)


@attack(13, "a cell that a spreadsheet would compute", "faults/evaluate_attacks: a_csv_cell_is_no_formula")
def _(tree, folder):
    scores_of_classes(["=A", "@B", "C"])(folder)
    fault = tree.run(folder, ["evaluate", "s.parquet", "--name", "+m", "--out", "r"], max_cpu=60).fault(0)
    text = "".join(path.read_text() for path in (folder / "r").glob("*.csv"))
    return fault or "a cell begins with = or +" * bool(re.search(r"(^|,)\"?[=@+][A-Zm]", text, re.MULTILINE))


# 14: residue


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*")]


for verb, words in (("convert", "convert quarkgluon big.npz --out out/a.root"),
                    ("evaluate", "evaluate scores.root --out out")):  # fmt: skip

    @attack(14, f"temporary files of a killed {verb}",
            "faults/foreign_files: temporary_files_of_a_killed_command_are_removed_by_the_next_one")  # fmt: skip
    def _(tree, folder, words=words):
        import numpy as np
        from dataset_files import write_quark_gluon

        write_quark_gluon(folder / "big.npz", 20_000, save=np.savez)
        (folder / "out").mkdir()
        running = tree.start(folder, words, draws=True)
        running.wait_until(lambda: hidden(folder / "out"))
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        if not hidden(folder / "out"):
            return "(too quick: nothing was left by the kill)"
        fault = tree.run(folder, words, max_cpu=60).fault(0)
        return fault or f"{', '.join(hidden(folder / 'out'))[:60]} stays" * bool(hidden(folder / "out"))


@attack(14, "a failed export", "faults/foreign_files: a_failed_export_leaves_nothing")
def _(tree, folder):
    limits = {"RLIMIT_FSIZE": 30_000}  # more than preprocess.json has, less than the network
    words = "export part.safetensors --inputs standardised --out out/a.onnx"
    fault = tree.run(folder, words, max_cpu=120, limits=limits).fault(5)
    left = sorted(path.name for path in (folder / "out").rglob("*")) if (folder / "out").exists() else []
    return (fault + f", leaves {', '.join(left)}" * bool(left)).strip(", ")


@attack(14, "a resume after SIGKILL", "faults/signals: after_sigkill_a_resume_starts_at_once")
def _(tree, folder):
    words = TRAIN.replace("workers 0", "workers 2").replace("epochs=1", "epochs=50") + " --out run"
    running = tree.start(folder, words)
    log = folder / "run" / "metrics.jsonl"
    running.wait_until(lambda: log.exists() and log.read_text().count("\n") > 3)
    os.kill(running.pid, signal.SIGKILL)  # not the readers
    while running.ended() is None:
        time.sleep(0.01)
    resumed = tree.start(folder, words + " --resume")
    resumed.wait_until(
        lambda: "lock" in (folder / "stderr").read_text() or "step" in (folder / "stdout").read_text()
    )
    os.killpg(resumed.pid, signal.SIGTERM)
    return resumed.wait(60).fault(75, 0)


@attack(
    14,
    "a tagger without permission",
    "faults/foreign_files: a_tagger_without_permission_is_not_a_missing_one",
)
def _(tree, folder):
    folder.chmod(0o755)
    for parent in (folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    for name in ("stdout", "stderr"):
        (folder / name).touch()
        (folder / name).chmod(0o666)
    (folder / "pfn.safetensors").chmod(0)
    result = tree.run(folder, f"export {folder}/pfn.safetensors --out /nowhere.onnx", nobody=True)
    return (
        result.fault(3) or ""
        if "ermission denied" in result.err
        else "says: No such file" * ("No such file" in result.err) or result.err[-90:]
    )


@attack(14, "a token of a URL in a message", "faults/foreign_files: random_urls_lose_their_secrets")
def _(tree, folder):
    result = tree.run(
        folder, "check jetclass_kin https://me:SECRET@127.0.0.1:1/a.root?authz=SECRET", max_cpu=30
    )
    return result.fault(3) or "prints the token" * ("SECRET" in result.out + result.err)


@attack(14, "a token of a URL in run.json", "faults/foreign_files: run_json_has_no_tokens")
def _(tree, folder):
    with serve(folder) as server:
        words = TRAIN.replace("jets.root", f"{server.url}?authz=SECRET") + " --out run"
        result = tree.run(folder, words, max_cpu=60)
    text = (folder / "run" / "run.json").read_text() if (folder / "run" / "run.json").exists() else ""
    return result.fault(0) or "run.json has the token" * ("SECRET" in text)


# 15: memory


@attack(15, "memory of steps of ever new sizes", "faults/memory: a_step_leaves_nothing_in_memory")
def _(tree, folder):
    """Compare the resident memory after 20 and after 140 steps; oneDNN kept 0.2 MB of kernels a step."""
    words = TRAIN.replace("epochs=1", "jets_per_epoch=16000") + " --out run"
    running = tree.start(folder, words)
    log, sizes = folder / "run" / "metrics.jsonl", []
    for steps in (20, 140):
        running.wait_until(lambda steps=steps: log.exists() and log.read_text().count("\n") > steps)
        text = Path(f"/proc/{running.pid}/status").read_text()
        sizes.append(int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1000)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    grown = sizes[1] - sizes[0]
    return f"grows by {grown:.0f} MB in 120 steps" * (grown > 8)


# 16: servers and other processes


@contextmanager
def serve(folder: Path, fault: str = "") -> Iterator[Any]:
    """Serve jets.root as the server of test_servers.py does."""
    import test_servers

    test_servers.FIXTURE = folder / "jets.root"
    server = test_servers.Server()
    server.fault = fault
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()


class BusyFor:
    """What a server answers for some seconds after the first request."""

    def __init__(self, seconds: float, code: int) -> None:
        self.seconds, self.code, self.end = seconds, code, 0.0

    def __bool__(self) -> bool:
        self.end = self.end or time.monotonic() + self.seconds
        return time.monotonic() < self.end

    def pop(self, _: int) -> int:
        return self.code


SHORT = {"PARTT_REMOTE_TIMEOUT": "2"}
for fault, test in (("silent", "a_silent_server_is_given_up"), ("drip", "a_server_that_drips_is_given_up")):

    @attack(
        16, f"a server that is {'silent' if fault == 'silent' else 'dripping'}", f"faults/servers: {test}"
    )
    def _(tree, folder, fault=fault):
        with serve(folder, fault) as server:
            running = tree.start(folder, ["check", "jetclass_kin", server.url], environment=SHORT)
            started = time.monotonic()
            ended = running.wait_until(lambda: time.monotonic() - started > 100)
            return (
                "holds the command for over 100 s"
                if ended and running.wait(0, 0)
                else running.wait().fault(3)
            )


@attack(16, "SIGTERM while a server is silent", "faults/servers: a_signal_ends_a_prediction_that_waits")
def _(tree, folder):
    with serve(folder, "silent") as server:
        running = tree.start(folder, ["predict", "--threads", "1", "--tagger", "pfn.safetensors", server.url])
        running.wait_until(lambda: server.requests >= 2)
        time.sleep(1)
        os.killpg(running.pid, signal.SIGTERM)
        return running.wait().fault(75)


for code in (429, 503):

    @attack(16, f"a server that answers {code} with Retry-After",
            "faults/servers: a_busy_server_is_asked_again_when_it_says")  # fmt: skip
    def _(tree, folder, code=code):
        """Be busy for five seconds, and say so."""
        with serve(folder) as server:
            server.retry_after, server.busy = "6", BusyFor(5, code)
            return tree.run(folder, ["check", "jetclass_kin", server.url], max_cpu=30).fault(0)


def children(pid: int) -> list[int]:
    return [
        int(item)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for item in (task / "children").read_text().split()
    ]


def torchrun(tree: Tree, folder: Path, words: str, number: int = 2) -> "subprocess.Popen[bytes]":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [
        tree.python,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(number),
        "--master-port",
        str(port),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    with (folder / "stderr").open("wb") as errors:
        return subprocess.Popen([*program, "-m", "partt", *words.split()], cwd=folder, env=environment,
                                stdout=errors, stderr=errors, start_new_session=True)  # fmt: skip


def torchrun_ended(process: "subprocess.Popen[bytes]", folder: Path) -> str:
    try:
        process.wait(MAX_WAIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return f"waits for over {MAX_WAIT} s"
    text = (folder / "stderr").read_text()
    # torch's own report of its agent has a traceback; partt's processes must have none
    return "a traceback of partt" * bool(re.search(r"Traceback[^\0]*?partt/(?:cli|train)", text))


@attack(
    16,
    "a process of torchrun killed",
    "faults/servers: a_dead_process_is_one_line_for_the_others_and_a_resume_goes_on",
)
def _(tree, folder):
    process = torchrun(tree, folder, TRAIN.replace("epochs=1", "epochs=5000") + " --out run")
    log = folder / "run" / "metrics.jsonl"
    while process.poll() is None and not (log.exists() and log.read_text().count("\n") > 3):
        time.sleep(0.1)
    os.kill(children(process.pid)[-1], signal.SIGKILL)
    return torchrun_ended(process, folder)


@attack(16, "a resume on another number of processes", "faults/servers: "
        "a_resume_with_another_number_of_processes_ends_all")  # fmt: skip
def _(tree, folder):
    fault = tree.run(folder, TRAIN + " --out run", max_cpu=60).fault(0)
    process = torchrun(tree, folder, TRAIN + " --set epochs=2 --out run --resume")
    return fault or torchrun_ended(process, folder) or "exit 0" * (process.returncode == 0)


@attack(
    16,
    "a scheduler of dask killed",
    "faults/servers: a_killed_scheduler_ends_a_prediction_and_a_rerun_completes",
)
def _(tree, folder):
    import test_servers

    copies = [str(folder / f"jets_{number}.root") for number in range(80)]
    for copy in copies:
        Path(copy).hardlink_to(folder / "jets.root")
    python, sys.executable = sys.executable, tree.python
    path, sys.path[:] = sys.path[:], []
    try:
        with test_servers.dask_cluster() as (address, scheduler):
            words = ["predict", "--tagger", f"{folder}/pfn.safetensors", "--out", f"{folder}/s", *copies]
            words += ["--scheduler", address]
            running = tree.start(folder, words)
            running.wait_until(lambda: any((folder / "s").glob("*.root")))
            scheduler.kill()
            return running.wait(max_idle=60).fault(5)
    finally:
        sys.executable, sys.path[:] = python, path


# 17: many small files


@attack(17, "1 000 files of two jets, 256 descriptors", "faults/many_files: "
        "every_file_is_parsed_once_with_few_descriptors")  # fmt: skip
def _(tree, folder):
    from jets import write_jets

    for seed in range(5):
        write_jets(folder / f"small_{seed}.root", 2, seed=seed)
    (folder / "many").mkdir()
    for number in range(1000):
        shutil.copy(folder / f"small_{number % 5}.root", folder / "many" / f"{number}.root")
    words = ["train", "tiny.yaml", "--train", "many/*.root", "--val-fraction", "0.25", "--workers", "0",
             "--threads", "1", "--set", "epochs=1", "--out", "run"]  # fmt: skip
    running = tree.start(folder, words, limits={"RLIMIT_NOFILE": 256})
    log = folder / "run" / "metrics.jsonl"
    if not running.wait_until(lambda: log.exists() and log.stat().st_size):
        return running.wait().fault(0)
    cpu = running.cpu()
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    return f"{cpu:.1f} s of CPU time before the first step" * (cpu > 8)


# --- the table ---------------------------------------------------------------------------------------------


def main() -> None:
    """Run all attacks on both trees, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old_python", help="interpreter that has partt 0.1.0")
    parser.add_argument(
        "--only", default="", help="attacks whose line and name match this regular expression"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    trees = [Tree(options.old_python), Tree(sys.executable)]
    assert trees[0].path != trees[1].path
    order = [(item.line, item.name) for item in ATTACKS]
    known = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    rows = {(row["line"], row["attack"]): row for row in known}
    with tempfile.TemporaryDirectory(prefix="partt-attacks-") as temporary:
        materials = Path(temporary) / "materials"
        materials.mkdir()
        make_materials(materials)
        for number, item in enumerate(ATTACKS):
            if not re.search(options.only, f"{item.line}: {item.name}"):
                continue
            found = []
            for tree, version in zip(trees, ("old", "new"), strict=True):
                folder = Path(temporary) / f"{number}_{version}"
                shutil.copytree(materials, folder)
                try:
                    found.append(item.act(tree, folder) or HOLDS)
                except Exception as error:  # noqa: BLE001 - an attack that cannot be made spoils no other
                    found.append(f"(not tried: {type(error).__name__}: {error})")
                shutil.rmtree(folder, ignore_errors=True)
            row = {
                "line": item.line,
                "attack": item.name,
                "0.1.0": found[0],
                "now": found[1],
                "test": item.test,
            }
            rows[item.line, item.name] = row
            print(" | ".join(map(str, row.values())), flush=True)  # noqa: T201
            if options.json:
                kept = [rows[place] for place in order if place in rows]
                options.json.write_text(json.dumps(kept, indent=1) + "\n")
    for tree in trees:
        tree.server.stdin.close()
        tree.server.wait()


if __name__ == "__main__":
    main()
