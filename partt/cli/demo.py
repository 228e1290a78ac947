"""`partt demo`: simulate, train, predict and evaluate, with the commands that a user would give."""

import argparse
import shlex
from pathlib import Path

from partt.errors import ConfigError

JETS = 300  # of each class: with two cores, four minutes for everything
TEST_SHARE = 0.3

EPILOG = """\
examples:
  partt demo
  partt demo --offline

The demo ends with the report and the commands that made it. Interrupted, it goes on when it is given again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = EPILOG
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for everything (default: demo, or demo/offline)"
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="no simulation: share out the jets of the sample that partt ships, few as they are",
    )


def run(options: argparse.Namespace) -> int:
    """Run the commands one after another, and name them at the end."""
    from partt.cli.main import parse

    out = options.out or Path("demo/offline" if options.offline else "demo")
    commands = demo_commands(out)
    if options.offline:
        commands = commands[1:]
        _share_out_sample(out)
    else:
        _require_simulation()
    try:
        for number, words in enumerate(commands, start=1):
            print(f"\n[{number}/{len(commands)}] partt {shlex.join(words)}", flush=True)
            asked = parse(words)
            code = int(asked.run(asked) or 0)
            if code:
                print(f"`{options.command}` goes on from here")
                return code
    except KeyboardInterrupt:
        print(f"\n`{options.command}` goes on from here")
        raise
    print("\nThe commands that made it:")
    for words in commands:
        print(f"  partt {shlex.join(words)}")
    print(f"\nThe report is {(out / 'report' / 'report.html').absolute()}")
    return 0


def demo_commands(out: Path) -> list[list[str]]:
    """Return the words of each command: simulate, train, predict, evaluate."""
    jets, run_folder, scores = f"{out}/jets", f"{out}/run", f"{out}/scores"
    split = f"train={1 - TEST_SHARE},test={TEST_SHARE}"
    return [
        ["simulate", "--out", jets, "--jets", str(JETS), "--jobs", "2", "--split", split],
        ["train", "quick", "--train", f"{jets}/train/*.root", "--val-fraction", "0.1", "--out", run_folder,
         "--threads", "1", "--resume"],
        ["predict", "--tagger", run_folder, f"{jets}/test/*.root", "--out", scores],
        ["evaluate", f"{scores}/*.root", "--name", "quick", "--run", run_folder, "--out", f"{out}/report"],
    ]  # fmt: skip


def _require_simulation() -> None:
    try:
        import partt.simulation.simulate  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the demo simulates jets, and {error.name} is missing: pip install 'partt[simulate]', "
            "or give --offline to use the few jets that partt ships"
        ) from error


def _share_out_sample(out: Path) -> None:
    from partt.sample.split import split_sample

    num_train, num_test = split_sample(out / "jets", TEST_SHARE)
    print(
        f"{out}/jets: {num_train} jets of the sample to train with, {num_test} others to test; so few that "
        "the results show how partt works, not how well a tagger can do"
    )
