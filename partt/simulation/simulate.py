"""`partt simulate` as a function: keep complete files, make the missing ones, list all in a manifest."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from partt.atomic_files import remove_leftovers
from partt.errors import ConfigError, OutputError
from partt.jobs.notebook_bar import notebook_progress
from partt.jobs.progress import Progress
from partt.jobs.stop_signals import StoppedError
from partt.simulation.processes import LABELS

try:
    from partt.simulation.card import load_detector
    from partt.simulation.manifest import locked, open_manifest, save_manifest
    from partt.simulation.pipeline import JetSelection
    from partt.simulation.production import FileTask, Production, files_of, missing_files
    from partt.simulation.workers import make_files
except ModuleNotFoundError as error:
    raise ConfigError(f"{error.name} is missing: pip install 'partt[simulate]'") from error

RERUN = "complete files are kept; the same command makes the rest"


@dataclass(frozen=True)
class SimulateResult:
    """Number of files and jets made, and of files that were complete before."""

    folder: Path
    files_kept: int
    files_made: int
    jets_made: int
    seconds: float
    stopped: bool  # before the end

    @property
    def jets_per_second(self) -> float | None:
        """Jets made per second; None if all files were complete."""
        return self.jets_made / self.seconds if self.jets_made else None


def simulate(
    out: str | Path,
    *,
    jets: int,
    classes: Sequence[str] = LABELS,
    jets_per_file: int = 10_000,
    split: Mapping[str, float] | None = None,
    pt_min: float = 500.0,
    pt_max: float = 1000.0,
    seed: int = 1,
    card: str | Path | None = None,
    extra: Sequence[str] = (),
    mass_range: tuple[float, float] | None = None,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SimulateResult:
    """Make ROOT files of JetClass-style jets in the folder `out`, `jets` of each class, and simulation.json.

    Complete files are kept: more `jets` or `classes` extend a folder made with the same settings. `split`
    (folder -> fraction) divides the jets between folders inside `out`. pT in GeV. `card` is a detector card
    (default: that of JetClass). `extra` adds branches to those of JetClass: "vertices", "generator" or both.
    With a `mass_range` (GeV), masses of H, W and Z bosons are drawn from a flat distribution. Files are made
    by `workers` processes on this machine, or on the dask cluster of `scheduler`; the jets are the same. A
    script that uses several workers needs the usual `if __name__ == "__main__":`.
    """
    if workers < 1 or (scheduler is not None and workers > 1):
        raise ConfigError("give a number of workers on this machine (at least 1), or a dask scheduler")
    production = Production(
        out=Path(out).absolute(),
        num_jets=jets,
        labels=tuple(classes),
        jets_per_file=jets_per_file,
        splits=split,
        selection=JetSelection(pt_min, pt_max),
        seed=seed,
        detector=load_detector(card),
        extras=tuple(extra),
        mass_range=mass_range,
    )
    shown = progress or notebook_progress("simulating", "jets")
    start = time.monotonic()
    files = files_of(production)
    with locked(production.out):
        manifest = open_manifest(production.out, production.settings, [file.name for file in files])
        missing = missing_files(production, manifest)
        kept = jets * len(classes) - sum(file.num_jets for file in missing)
        jets_made = {"": kept}  # file name -> jets; "": those of kept files

        def report(name: str, num_jets: int) -> None:
            if should_stop():
                raise StoppedError
            jets_made[name] = num_jets
            shown(sum(jets_made.values()), jets * len(classes))

        made: list[FileTask] = []
        stopped = False
        try:
            report("", kept)
            for file in missing:
                remove_leftovers(production.out / file.name)
            finished = make_files(
                production, missing, workers, scheduler, progress=report, should_stop=should_stop
            )
            for file, entry in finished:
                manifest = manifest.with_file(file.name, entry)
                save_manifest(production.out, manifest)
                made.append(file)
        except StoppedError:
            stopped = True
        except OutputError as error:
            raise OutputError(f"{error}; {RERUN}") from error
    seconds = time.monotonic() - start
    num_made = sum(file.num_jets for file in made)
    return SimulateResult(Path(out), len(files) - len(missing), len(made), num_made, seconds, stopped)
