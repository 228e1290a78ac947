"""Event files, read by TensorBoard itself."""

import ctypes
import math
import resource
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from forked_commands import start_forked
from partt.errors import OutputError
from partt.jobs.metrics_file import read_metrics
from partt.training.metrics_log import MetricsLog
from partt.training.run_folder import RunFolder
from partt.training.state import RunState
from partt.training.tensorboard_events import TensorboardFile


def read(folder) -> dict[str, list[tuple[int, float]]]:
    """Return the numbers of a folder by name, with their steps, as TensorBoard shows them."""
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    names = accumulator.Tags()["scalars"]
    return {name: [(each.step, each.value) for each in accumulator.Scalars(name)] for name in names}


def test_tensorboard_reads_the_numbers(tmp_path):
    events = TensorboardFile(tmp_path / "tensorboard", first_step=1)
    events.write(10, {"step/loss": 2.25, "step/lr": 1e-3})
    events.write(300, {"step/loss": 1.5})
    events.write(2**40, {"epoch/AUC of é": 0.75})
    assert read(tmp_path / "tensorboard") == {
        "step/loss": [(10, 2.25), (300, 1.5)],
        "step/lr": [(10, pytest.approx(1e-3))],
        "epoch/AUC of é": [(2**40, 0.75)],
    }


def test_a_resumed_run_hides_what_is_done_again(tmp_path):
    first = TensorboardFile(tmp_path, first_step=1)
    for step in (1, 2, 3):
        first.write(step, {"loss": float(step)})
    second = TensorboardFile(tmp_path, first_step=3)  # in the same second, by the same process
    second.write(3, {"loss": 30.0})
    assert second.path != first.path
    assert read(tmp_path) == {"loss": [(1, 1.0), (2, 2.0), (3, 30.0)]}


def test_a_run_resumed_on_a_machine_whose_clock_is_slow(tmp_path, monkeypatch):
    """TensorBoard reads files in the order of their names."""
    TensorboardFile(tmp_path, first_step=1).write(1, {"loss": 1.0})
    monkeypatch.setattr(time, "time", lambda: 1e9)
    TensorboardFile(tmp_path, first_step=2).write(2, {"loss": 2.0})
    assert read(tmp_path) == {"loss": [(1, 1.0), (2, 2.0)]}


def test_numbers_that_are_not_finite(tmp_path):
    TensorboardFile(tmp_path, 1).write(1, {"a": math.nan, "b": math.inf, "c": 1e300, "d": -1e300})
    found = {name: value for name, [(_, value)] in read(tmp_path).items()}
    assert math.isnan(found["a"])
    assert (found["b"], found["c"], found["d"]) == (math.inf, math.inf, -math.inf)


def test_a_torn_record_hides_nothing_else(tmp_path):
    """A full disk or a kill may tear the last record; a resumed run has a file of its own."""
    torn = TensorboardFile(tmp_path, first_step=1)
    for step in (1, 2):
        torn.write(step, {"loss": float(step)})
    torn.path.write_bytes(torn.path.read_bytes()[:-5])
    TensorboardFile(tmp_path, first_step=2).write(2, {"loss": 20.0})
    assert read(tmp_path) == {"loss": [(1, 1.0), (2, 20.0)]}


@pytest.mark.parametrize("full", ["metrics.jsonl", "tensorboard"])
def test_the_log_of_a_run_on_a_full_disk(tmp_path, full):
    """RLIMIT_FSIZE stands for a full disk: it has room for half of what the third step writes to a file."""
    folder = RunFolder(tmp_path)
    more = {"text": "x" * 1000} if full == "metrics.jsonl" else {}  # which TensorBoard does not get

    def write(log: MetricsLog, step: int) -> None:
        log.write("step", step, {"epoch": 0, "loss": 0.5, **more})

    def write_three() -> int:
        log = MetricsLog(folder, RunState())
        (events,) = folder.tensorboard.iterdir()
        path = events if full == "tensorboard" else folder.metrics
        sizes = [write(log, step) or path.stat().st_size for step in (1, 2)]
        room = sizes[1] + (sizes[1] - sizes[0]) // 2
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        try:
            write(log, 3)
        except OutputError as error:
            return 0 if str(error) == f"cannot write {path}: File too large" else 1
        return 2

    with start_forked(write_three) as process:
        assert process.wait(60) == 0
    write(MetricsLog(folder, RunState(step=2)), 3)
    assert [each["step"] for each in read_metrics(folder.metrics)] == [1, 2, 3]
    assert read(folder.tensorboard) == {"step/loss": [(step, 0.5) for step in (1, 2, 3)]}


@given(
    st.integers(0, 2**62),
    st.dictionaries(st.text(min_size=1, max_size=200), st.floats(width=32), min_size=1, max_size=40),
)
def test_any_name_and_step(tmp_path_factory, step, numbers):
    folder = tmp_path_factory.mktemp("events")
    TensorboardFile(folder, 0).write(step, numbers)
    found = read(folder)
    assert {name: [(at, repr(value))] for name, [(at, value)] in found.items()} == {
        name: [(step, repr(float(value)))] for name, value in numbers.items()
    }


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="no glibc")
def test_training_does_not_load_protobuf():
    """It returns memory to the system that training keeps (malloc_trim)."""
    command = "import sys, partt.training.train; sys.exit('google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
