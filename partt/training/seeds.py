"""`partt train --seeds`: the same training with several seeds, one after another."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev
from typing import Any

from partt.errors import ConfigError
from partt.jobs.devices import choose_device
from partt.tagger.loading import SEED
from partt.training.distributed import connected, world_from_environment
from partt.training.events import Notice, Report
from partt.training.fit import FitResult
from partt.training.recipe import Recipe
from partt.training.run_folder import RunFolder
from partt.training.train import Files, default_folder, train


@dataclass(frozen=True)
class SeedsResult:
    """How the runs of several seeds ended; those after one that was stopped were not started."""

    runs: tuple[FitResult, ...]

    @property
    def stopped(self) -> bool:
        """Whether a signal stopped the last one."""
        return self.runs[-1].stopped


def train_seeds(
    recipe: str | Path | Recipe,
    files: Files,
    *,
    num_seeds: int,
    seed: int = 1,
    out: str | Path | None = None,
    device: str = "auto",
    report: Report | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    **options: Any,
) -> SeedsResult:
    """Train with `seed` and the next ones, in folders seed_1, seed_2, ... of `out`; stop after a signal.

    Options are those of `train`. With `resume`, trainings that are complete end at once.
    """
    folder = Path(out) if out is not None else default_folder(recipe)
    if os.path.lexists(RunFolder(folder).definition):
        raise ConfigError(f"{folder} contains a single run; choose another --out for several seeds")
    world = world_from_environment()
    results: list[FitResult] = []
    note = report if report is not None and world.is_first else lambda _: None
    with connected(world, choose_device(device, world.local_rank if world.size > 1 else None)):
        for number in range(num_seeds):
            own = folder / f"{SEED}{seed + number}"
            note(Notice(f"seed {seed + number}, {number + 1} of {num_seeds}: {own}"))
            result = train(
                recipe,
                files,
                seed=seed + number,
                out=own,
                device=device,
                report=report,
                should_stop=should_stop,
                **options,
            )
            results.append(result)
            if result.stopped:
                break
    found = SeedsResult(tuple(results))
    if not found.stopped:
        note(Notice(_summary(results)))
    return found


def _summary(results: list[FitResult]) -> str:
    """Return median and standard deviation of the best epochs."""
    values = [result.state.best_value for result in results if result.state.best_value is not None]
    spread = f" ± {stdev(values):.4f} (median and standard deviation)" if len(values) > 1 else ""
    return f"{len(values)} seeds: validation {results[0].metric} {median(values):.4f}{spread}"
