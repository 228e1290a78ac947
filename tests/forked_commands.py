"""Commands in forked processes: like those of `python -m partt`, but without seconds of imports for each."""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import partt.evaluation.evaluate
import partt.prediction.predict
import partt.simulation.simulate
import partt.training.train  # noqa: F401 - all verbs: loaded once, not in every process
from partt.cli.main import main

MAX_DESCRIPTORS = 4096


def start_partt(
    words: Sequence[str], prepare: Callable[[], object] = lambda: None, **options: Any
) -> "subprocess.Popen[Any]":
    """Start `partt` in a forked process, after `prepare`; options are those of subprocess.Popen."""

    def run() -> None:
        code = 1
        try:
            os.closerange(3, MAX_DESCRIPTORS)  # the parent waits for this, as for a program that starts
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            if options.get("env") is not None:
                os.environ.clear()
                os.environ.update(options["env"])
            sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
            prepare()
            code = main(words)
        except BaseException:  # noqa: BLE001 - as an interpreter does it
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)

    return subprocess.Popen(["partt", *words], preexec_fn=run, **options)  # noqa: PLW1509 - one thread


def run_partt(words: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
    """Run `partt` in a forked process to its end; options are those of `start_partt`."""
    with start_partt(words, **options) as process:
        output, errors = process.communicate(timeout=100)
    return subprocess.CompletedProcess(words, process.returncode, output, errors)
