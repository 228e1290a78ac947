"""`partt simulate` as a whole: the same files after interruptions, and with any number of workers."""

import inspect
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import partt
from conftest import ROOT
from partt.cli.main import _build_parser, main, parse
from partt.data.files.tables import inspect_file, read_columns
from partt.data.jagged import Jagged
from partt.errors import ConfigError
from partt.simulation.manifest import file_hash
from partt.simulation.processes import LABELS
from toy_scores import write_scores

WORDS = ["--jets", "6", "--jets-per-file", "3", "--seed", "5"]
CLASSES = ["--classes", "Zqq", "Hbb"]  # unless a test gives others
EXTRA = ["--extra", "vertices", "generator"]
FILES = ["HToBB_000.root", "HToBB_001.root", "ZToQQ_000.root", "ZToQQ_001.root"]


def all_words(words):
    return [*WORDS, *([] if "--classes" in words else CLASSES), *words]


def simulate(out, *words):
    return main(["simulate", "--out", str(out), *all_words(words)])


def start(out, *words, **options):
    command = [sys.executable, "-m", "partt", "simulate", "--out", str(out), *all_words(words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True, **options
    )


def columns(path):
    return read_columns(str(path), list(inspect_file(str(path)).branches))


def assert_same_columns(left, right, num_jets=None, *, more=()):
    """Compare two files; with `num_jets` their first jets. The right one has the columns `more` besides."""
    left, right = columns(left), columns(right)
    assert set(right) - set(left) == set(more)
    assert list(left) == [name for name in right if name not in more]
    for name, column in left.items():
        for one, other in zip(split(column, num_jets), split(right[name], num_jets), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)


def split(column, num_jets):
    """Return the arrays of the first jets of a column."""
    if not isinstance(column, Jagged):
        return [column[:num_jets]]
    offsets = column.offsets if num_jets is None else column.offsets[: num_jets + 1]
    return [offsets, column.contents[: offsets[-1]]]


def produced(out):
    return sorted(str(path.relative_to(out)) for path in out.glob("**/*.root"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    assert simulate(out) == 0
    assert produced(out) == FILES
    return out


@pytest.fixture(scope="module")
def with_extras(tmp_path_factory):
    """The same jets, made by two workers, with all extra branches."""
    out = tmp_path_factory.mktemp("with_extras")
    assert simulate(out, *EXTRA, "--workers", "2") == 0
    return out


def test_extra_branches_and_local_processes_change_no_other_column(undisturbed, with_extras):
    assert produced(with_extras) == FILES
    vertex = ["px", "py", "pz", "energy", "deta", "dphi", "mass", "ntracks", "chi2"]
    vertex += ["dxy", "dxyerr", "d3d", "d3derr", "costheta"]
    generator = [f"gen_jet_{name}" for name in ("pt", "eta", "phi", "mass", "sdmass", "nparticles")]
    more = ["part_origin", "gen_resonance_mass", *generator, "jet_nsv", "nsv"]  # nsv: uproot's counter
    for name in FILES:
        assert_same_columns(
            undisturbed / name, with_extras / name, more=more + [f"sv_{name}" for name in vertex]
        )
        types = inspect_file(str(with_extras / name)).branches
        assert types["part_origin"] == types["part_isMuon"]
        assert types["sv_mass"] == types["part_px"]
        assert types["gen_jet_mass"] == types["jet_nsv"] == types["jet_pt"]


def test_other_options_are_refused_in_the_same_folder(undisturbed, with_extras, capsys):
    assert simulate(undisturbed, *EXTRA) == 2
    assert "--extra: not given there, generator vertices here" in capsys.readouterr().err
    assert simulate(with_extras) == 2
    assert "--extra: generator vertices there, not given here" in capsys.readouterr().err
    assert simulate(undisturbed, "--mass-range", "30:250") == 2
    assert "--mass-range: not given there, 30:250 here" in capsys.readouterr().err
    assert simulate(with_extras, "--extra", "generator", "vertices", "vertices") == 0  # in any order
    assert "0 files made" in capsys.readouterr().out


def test_masses_from_a_range(tmp_path, capsys):
    words = ["--classes", "Wqq", "--jets", "4", "--jets-per-file", "4"]
    assert simulate(tmp_path, *words, "--mass-range", "90.5:120", "--extra", "generator") == 0
    mass = columns(tmp_path / "WToQQ_000.root")["gen_resonance_mass"]
    assert ((mass >= 90.5) & (mass <= 120)).all()
    assert len(np.unique(mass)) == 4
    assert simulate(tmp_path, *words, "--mass-range", "90:120", "--extra", "generator") == 2
    assert "--mass-range: 90.5:120 there, 90:120 here" in capsys.readouterr().err


def test_the_files_have_the_requested_jets(undisturbed):
    for name in FILES:
        info = inspect_file(str(undisturbed / name))
        assert (info.tree, info.num_entries) == ("tree", 3)
    first, second = (columns(undisturbed / name)["jet_pt"] for name in FILES[:2])
    assert not np.intersect1d(first, second).size


def test_complete_files_are_kept_and_more_jets_extend_the_set(undisturbed, tmp_path, capsys):
    out = tmp_path / "out"
    assert simulate(out, "--jets", "4") == 0  # the second file of each class has one jet
    hashes = {name: file_hash(out / name) for name in FILES}
    for name in FILES:
        assert_same_columns(out / name, undisturbed / name, num_jets=1)
    assert simulate(out) == 0
    assert "2 files made" in capsys.readouterr().out
    for name in FILES:
        assert_same_columns(out / name, undisturbed / name)
        assert (file_hash(out / name) == hashes[name]) == name.endswith("000.root")
    assert simulate(out, "--jets", "4") == 2
    assert "more jets" in capsys.readouterr().err


def test_a_damaged_or_missing_file_is_made_again(undisturbed, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(undisturbed, out)
    damaged = out / FILES[2]
    content = bytearray(damaged.read_bytes())
    content[-500] ^= 1
    damaged.write_bytes(content)
    (out / FILES[3]).unlink()
    assert simulate(out) == 0
    assert "2 files made" in capsys.readouterr().out
    for name in FILES:
        assert_same_columns(out / name, undisturbed / name)


@pytest.mark.parametrize("kind", ["file", "scores", "link", "broken link", "folder", "pipe"])
@pytest.mark.parametrize("name", ["HToBB_002.root", "simulation.json"])
def test_files_of_others_are_not_replaced(undisturbed, tmp_path, capsys, kind, name):
    """Also where a folder of its own jets is extended."""
    out, mine = tmp_path / "out", tmp_path / "mine"
    shutil.copytree(undisturbed, out)
    mine.write_text("a file of mine\n")
    path = out / name
    path.unlink(missing_ok=True)
    if "link" in kind:
        path.symlink_to(mine)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "scores":  # a ROOT file, but not of simulated jets
        write_scores(path)
    else:
        shutil.copy(mine, path)
    if kind == "broken link":
        mine.unlink()
    before = {other: other.read_bytes() for other in out.iterdir() if other.is_file()}
    assert simulate(out, "--jets", "9") in {2, 3, 5}
    assert capsys.readouterr().err.count("\n") == 1
    assert {other: other.read_bytes() for other in out.iterdir() if other.is_file()} == before
    assert path.is_symlink() == ("link" in kind)
    assert mine.exists() == (kind != "broken link")


def test_a_file_that_a_killed_command_did_not_list_is_made_again(undisturbed, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(undisturbed, out)
    manifest = json.loads((out / "simulation.json").read_text())
    del manifest["files"][FILES[3]]
    (out / "simulation.json").write_text(json.dumps(manifest))
    assert simulate(out) == 0
    assert "1 file made" in capsys.readouterr().out
    assert_same_columns(out / FILES[3], undisturbed / FILES[3])


def test_another_seed_is_refused_in_the_same_folder(undisturbed, capsys):
    assert simulate(undisturbed, "--seed", "6") == 2
    assert "--seed: 5 there, 6 here" in capsys.readouterr().err


def test_from_python(undisturbed, tmp_path):
    seen = []
    settings = {"jets": 6, "jets_per_file": 3, "classes": ["Zqq"], "seed": 5}
    result = partt.simulate(tmp_path, **settings, progress=lambda done, total: seen.append((done, total)))
    assert (result.folder, result.files_made, result.jets_made, result.files_kept) == (tmp_path, 2, 6, 0)
    assert (seen[0], seen[-1]) == ((0, 6), (6, 6))
    for name in FILES[2:]:
        assert_same_columns(tmp_path / name, undisturbed / name)
    again = partt.simulate(str(tmp_path), **settings)
    assert (again.files_made, again.files_kept, again.jets_per_second) == (0, 2, None)
    for where in ({"workers": 2, "scheduler": "tcp://x"}, {"workers": 0}):
        with pytest.raises(ConfigError, match="workers on this machine"):
            partt.simulate(tmp_path, **settings, **where)


def test_defaults_in_python_are_those_of_the_command_line():
    options = vars(parse(["simulate", "--out", "jets", "--jets", "6"]))
    for name, parameter in inspect.signature(partt.simulate).parameters.items():
        if name not in {"out", "jets", "progress", "should_stop"}:
            default = LABELS if name == "classes" and not options[name] else options[name]
            assert (tuple(default) if isinstance(default, list) else default) == parameter.default, name


def test_workers_still_go_by_their_old_name(capsys):
    assert parse(["simulate", "--out", "jets", "--jets", "6", "--jobs", "2"]).workers == 2
    with pytest.raises(SystemExit, match="0"):
        main(["simulate", "--help"])
    shown = capsys.readouterr().out
    assert "--workers N" in shown
    assert "--jobs" not in shown


def group_is_gone(group, patience=20.0):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
def test_killed_at_random_times_it_ends_with_the_same_files(undisturbed, tmp_path):
    seed = int(time.time())
    delays = random.Random(seed)
    for _ in range(3):
        process = start(tmp_path, "--workers", "2")
        try:
            process.communicate(timeout=delays.uniform(1.0, 7.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert group_is_gone(process.pid), "workers outlive the process that started them"
    for name in produced(tmp_path):
        if Path(name).name in FILES:  # whatever has its final name is complete
            assert_same_columns(tmp_path / name, undisturbed / name)
    assert simulate(tmp_path, "--workers", "2") == 0, f"seed {seed}"
    assert sorted(path.name for path in tmp_path.iterdir()) == [*FILES, "simulation.json"], (
        f"seed {seed}: leftovers"
    )
    for name in FILES:
        assert_same_columns(tmp_path / name, undisturbed / name)


def test_an_interrupted_command_says_how_to_continue(tmp_path):
    # If the tests run in the background of a shell, their child processes would ignore this signal.
    process = start(tmp_path, "--jets", "60", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    end = time.monotonic() + 100
    while not (tmp_path / "simulation.json").exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=200)
    assert process.returncode == 75, error
    kept = "complete files are kept; the same command makes the rest"
    assert error.splitlines()[-1:] == [f"stopped by a signal: {kept}"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_workers_that_are_starting(tmp_path, number):
    """Batch systems signal all processes, also those that do not handle signals yet."""
    process = start(tmp_path, "--workers", "2", "--classes", "Zqq")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end = time.monotonic() + 100
    while (
        len(children.read_text().split()) < 2 and time.monotonic() < end
    ):  # one may be the tracker of semaphores
        time.sleep(0.001)
    os.killpg(process.pid, number)
    _, error = process.communicate(timeout=200)
    assert process.returncode == 75, error
    assert "Traceback" not in error
    assert group_is_gone(process.pid)
    assert [path.name for path in tmp_path.iterdir()] == ["simulation.json"]


def test_a_killed_worker_is_a_clear_error_and_complete_files_stay(tmp_path):
    process = start(tmp_path, "--workers", "2", "--jets", "60")
    end = time.monotonic() + 100
    while not list(tmp_path.glob("*.root")) and time.monotonic() < end:
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    worker = next(int(pid) for pid, command in commands.items() if b"spawn_main" in command)
    os.kill(worker, signal.SIGKILL)
    _, error = process.communicate(timeout=200)
    assert process.returncode == 5, error
    assert "a worker process died" in error
    assert "complete files are kept" in error
    assert "Traceback" not in error
    assert list(tmp_path.glob("*.root"))
    assert group_is_gone(process.pid)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_full_disk_is_a_clear_error(tmp_path, workers):
    """RLIMIT_FSIZE makes writes fail after 20 kB, as a full disk does."""
    limit = (20_000, 20_000)
    process = start(
        tmp_path, "--workers", workers, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    )
    _, error = process.communicate(timeout=200)
    assert process.returncode == 5, error
    assert "cannot write" in error
    assert "complete files are kept" in error
    assert "Traceback" not in error
    assert not produced(tmp_path)
    assert not list(tmp_path.glob(".*tmp*"))


def test_splits_go_to_folders(tmp_path):
    words = ["--split", "train=0.5,test=0.5", "--classes", "Zqq", "--jets-per-file", "10"]
    assert simulate(tmp_path, *words) == 0
    assert produced(tmp_path) == ["test/ZToQQ_000.root", "train/ZToQQ_000.root"]
    train, test = (columns(tmp_path / name)["jet_pt"] for name in produced(tmp_path))
    assert len(train) == len(test) == 3
    assert not np.intersect1d(train, test).size


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_files(with_extras, tmp_path):
    """Run in a separate process: dask leaves threads and sockets behind."""
    script = f"""
import distributed, sys
from partt.cli.main import _build_parser, main
if __name__ == "__main__":
    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster:
        words = {["simulate", "--out", str(tmp_path / "out"), *all_words(EXTRA)]!r}
        sys.exit(main([*words, "--scheduler", cluster.scheduler_address]))
"""
    (tmp_path / "cluster.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "cluster.py")],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    for name in FILES:
        assert_same_columns(tmp_path / "out" / name, with_extras / name)


def test_no_scheduler_answers(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("partt.jobs.dask_cluster.CONNECT_TIMEOUT", "1s")
    assert simulate(tmp_path, "--scheduler", "tcp://127.0.0.1:9") == 5
    assert "no dask scheduler answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--split", "train"],
        ["--classes", "Hxx"],
        ["--extra", "everything"],
        ["--mass-range", "30"],
        ["--mass-range", "30:heavy"],
        ["--workers", "2", "--scheduler", "tcp://x"],
        ["--jobs", "2", "--scheduler", "tcp://x"],
    ],
)
def test_usage_errors(tmp_path, words):
    with pytest.raises(SystemExit, match="2"):
        simulate(tmp_path, *words)


def test_a_card_that_lets_nothing_through(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("partt.simulation.pipeline.MAX_FRUITLESS_EVENTS", 100)
    assert simulate(tmp_path, "--pt-max", "500.001") == 4
    assert "no jet in 100 events" in capsys.readouterr().err


def test_the_long_commands_of_the_docs_are_understood():
    """Short ones are run by tests/test_docs.py."""
    page = (ROOT / "docs" / "reference" / "simulation.md").read_text()
    commands = re.findall(
        r"^partt simulate .*", "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)), re.MULTILINE
    )
    assert len(commands) == 6
    for command in commands:
        options = _build_parser("simulate").parse_args(shlex.split(command, comments=True)[1:])
        assert options.jets >= 5000
