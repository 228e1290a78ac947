"""Reading processes that die, at any time: one clear error where jets are waited for; nothing hangs."""

import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import replace
from itertools import count

import pytest

from jets import write_jets
from partt.data.config.data_config import load_data_config
from partt.data.files.lists import InputFile
from partt.data.reading import reader_processes
from partt.data.reading.batches import UnitReader, ordered_batches, training_batches
from partt.data.reading.jet_index import build_index
from partt.data.reading.jet_source import open_source
from partt.data.reading.reader_processes import read_ahead
from partt.errors import ConfigError, DataError
from partt.jobs.stop_signals import SignalledError

LONG = "x" * 10**6  # a pipe has room for some 200 kB
DIED = r"a process that reads jets has died \(SIGKILL\); if memory ran out, use fewer workers"


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Return a source of three chunks and its index."""
    folder = tmp_path_factory.mktemp("jets")
    urls = [str(write_jets(folder / f"{name}.root", 60, [name])) for name in ("QCD", "Hbb", "Tbl")]
    source = open_source([InputFile("", url) for url in urls], load_data_config("jetclass_kin"))
    return source, build_index(source)


def stream(opened, *, num_workers=1):
    return training_batches(*opened, batch_size=16, seed=0, num_workers=num_workers)


def let_readers(monkeypatch, act) -> None:
    """Let a reader do something else with the jets of a unit that it has read."""
    read = UnitReader.__call__
    monkeypatch.setattr(UnitReader, "__call__", lambda *arguments: act(read(*arguments)))


def kill_when_it_hands_over(batches) -> None:
    """Kill the reader when something of its next jets is in the pipe."""
    (process,) = multiprocessing.active_children()
    (reader,) = batches.gi_frame.f_locals["units_read"].gi_frame.f_locals["readers"]
    assert reader.pipe.poll(60)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet reaped


@pytest.mark.parametrize("is_reaped", [False, True])
@pytest.mark.parametrize("is_halfway", [False, True])
def test_between_waits(opened, monkeypatch, is_halfway, is_reaped):
    """Starting other readers, as a validation does, reaps it."""
    if is_halfway:
        let_readers(monkeypatch, lambda jets: replace(jets, cache_fault=LONG))
    batches = stream(opened)
    next(batches)
    kill_when_it_hands_over(batches)
    if is_reaped:
        assert not multiprocessing.active_children()
    with pytest.raises(DataError, match=DIED):
        deque(batches, maxlen=0)


def test_while_another_loader_reads(opened):
    """The readers of a validation have nothing to do with it; the next wait for training jets says so."""
    batches = stream(opened)
    next(batches)
    kill_when_it_hands_over(batches)
    assert sum(map(len, ordered_batches(*opened, batch_size=16, num_workers=2))) == 180
    with pytest.raises(DataError, match=DIED):
        deque(batches, maxlen=0)


def announce_and_die(_jets) -> None:
    """Send a message's length and its first byte, and die when the parent waits for the rest."""
    frame = sys._getframe()
    while "pipe" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["pipe"]._send((1000).to_bytes(4, "big") + b"x")
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("where", ["main thread", "another thread"])
def test_in_the_middle_of_a_message_that_is_waited_for(opened, monkeypatch, where, num_workers):
    let_readers(monkeypatch, announce_and_die)
    errors = []

    def wait() -> None:
        with pytest.raises(DataError, match=DIED) as error:
            next(stream(opened, num_workers=num_workers))
        errors.append(error)

    if where == "main thread":
        wait()
    else:
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        thread.join(60)
    assert errors


def test_at_any_time(opened):
    """Kill one of two readers at random times; each stream ends with this error."""
    for delay in range(10):
        batches = stream(opened, num_workers=2)
        next(batches)
        reader = multiprocessing.active_children()[0]
        timer = threading.Timer(delay / 200, reader.kill)
        timer.start()
        with pytest.raises(DataError, match=DIED):
            deque(batches, maxlen=0)
        timer.join()
        assert not multiprocessing.active_children()


def test_before_the_first_batch(opened, monkeypatch):
    let_readers(monkeypatch, lambda _: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(DataError, match=DIED):
        next(stream(opened))


def test_signals_are_left_alone(opened):
    calls = []
    before = signal.signal(signal.SIGCHLD, lambda *_: calls.append(1))
    try:
        mine = signal.getsignal(signal.SIGCHLD)
        for _ in ordered_batches(*opened, batch_size=16, num_workers=1):
            assert signal.getsignal(signal.SIGCHLD) is mine
        assert calls  # the reader ended
    finally:
        signal.signal(signal.SIGCHLD, before)


def allow_no_shared_memory(jets):
    """RLIMIT_FSIZE makes shared memory too small, as a container does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    return jets


def test_full_shared_memory(opened, monkeypatch):
    let_readers(monkeypatch, allow_no_shared_memory)
    with pytest.raises(DataError, match=r"cannot hand them over \(.*File too large.*--shm-size"):
        next(stream(opened))


class OwnError(Exception):
    """An error that no reader knows."""


def fail(_jets) -> None:
    raise OwnError("not expected")


def test_other_errors_say_where_they_come_from(opened, monkeypatch):
    let_readers(monkeypatch, fail)
    with pytest.raises(OwnError, match="not expected") as error:
        next(stream(opened))
    assert "in fail" in error.value.__notes__[0]


def sleep_from(number):
    def read(unit):
        time.sleep(120 * (unit >= number))
        return unit

    return read


def test_a_slow_reader_delays_the_end_no_longer_than_it_may(monkeypatch):
    monkeypatch.setattr(reader_processes, "LAST_READ", 0.2)
    results = read_ahead(sleep_from(3), count(), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    before = time.monotonic()
    results.close()
    assert time.monotonic() - before < 60
    assert not multiprocessing.active_children()


def test_a_signal_ends_a_wait():
    results = read_ahead(sleep_from(1), count(), 2, should_stop=lambda: True)
    assert next(results) == 0
    with pytest.raises(SignalledError, match="while waiting for jets"):
        next(results)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("num_units", [0, 1, 2, 3, 7])
def test_every_unit_is_read_once_in_order(num_units):
    units = list(range(num_units))
    for num_processes in range(4):
        assert list(read_ahead(sleep_from(100), units, num_processes)) == units


def raise_foreign_error(_jets) -> None:
    """Raise an error of a class that the parent does not know, and one that cannot be made again."""

    class ForeignError(Exception):
        def __init__(self, text: str, _number: int) -> None:
            super().__init__(text)

    raise ForeignError("of a foreign class", 3)


def test_errors_that_do_not_survive_the_way_are_described(opened, monkeypatch):
    let_readers(monkeypatch, raise_foreign_error)
    with pytest.raises(RuntimeError, match="ForeignError: of a foreign class") as error:
        next(stream(opened))
    assert "in raise_foreign_error" in error.value.__notes__[0]


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("x" * 90, "too long for the sockets .* set TMPDIR to a folder"),
        ("missing/folder", "set TMPDIR to one"),
    ],
)
def test_a_temporary_folder_that_does_not_do(tmp_path, monkeypatch, folder, message):
    """It was blamed on shared memory, after some seconds."""

    def make_folder() -> str:
        return tempfile.mkdtemp(dir=tmp_path / folder)

    if "/" not in folder:
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(reader_processes, "get_temp_dir", make_folder)
    with pytest.raises(ConfigError, match=message):
        next(read_ahead(sleep_from(100), count(), 1))
    assert not multiprocessing.active_children()
