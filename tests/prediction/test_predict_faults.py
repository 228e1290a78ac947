"""Faults during prediction: clear errors, nothing half-written, and the same command finishes the job."""

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
from contextlib import redirect_stderr

import numpy as np
import pytest

import partt
from jets import make_jets, write_jets
from partt.cli.main import main
from partt.data.files.lists import expand_files
from partt.data.files.tables import AuthenticationError, inspect_file, write_table
from partt.data.reading.jet_source import BadFilePolicy
from partt.data.variables import take
from partt.errors import ConfigError, DataError, OutputError
from partt.prediction import opened_files
from partt.prediction import predict as run_module
from partt.prediction.chunks import ChunkTasks
from partt.prediction.options import Options
from partt.scores.origin import Balance
from partt.scores.scores import Scores
from partt.tagger import tagger as tagger_module
from partt.tagger.tagger_file import save_tagger
from prediction_jobs import assert_same_columns, columns, make_tagger, saved_tagger

FORK = multiprocessing.get_context("fork")  # importing torch in a new process takes seconds


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(opened_files, "CHUNK_ENTRIES", 11)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    return saved_tagger(tmp_path_factory.mktemp("tagger") / "t.safetensors")


@pytest.fixture
def files(tmp_path):
    return [write_jets(tmp_path / f"{name}.root", 40, seed=seed) for seed, name in enumerate("abc")]


def in_pieces(path, num_jets=64, seed=0):
    """Write a file whose baskets are small, so that a part of it can be broken."""
    jets = make_jets(num_jets, seed=seed)
    pieces = np.split(np.arange(num_jets), 4)
    write_table(path, ({name: take(column, piece) for name, column in jets.items()} for piece in pieces))
    return path


def broken_in_the_middle(path):
    """Write a file that opens, and whose last basket of part_pz cannot be read."""
    import uproot

    in_pieces(path)
    with uproot.open(path) as file:
        start = int(file["tree"]["part_pz"].member("fBasketSeek")[3])
    contents = bytearray(path.read_bytes())
    contents[start : start + 60] = bytes(60)
    path.write_bytes(contents)
    return path


def leftovers(folder):
    return [path.name for path in folder.rglob("*") if ".tmp" in path.name]


# --- killed, stopped, changed ---


def test_killed_again_and_again_it_ends_as_if_it_had_not_been(tagger, files, tmp_path):
    partt.predict(tagger, files, tmp_path / "whole", num_threads=1)
    delays = random.Random(4)
    num_kills = 0
    for attempt in range(60):
        child = FORK.Process(
            target=partt.predict, args=(tagger, files, tmp_path / "out"), kwargs={"num_threads": 1}
        )
        child.start()
        child.join(delays.uniform(0.02, 0.3) if attempt < 8 else None)
        if child.exitcode is not None:
            break
        child.kill()
        child.join()
        num_kills += 1
        for path in (tmp_path / "out").glob("[!.]*.root"):  # a file under its final name is complete
            assert_same_columns(path, tmp_path / "whole" / path.name)
    assert child.exitcode == 0
    assert num_kills >= 3
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == [
        *("a.root", "b.root", "c.root", "predict.json")
    ]
    assert not leftovers(tmp_path)
    for path in files:
        assert_same_columns(tmp_path / "out" / path.name, tmp_path / "whole" / path.name)


def test_complete_outputs_are_kept_and_missing_ones_made(tagger, files, tmp_path):
    out = tmp_path / "out"
    partt.predict(tagger, files[:2], out)
    before = {path.name: path.stat().st_ino for path in out.glob("*.root")}
    result = partt.predict(tagger, files, out)
    assert [output.was_complete for output in result.outputs] == [True, True, False]
    assert result.balance == Balance(entries=120, scored=120)
    assert {name: (out / name).stat().st_ino for name in before} == before
    assert json.loads((out / "predict.json").read_text())["balance"]["entries"] == 120
    assert partt.predict(tagger, files, out).jets_per_second is None


@pytest.mark.parametrize("change", ["tagger", "options", "input"])
def test_outputs_of_something_else_are_made_again_only_with_overwrite(tagger, tmp_path, change):
    path = write_jets(tmp_path / "a.root", 30)
    out = tmp_path / "out"
    partt.predict(tagger, path, out)
    options = {}
    if change == "tagger":
        tagger = make_tagger(labels={"type": "simple", "value": ["label_Hbb", "label_QCD"]})
    elif change == "options":
        options = {"keep": ["part_px"]}
    else:
        write_jets(path, 31)
    with pytest.raises(ConfigError, match=r"a\.root already has other scores: .*--overwrite"):
        partt.predict(tagger, path, out, **options)
    result = partt.predict(tagger, path, out, overwrite=True, **options)
    assert not result.outputs[0].was_complete
    found = columns(out / "a.root")
    assert ("part_px" in found) == (change == "options")
    assert len(found["selected"]) == (31 if change == "input" else 30)
    assert ("score_Tbl" in found) == (change != "tagger")
    summary = json.loads((out / "predict.json").read_text())
    assert len(summary["outputs"]) == 1


def test_files_of_another_origin_are_never_replaced(tagger, tmp_path):
    (tmp_path / "other").mkdir()
    path = write_jets(tmp_path / "a.root", 30)
    other = write_jets(tmp_path / "other" / "a.root", 30, seed=1)
    partt.predict(tagger, path, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"already has other scores: of .*a\.root, not of .*other/a\.root"):
        partt.predict(tagger, other, tmp_path / "out")
    shutil.copy(path, tmp_path / "foreign.root")
    (tmp_path / "foreign.parquet").write_text("not ours")
    for name in ("foreign.root", "foreign.parquet"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(ConfigError, match="already exists and was not made by partt predict"):
            partt.predict(tagger, other, tmp_path / name)
        assert (tmp_path / name).read_bytes() == before


def test_asked_to_stop_it_stops_and_goes_on_later(tagger, files, tmp_path):
    out = tmp_path / "out"
    result = partt.predict(tagger, files, out, should_stop=(out / "a.root").exists)
    assert result.stopped
    assert len(result.outputs) == 1
    assert not (out / "predict.json").exists()
    assert not leftovers(out)
    result = partt.predict(tagger, files, out)
    assert not result.stopped
    assert [output.was_complete for output in result.outputs] == [True, False, False]


def run_command(words, log, limit=None):
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with log.open("w") as file, redirect_stderr(file):
        code = main(words)
    os._exit(code)


def start_command(words, log, limit=None):
    child = FORK.Process(target=run_command, args=([str(word) for word in words], log, limit))
    child.start()
    return child


def test_sigterm_is_exit_code_75(tmp_path, files):
    save_tagger(tmp_path / "t.safetensors", make_tagger())
    words = ["predict", "--tagger", tmp_path / "t.safetensors", *files, "--out", tmp_path / "out"]
    child = start_command([*words, "--threads", "1"], tmp_path / "log")
    end = time.monotonic() + 100
    while not (tmp_path / "out" / "a.root").exists() and time.monotonic() < end:
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGTERM)
    child.join(100)
    assert child.exitcode in {75, 0}  # 0: it had finished
    assert not leftovers(tmp_path)
    assert main([str(word) for word in words]) == 0
    assert (tmp_path / "out" / "predict.json").exists()


# --- disk ---


@pytest.mark.parametrize("suffix", ["root", "parquet"])
def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, suffix):
    save_tagger(tmp_path / "t.safetensors", make_tagger())
    path = in_pieces(tmp_path / "jets.root", 400)
    out = tmp_path / "out"
    words = ["predict", "--tagger", tmp_path / "t.safetensors", path, "--out", out, "--format", suffix]
    child = start_command([*words, "--keep", "part_*"], tmp_path / "log", limit=20_000)
    child.join()
    assert child.exitcode == OutputError.exit_code
    error = (tmp_path / "log").read_text()
    assert f"partt: error: cannot write {out / 'jets'}.{suffix}: File too large" in error
    assert "Traceback" not in error
    assert [path.name for path in out.iterdir() if path.suffix] == []


@pytest.mark.parametrize("apply_selection", [False, True])
def test_entries_that_get_lost_are_an_error(tagger, files, tmp_path, monkeypatch, apply_selection):
    original = run_module.write_output

    def losing(path, file, origin, options, chunks, **made_by):
        def shortened():
            for scores in chunks:
                values = vars(scores) | {
                    name: getattr(scores, name)[1:]
                    for name in ("probabilities", "labels", "selected", "bad", "source_entry")
                }
                values["observers"] = {name: column[1:] for name, column in scores.observers.items()}
                yield Scores(**values)

        return original(path, file, origin, options, shortened(), **made_by)

    monkeypatch.setattr(run_module, "write_output", losing)
    with pytest.raises(OutputError, match=r"a\.root: entries were lost or gained"):
        partt.predict(tagger, files, tmp_path / "out", apply_selection=apply_selection)
    assert not list((tmp_path / "out").glob("*.root"))


# --- bad files ---


def test_a_bad_file_is_an_error(tagger, files, tmp_path):
    broken = broken_in_the_middle(tmp_path / "broken.root")
    inspect_file(str(broken))  # it opens
    with pytest.raises(DataError, match=r"broken\.root: cannot read entries 48 to 64"):
        partt.predict(tagger, [files[0], broken, files[1]], tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").glob("*.root")) == ["a.root"]
    assert not leftovers(tmp_path)


def test_bad_files_are_skipped_counted_and_listed(tagger, files, tmp_path):
    broken = broken_in_the_middle(tmp_path / "broken.root")
    (tmp_path / "page.root").write_text("<html>")
    names = [tmp_path / "page.root", files[0], broken, *files[1:]]
    options = {"on_bad_file": "skip", "max_bad_fraction": 0.5}
    result = partt.predict(tagger, names, tmp_path / "out", **options)
    assert [output.path.stem for output in result.outputs] == ["a", "b", "c"]
    assert [file.url for file in result.bad_files] == [str(tmp_path / "page.root"), str(broken)]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.root")) == ["a.root", "b.root", "c.root"]
    summary = json.loads((tmp_path / "out" / "predict.json").read_text())
    assert [file["input"] for file in summary["bad_files"]] == [str(tmp_path / "page.root"), str(broken)]
    assert "web page" in summary["bad_files"][0]["reason"]
    with pytest.raises(DataError, match="2 of 5 files are bad, more than --max-bad-fraction 0.3 allows"):
        partt.predict(tagger, names, tmp_path / "few", on_bad_file="skip", max_bad_fraction=0.3)
    names[0] = f"Page:{names[0]}"
    with pytest.raises(DataError, match="all files of Page are bad"):
        partt.predict(tagger, names, tmp_path / "lost", **options)
    names = [f"Broken:{broken}", *files]
    with pytest.raises(DataError, match="all files of Broken are bad"):
        partt.predict(tagger, names, tmp_path / "lost", **options)


def test_a_file_that_is_repaired_is_made_later(tagger, files, tmp_path):
    good = files[2].read_bytes()
    files[2].write_bytes(good[:5000])
    options = {"on_bad_file": "skip", "max_bad_fraction": 0.5}
    assert len(partt.predict(tagger, files, tmp_path / "out", **options).bad_files) == 1
    files[2].write_bytes(good)
    result = partt.predict(tagger, files, tmp_path / "out", **options)
    assert [output.was_complete for output in result.outputs] == [True, True, False]
    assert json.loads((tmp_path / "out" / "predict.json").read_text())["bad_files"] == []


def test_files_that_may_not_be_read_are_never_skipped(tagger, files, tmp_path, monkeypatch):
    """The refusal is simulated: CI runs as root, who may read everything."""
    original = tagger_module.read_variables

    def refusing(config, names, file, start, stop):
        if file.url == str(files[1]) and start > 0:
            raise AuthenticationError(f"{file.url}: access denied")
        return original(config, names, file, start, stop)

    monkeypatch.setattr(tagger_module, "read_variables", refusing)
    with pytest.raises(AuthenticationError, match=r"b\.root: access denied"):
        partt.predict(tagger, files, tmp_path / "out", on_bad_file="skip", max_bad_fraction=0.9)


@pytest.mark.parametrize("event", ["vanishes", "changes"])
def test_a_file_that_is_another_one_when_its_turn_comes(tagger, files, tmp_path, event, monkeypatch):
    original = run_module.write_output

    def disturbing(path, *arguments, **made_by):
        provenance = original(path, *arguments, **made_by)
        if path.name == "a.root" and event == "vanishes":
            files[2].unlink()
        elif path.name == "a.root":
            write_jets(files[2], 40, seed=9)
        return provenance

    monkeypatch.setattr(run_module, "write_output", disturbing)
    message = "no such file" if event == "vanishes" else "the file changed after it was inspected"
    with pytest.raises(DataError, match=rf"c\.root: {message}"):
        partt.predict(tagger, files, tmp_path / "out", num_threads=1)


def test_chunks_of_a_dropped_file_are_left_out(tagger, files):
    opened = opened_files.open_inputs(
        expand_files([str(file) for file in files]), tagger, Options(), BadFilePolicy()
    )
    tasks = ChunkTasks(opened.files)
    taken = [next(tasks), next(tasks)]
    tasks.drop_file(0)
    taken += tasks
    assert [(task.number, task.start, task.stop) for task in taken] == [
        *((0, 0, 13), (0, 13, 26)),
        *((1, 0, 13), (1, 13, 26), (1, 26, 40)),
        *((2, 0, 13), (2, 13, 26), (2, 26, 40)),
    ]


# --- names ---


def test_a_class_called_like_a_path_stays_in_the_folder(tmp_path):
    labels = {"type": "custom", "value": {"truth": "label_Hbb"}, "names": ["../../x", "QCD"]}
    tagger = make_tagger(labels=labels)
    folder = tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)
    path = write_jets(folder / "jets.root", 20)
    discriminant = "../../x_vs_QCD"
    partt.predict(tagger, path, folder / "out", discriminants=[discriminant])
    assert sorted(item.name for item in tmp_path.iterdir()) == ["deep"]
    assert sorted(item.name for item in (tmp_path / "deep").iterdir()) == ["folder"]
    found = columns(folder / "out" / "jets.root")
    assert {"score_______x", "label_______x", "______x_vs_QCD"} <= set(found)
    assert json.loads((folder / "out" / "predict.json").read_text())["class_names"] == ["../../x", "QCD"]


def test_missing_inputs_are_named(tagger, tmp_path):
    jets = {name: column for name, column in make_jets(10).items() if name != "part_deta"}
    write_table(tmp_path / "jets.root", jets)
    with pytest.raises(DataError, match=r"jets\.root: tree 'tree' lacks branches .*part_deta"):
        partt.predict(tagger, tmp_path / "jets.root", tmp_path / "out")
