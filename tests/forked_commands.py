"""Commands and programs in forked processes: as in an interpreter of their own, without its seconds of imports."""

import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytorch_optimizer  # noqa: F401 - all that commands import: loaded once, not in every process
import torch

import partt.evaluation.evaluate
import partt.prediction.predict
import partt.simulation.simulate
import partt.training.train  # noqa: F401 - as above
from partt.cli.main import main


def start_forked(work: Callable[[], int], **options: Any) -> "subprocess.Popen[Any]":
    """Start a process that ends with the exit code of `work`; options are those of subprocess.Popen."""
    before = _descriptors()

    def run() -> None:
        code = 1
        try:
            for descriptor in (
                _descriptors() - before - {0, 1, 2}
            ):  # the parent waits until its pipes are closed
                with suppress(OSError):  # that of the list itself
                    os.close(descriptor)
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            torch.set_num_threads(1)
            torch.set_num_threads = lambda _: (
                None
            )  # a fork has none of OpenMP's threads, and would wait for them
            sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
            code = work()
        except BaseException:  # noqa: BLE001 - as an interpreter does it
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)

    # `python` is never run; its signal handlers, such as that of SIGPIPE, stay
    return subprocess.Popen(["python"], preexec_fn=run, restore_signals=False, **options)  # noqa: PLW1509


def _descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208


def start_partt(
    words: Sequence[str], prepare: Callable[[], object] = lambda: None, **options: Any
) -> "subprocess.Popen[Any]":
    """Start `partt` after `prepare`; options are those of subprocess.Popen."""

    def work() -> int:
        prepare()
        return main(words)

    return start_forked(work, **options)


def run_partt(words: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
    """Run `partt` to its end; options are those of `start_partt`."""
    return _ended(start_partt(words, **options))


def run_program(text: str) -> "subprocess.CompletedProcess[str]":
    """Run a Python program to its end, as `python -c` does."""
    if ".show(" in text:  # uproot's prints to what was the output when uproot was imported
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)

    def work() -> int:
        sys.path.insert(0, "")
        warnings.simplefilter("default")  # pytest makes them errors
        exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - that is the purpose
        return 0

    return _ended(start_forked(work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def _ended(process: "subprocess.Popen[Any]") -> "subprocess.CompletedProcess[Any]":
    with process:
        output, errors = process.communicate(timeout=200)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)
