"""Progress as users see it, in terminals of any width and in files."""

import argparse
import io
import os
import pty
import re
import subprocess
import sys

import pytest
from rich.console import Console

from partt.cli import screen
from partt.cli.arguments import count, fraction, positive
from partt.cli.screen import LiveLine, duration, progress_bar

DETAILS = "loss 1.4013, accuracy 0.4715, lr 4.29e-04, 649 jets/s, 0% waiting, 0:00:03 left"


def drawn(width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(screen._Bar("epoch 3/50", 0.37, DETAILS))
    return console.file.getvalue().splitlines()


def test_a_wide_terminal_has_everything_in_one_line():
    (line,) = drawn(120)
    assert re.fullmatch(rf"epoch 3/50 [━╸ ]{{{120 - 12 - len(DETAILS)}}} {re.escape(DETAILS)} *", line)


def test_tables_are_divided_where_they_do_not_fit():
    console = Console(width=80, file=io.StringIO(), color_system=None)
    columns = [(f"model {number}", ["0.8612 ± 0.0034", "10,600 +1,400 −1,100 [61]"]) for number in range(7)]
    for table in screen.fitting_tables(console, ["Accuracy", "Hbb Rej 50%"], columns, title="results"):
        console.print(table)
    printed = console.file.getvalue()
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    assert printed.count("10,600 +1,400 −1,100 [61]") == 7
    assert printed.count("results") == 4


@pytest.mark.parametrize("width", [80, 40, 20])
def test_a_narrow_terminal_has_the_details_below_and_loses_nothing(width):
    bar, *rest = drawn(width)
    assert bar.startswith("epoch 3/50 ━")
    assert max(map(len, [bar, *rest])) <= width
    assert " ".join(" ".join(rest).split()) == DETAILS
    assert len(rest) == 1 or width < 80


def test_plain_lines_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(screen, "PATIENCE", 0.0)
    with progress_bar("checking", unit="files") as update:
        update(2, 10)
        update(3, 10)  # too soon for another line
    assert capsys.readouterr().err == "checking: 2 of 10 files\n"


def test_short_work_shows_nothing(capsys):
    with progress_bar("checking", unit="files") as update:
        update(10, 10)
    assert capsys.readouterr().err == ""


def test_speed_and_time_left_leave_out_what_was_there_before(monkeypatch):
    shown, now = [], iter([100.0, 100.0, 110.0])
    monkeypatch.setattr(screen.time, "monotonic", lambda: next(now, 110.0))
    monkeypatch.setattr(LiveLine, "show", lambda *arguments: shown.append(arguments[-1]))
    with progress_bar("simulating", unit="jets") as update:
        update(1000, 5000)
        update(1500, 5000)
    assert shown[-1] == "1,500 of 5,000 jets, 50 jets/s, 0:01:10 left"


SCRIPT = """
import time
from partt.cli import screen
screen.PATIENCE = 0.0
screen.DRAW_EVERY = 0.0
with screen.LiveLine() as line:
    for step in range(3):
        line.show("epoch 1/1", step, 3, "some details")
        print(f"row {step}", flush=True)
"""


@pytest.mark.parametrize("to_file", [False, True])
def test_rows_go_above_the_live_line_or_into_the_file(tmp_path, to_file):
    main_end, terminal = pty.openpty()
    with (tmp_path / "log").open("w") as log:
        stdout = log if to_file else terminal
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "60"}
        command = [sys.executable, "-c", SCRIPT]
        subprocess.run(command, stdout=stdout, stderr=terminal, env=environment, check=True, timeout=200)
    os.close(terminal)
    seen = b""
    try:
        while chunk := os.read(main_end, 4096):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    os.close(main_end)
    rows = "row 0\nrow 1\nrow 2\n"
    assert (tmp_path / "log").read_text() == (rows if to_file else "")
    assert b"epoch 1/1" in seen
    assert (b"row 2" in seen) != to_file
    assert seen.rfind(b"\x1b[?25h") > seen.rfind(b"\x1b[?25l")  # the cursor is not hidden


def test_numbers_of_the_command_line():
    assert (count("0"), positive("3"), fraction("0.25")) == (0, 3, 0.25)
    for parse, text in ((count, "-1"), (count, "x"), (positive, "0"), (fraction, "1"), (fraction, "nan")):
        with pytest.raises(argparse.ArgumentTypeError, match="must be a"):
            parse(text)


def test_durations():
    assert duration(3661.4) == "1:01:01"
