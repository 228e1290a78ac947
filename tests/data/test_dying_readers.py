"""Reading processes that die, at any time: one clear error where jets are waited for; nothing hangs."""

import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from dataclasses import replace

import pytest

from jets import write_jets
from partt.data.config.data_config import load_data_config
from partt.data.files.lists import InputFile
from partt.data.reading.batches import UnitReader, ordered_batches, training_batches
from partt.data.reading.jet_index import build_index
from partt.data.reading.jet_source import open_source
from partt.errors import DataError

LONG = "x" * 10**6  # a pipe has room for 64 kB
DIED = r"a process that reads jets has died \(SIGKILL\); if memory ran out, use fewer workers"


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Return a source of three chunks and its index."""
    folder = tmp_path_factory.mktemp("jets")
    urls = [str(write_jets(folder / f"{name}.root", 60, [name])) for name in ("QCD", "Hbb", "Tbl")]
    source = open_source([InputFile("", url) for url in urls], load_data_config("jetclass_kin"))
    return source, build_index(source)


def stream(opened, *, num_workers=1):
    return training_batches(
        *opened, batch_size=16, seed=0, num_workers=num_workers, should_stop=lambda: False
    )


def let_readers(monkeypatch, act) -> None:
    """Let a reader do something else with the jets of a unit that it has read."""
    read = UnitReader._read
    monkeypatch.setattr(UnitReader, "_read", lambda *arguments: act(read(*arguments)))


def kill_when_it_hands_over(batches) -> None:
    """Kill the reader when something of its next jets is in the pipe."""
    (reader,) = multiprocessing.active_children()
    wait_for_its_message(batches)
    reader.kill()
    os.waitid(os.P_PID, reader.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet reaped
    time.sleep(0.05)  # torch's signal handler would raise here, and anywhere else


def wait_for_its_message(batches) -> None:
    items = batches.gi_frame.f_locals["units_read"].gi_frame.f_locals["items"]
    assert items._worker_result_queue._reader.poll(60)


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
    while "data_queue" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["data_queue"]._writer._send((1000).to_bytes(4, "big") + b"x")
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_in_the_middle_of_a_message_that_is_waited_for(opened, monkeypatch, num_workers):
    let_readers(monkeypatch, announce_and_die)
    with pytest.raises(DataError, match=DIED):
        next(stream(opened, num_workers=num_workers))


def test_before_its_jets_are_fetched(opened):
    """They are announced, and it still seems to be alive, as in the first moment after a kill."""
    batches = stream(opened)
    next(batches)
    wait_for_its_message(batches)
    (reader,) = multiprocessing.active_children()
    reader.kill()
    reader.join()
    reader.is_alive = lambda: True
    with pytest.raises(DataError, match="a process that reads jets has died"):
        deque(batches, maxlen=0)


def test_before_the_first_batch(opened, monkeypatch):
    let_readers(monkeypatch, lambda _: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(DataError, match=DIED):
        next(stream(opened))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_handler_of_the_user_stays(opened, num_workers):
    next(stream(opened))  # torch has installed its handler
    calls = []
    before = signal.signal(signal.SIGCHLD, lambda *_: calls.append(1))
    try:
        mine = signal.getsignal(signal.SIGCHLD)
        deque(ordered_batches(*opened, batch_size=16, num_workers=num_workers), maxlen=0)
        assert signal.getsignal(signal.SIGCHLD) is mine
        assert bool(calls) == (num_workers > 0)  # readers ended
    finally:
        signal.signal(signal.SIGCHLD, before)
