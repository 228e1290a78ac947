"""Share of weaver-core's data configs that partt loads, and why it refuses the others.

Takes folders of YAML files and looks at each distinct file that has `inputs`. The first folder level counts
as a repository. Nothing is read but the configs. weaver-core's `DataConfig.load` is called with libyaml
instead of PyYAML's parser, which takes half a minute for 2 MB.

usage: python benchmarks/weaver_configs.py FOLDER [FOLDER ...] [--json FILE]
"""

import argparse
import hashlib
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

MAX_SECONDS = 60  # for one config


def load_with_weaver(path: str) -> None:
    """Load a config as weaver-core does."""
    from weaver.utils.data.config import DataConfig

    DataConfig.load(path)


def load_with_partt(path: str) -> None:
    """Load a config as partt does."""
    from partt.data.config.data_config import load_data_config

    load_data_config(path)


LOADERS: dict[str, Callable[[str], None]] = {"weaver": load_with_weaver, "partt": load_with_partt}


def work(program: str) -> None:
    """Load the configs whose paths come through standard input; print one line for each."""
    import logging
    import warnings

    logging.disable()
    warnings.simplefilter("ignore")
    yaml.safe_load = lambda stream: yaml.load(stream, Loader=yaml.CSafeLoader)

    def too_slow(*_: object) -> None:
        raise TimeoutError(f"takes more than {MAX_SECONDS} s")

    signal.signal(signal.SIGALRM, too_slow)
    for line in sys.stdin:
        error = None
        signal.alarm(MAX_SECONDS)
        try:
            LOADERS[program](line.rstrip("\n"))
        except Exception as caught:  # noqa: BLE001 - each of them is a refusal
            expected = type(caught).__name__ == "ConfigError"
            error = str(caught) if expected else f"{type(caught).__name__}: {caught}"
        signal.alarm(0)
        print(json.dumps(error), flush=True)


def load_all(program: str, paths: list[Path]) -> list[str | None]:
    """Load configs in a process of its own; return the error of each, None for those that load."""
    errors: list[str | None] = []
    while len(errors) < len(paths):
        done = subprocess.run(
            [sys.executable, __file__, "--worker", program],
            input="".join(f"{path}\n" for path in paths[len(errors) :]),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        errors += [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode:
            errors.append(f"the process ended with {done.returncode}")
    return errors


def find_configs(folders: list[Path]) -> Iterator[tuple[str, Path]]:
    """Yield (repository, path) of each distinct YAML file that has `inputs`."""
    seen = set()
    for folder in folders:
        for path in sorted(file for pattern in ("*.yaml", "*.yml") for file in folder.rglob(pattern)):
            content = path.read_bytes()
            digest = hashlib.sha256(content).digest()
            try:
                data = yaml.load(content, Loader=yaml.CSafeLoader)
            except (yaml.YAMLError, ValueError):
                continue
            if digest not in seen and isinstance(data, dict) and "inputs" in data:
                seen.add(digest)
                yield path.relative_to(folder).parts[0], path


def causes(error: str) -> set[str]:
    """Return the shapes of the messages of an error: without places, names and numbers."""
    shapes = set()
    for line in error.splitlines():
        text = re.sub(r"^\S*?\.ya?ml(:\d+)?: ", "", line)
        text = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "...", text)
        text = re.sub(r"^([a-z_]+)[\w.\[\]-]*: ", r"\1: ", text)
        text = re.sub(r"-?\b\d[\d.e+-]*\b", "N", text)
        if not text.startswith("and N more"):
            shapes.add(text[:150])
    return shapes


def summarise(configs: list[tuple[str, Path]], errors: dict[str, list[str | None]]) -> dict[str, Any]:
    """Count the configs that weaver loads, those that partt loads as well, and the causes of refusals."""
    repositories: dict[str, Counter[str]] = {}
    refusals: dict[str, list[tuple[str, Path]]] = {}
    for (repository, path), by_weaver, by_partt in zip(
        configs, errors["weaver"], errors["partt"], strict=True
    ):
        counts = repositories.setdefault(repository, Counter(configs=0, weaver=0, both=0, partt=0))
        counts.update(configs=1, weaver=by_weaver is None, partt=by_partt is None)
        counts["both"] += by_weaver is None and by_partt is None
        if by_weaver is None and by_partt is not None:
            for cause in causes(by_partt):
                refusals.setdefault(cause, []).append((repository, path))
    total = sum(repositories.values(), Counter())
    shares = [counts["both"] / counts["weaver"] for counts in repositories.values() if counts["weaver"]]
    return {
        "configs": total["configs"],
        "loaded by weaver": total["weaver"],
        "loaded by both": total["both"],
        "loaded by partt only": total["partt"] - total["both"],
        "share": total["both"] / total["weaver"] if total["weaver"] else None,
        "share averaged over repositories": sum(shares) / len(shares) if shares else None,
        "repositories": {name: dict(counts) for name, counts in repositories.items()},
        "refusals": [
            {"cause": cause, "configs": len(found), "repositories": len({name for name, _ in found}),
             "example": str(found[0][1])}
            for cause, found in sorted(refusals.items(), key=lambda item: -len(item[1]))
        ],
    }  # fmt: skip


def show(summary: dict[str, Any]) -> None:
    """Print the summary as tables."""
    console = Console()
    table = Table("repository", "configs", "loaded by weaver", "by both", "by partt only")
    for name, counts in summary["repositories"].items():
        numbers = counts["configs"], counts["weaver"], counts["both"], counts["partt"] - counts["both"]
        table.add_row(name, *map(str, numbers))
    keys = ("configs", "loaded by weaver", "loaded by both", "loaded by partt only")
    table.add_section()
    table.add_row("all", *(str(summary[key]) for key in keys))
    console.print(table)
    if summary["loaded by weaver"]:
        console.print(
            f"of the configs that weaver loads, partt loads {summary['share']:.1%}; averaged over "
            f"repositories {summary['share averaged over repositories']:.1%}"
        )
    if summary["refusals"]:
        table = Table("cause of refusal", "configs", "repositories", "example")
        for refusal in summary["refusals"]:
            counted = (str(refusal[key]) for key in ("configs", "repositories"))
            table.add_row(refusal["cause"], *counted, Path(refusal["example"]).name)
        console.print(table)


def main() -> None:
    """Load the configs of the given folders with both programs, and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to this file")
    parser.add_argument("--worker", choices=LOADERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker)
        return
    if not arguments.folders:
        parser.error("give at least one FOLDER")
    configs = list(find_configs(arguments.folders))
    errors = {program: load_all(program, [path for _, path in configs]) for program in LOADERS}
    summary = summarise(configs, errors)
    show(summary)
    if arguments.json:
        arguments.json.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
