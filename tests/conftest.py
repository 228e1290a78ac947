"""What all tests share: one thread, reference data and programs that may be absent, and small jet files."""

import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from jets import write_jets

ROOT = Path(__file__).parents[1]
FIXTURES = Path(__file__).parent / "fixtures"
os.environ["OMP_NUM_THREADS"] = "1"  # of torch, in child processes too; tests run in parallel instead
# Threads that wait for others sleep: in a small training on busy cores, most of the CPU time went into waiting.
os.environ["OMP_WAIT_POLICY"] = "passive"
# Jobs in the background and under nohup ignore these, and so would the processes that tests signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run modules with slow tests first, so that no worker of xdist starts one when the others are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    """Let torch use one thread, whatever the test before has set: small tensors are fastest with one."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def skip_or_fail(reason: str) -> None:
    """Skip, but fail in the project's own CI, where nothing may be missing."""
    if os.environ.get("PARTT_NO_SKIPS"):
        pytest.fail(f"{reason}, and PARTT_NO_SKIPS does not allow skipping")
    pytest.skip(reason)


def free_port() -> int:
    """Return a port of the loopback address that nobody listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def reference() -> Path:
    """Return the folder of reference networks and jets, made elsewhere (not part of this repository)."""
    folder = ROOT.parent / "shared" / "reference"
    if not folder.is_dir():
        skip_or_fail(f"no reference data at {folder}")
    return folder


@pytest.fixture(scope="session")
def xrootd_program() -> str:
    """Return the path of the xrootd server program."""
    program = shutil.which("xrootd")
    if program is None:
        skip_or_fail("no xrootd (Debian: apt-get install xrootd-server)")
    return str(program)


@pytest.fixture(scope="session")
def chromium_programs() -> tuple[str, str]:
    """Return the paths of Chromium and of the program that drives it."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        skip_or_fail("no chromium, or no chromedriver (Debian: apt-get install chromium chromium-driver)")
    return str(browser), str(driver)


@pytest.fixture(scope="session")
def jet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of 300 random jets."""
    return write_jets(tmp_path_factory.mktemp("jets") / "jets.root", 300)


@pytest.fixture
def one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reports have one figure, where figures do not matter: it takes a second instead of ten."""
    from partt.evaluation import report
    from partt.evaluation.figures.confusion import draw_confusion

    monkeypatch.setattr(
        report, "draw_figures", lambda found, _epochs: [draw_confusion(found.main.classification)]
    )


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory):
    """Return a function that gives a small tagger and its exported file; processes of xdist share the files."""
    from exported_taggers import exported_once, tagger_to_export

    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

    def get(case, inputs="raw"):
        return tagger_to_export(case), exported_once(case, inputs, folder / "exported")

    return get
