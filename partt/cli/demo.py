"""`partt demo`: simulate, train, predict and evaluate, with the commands that a user would type."""

import argparse
import shlex
from pathlib import Path

from partt.errors import ConfigError

JETS = 300  # of each class: four minutes for the whole demo on two cores
TEST_FRACTION = 0.3

EPILOG = """\
examples:
  partt demo
  partt demo --offline

The demo ends with a report and the commands that made it. An interrupted demo continues when it is run again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = EPILOG
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder for everything (default: demo, or demo/offline)"
    )
    parser.add_argument(
        "--offline",
        action="store_true",
        help="do not simulate: use the small sample that comes with partt",
    )


def run(options: argparse.Namespace) -> int:
    """Run the commands one after another, and list them at the end."""
    from partt.cli.main import parse

    out = options.out or Path("demo/offline" if options.offline else "demo")
    commands = demo_commands(out)
    if options.offline:
        commands = commands[1:]
        _split_sample(out)
    else:
        _require_simulation()
    try:
        for number, words in enumerate(commands, start=1):
            print(f"\n[{number}/{len(commands)}] partt {shlex.join(words)}", flush=True)
            parsed = parse(words)
            code = int(parsed.run(parsed) or 0)
            if code:
                print(f"`{options.command}` continues from here")
                return code
    except KeyboardInterrupt:
        print(f"\n`{options.command}` continues from here")
        raise
    print("\nThe commands that made it:")
    for words in commands:
        print(f"  partt {shlex.join(words)}")
    print(f"\nThe report is {(out / 'report' / 'report.html').absolute()}")
    return 0


def demo_commands(out: Path) -> list[list[str]]:
    """Return the commands as lists of words: simulate, train, predict, evaluate."""
    jets, run_folder, scores = f"{out}/jets", f"{out}/run", f"{out}/scores"
    split = f"train={1 - TEST_FRACTION},test={TEST_FRACTION}"
    return [
        ["simulate", "--out", jets, "--jets", str(JETS), "--workers", "2", "--split", split],
        ["train", "quick", "--train", f"{jets}/train/*.root", "--val-fraction", "0.1", "--out", run_folder,
         "--threads", "1", "--resume"],
        ["predict", "--tagger", run_folder, f"{jets}/test/*.root", "--out", scores],
        ["evaluate", f"{scores}/*.root", "--name", "quick", "--run", run_folder, "--out", f"{out}/report"],
    ]  # fmt: skip


def _require_simulation() -> None:
    try:
        import partt.simulation.simulate  # noqa: F401
    except ConfigError as error:
        raise ConfigError(
            f"the demo simulates jets, and {error}, "
            "or give --offline to use the small sample that comes with partt"
        ) from error


def _split_sample(out: Path) -> None:
    from partt.sample.split import split_sample

    num_train, num_test = split_sample(out / "jets", TEST_FRACTION)
    print(
        f"{out}/jets: {num_train} jets of the sample for training, {num_test} for testing: enough to show "
        "how partt works, too few to show how well a tagger can do"
    )
