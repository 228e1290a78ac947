"""`partt simulate` as a function: keep what is complete, make the rest, record it."""

from dataclasses import dataclass, replace

from partt.atomic_files import remove_leftovers
from partt.errors import OutputError
from partt.simulation.manifest import locked, open_manifest, save_manifest, settings_of
from partt.simulation.production import Production, Progress, missing_files, plan
from partt.simulation.workers import RERUN, make_here, make_in_processes, make_on_cluster


@dataclass(frozen=True)
class Outcome:
    """What a run found and made."""

    files_kept: int
    files_made: int
    jets_made: int


def simulate(
    production: Production,
    num_processes: int = 1,
    scheduler: str | None = None,
    progress: Progress = lambda _name, _num_done: None,
) -> Outcome:
    """Make the files of a production that are not there yet.

    `progress` is called with a file's name and the jets made for it so far; first, with an empty name,
    with the jets of all files that were kept.
    """
    production = replace(production, out=production.out.absolute())
    tasks = plan(production)
    selection = production.selection
    settings = settings_of(
        production.seed,
        production.jets_per_file,
        selection.pt_min,
        selection.pt_max,
        production.detector.fingerprint,
    )
    with locked(production.out):
        manifest = open_manifest(production.out, settings, [task.name for task in tasks])
        missing = missing_files(production, manifest)
        progress("", sum(task.num_jets for task in set(tasks) - set(missing)))
        for task in missing:
            remove_leftovers(production.out / task.name)
        if not missing:
            return Outcome(len(tasks), 0, 0)
        if scheduler is not None:
            finished = make_on_cluster(production, missing, scheduler, progress)
        elif num_processes > 1:
            finished = make_in_processes(production, missing, num_processes, progress)
        else:
            finished = make_here(production, missing, progress)
        try:
            for task, record in finished:
                manifest = manifest.with_file(task.name, record)
                save_manifest(production.out, manifest)
        except OutputError as error:
            if RERUN in str(error):
                raise
            raise OutputError(f"{error}; {RERUN}") from error
    return Outcome(len(tasks) - len(missing), len(missing), sum(task.num_jets for task in missing))
